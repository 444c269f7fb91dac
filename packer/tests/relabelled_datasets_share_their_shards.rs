//! relabel gives samples other labels, over the same shards.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{names, picture, run, run_well, stderr_of, tree, write};

fn dataset(temp: &Path) -> PathBuf {
    let source = temp.join("images");
    for (number, path) in ["ant/1.ppm", "ant/2.ppm", "bee/3.ppm", "cat/4.ppm"].iter().enumerate() {
        write(&source.join(path), &picture(number as u64, 9, 9));
    }
    let out = temp.join("all.shade");
    run_well(&[&"create", &source, &out, &"--shard-size", &"4KiB", &"--cls", &"-q"]);
    out
}

fn classes(out: &Path) -> Vec<(String, u64, String)> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("path"), row["label"].as_u64().unwrap(), text("class"))
    };
    run_well(&[&"ls", &out, &"--long", &"--json"]).lines().map(row).collect()
}

fn expected(rows: &[(&str, u64, &str)]) -> Vec<(String, u64, String)> {
    rows.iter().map(|(path, label, class)| ((*path).to_owned(), *label, (*class).to_owned())).collect()
}

#[test]
fn all_labels_may_change_and_no_byte_of_a_shard_does() {
    let temp = tempfile::tempdir().unwrap();
    let (all, out, list) =
        (dataset(temp.path()), temp.path().join("new.shade"), temp.path().join("labels.csv"));
    let before = tree(&all);
    write(&list, b"label,more,path\nzoo,x,cat/4.ppm\nape,y,ant/1.ppm\nzoo,,ant/2.ppm\nbee,,bee/3.ppm\n");
    let text = run_well(&[&"relabel", &all, &out, &"--labels", &list, &"-q"]);
    assert!(text.contains("3 samples have another class now") && text.contains(".cls members"), "{text}");
    let rows =
        [("ant/1.ppm", 0, "ape"), ("ant/2.ppm", 2, "zoo"), ("bee/3.ppm", 1, "bee"), ("cat/4.ppm", 2, "zoo")];
    assert_eq!(classes(&out), expected(&rows));
    let shards: Vec<_> = names(&out).into_iter().filter(|name| name.ends_with(".tar")).collect();
    assert!(shards.len() > 1);
    for shard in &shards {
        let inode = |folder: &Path| fs::metadata(folder.join(shard)).unwrap().ino();
        assert_eq!(inode(&out), inode(&all), "{shard} is linked");
    }
    run_well(&[&"verify", &out, &"--decode", &"-q"]);
    assert!(tree(&all) == before);
    // By ids, with names, as shards of its own, and again of what was relabelled.
    let (ids, named, copy) =
        (temp.path().join("ids.csv"), temp.path().join("names.json"), temp.path().join("copy.shade"));
    write(&ids, b"id,label\n0,1\n1,1\n2,0\n3,1\n");
    write(&named, br#"["no", "yes", "maybe"]"#);
    let args: [&dyn AsRef<std::ffi::OsStr>; 10] =
        [&"relabel", &out, &copy, &"--labels", &ids, &"--classes", &named, &"--copy", &"--json", &"-q"];
    let report: Value = serde_json::from_str(&run_well(&args)).unwrap();
    assert_eq!(
        (&report["changed"], &report["classes"], &report["linked"]),
        (&4.into(), &3.into(), &false.into())
    );
    let found: Vec<(u64, String)> =
        classes(&copy).into_iter().map(|(_, label, class)| (label, class)).collect();
    assert_eq!(
        found,
        [(1, "yes"), (1, "yes"), (0, "no"), (1, "yes")].map(|(label, name)| (label, name.to_owned()))
    );
    run_well(&[&"verify", &copy, &"-q"]);
}

#[test]
fn some_labels_may_change_and_classes_keep_their_numbers() {
    let temp = tempfile::tempdir().unwrap();
    let (all, out, list) =
        (dataset(temp.path()), temp.path().join("new.shade"), temp.path().join("labels.csv"));
    write(&list, b"path,label\nant/2.ppm,cat\nbee/3.ppm,aphid\n");
    let output = run(&[&"relabel", &all, &out, &"--labels", &list, &"-q"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stderr_of(&output);
    assert!(text.contains("no label for 2 of 4 samples, such as ant/1.ppm; --keep"), "{text}");
    assert!(!out.exists());
    run_well(&[&"relabel", &all, &out, &"--labels", &list, &"--keep", &"-q"]);
    let rows = [
        ("ant/1.ppm", 0, "ant"),
        ("ant/2.ppm", 2, "cat"),
        ("bee/3.ppm", 3, "aphid"),
        ("cat/4.ppm", 2, "cat"),
    ];
    assert_eq!(classes(&out), expected(&rows));
    let info = run_well(&[&"info", &out]);
    assert!(info.contains("4 "), "{info}");
}

#[test]
fn classes_may_share_a_name_and_samples_stay_in_theirs() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let paths = ["bird.ppm", "cat.ppm", "tool.ppm"];
    for (number, path) in (0u64..).zip(paths) {
        write(&at(path), &picture(number, 9, 9));
    }
    write(&at("source.csv"), b"path,label\nbird.ppm,0\ncat.ppm,1\ntool.ppm,2\n");
    write(&at("names.json"), br#"["crane", "cat", "crane"]"#);
    let (all, out, list, named) = (at("all.shade"), at("new.shade"), at("labels.csv"), at("names.json"));
    run_well(&[&"create", &at("source.csv"), &all, &"--labels", &named, &"-q"]);
    let before = [("bird.ppm", 0, "crane"), ("cat.ppm", 1, "cat"), ("tool.ppm", 2, "crane")];
    assert_eq!(classes(&all), expected(&before));
    // What `ls` says, given back.
    let lines = before.map(|(path, _, class)| format!("{path},{class}\n")).concat();
    write(&list, format!("path,label\n{lines}").as_bytes());
    let text = run_well(&[&"relabel", &all, &out, &"--labels", &list, &"--keep", &"-q"]);
    assert!(text.contains("0 samples have another class now"), "{text}");
    assert_eq!(classes(&out), expected(&before));
    fs::remove_dir_all(&out).unwrap();
    // A name that one class has alone is right for every sample.
    write(&list, b"path,label\ntool.ppm,cat\nbird.ppm,crane\n");
    run_well(&[&"relabel", &all, &out, &"--labels", &list, &"--keep", &"-q"]);
    let moved = [("bird.ppm", 0, "crane"), ("cat.ppm", 1, "cat"), ("tool.ppm", 1, "cat")];
    assert_eq!(classes(&out), expected(&moved));
    fs::remove_dir_all(&out).unwrap();
    write(&list, b"path,label\nbird.ppm,crane\ncat.ppm,crane\n");
    let refused = run(&[&"relabel", &all, &out, &"--labels", &list, &"--keep", &"-q"]);
    let text = stderr_of(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    for word in ["labels.csv", "line 3", "'crane' is that of several classes", "'cat.ppm'"] {
        assert!(text.contains(word), "{word} in: {text}");
    }
    assert!(!out.exists());
    write(&list, b"path,label\nbird.ppm,2\ncat.ppm,2\ntool.ppm,2\n");
    let text = run_well(&[&"relabel", &all, &out, &"--labels", &list, &"--classes", &named, &"-q"]);
    assert!(text.contains("2 samples have another class now"), "{text}");
    assert!(classes(&out).iter().all(|(_, label, class)| (*label, class.as_str()) == (2, "crane")));
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_line() {
    let temp = tempfile::tempdir().unwrap();
    let (all, out, list) =
        (dataset(temp.path()), temp.path().join("new.shade"), temp.path().join("labels.csv"));
    for (text, more, words) in [
        ("path,label\nant/9.ppm,cat\n", "--keep", &["line 2", "no sample 'ant/9.ppm'"][..]),
        ("path,label\nant/1.ppm,cat\nant/1.ppm,bee\n", "--keep", &["line 3", "comes twice"]),
        ("path,label\nant/1.ppm,2\n", "--keep", &["'2' is no name of a class", "names, not numbers"]),
        ("path,label\nant/1.ppm,\n", "--keep", &["line 2", "label is empty"]),
        ("id,label\n4,cat\n", "--keep", &["line 2", "no sample '4'"]),
        ("id,label\nx,cat\n", "--keep", &["line 2", "no sample 'x'"]),
        ("file,label\nx,cat\n", "--keep", &["'path' (or 'id') and 'label'", "found file, label"]),
        ("path,label\nant/1.ppm,0,7\n", "-q", &["labels.csv"]),
        ("path,label\nant/1.ppm,-1\n", "-q", &["negative"]),
    ] {
        write(&list, text.as_bytes());
        let output = run(&[&"relabel", &all, &out, &"--labels", &list, &more]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        for word in words {
            assert!(stderr_of(&output).contains(word), "{word} in: {}", stderr_of(&output));
        }
        assert!(!out.exists());
    }
}
