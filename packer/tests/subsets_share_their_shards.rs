//! subset makes a dataset of some samples of another: whole in every respect, and without copying
//! a byte unless it is asked to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{
    PROGRAM, names, noise, own_mounts, picture, program, run, run_well, stderr_of, tar_of, tree, write,
};
use serde_json::Value;

const SAMPLES: usize = 60;

/// Sixty samples of three unequal classes in several shards, each with a field, half of them with a
/// label in the shard.
fn dataset(temp: &Path, more: &[&str]) -> PathBuf {
    let members: Vec<(String, Vec<u8>)> = (0..SAMPLES as u64)
        .flat_map(|n| {
            let class = if n % 6 == 0 {
                "emu"
            } else if n % 2 == 0 {
                "cat"
            } else {
                "ant"
            };
            [
                (format!("{n:03}.ppm"), picture(n, 12, 12)),
                (format!("{n:03}.cls"), class.as_bytes().to_vec()),
                (format!("{n:03}.txt2"), noise(n, 60)),
            ]
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    tar_of(&temp.join("source/set.tar"), &members);
    let out = temp.join("all.shade");
    let source = temp.join("source");
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
        vec![&"create", &source, &out, &"--shard-size", &"16KiB", &"-q"];
    args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    run_well(&args);
    out
}

/// Class and path of each sample, by id.
fn listed(out: &Path) -> Vec<(String, String)> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (format!("{} {}", row["label"], text("class")), text("path"))
    };
    run_well(&[&"ls", &out, &"--long", &"--json"]).lines().map(row).collect()
}

fn extracted(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let back = out.with_extension("back");
    run_well(&[&"extract", &out, &back, &"-q"]);
    tree(&back)
}

fn report(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Value {
    let json: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"subset", &"--json", &"-q"];
    serde_json::from_str(&run_well(&[&json, args].concat())).unwrap()
}

/// Runs subset with these ids on standard input.
fn with_ids(ids: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> std::process::Output {
    let mut child =
        program(&[&[&"subset" as &dyn AsRef<std::ffi::OsStr>, &"--ids", &"-", &"-q"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    child.stdin.take().unwrap().write_all(ids.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn linked_and_copied_subsets_hold_the_chosen_samples_and_are_whole() {
    let temp = tempfile::tempdir().unwrap();
    for (number, more) in [&["--cls"][..], &["--compress", "zstd"]].into_iter().enumerate() {
        let temp = temp.path().join(number.to_string());
        fs::create_dir(&temp).unwrap();
        let all = dataset(&temp, more);
        let (of_all, files) = (listed(&all), extracted(&all));
        let info: Value = serde_json::from_str(&run_well(&[&"info", &all, &"--json"])).unwrap();
        let content_id = info["content_id"].clone();
        let chosen: Vec<usize> = (0..SAMPLES).filter(|id| id % 7 < 2 && *id > 9).collect();
        let ids: String = chosen.iter().rev().map(|id| format!("{id}\n")).collect();
        let list = temp.join("ids");
        write(&list, ids.as_bytes());
        let expected: Vec<_> = chosen.iter().map(|&id| of_all[id].clone()).collect();
        for how in ["--link", "--symlink", "--copy"] {
            let out = temp.join(how);
            let report = report(&[&all, &out, &"--ids", &list, &how]);
            assert_eq!((&report["samples"], &report["of_samples"]), (&chosen.len().into(), &SAMPLES.into()));
            assert_eq!(report["linked"], how != "--copy");
            assert_eq!(report["copied_bytes"].as_u64().unwrap() > 0, how == "--copy");
            assert_eq!(listed(&out), expected, "{how}");
            run_well(&[&"verify", &out, &"--decode", &"-q"]);
            let back = extracted(&out);
            assert!(back.iter().all(|(path, bytes)| files.get(path) == Some(bytes)), "{how}");
            assert_eq!(back.len(), 2 * chosen.len(), "an image and a field each");
            let info: Value = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
            assert_eq!(info["content_id"], report["content_id"]);
            assert_ne!(info["content_id"], content_id, "{how}");
            assert_eq!(info["options"]["subset"]["content_id"], content_id);
            assert_eq!(info["classes"].as_array().unwrap().len(), 3);
            assert_eq!(info["options"]["subset"]["samples"], SAMPLES);
            // Only a subset of symbolic links needs the dataset.
            let moved = temp.join("moved");
            fs::rename(&all, &moved).unwrap();
            assert_eq!(run(&[&"verify", &out, &"-q"]).status.success(), how != "--symlink", "{how}");
            fs::rename(&moved, &all).unwrap();
        }
        let [linked, copied] = ["--link", "--copy"].map(|how| temp.join(how));
        assert_eq!(inodes(&linked).difference(&inodes(&all)).count(), 0);
        assert_eq!(inodes(&copied).intersection(&inodes(&all)).count(), 0);
        // A copy of a linked subset is the copy of the same samples of the whole.
        let again = temp.join("again");
        report(&[&linked, &again, &"--fraction", &"1", &"--copy"]);
        assert!(shards(&again) == shards(&copied), "what lies between chosen samples is left out");
    }
}

fn shards(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = tree(out);
    files.retain(|name, _| name.ends_with(".tar"));
    files
}

fn inodes(out: &Path) -> std::collections::BTreeSet<u64> {
    let shards = names(out).into_iter().filter(|name| name.ends_with(".tar"));
    shards.map(|name| fs::metadata(out.join(name)).unwrap().ino()).collect()
}

#[test]
fn shards_without_a_chosen_sample_are_left_out() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let out = temp.path().join("one");
    assert!(with_ids("17\n", &[&all, &out]).status.success());
    assert_eq!(names(&out).iter().filter(|name| name.ends_with(".tar")).count(), 1);
    assert_eq!(listed(&out), listed(&all)[17..18]);
}

#[test]
fn classes_keep_their_labels_and_shares_are_nested() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let of_all = listed(&all);
    let make = |name: &str, args: &[&str]| {
        let out = temp.path().join(name);
        let args: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|arg| arg as _).collect();
        let report = report(&[&[&all as &dyn AsRef<std::ffi::OsStr>, &out], &args[..]].concat());
        (listed(&out), report)
    };
    let (of_two, report) = make("two", &["--class", "emu", "--class", "ant"]);
    let expected: Vec<_> = of_all.iter().filter(|(class, _)| class != "1 cat").cloned().collect();
    assert_eq!((of_two, &report["empty_classes"]), (expected, &1.into()));
    let count = |rows: &[(String, String)], class: &str| rows.iter().filter(|row| row.0 == class).count();
    let mut smaller: Vec<(String, String)> = Vec::new();
    for (share, percent) in [("0.01", 1), ("0.1", 10), ("0.35", 35), ("0.8", 80), ("1", 100)] {
        let (rows, _) = make(&format!("{share} of each"), &["--fraction", share, "--per-class"]);
        assert!(smaller.iter().all(|row| rows.contains(row)), "{share}");
        for class in ["0 ant", "1 cat", "2 emu"] {
            let wanted = (count(&of_all, class) * percent + 50) / 100;
            assert_eq!(count(&rows, class), wanted.max(1), "{share} of {class}");
        }
        smaller = rows;
    }
    assert_eq!(smaller, of_all);
    let (quarter, _) = make("quarter", &["--fraction", "0.25"]);
    assert_eq!(quarter.len(), 15);
    assert_eq!(make("again", &["--fraction", "0.25"]).0, quarter);
    assert_ne!(make("other", &["--fraction", "0.25", "--seed", "1"]).0, quarter);
    let (pets, _) = make("some cats", &["--class", "cat", "--fraction", "0.5"]);
    assert_eq!((pets.len(), count(&pets, "1 cat")), (10, 10));
}

#[test]
fn a_subset_is_appended_to_and_merged() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let [ants, cats, both] = ["ants", "cats", "both"].map(|name| temp.path().join(name));
    report(&[&all, &ants, &"--class", &"ant"]);
    report(&[&all, &cats, &"--class", &"cat"]);
    let before = shards(&all);
    run_well(&[&"merge", &both, &ants, &cats, &"--link", &"-q"]);
    run_well(&[&"verify", &both, &"-q"]);
    let mut expected = listed(&ants);
    expected.extend(listed(&cats));
    assert_eq!(listed(&both), expected);
    // What the subset left out comes back from the source.
    run_well(&[&"append", &temp.path().join("source"), &ants, &"-q"]);
    run_well(&[&"verify", &ants, &"-q"]);
    assert_eq!(extracted(&ants), extracted(&all));
    assert!(shards(&all) == before, "the dataset that shares its shards is as before");
}

#[test]
fn shards_of_a_linked_subset_are_made_again_where_they_come_from() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let out = temp.path().join("some");
    report(&[&all, &out, &"--fraction", &"0.5"]);
    // Damage to a sample that the subset does not have is damage of the file.
    let shard = fs::canonicalize(out.join("shard-000000.tar")).unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    let end = bytes.len();
    bytes[end - 1030] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let output = run(&[&"verify", &out, &"-q"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("again in the dataset that this one is a subset of, then the subset"), "{text}");
    fs::remove_file(out.join("shard-000000.tar")).unwrap();
    let before = tree(&out);
    let output = run(&[&"create", &temp.path().join("source"), &out, &"-q"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_of(&output).contains("make them again there, then the subset"), "{output:?}");
    assert!(tree(&out) == before);
}

#[test]
fn shards_of_a_copied_subset_are_made_again() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &["--cls"]);
    let out = temp.path().join("some");
    report(&[&all, &out, &"--fraction", &"0.5", &"--copy"]);
    let before = tree(&out);
    fs::remove_file(out.join("shard-000000.tar")).unwrap();
    run_well(&[&"create", &temp.path().join("source"), &out, &"--cls", &"-q"]);
    assert!(tree(&out) == before);
}

#[test]
fn damage_is_not_copied() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let shard = all.join("shard-000000.tar");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[600] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let out = temp.path().join("copy");
    let output = run(&[&"subset", &all, &out, &"--fraction", &"1", &"--copy", &"-q"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(stderr_of(&output).contains("is damaged: sample"), "{output:?}");
    assert_eq!(names(temp.path()), ["all.shade", "source"], "nothing is left behind");
}

#[test]
fn what_cannot_be_chosen_is_a_usage_error_that_says_why() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let out = temp.path().join("out");
    for (ids, text) in [
        ("1\n\n60\n", "line 3 of - is \"60\", expected an id of the dataset's 60 samples"),
        ("1\n2\n1\n", "line 3 of - is \"1\", expected each id once"),
        ("one\n", "line 1 of - is \"one\", expected a sample id"),
        ("\n", "no sample is chosen"),
    ] {
        let output = with_ids(ids, &[&all, &out]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains(text), "{output:?} lacks {text}");
    }
    for (args, text) in [
        (&["--class", "dog"][..], "has no class \"dog\""),
        (&["--fraction", "0"], "above 0 and at most 1"),
        (&["--fraction", "1.5"], "above 0 and at most 1"),
        (&["--per-class", "--class", "cat"], "--fraction"),
        (&["--ids", "x", "--class", "cat"], "cannot be used with"),
        (&["--fraction", "1", "--link", "--copy"], "cannot be used with"),
        (&[], "required"),
    ] {
        let args: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|arg| arg as _).collect();
        let output = run(&[&[&"subset" as &dyn AsRef<std::ffi::OsStr>, &all, &out], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains(text), "{output:?} lacks {text}");
    }
    assert!(!out.exists());
    fs::create_dir(&out).unwrap();
    let output = run(&[&"subset", &all, &out, &"--fraction", &"1"]);
    assert!(stderr_of(&output).contains("exists: remove it or choose another destination"), "{output:?}");
}

#[test]
fn on_another_file_system_the_error_names_what_works() {
    let temp = tempfile::tempdir().unwrap();
    let all = dataset(temp.path(), &[]);
    let (there, result) = (temp.path().join("there"), temp.path().join("result"));
    fs::create_dir(&there).unwrap();
    let Some(mut command) = own_mounts() else { return };
    let script = "set -e; mount -t tmpfs none \"$3\"; \
                  ! \"$1\" subset \"$2\" \"$3/linked\" --fraction 0.5 -q 2> \"$4\"; \
                  \"$1\" subset \"$2\" \"$3/pointed\" --fraction 0.5 --symlink -q; \
                  \"$1\" verify \"$3/pointed\" -q";
    let output =
        command.args(["sh", "-c", script, "sh", PROGRAM]).args([&all, &there, &result]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&result).unwrap();
    assert!(text.contains("it is on another file system: choose --symlink or --copy"), "{text}");
}
