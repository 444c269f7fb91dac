//! Errors and signals never leave half a dataset under its name, and never touch the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::support::{names, noise, program, run, run_well, stderr_of, tree, write};
use rustix::process::{Pid, Signal, kill_process};

/// Options for many small shards, so that a signal meets the packer in the middle.
fn many(source: &Path) {
    for number in 0..400u64 {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
}

/// Starts to pack and returns once the first shard is complete.
fn begin(source: &Path, out: &Path) -> Child {
    let args: &[&dyn AsRef<std::ffi::OsStr>] =
        &[&"create", &source, &out, &"--shard-size", &"4KiB", &"--jobs", &"1", &"-q"];
    let mut child = program(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let parent = out.parent().unwrap();
    let partial = |name: &String| name.starts_with("out.part-");
    // The program may end first, if this test gets no CPU time. Every test allows for that.
    while child.try_wait().unwrap().is_none() {
        let folder: Option<PathBuf> = names(parent).into_iter().find(partial).map(|name| parent.join(name));
        let complete = |folder: PathBuf| names(&folder).iter().any(|name| name.ends_with(".done"));
        if folder.is_some_and(complete) {
            break;
        }
        std::thread::yield_now();
    }
    child
}

#[test]
fn signals_end_with_130_and_keep_what_is_complete() {
    for signal in [Signal::INT, Signal::TERM] {
        let temp = tempfile::tempdir().unwrap();
        let (source, out) = (temp.path().join("images"), temp.path().join("out"));
        many(&source);
        let before = tree(&source);
        let child = begin(&source, &out);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(130));
            let text = stderr_of(&output);
            assert!(text.contains("interrupted") && text.contains("the same command goes on"), "{text}");
            let left = names(temp.path());
            assert!(left.len() == 2 && left[1].starts_with("out.part-"), "{left:?}");
            let unfinished = names(&temp.path().join(&left[1]));
            assert!(!unfinished.iter().any(|name| name.contains(".part-")), "{unfinished:?}");
            run_well(&[&"create", &source, &out, &"--shard-size", &"4KiB", &"-q"]);
        }
        run_well(&[&"verify", &out, &"-q"]);
        assert_eq!(names(temp.path()), ["images", "out"]);
        assert!(tree(&source) == before, "the source changed");
    }
}

#[test]
fn other_work_for_the_same_destination_is_refused_until_told_to_restart() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    many(&source);
    let mut child = begin(&source, &out);
    child.kill().unwrap();
    if child.wait().unwrap().success() {
        return;
    }
    let other = run(&[&"create", &source, &out, &"--seed", &"7", &"-q"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(stderr_of(&other).contains("--restart"), "{other:?}");
    run_well(&[&"create", &source, &out, &"--seed", &"7", &"--restart", &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    assert_eq!(names(temp.path()), ["images", "out"]);
}

#[test]
fn a_finished_command_given_again_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    many(&source);
    run_well(&[&"create", &source, &out, &"-q"]);
    let packed = tree(&out);
    assert!(run_well(&[&"create", &source, &out, &"-q"]).contains("nothing was written"));
    let other = run(&[&"create", &source, &out, &"--seed", &"1", &"-q"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(tree(&out) == packed);
    assert_eq!(names(temp.path()), ["images", "out"]);
}

#[test]
fn a_dry_run_writes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    many(&source);
    let text = run_well(&[&"create", &source, &out, &"--shard-size", &"64KiB", &"--dry-run", &"-q"]);
    assert!(text.contains("400 samples of 4 classes in 23 shards") && text.contains("nothing"), "{text}");
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn an_error_while_packing_names_the_path_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    fs::create_dir(source.join("cat/2.png")).unwrap();
    std::os::unix::fs::symlink("nothing", source.join("cat/3.png")).unwrap();
    let output = run(&[&"create", &source, &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("cat/3.png"), "{output:?}");
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn existing_destinations_and_nonsense_are_usage_errors() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    run_well(&[&"create", &source, &out, &"-q"]);
    let packed = tree(&out);
    let missing = temp.path().join("no/such/out");
    let inside = source.join("out");
    let other = temp.path().join("other");
    let cases: [(&[&dyn AsRef<std::ffi::OsStr>], &str); 10] = [
        (&[&"create", &source, &out, &"--seed", &"3"], "exists: remove it"),
        (&[&"extract", &out, &source], "exists: remove it"),
        (&[&"create", &source, &missing], "create it first"),
        (&[&"create", &source, &inside], "lies inside"),
        (&[&"create", &temp.path().join("nothing"), &other], "as a source"),
        (&[&"create", &source, &other, &"--shard-size", &"1"], "4KiB to 2TiB"),
        (&[&"create", &source, &other, &"--compress", &"gzip"], "is not 'auto'"),
        (&[&"create", &source, &other, &"--jobs", &"0"], "--jobs"),
        (&[&"create", &source, &other, &"--no-shuffle", &"--seed", &"1"], "cannot be used with"),
        (&[&"publish"], "unrecognized subcommand"),
    ];
    for (args, say) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains(say), "{} does not say {say}", stderr_of(&output));
        assert!(output.stdout.is_empty());
    }
    assert!(tree(&out) == packed);
    assert_eq!(names(temp.path()), ["images", "out"]);
}
