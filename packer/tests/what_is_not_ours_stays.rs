//! No command removes or overwrites what this program has not made, whatever it is called, and all
//! remove or go on with what killed runs have left.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{names, noise, program, run, run_well, stderr_of, tree, write};

const ID: &str = "0123456789abcdef";

fn images(source: &Path, count: u64) {
    for number in 0..count {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
}

/// Everything below a folder: bytes of files, where links lead, and folders.
fn everything(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let content = if kind.is_dir() {
                ahead.push(path.clone());
                b"folder".to_vec()
            } else if kind.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path, content);
        }
    }
    found
}

fn assert_stays(before: &BTreeMap<PathBuf, Vec<u8>>, folder: &Path, what: &str) {
    let now = everything(folder);
    for (path, content) in before {
        assert!(now.get(path) == Some(content), "{what}: {} is not what it was", path.display());
    }
}

fn command(args: &[&dyn AsRef<OsStr>]) -> Output {
    let mut all = args.to_vec();
    all.push(&"-q");
    run(&all)
}

/// Names beside `photos` that begin as those of its unfinished work do.
fn folders_of_the_user(beside: &Path, images_of_theirs: &Path, dataset: &Path) {
    for name in [
        "photos.part-",
        "photos.part-0",
        "photos.part-1",
        "photos.part-2",
        "photos.part-2024",
        "photos.part-4711+1",
        "photos.part-one",
        "photos.part-a",
        "photos.part-b.part-0123456789abcdef",
        "photos.part-0123456789abcde",
        "photos.part-0123456789abcdef",
        "photos.part-fedcba9876543210",
        "photos.part-0123456789abcdef0",
        "photos.part-0123456789ABCDEF",
        "photos.part-0123456789abcdef.old",
        "photos.part-\u{fc}",
        "photos.part",
        "photos.parts",
        "photos2.part-0123456789abcdef",
    ] {
        write(&beside.join(name).join("thesis.tex"), name.as_bytes());
    }
    write(&beside.join(format!("photos.part-{}", std::process::id())).join("a/thesis.tex"), b"mine");
    for name in [
        "photos.part-1.zip",
        "photos.part-3",
        "photos.part-00000000000000aa",
        "photos.part-00000000000000aa.done",
        "photos.done",
        "photos.tar.done",
    ] {
        write(&beside.join(name), name.as_bytes());
    }
    // What a pack makes, but no marker that names the folder.
    for (name, marker) in [("00000000000000bb", None), ("00000000000000bc", Some("photos.part-1"))] {
        let folder = beside.join(format!("photos.part-{name}"));
        write(&folder.join("shard-000000.tar"), b"theirs");
        write(&folder.join("shard-000000.tar.done"), b"theirs");
        if let Some(marker) = marker {
            let text = format!("shade-pack unfinished 1\n{marker}\nhost-{ID}-1-1\n");
            write(&folder.join("dataset.unfinished"), text.as_bytes());
        }
    }
    symlink(images_of_theirs, beside.join("photos.part-00000000000000cc")).unwrap();
    symlink(images_of_theirs, beside.join("photos.part-4")).unwrap();
    symlink("nowhere", beside.join("photos.part-5")).unwrap();
    // A finished dataset of this name, and the work of another one.
    run_well(&[&"create", &images_of_theirs, &dataset, &"-q"]);
    run_well(&[&"create", &images_of_theirs, &beside.join("photos.part-6"), &"-q"]);
    run_well(&[&"create", &images_of_theirs, &beside.join("photos.part-00000000000000dd"), &"-q"]);
    run_well(&[&"plan", &images_of_theirs, &beside.join("photos.part-c"), &"-q"]);
    run_well(&[&"plan", &images_of_theirs, &beside.join("photos.part-00000000000000ee"), &"-q"]);
}

#[test]
fn names_like_those_of_unfinished_work_are_the_users_own() {
    let temp = tempfile::tempdir().unwrap();
    let [theirs, dataset, work] = ["theirs", "dataset", "work"].map(|name| temp.path().join(name));
    images(&theirs, 8);
    images(&theirs.join("train"), 8);
    images(&theirs.join("val"), 8);
    fs::create_dir(&work).unwrap();
    folders_of_the_user(&work, &theirs, &dataset);
    let before = everything(temp.path());
    let out = work.join("photos");
    let source = work.join("photos.part-1");
    images(&source, 8);
    let with_source = everything(temp.path());
    let commands: &[&[&dyn AsRef<OsStr>]] = &[
        &[&"create", &theirs, &out],
        &[&"create", &theirs, &out, &"--restart"],
        &[&"create", &theirs, &out, &"--restart", &"--seed", &"9", &"--no-sync"],
        &[&"create", &source, &out],
        &[&"create", &source, &out, &"--restart"],
        &[&"create", &theirs, &out, &"--splits", &"train,val", &"--restart"],
        &[&"create", &theirs, &out, &"--dry-run"],
        &[&"merge", &out, &dataset],
        &[&"merge", &out, &dataset, &"--link"],
        &[&"subset", &dataset, &out, &"--fraction", &"0.5"],
        &[&"subset", &dataset, &out, &"--fraction", &"0.5", &"--copy"],
        &[&"subset", &dataset, &out, &"--fraction", &"0.5", &"--symlink"],
        &[&"extract", &dataset, &out],
    ];
    for args in commands {
        let said: Vec<_> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = command(args);
        assert!(output.status.success(), "{said:?}: {output:?}");
        assert_stays(&with_source, temp.path(), &format!("{said:?}"));
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
        assert_eq!(everything(temp.path()).len(), with_source.len(), "{said:?}");
    }
    // A plan, with everything that follows, and plans that begin anew.
    for more in [&[][..], &["--restart"], &["--restart", "--seed", "9"]] {
        let plan = program(&[&"plan", &theirs, &out, &"-q"]).args(more).output().unwrap();
        assert!(plan.status.success(), "{plan:?}");
        assert_stays(&with_source, temp.path(), "plan");
    }
    run_well(&[&"list", &theirs, &out, &"--part", &"0/1", &"-q"]);
    run_well(&[&"create", &theirs, &out, &"--part", &"0/1", &"-q"]);
    run_well(&[&"finish", &out, &"-q"]);
    assert_stays(&with_source, temp.path(), "finish");
    assert_stays(&before, temp.path(), "all");
    run_well(&[&"verify", &out, &"-q"]);
}

/// Marked as our unfinished work, with something of the user's in it.
#[test]
fn unfinished_work_that_holds_something_else_is_not_removed() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "photos"].map(|name| temp.path().join(name));
    images(&source, 8);
    run_well(&[&"plan", &source, &out, &"-q"]);
    let folder = names(temp.path()).into_iter().find(|name| name.starts_with("photos.part-")).unwrap();
    let folder = temp.path().join(folder);
    for theirs in ["thesis.tex", "shard-000000.tar.bak", "notes/thesis.tex", "val/shard-000000.tar"] {
        write(&folder.join(theirs), b"mine");
        let before = everything(temp.path());
        for name in ["create", "plan"] {
            let output = command(&[&name, &source, &out, &"--restart", &"--seed", &"3"]);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let top = theirs.split('/').next().unwrap();
            assert!(
                stderr_of(&output).contains(top) && stderr_of(&output).contains("elsewhere"),
                "{output:?}"
            );
            assert!(everything(temp.path()) == before, "{name} {theirs}");
        }
        let top = folder.join(theirs.split('/').next().unwrap());
        if top.is_dir() { fs::remove_dir_all(&top) } else { fs::remove_file(&top) }.unwrap();
    }
    // A folder in it that is a link.
    symlink(&source, folder.join("val")).unwrap();
    let output = command(&[&"plan", &source, &out, &"--restart", &"--seed", &"3"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    fs::remove_file(folder.join("val")).unwrap();
    // Nothing of theirs is in it any more.
    run_well(&[&"create", &source, &out, &"--restart", &"--seed", &"3", &"-q"]);
    assert_eq!(names(temp.path()), ["images", "photos"]);
}

#[test]
fn unfinished_work_that_is_the_source_is_not_removed() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "photos"].map(|name| temp.path().join(name));
    images(&source, 40);
    run_well(&[&"plan", &source, &out, &"--cls", &"--shard-size", &"40kB", &"-q"]);
    run_well(&[&"create", &source, &out, &"--part", &"0/1", &"-q"]);
    let folder = names(temp.path()).into_iter().find(|name| name.starts_with("photos.part-")).unwrap();
    let folder = temp.path().join(folder);
    let list = temp.path().join("list.csv");
    fs::write(&list, format!("path,label\n{},0\n", folder.join("shard-000000.tar").display())).unwrap();
    symlink(&folder, temp.path().join("link")).unwrap();
    let before = everything(temp.path());
    for args in [
        &[&"create" as &dyn AsRef<OsStr>, &folder, &out, &"--from", &"webdataset", &"--restart"][..],
        &[&"create", &temp.path().join("link"), &out, &"--from", &"webdataset", &"--restart"],
        &[&"plan", &folder, &out, &"--from", &"webdataset", &"--restart"],
        &[&"create", &list, &out, &"--restart"],
    ] {
        let output = command(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains("the source needs"), "{output:?}");
        assert!(everything(temp.path()) == before);
    }
}

/// Files in a dataset's folder that only look like ours.
fn files_of_the_user(dataset: &Path, elsewhere: &Path) {
    for name in [
        "README.done",
        ".done",
        "labels.part-2.csv",
        "labels.csv.part-2",
        "dataset.shade.part-backup",
        "dataset.shade.part-1",
        "dataset.times.bak",
        "dataset.plan",
        "shard-000000.tar.part-old",
        "shard-000000.tar.part-a-b-c-d",
        "shard-000000.tar.copied",
        "shard-00000.tar.done",
        "shard-0000000.tar.done",
        "shard-000000.tar.done.done",
        "x.part-host-0123456789abcdef-1-1",
    ] {
        write(&dataset.join(name), name.as_bytes());
    }
    // Notes that a copy was complete, as scripts leave them.
    write(&dataset.join("shard-000000.tar.done"), b"");
    write(
        &dataset.join("shard-000009.tar.done"),
        b"copied on Monday, with rsync, from the other machine: 64 bytes, or more",
    );
    write(&dataset.join("notes.done/thesis.tex"), b"mine");
    write(&dataset.join("shard-000003.tar.part-x/thesis.tex"), b"mine");
    write(&elsewhere.join("record"), b"SHADEDS1");
    symlink(elsewhere.join("record"), dataset.join("shard-000077.tar.done")).unwrap();
    symlink(elsewhere, dataset.join("shard-000078.tar.done")).unwrap();
}

#[test]
fn files_in_a_dataset_that_only_look_like_ours_stay() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, elsewhere] = ["images", "out", "elsewhere"].map(|name| temp.path().join(name));
    images(&source, 8);
    run_well(&[&"create", &source, &out, &"-q"]);
    files_of_the_user(&out, &elsewhere);
    let mut before = everything(temp.path());
    before.retain(|path, _| path.file_name() != Some(OsStr::new("dataset.shade")));
    before.retain(|path, _| path.file_name() != Some(OsStr::new("dataset.times")));
    let said = |more: &[&dyn AsRef<OsStr>], what: &str| {
        let args: Vec<&dyn AsRef<OsStr>> =
            [&what as &dyn AsRef<OsStr>].into_iter().chain(more.iter().copied()).collect();
        let output = command(&args);
        assert!(output.status.success(), "{output:?}");
        assert_stays(&before, temp.path(), what);
    };
    said(&[&source, &out], "append");
    said(&[&source, &out], "create");
    write(&source.join("0/new.png"), b"new");
    said(&[&source, &out], "append");
    write(&source.join("0/newer.png"), b"newer");
    said(&[&source, &out, &"--restart"], "append");
    said(&[&out], "verify");
    said(&[&out], "finish");
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn a_file_in_the_place_of_a_new_shard_is_not_overwritten() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 8);
    run_well(&[&"create", &source, &out, &"-q"]);
    // An append of which nothing is left leaves no marker, by which such a file would be ours.
    let bad = temp.path().join("bad");
    write(&bad.join("0/no image.png"), b"<html>");
    let nothing = command(&[&"append", &bad, &out, &"--format", &"jpeg", &"--on-bad", &"skip"]);
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    assert!(stderr_of(&nothing).contains("no sample is left"), "{nothing:?}");
    assert_eq!(names(&out), ["dataset.shade", "dataset.times", "shard-000000.tar"]);
    write(&source.join("0/new.png"), b"new");
    for name in ["shard-000001.tar", "shard-000001.tar.done"] {
        write(&out.join(name), b"of another dataset");
        let before = everything(temp.path());
        for more in [&[][..], &["--restart"]] {
            let output = program(&[&"append", &source, &out, &"-q"]).args(more).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(stderr_of(&output).contains(&format!("{name} is there")), "{output:?}");
            assert!(everything(temp.path()) == before);
        }
        fs::remove_file(out.join(name)).unwrap();
    }
    run_well(&[&"append", &source, &out, &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    assert!(!names(&out).iter().any(|name| name == "dataset.unfinished"));
}

#[test]
fn what_is_in_the_way_of_a_claim_is_not_said_to_be_a_commands() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "photos"].map(|name| temp.path().join(name));
    images(&source, 8);
    let claim = temp.path().join("photos.changing");
    for content in ["what changes in the photos\n", "a\nb\nc\nd\n", "1\n2\n"] {
        fs::write(&claim, content).unwrap();
        let output = command(&[&"create", &source, &out]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = stderr_of(&output);
        assert!(text.contains("photos.changing is in the way") && !text.contains("remove"), "{text}");
        assert_eq!(fs::read_to_string(&claim).unwrap(), content);
    }
    fs::remove_file(&claim).unwrap();
    symlink("elsewhere", &claim).unwrap();
    let output = command(&[&"create", &source, &out]);
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("a link"), "{output:?}");
}

/// Starts a command and kills it as soon as it has a folder of unfinished work with a shard in it;
/// says whether the kill met it at work.
fn kill_at_work(mut command: Command, parent: &Path) -> bool {
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        let work = names(parent).into_iter().find(|name| name.starts_with("out.part-"));
        if work.is_some_and(|work| {
            let entries = fs::read_dir(parent.join(work)).into_iter().flatten().flatten();
            entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("shard-"))
        }) {
            child.kill().unwrap();
            break;
        }
        std::thread::yield_now();
    }
    !child.wait().unwrap().success()
}

#[test]
fn what_killed_runs_have_left_is_removed_or_gone_on_with() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, whole] = ["images", "out", "whole"].map(|name| temp.path().join(name));
    images(&source, 400);
    run_well(&[&"create", &source, &whole, &"--shard-size", &"20kB", &"-q"]);
    let small = ["--shard-size", "20kB", "--jobs", "1", "-q"];
    for (killed, next) in [
        (vec!["create", "images", "out"], vec!["create", "images", "out", "--restart"]),
        (vec!["create", "images", "out"], vec!["create", "images", "out", "--seed", "3", "--restart"]),
        (vec!["create", "images", "out"], vec!["create", "images", "out"]),
    ] {
        let of = |args: &[&str]| {
            let mut command = program(&[]);
            command.current_dir(temp.path()).args(args).args(small);
            command
        };
        while !kill_at_work(of(&killed), temp.path()) {
            fs::remove_dir_all(&out).unwrap();
        }
        let output = of(&next).output().unwrap();
        assert!(output.status.success(), "{next:?}: {output:?}");
        run_well(&[&"verify", &out, &"-q"]);
        assert_eq!(names(temp.path()), ["images", "out", "whole"]);
        fs::remove_dir_all(&out).unwrap();
    }
    let copy = |name: &str| {
        let mut command = program(&[&name]);
        match name {
            "merge" => command.args([&out, &whole]),
            _ => command.args([&whole, &out]).args(["--fraction", "0.9", "--copy"]),
        };
        command.args(["--jobs", "1", "-q"]);
        command
    };
    for name in ["merge", "subset"] {
        for _ in 0..2 {
            while !kill_at_work(copy(name), temp.path()) {
                fs::remove_dir_all(&out).unwrap();
            }
        }
        assert!(copy(name).output().unwrap().status.success());
        assert_eq!(names(temp.path()), ["images", "out", "whole"], "{name}");
        assert!(tree(&out).keys().all(|name| name.ends_with(".tar") || name.starts_with("dataset.")));
        fs::remove_dir_all(&out).unwrap();
    }
}
