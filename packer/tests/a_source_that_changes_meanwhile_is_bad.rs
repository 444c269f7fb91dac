//! A source that is written to while a command reads it is bad. Nothing torn is packed as whole.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::{halt, names, noise, program, run_well, stderr_of, tar_of};
use rustix::process::{Pid, Signal, kill_process};
use shade_formats::SampleId;
use shade_pack::dataset::Dataset;

/// Large enough that writing takes many times longer than a clock's tick.
const LARGE_BYTES: usize = 48 << 20;

/// Does `work` while another thread writes to a file, step by step.
fn written_meanwhile<T>(file: &Path, write: impl Fn(&File, usize) + Sync, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let file = File::options().write(true).open(file).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..).take_while(|_| !done.load(Ordering::Relaxed)).for_each(|step| write(&file, step))
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        worked
    })
}

#[test]
fn a_file_overwritten_at_equal_length_is_packed_whole_or_bad() {
    let temp = tempfile::tempdir().unwrap();
    let (source, large) = (temp.path().join("images"), temp.path().join("images/cat/large.png"));
    fs::create_dir_all(large.parent().unwrap()).unwrap();
    fs::write(&large, vec![0; LARGE_BYTES]).unwrap();
    let write = |file: &File, step: usize| {
        let (round, at) = (step / (LARGE_BYTES >> 20), step % (LARGE_BYTES >> 20));
        file.write_all_at(&vec![u8::try_from(round % 251).unwrap(); 1 << 20], (at as u64) << 20).unwrap();
    };
    let outputs = written_meanwhile(&large, write, || {
        [0, 1, 2, 3, 4].map(|round| {
            let out = temp.path().join(format!("out {round}"));
            let args: [&dyn AsRef<OsStr>; 7] =
                [&"create", &source, &out, &"--no-sync", &"--compress", &"none", &"-q"];
            (program(&args).output().unwrap(), out.clone())
        })
    });
    for (output, out) in outputs {
        if output.status.success() {
            let shard = fs::read(out.join("shard-000000.tar")).unwrap();
            let record = &shard[512..512 + LARGE_BYTES];
            assert!(record.iter().all(|byte| *byte == record[0]), "a torn record was packed");
            continue;
        }
        let text = stderr_of(&output);
        assert!(text.contains("large.png") && text.contains("changed while packing"), "{text}");
        assert!(!out.exists());
    }
}

/// Tars of small samples, many shards' worth.
fn tars(root: &Path, salt: u64) {
    for tar in 0..2u64 {
        let members: Vec<(String, Vec<u8>)> = (0..300u64)
            .flat_map(|n| {
                let key = format!("{salt}-{n:04}");
                [
                    (format!("{key}.bin.png"), noise(tar * 1000 + n, 3000)),
                    (format!("{key}.cls"), b"0".to_vec()),
                ]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        tar_of(&root.join(format!("{salt}-{tar}.tar")), &members);
    }
}

const SMALL: [&str; 7] = ["--shard-size", "8KiB", "--jobs", "1", "--in-flight", "1", "-q"];

/// Runs until there are some complete shards in a folder whose name begins so, and halts.
fn halted(mut command: Command, parent: &Path, folder: &str) -> Child {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    loop {
        let found =
            names(parent).into_iter().find(|name| name.starts_with(folder) && parent.join(name).is_dir());
        let done = found.map(|name| names(&parent.join(name))).unwrap_or_default();
        if done.iter().filter(|name| name.ends_with(".done")).count() > 3 {
            halt(&child);
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be halted");
    }
}

fn go_on(child: Child) -> Output {
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}

/// Writes to a tar in place, far behind what was read of it or before that.
fn overwrite(tar: &Path, at: u64) {
    let file = File::options().write(true).open(tar).unwrap();
    file.write_all_at(b"another byte", at).unwrap();
}

fn command(name: &str, source: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = program(&[&name, &source, &out]);
    command.args(more);
    command
}

#[test]
fn a_tar_that_is_written_to_during_the_run_is_bad() {
    let temp = tempfile::tempdir().unwrap();
    let [source, more, out] = ["tars", "more", "out"].map(|name| temp.path().join(name));
    tars(&source, 1);
    tars(&more, 2);
    let whole = temp.path().join("whole");
    run_well(&[&"create", &source, &whole, &"-q"]);
    for (name, on_bad) in [("create", "fail"), ("create", "skip"), ("part", "fail"), ("append", "skip")] {
        for at in [600, 700_000] {
            let (tar, begun) = match name {
                "append" => {
                    run_well(&[&"subset", &whole, &out, &"--fraction", &"1", &"--copy", &"-q"]);
                    let args = [&SMALL[..], &["--on-bad", on_bad, "--no-shuffle"]].concat();
                    (more.join("2-0.tar"), command("append", &more, &out, &args))
                }
                "part" => {
                    let args = ["--shard-size", "8KiB", "--no-shuffle", "-q"];
                    assert!(command("plan", &source, &out, &args).status().unwrap().success());
                    let args = ["--part", "0/1", "--jobs", "1", "--in-flight", "1", "-q"];
                    (source.join("1-0.tar"), command("create", &source, &out, &args))
                }
                _ => {
                    let args = [&SMALL[..], &["--on-bad", on_bad, "--no-shuffle"]].concat();
                    (source.join("1-0.tar"), command("create", &source, &out, &args))
                }
            };
            let index = fs::read(out.join("dataset.shade")).ok();
            let child = halted(begun, temp.path(), "out");
            overwrite(&tar, at);
            let output = go_on(child);
            let text = stderr_of(&output);
            let code = output.status.code();
            assert!(code == Some(1), "{name} {on_bad} {at}: {output:?}");
            assert!(text.contains(tar.file_name().unwrap().to_str().unwrap()), "{text}");
            assert!(text.contains("changed while packing"), "{text}");
            assert!(fs::read(out.join("dataset.shade")).ok() == index, "{name}: it was packed");
            if name == "part" {
                let finish = program(&[&"finish", &out, &"-q"]).output().unwrap();
                assert_eq!(finish.status.code(), Some(5), "{finish:?}");
            }
            for left in names(temp.path()).into_iter().filter(|left| left.starts_with("out")) {
                fs::remove_dir_all(temp.path().join(left)).unwrap();
            }
        }
    }
}

/// A tar whose time is set back after it was written to: the time of its last change of any kind
/// tells.
#[test]
fn a_time_that_is_set_back_hides_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["tars", "out"].map(|name| temp.path().join(name));
    tars(&source, 1);
    let tar = source.join("1-1.tar");
    let time = SystemTime::now() - Duration::from_secs(1000);
    let back = || File::options().write(true).open(&tar).unwrap().set_modified(time).unwrap();
    back();
    let child = halted(command("create", &source, &out, &SMALL), temp.path(), "out");
    overwrite(&tar, 700_000);
    back();
    let output = go_on(child);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr_of(&output).contains("changed while packing"), "{output:?}");
    assert!(!out.exists());
}

/// A file that was written to between two of its reads, by a process that knows when.
#[test]
fn diff_and_a_shard_made_again_tell_it_too() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out): (PathBuf, PathBuf) = (temp.path().join("images"), temp.path().join("out"));
    let large = source.join("cat/large.png");
    fs::create_dir_all(large.parent().unwrap()).unwrap();
    fs::write(&large, vec![7; LARGE_BYTES]).unwrap();
    run_well(&[&"create", &source, &out, &"--no-sync", &"--compress", &"none", &"-q"]);
    let entry = Dataset::open(&out).unwrap().index.entry(SampleId(0)).unwrap();
    assert_eq!(entry.raw_len as usize, LARGE_BYTES);
    // The same bytes again and again: only the times tell.
    let write = |file: &File, _| file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    let outputs = written_meanwhile(&large, write, || {
        let diff = program(&[&"diff", &source, &out, &"-q"]).output().unwrap();
        fs::remove_file(out.join("shard-000000.tar")).unwrap();
        [diff, program(&[&"create", &source, &out, &"-q"]).output().unwrap()]
    });
    for output in outputs {
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr_of(&output);
        assert!(output.status.code().is_some_and(|code| [1, 3].contains(&code)), "{output:?}");
        assert!(text.contains("changed while packing"), "{text}");
    }
    assert!(!out.join("shard-000000.tar").exists(), "it was made of a changing source");
}
