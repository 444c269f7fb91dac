//! No command changes a label's number without a word: whatever two class tables look like.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{names, run, run_well, stderr_of, tar_of, write};

/// Pairs of class tables, as `--labels` gives them, and whether merging changes no label.
fn pairs() -> Vec<(&'static str, Vec<String>, Vec<String>, bool)> {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let numbers = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>();
    vec![
        ("equal", texts(&["zebra", "ant"]), texts(&["zebra", "ant"]), true),
        ("equal numbers", numbers(12), numbers(12), true),
        (
            "equal with a name twice",
            texts(&["crane", "cat", "crane"]),
            texts(&["crane", "cat", "crane"]),
            true,
        ),
        ("prefix", texts(&["zebra", "ant"]), texts(&["zebra", "ant", "bee"]), true),
        ("longer first", numbers(13), numbers(4), true),
        ("subsequence", texts(&["zebra", "ant", "bee"]), texts(&["zebra", "bee"]), false),
        ("other order", texts(&["zebra", "ant"]), texts(&["ant", "zebra"]), false),
        ("disjoint", texts(&["dog", "cat"]), texts(&["ant"]), false),
        ("numbers and texts", numbers(12), texts(&["ant"]), false),
    ]
}

/// A dataset with one sample of each of these classes.
fn dataset(temp: &Path, name: &str, classes: &[String]) -> PathBuf {
    let folder = temp.join(format!("{name}.source"));
    let mut csv = "path,label\n".to_owned();
    for label in 0..classes.len() {
        write(&folder.join(format!("{name}-{label}.png")), format!("{name} {label}").as_bytes());
        csv += &format!("{name}-{label}.png,{label}\n");
    }
    write(&folder.join("list.csv"), csv.as_bytes());
    write(&folder.join("labels.json"), serde_json::to_string(classes).unwrap().as_bytes());
    let out = temp.join(name);
    run_well(&[&"create", &folder.join("list.csv"), &out, &"--labels", &folder.join("labels.json"), &"-q"]);
    out
}

/// Each path's label and class.
fn labels(dataset: &Path) -> BTreeMap<String, (u64, String)> {
    let lines = run_well(&[&"ls", &dataset, &"--long", &"--json"]);
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("path"), (row["label"].as_u64().unwrap(), text("class")))
    };
    lines.lines().map(row).collect()
}

#[test]
fn merge_changes_no_label_unless_asked_for() {
    for (what, first, second, can_stay) in pairs() {
        let temp = tempfile::tempdir().unwrap();
        let [a, b] =
            [("a", &first), ("b", &second)].map(|(name, classes)| dataset(temp.path(), name, classes));
        let mut before = labels(&a);
        before.extend(labels(&b));
        for (first, second) in [(&a, &b), (&b, &a)] {
            let out = temp.path().join("out");
            let merged = run(&[&"merge", &out, first, second, &"-q"]);
            if can_stay {
                assert!(merged.status.success(), "{what}: {merged:?}");
                assert_eq!(labels(&out), before, "{what}");
                assert!(!String::from_utf8_lossy(&merged.stdout).contains("becomes"), "{what}");
                fs::remove_dir_all(&out).unwrap();
                continue;
            }
            let text = stderr_of(&merged);
            assert_eq!(merged.status.code(), Some(1), "{what}: {text}");
            assert!(text.contains("becomes") && text.contains("--relabel"), "{what}: {text}");
            assert!(!names(temp.path()).iter().any(|name| name.starts_with("out")), "{what}");
            let json = run_well(&[&"merge", &out, first, second, &"--relabel", &"--json", &"-q"]);
            let report: Value = serde_json::from_str(&json).unwrap();
            let after = labels(&out);
            let told: usize = report["relabelled"]
                .as_array()
                .unwrap()
                .iter()
                .map(|relabelled| relabelled["labels"].as_array().unwrap().len())
                .sum();
            let moved = before.iter().filter(|(path, (label, _))| after[*path].0 != *label).count();
            assert_eq!(told, moved, "{what}: {report}");
            for (path, (_, class)) in &before {
                assert_eq!(&after[path].1, class, "{what}: {path}");
            }
            fs::remove_dir_all(&out).unwrap();
        }
    }
}

#[test]
fn splits_and_appends_keep_numbers() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    let tar = |split: &str, labels: &[&str]| {
        let members: Vec<(String, String)> = labels
            .iter()
            .enumerate()
            .flat_map(|(n, label)| {
                [
                    (format!("{n:02}.jpg"), format!("{split} {n}")),
                    (format!("{n:02}.cls"), (*label).to_owned()),
                ]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (name.as_str(), bytes.as_bytes())).collect();
        tar_of(&source.join(split).join(format!("{split}.tar")), &members);
    };
    let numbers: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    let floats: Vec<String> = (0..12).map(|n| format!("{n}.0")).collect();
    for all in [&numbers, &floats] {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        tar("train", &all);
        tar("val", &[all[0], all[1], all[2], all[10]]);
        let out = temp.path().join("out");
        run_well(&[&"create", &source, &out, &"--splits", &"train,val", &"--from", &"webdataset", &"-q"]);
        for split in ["train", "val"] {
            for (path, (label, class)) in labels(&out.join(split)) {
                let number: usize = path.split(['/', '.']).nth(1).unwrap().parse().unwrap();
                let number = if split == "val" { [0, 1, 2, 10][number] } else { number };
                assert_eq!((label, class), (number as u64, number.to_string()), "{path}");
            }
        }
        fs::remove_dir_all(&out).unwrap();
    }
    tar("val", &["cat", "dog"]);
    let refused = run(&[
        &"create",
        &source,
        &temp.path().join("x"),
        &"--splits",
        &"train,val",
        &"--from",
        &"webdataset",
        &"-q",
    ]);
    let text = stderr_of(&refused);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("train: label 2 ('2') becomes 4") && text.contains("--labels"), "{text}");

    // A number of the source is no class of a dataset with names.
    let named = dataset(temp.path(), "named", &["cat".to_owned(), "dog".to_owned()]);
    let more = source.join("train");
    let refused = run(&[&"append", &more, &named, &"-q"]);
    let text = stderr_of(&refused);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("label 0 ('0') becomes 2") && text.contains("--relabel"), "{text}");
    let before = labels(&named);
    let report = run_well(&[&"append", &more, &named, &"--relabel", &"-q"]);
    assert!(report.contains("note: ") && report.contains("label 0 ('0') becomes 2"), "{report}");
    let after = labels(&named);
    assert!(before.iter().all(|(path, label)| after[path] == *label));
}

#[test]
fn a_class_whose_samples_are_bad_shifts_no_label() {
    let temp = tempfile::tempdir().unwrap();
    let tars = temp.path().join("tars");
    let members: [(&str, &[u8]); 6] = [
        ("1.jpg", b"x"),
        ("1.cls", b"cat"),
        ("2.jpg", b""),
        ("2.cls", b"bee"),
        ("3.jpg", b"y"),
        ("3.cls", b"dog"),
    ];
    tar_of(&tars.join("a.tar"), &members);
    write(&temp.path().join("x.jpg"), b"x");
    write(&temp.path().join("y.jpg"), b"x");
    write(&temp.path().join("list.csv"), b"path,label\nx.jpg,cat\nnone.jpg,bee\ny.jpg,dog\n");
    for source in [tars, temp.path().join("list.csv")] {
        let out = temp.path().join("out");
        let refused = run(&[&"create", &source, &out, &"--on-bad", &"skip", &"-q"]);
        let text = stderr_of(&refused);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(
            text.contains("no sample is left of the classes bee") && text.contains("--allow-empty"),
            "{text}"
        );
        assert!(text.contains("left out") && !out.exists(), "{text}");
        let output = run(&[&"create", &source, &out, &"--on-bad", &"skip", &"--allow-empty", &"-q"]);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let all: Vec<u64> = labels(&out).values().map(|(label, _)| *label).collect();
        assert_eq!(all, [1, 2], "bee keeps label 0");
        fs::remove_dir_all(&out).unwrap();
    }
}
