//! An error that a store tells when a file is closed, such as that there is no room, ends a command
//! that wrote to it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;

use crate::support::{faults, names, noise, program, run_well, stderr_of, write};

/// Runs the program where closing files whose paths have `part` in them fails.
fn run_full(temp: &Path, part: &str, args: &[&dyn AsRef<OsStr>]) -> Output {
    program(args).env("LD_PRELOAD", faults(temp)).env("SHADE_TEST_FAIL_CLOSE", part).output().unwrap()
}

#[test]
fn a_pack_that_the_store_refuses_when_closed_is_not_published() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..40u64 {
        write(&source.join(format!("{}/{number:02}.png", number % 3)), &noise(number, 900));
    }
    for part in ["shard-000000.tar.part-", ".done.part-", "dataset.times.part-", "dataset.shade.part-"] {
        let output = run_full(temp.path(), part, &[&"create", &source, &out, &"--no-sync", &"-q"]);
        assert_eq!(output.status.code(), Some(1), "{part}: {output:?}");
        let text = stderr_of(&output);
        assert!(text.contains(part) && text.contains("quota"), "{text}");
        assert!(!out.exists());
    }
    run_well(&[&"create", &source, &out, &"--no-sync", &"-q"]);
    assert_eq!(names(temp.path()), ["faults.so", "images", "out"]);

    // append and extract write likewise.
    write(&source.join("0/99.png"), &noise(99, 900));
    let output =
        run_full(temp.path(), "shard-000001.tar.part-", &[&"append", &source, &out, &"--no-sync", &"-q"]);
    assert!(output.status.code() == Some(1) && stderr_of(&output).contains("quota"), "{output:?}");
    let back = temp.path().join("back");
    let output = run_full(temp.path(), "1/07.png", &[&"extract", &out, &back, &"-q"]);
    let text = stderr_of(&output);
    assert!(output.status.code() == Some(1) && text.contains("1/07.png") && text.contains("quota"), "{text}");
    assert!(!back.exists());
    run_well(&[&"extract", &out, &back, &"-q"]);
}

#[test]
fn a_shard_that_the_store_refuses_when_closed_stays_missing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..40u64 {
        write(&source.join(format!("{}/{number:02}.png", number % 3)), &noise(number, 900));
    }
    run_well(&[&"create", &source, &out, &"--no-sync", &"-q"]);
    let shard = out.join("shard-000000.tar");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::remove_file(&shard).unwrap();
    let create: [&dyn AsRef<OsStr>; 4] = [&"create", &source, &out, &"-q"];
    let output = run_full(temp.path(), "shard-000000.tar.part-", &create);
    let text = stderr_of(&output);
    assert!(output.status.code() == Some(1) && text.contains("quota"), "{output:?}");
    assert_eq!(names(&out), ["dataset.shade", "dataset.times"]);
    run_well(&create);
    assert!(std::fs::read(&shard).unwrap() == bytes);
}

#[test]
fn a_claim_that_there_was_no_room_for_is_not_in_the_way() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("a/1.png"), &noise(1, 900));
    let create: [&dyn AsRef<OsStr>; 5] = [&"create", &source, &out, &"--no-sync", &"-q"];
    // A claim is a file without a name while it is written, where there are such files.
    let mut refused = 0;
    for part in [" (deleted)", "out.changing"] {
        let mut full = program(&create);
        full.env("LD_PRELOAD", faults(temp.path())).env("SHADE_TEST_FAIL_WRITE", part);
        let output = full.output().unwrap();
        if output.status.success() {
            std::fs::remove_dir_all(&out).unwrap();
            continue;
        }
        let text = stderr_of(&output);
        assert!(output.status.code() == Some(1) && text.contains("No space left"), "{output:?}");
        assert!(text.contains("out.changing"), "{text}");
        assert_eq!(names(temp.path()), ["faults.so", "images"]);
        refused += 1;
    }
    assert_eq!(refused, 1);
    run_well(&create);
}
