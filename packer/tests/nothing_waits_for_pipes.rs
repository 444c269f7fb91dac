//! A pipe, a device or a folder in the place of any file is named and never waited for. What a
//! command reads from standard input may be a pipe. A command that hangs ends by one signal.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{PROGRAM, names, noise, program, run, run_well, stderr_of, tar_of, write};
use rustix::process::{Pid, Signal, kill_process};

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn said(args: &[&dyn AsRef<OsStr>]) -> Output {
    let mut all = args.to_vec();
    all.push(&"-q");
    run(&all)
}

fn names_it(output: &Output, codes: &[i32], path: &str) {
    let text = [stderr_of(output), String::from_utf8_lossy(&output.stdout).into_owned()].concat();
    assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{output:?}");
    assert!(text.contains(path) && text.contains("a pipe"), "{path} in {text}");
}

fn dataset(temp: &Path) -> (PathBuf, PathBuf) {
    let (source, out) = (temp.join("images"), temp.join("out"));
    for number in 0..8u64 {
        write(&source.join(format!("{}/{number}.png", number % 2)), &noise(number, 900));
    }
    run_well(&[&"create", &source, &out, &"-q"]);
    (source, out)
}

#[test]
fn pipes_in_a_source_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let new = at("new");
    tar_of(&at("tars/x.tar"), &[("1.png", b"x"), ("1.cls", b"0")]);
    pipe(&at("tars/y.tar"));
    names_it(&said(&[&"create", &at("tars"), &new]), &[1], "y.tar");
    let kept = said(&[&"create", &at("tars"), &new, &"--on-bad", &"skip"]);
    names_it(&kept, &[4], "y.tar");
    pipe(&at("list.csv"));
    names_it(&said(&[&"create", &at("list.csv"), &at("other")]), &[1], "list.csv");
    fs::remove_file(at("list.csv")).unwrap();
    fs::write(at("list.csv"), "path,label\ntars/x.tar,0\n").unwrap();
    pipe(&at("labels.json"));
    let labels = said(&[&"create", &at("list.csv"), &at("other"), &"--labels", &at("labels.json")]);
    names_it(&labels, &[1], "labels.json");
    write(&at("images/cat/1.png"), b"x");
    pipe(&at("images/cat/2.png"));
    let output = said(&[&"create", &at("images"), &at("other")]);
    assert!(output.status.code() == Some(1) && stderr_of(&output).contains("cat/2.png"), "{output:?}");
    assert_eq!(names(temp.path()), ["images", "labels.json", "list.csv", "new", "tars"]);
}

#[test]
fn pipes_in_a_dataset_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = dataset(temp.path());
    let at = |name: &str| temp.path().join(name);
    for name in ["dataset.shade", "dataset.times", "dataset.changing"] {
        let kept = fs::read(out.join(name)).ok();
        pipe(&out.join(name));
        match name {
            "dataset.shade" => {
                for args in [
                    &[&"info" as &dyn AsRef<OsStr>, &out][..],
                    &[&"ls", &out],
                    &[&"verify", &out],
                    &[&"extract", &out, &at("back")],
                    &[&"merge", &at("merged"), &out],
                    &[&"subset", &out, &at("some"), &"--fraction", &"0.5"],
                    &[&"diff", &source, &out],
                    &[&"append", &source, &out],
                ] {
                    names_it(&run(args), &[1], name);
                }
            }
            "dataset.times" => names_it(&said(&[&"append", &source, &out]), &[1], name),
            _ => names_it(&said(&[&"append", &source, &out]), &[2], name),
        }
        fs::remove_file(out.join(name)).unwrap();
        kept.into_iter().for_each(|bytes| fs::write(out.join(name), bytes).unwrap());
    }
    let shard = out.join("shard-000000.tar");
    let bytes = fs::read(&shard).unwrap();
    pipe(&shard);
    names_it(&run(&[&"verify", &out]), &[3], "shard-000000.tar");
    for args in [
        &[&"extract" as &dyn AsRef<OsStr>, &out, &at("back")][..],
        &[&"subset", &out, &at("some"), &"--fraction", &"0.5", &"--copy"],
    ] {
        let output = said(args);
        assert!(!output.status.success() && stderr_of(&output).contains("shard-000000.tar"), "{output:?}");
    }
    for more in [&[][..], &["--link"]] {
        let output = program(&[&"merge", &at("merged"), &out, &"-q"]).args(more).output().unwrap();
        assert!(!output.status.success() && stderr_of(&output).contains("shard-000000.tar"), "{output:?}");
    }
    fs::remove_file(&shard).unwrap();
    let made = said(&[&"create", &source, &out]);
    assert!(made.status.success(), "{made:?}");
    assert!(fs::read(&shard).unwrap() == bytes);
    assert_eq!(names(temp.path()), ["images", "out"]);
}

#[test]
fn pipes_beside_a_destination_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = dataset(temp.path());
    let new = temp.path().join("new");
    pipe(&temp.path().join("new.changing"));
    for args in [
        &[&"create" as &dyn AsRef<OsStr>, &source, &new][..],
        &[&"plan", &source, &new],
        &[&"merge", &new, &out],
        &[&"subset", &out, &new, &"--fraction", &"0.5"],
        &[&"extract", &out, &new],
    ] {
        names_it(&said(args), &[2], "new.changing");
    }
    fs::remove_file(temp.path().join("new.changing")).unwrap();
    run_well(&[&"plan", &source, &new, &"-q"]);
    let work = names(temp.path()).into_iter().find(|name| name.starts_with("new.part-")).unwrap();
    let work = temp.path().join(work);
    pipe(&work.join("shard-000000.tar.done"));
    names_it(&said(&[&"create", &source, &new, &"--part", &"0/1"]), &[1], "shard-000000.tar.done");
    fs::remove_file(work.join("shard-000000.tar.done")).unwrap();
    pipe(&work.join("dataset.plan"));
    names_it(&said(&[&"create", &source, &new, &"--part", &"0/1"]), &[1], "dataset.plan");
    names_it(&said(&[&"finish", &new]), &[1], "dataset.plan");
    let ids = temp.path().join("ids");
    pipe(&ids);
    names_it(&said(&[&"subset", &out, &temp.path().join("some"), &"--ids", &ids]), &[1], "ids");
    fs::create_dir(temp.path().join("new.lists")).unwrap();
    pipe(&temp.path().join("new.lists/list-000000-of-000001"));
    names_it(&said(&[&"plan", &source, &new, &"--listed"]), &[1], "list-000000-of-000001");
}

#[test]
fn standard_input_and_substituted_processes_are_read() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = dataset(temp.path());
    for (number, ids) in ["-", "/dev/stdin", "<(echo 2)", "/dev/fd/0"].into_iter().enumerate() {
        let some = temp.path().join(format!("some {number}"));
        let script = format!("echo 2 | \"$0\" subset \"$1\" \"$2\" --ids {ids} -q");
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &script, PROGRAM]).arg(&out).arg(&some).output().unwrap();
        assert!(output.status.success(), "{ids}: {output:?}");
        assert!(run_well(&[&"info", &some]).contains("samples     1"), "{}", run_well(&[&"info", &some]));
    }
    let image = source.join("0/0.png");
    let script = format!("\"$0\" create <(printf 'path,label\\n{},a\\n') \"$1\" -q", image.display());
    let listed = temp.path().join("listed");
    let output = Command::new("bash").args(["-c", &script, PROGRAM]).arg(&listed).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run_well(&[&"verify", &listed, &"-q"]);
}

#[test]
fn one_signal_ends_a_command_that_waits_for_ever() {
    let temp = tempfile::tempdir().unwrap();
    let (_, out) = dataset(temp.path());
    for signal in [Signal::INT, Signal::TERM] {
        let some = temp.path().join("some");
        let mut command = program(&[&"subset", &out, &some, &"--ids", &"-", &"-q"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It reads, and nobody writes: it is in `read` once it has taken the first line.
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"1\n").unwrap();
        let waits = || {
            let of =
                |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
            let status = of("status");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
            let catches = u64::from_str_radix(caught, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1;
            // Other calls may have a first argument of 0, too, but none before it catches signals
            // that it is long in.
            catches && of("syscall").split(' ').nth(1) == Some("0x0")
        };
        while !waits() {
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(stderr_of(&output).contains("interrupted"), "{output:?}");
        drop(input);
    }
    assert_eq!(names(temp.path()), ["images", "out"]);
}
