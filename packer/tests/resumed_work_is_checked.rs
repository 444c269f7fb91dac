//! A command goes on with an unfinished pack only if it is ours and whole. The pack ends on the
//! disk if that is asked for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{faults, left_out, names, noise, program, run, run_well, stderr_of, tree, write};

/// Source, destination, and the folder of unfinished work with some shards complete.
fn killed(temp: &Path, more: &[&str]) -> (PathBuf, PathBuf, PathBuf) {
    let (source, out) = (temp.join("images"), temp.join("out"));
    for number in 0..400u64 {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &source, &out];
    args.extend(OPTIONS.iter().chain(more).map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    // The packer may be faster than the kill: then it begins again.
    loop {
        let mut child = program(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            let partial = names(temp).into_iter().find(|name| name.starts_with("out.part-"));
            if let Some(partial) = partial.map(|name| temp.join(name))
                && names(&partial).iter().filter(|name| name.ends_with(".done")).count() > 3
            {
                child.kill().unwrap();
                if !child.wait().unwrap().success() {
                    return (source, out, partial);
                }
            }
        }
        fs::remove_dir_all(&out).unwrap();
    }
}

const OPTIONS: [&str; 5] = ["--shard-size", "4KiB", "--jobs", "1", "-q"];

fn create_again(source: &Path, out: &Path) -> std::process::Output {
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &source, &out];
    args.extend(OPTIONS.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    run(&args)
}

/// A shard that the killed run has completed.
fn complete_shard(partial: &Path) -> PathBuf {
    let done = names(partial).into_iter().find_map(|name| name.strip_suffix(".done").map(str::to_owned));
    partial.join(done.unwrap())
}

#[test]
fn a_complete_shard_that_changed_is_packed_again() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, partial) = killed(temp.path(), &[]);
    let shard = complete_shard(&partial);
    let mut bytes = fs::read(&shard).unwrap();
    bytes[700] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let output = create_again(&source, &out);
    assert!(output.status.success(), "{output:?}");
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn a_finished_split_that_changed_is_packed_again() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, partial) = killed(temp.path(), &[]);
    // All except the last rename: what a kill just before it leaves.
    assert!(create_again(&source, &out).status.success());
    fs::rename(&out, &partial).unwrap();
    let whole = tree(&partial);
    let shard = partial.join("shard-000003.tar");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[700] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let output = create_again(&source, &out);
    assert!(output.status.success(), "{output:?}");
    assert!(tree(&out) == whole);
}

#[test]
fn unfinished_work_behind_a_link_or_of_another_user_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, partial) = killed(temp.path(), &[]);
    let planted = temp.path().join("planted");
    fs::rename(&partial, &planted).unwrap();
    symlink(&planted, &partial).unwrap();
    let before = tree(&planted);
    let output = create_again(&source, &out);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text.contains("is no directory") && text.contains(partial.to_str().unwrap()), "{text}");
    assert!(tree(&planted) == before && !out.exists());
    fs::remove_file(&partial).unwrap();
    fs::rename(&planted, &partial).unwrap();
    if !rustix::process::geteuid().is_root() {
        return left_out("only root makes files of another user");
    }
    std::os::unix::fs::chown(&partial, Some(65534), None).unwrap();
    let output = create_again(&source, &out);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr_of(&output).contains("belongs to user 65534, not 0"), "{output:?}");
    assert!(!out.exists());
}

#[test]
fn shards_of_a_run_that_did_not_sync_are_synced_by_one_that_does() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, partial) = killed(temp.path(), &["--no-sync"]);
    let shard = complete_shard(&partial);
    let notes = temp.path().join("synced");
    let mut command = program(&[&"create", &source, &out]);
    command.args(OPTIONS).env("LD_PRELOAD", faults(temp.path())).env("SHADE_TEST_SYNCED", &notes);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let synced = fs::read_to_string(&notes).unwrap();
    let record = format!("{}.done", shard.display());
    for path in [shard.to_str().unwrap(), &record] {
        assert!(synced.lines().any(|line| line == path), "{path} was not synced:\n{synced}");
    }
    // Every shard, by this name or as it was called before.
    for number in 0..names(&out).iter().filter(|name| name.ends_with(".tar")).count() {
        let name = format!("shard-{number:06}.tar");
        assert!(synced.contains(&name), "{name} was not synced");
    }
}
