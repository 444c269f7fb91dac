//! merge makes one dataset of several, whole in every respect: it can be verified, extracted,
//! listed and merged again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::{names, noise, picture, program, run, run_well, stderr_of, tar_of, tree, write};
use serde_json::Value;

fn images(root: &Path, classes: &[&str], salt: u64) {
    for (number, class) in (0u64..).zip(classes.iter().cycle().take(30)) {
        let path = root.join(format!("{class}/{salt}-{number:02}.ppm"));
        write(&path, &picture(salt * 100 + number, 20, 10));
    }
}

/// Three datasets that share classes but no path, one compressed, one of tars with fields.
fn three(temp: &Path) -> [PathBuf; 3] {
    let sources = ["one", "two", "three"].map(|name| temp.join(name));
    images(&sources[0], &["dog", "bee"], 1);
    images(&sources[1], &["cat", "bee", "ant"], 2);
    let members: Vec<(String, Vec<u8>)> = (0..12u64)
        .flat_map(|n| {
            let class = if n % 2 == 0 { "cat" } else { "emu" };
            [
                (format!("{n:03}.ppm"), picture(n, 12, 12)),
                (format!("{n:03}.cls"), class.as_bytes().to_vec()),
                (format!("{n:03}.txt2"), noise(n, 60)),
            ]
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    tar_of(&sources[2].join("set.tar"), &members);
    let more: [&[&str]; 3] = [&[], &["--compress", "zstd", "--cls"], &["--no-shuffle"]];
    let outs = ["1", "2", "3"].map(|name| temp.join(name));
    for ((source, out), more) in sources.iter().zip(&outs).zip(more) {
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"create", source, out, &"--shard-size", &"8KiB", &"-q"];
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        run_well(&args);
    }
    outs
}

/// Each sample's class by path.
fn classes(out: &Path) -> BTreeMap<String, String> {
    let lines = run_well(&[&"ls", &out, &"--long", &"--json"]);
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("path"), text("class"))
    };
    lines.lines().map(row).collect()
}

fn extracted(out: &Path, back: &Path) -> BTreeMap<String, Vec<u8>> {
    run_well(&[&"extract", &out, &back, &"-q"]);
    tree(back)
}

#[test]
fn a_merged_dataset_holds_all_and_merges_again() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two, three] = three(temp.path());
    let [pair, all, linked, placed] = ["pair", "all", "linked", "placed"].map(|name| temp.path().join(name));
    run_well(&[&"merge", &pair, &one, &two, &"--relabel", &"-q"]);
    run_well(&[&"merge", &all, &pair, &three, &"--relabel", &"-q"]);
    let report: Value = serde_json::from_str(&run_well(&[
        &"merge",
        &linked,
        &one,
        &two,
        &three,
        &"--relabel",
        &"--link",
        &"--json",
        &"-q",
    ]))
    .unwrap();
    assert_eq!(
        (&report["samples"], &report["merged"], &report["classes"]),
        (&72.into(), &3.into(), &5.into())
    );
    let mut expected = BTreeMap::new();
    let mut files = BTreeMap::new();
    for (number, out) in [&one, &two, &three].into_iter().enumerate() {
        expected.extend(classes(out));
        files.extend(extracted(out, &temp.path().join(format!("back {number}"))));
    }
    run_well(&[&"merge", &placed, &one, &two, &three, &"--relabel", &"--in-place", &"-q"]);
    assert_eq!(names(&placed), ["dataset.shade", "dataset.times"]);
    for (number, out) in [&all, &linked, &placed].into_iter().enumerate() {
        run_well(&[&"verify", &out, &"-q"]);
        assert_eq!(classes(out), expected);
        assert!(extracted(out, &temp.path().join(format!("all back {number}"))) == files);
        let info: Value = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
        let classes: Vec<&str> =
            info["classes"].as_array().unwrap().iter().map(|class| class["name"].as_str().unwrap()).collect();
        assert_eq!(classes, ["ant", "bee", "cat", "dog", "emu"]);
        assert_eq!((&info["with_fields"], &info["own_keys"]), (&12.into(), &42.into()));
    }
    let info =
        |out: &Path| -> Value { serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap() };
    assert_eq!(info(&all)["content_id"], info(&linked)["content_id"]);
    assert_eq!(info(&all)["content_id"], info(&placed)["content_id"], "where shards lie is no content");
    let place = &info(&placed)["in_place"];
    assert_eq!(place["kind"], "shards");
    assert_eq!(place["base"], temp.path().canonicalize().unwrap().to_str().unwrap());
    let lines = run_well(&[&"ls", &all]);
    let in_order: Vec<String> = [&one, &two, &three]
        .iter()
        .flat_map(|out| {
            let lines = run_well(&[&"ls", *out]);
            lines.lines().map(|line| line.rsplit('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(lines.lines().map(|line| line.rsplit('\t').next().unwrap()).collect::<Vec<_>>(), in_order);
    let first = fs::metadata(one.join("shard-000000.tar")).unwrap();
    assert_eq!(fs::metadata(linked.join("shard-000000.tar")).unwrap().ino(), first.ino());
    assert_ne!(fs::metadata(all.join("shard-000000.tar")).unwrap().ino(), first.ino());
}

#[test]
fn a_merged_dataset_gets_its_shards_again_from_the_source_of_a_part() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two, _] = three(temp.path());
    let pair = temp.path().join("pair");
    run_well(&[&"merge", &pair, &one, &two, &"--relabel", &"-q"]);
    let before = tree(&pair);
    fs::remove_file(pair.join("shard-000001.tar")).unwrap();
    run_well(&[&"create", &temp.path().join("one"), &pair, &"-q"]);
    assert!(tree(&pair) == before);
    let last = names(&pair).into_iter().rfind(|name| name.ends_with(".tar")).unwrap();
    fs::remove_file(pair.join(last)).unwrap();
    let output = run(&[&"create", &temp.path().join("one"), &pair, &"-q"]);
    assert!(output.status.code() == Some(3) && stderr_of(&output).contains("is not in the source"));
    run_well(&[&"create", &temp.path().join("two"), &pair, &"--compress", &"zstd", &"--cls", &"-q"]);
    assert!(tree(&pair) == before);
}

#[test]
fn what_cannot_be_merged_is_refused_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two, _] = three(temp.path());
    let out = temp.path().join("out");
    let output = run(&[&"merge", &out, &one, &two, &one, &"-q"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr_of(&output);
    assert!(text.contains("is in") && text.contains(one.to_str().unwrap()), "{text}");
    let output = run(&[&"merge", &two, &one, &"-q"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(run(&[&"merge", &out]).status.code(), Some(2));
    assert_eq!(run(&[&"merge", &out, &temp.path().join("one")]).status.code(), Some(1));
    let shard = fs::OpenOptions::new().write(true).open(one.join("shard-000000.tar")).unwrap();
    shard.set_len(1024).unwrap();
    let output = run(&[&"merge", &out, &one, &two, &"--relabel", &"-q"]);
    assert!(output.status.code() == Some(3) && stderr_of(&output).contains("shard-000000.tar"));
    assert!(!names(temp.path()).iter().any(|name| name.starts_with("out")));
}

#[test]
fn labels_that_stand_in_shards_must_stay_right() {
    let temp = tempfile::tempdir().unwrap();
    let [cats, ants, other] = ["cats", "ants", "other"].map(|name| temp.path().join(name));
    write(&temp.path().join("c/cat/1.png"), b"x");
    write(&temp.path().join("a/ant/1.png"), b"y");
    write(&temp.path().join("o/cat/2.png"), b"z");
    for (source, out) in [("c", &cats), ("a", &ants), ("o", &other)] {
        run_well(&[&"create", &temp.path().join(source), out, &"--cls", &"-q"]);
    }
    // Among ants, cats have the label 1; their shard says 0.
    let output = run(&[&"merge", &temp.path().join("out"), &cats, &ants, &"--relabel", &"-q"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("--cls") && !temp.path().join("out").exists(), "{output:?}");
    run_well(&[&"merge", &temp.path().join("out"), &cats, &other, &"-q"]);
    run_well(&[&"verify", &temp.path().join("out"), &"-q"]);
}

#[test]
fn shards_that_are_links_are_linked_by_their_files() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let [first, second, _] = three(temp.path());
    for (how, from) in [("--symlink", &first), ("--link", &first), ("--copy", &second)] {
        let (some, merged) = (at(&format!("some{how}")), at(&format!("merged{how}")));
        run_well(&[&"subset", from, &some, &"--fraction", &"1", &how, &"-q"]);
        run_well(&[&"merge", &merged, &some, &"--link", &"-q"]);
        let expected = classes(&some);
        let moved = at("moved");
        fs::rename(from, &moved).unwrap();
        for name in names(&merged).iter().filter(|name| name.ends_with(".tar")) {
            assert!(fs::symlink_metadata(merged.join(name)).unwrap().is_file(), "{how}: {name} is a link");
        }
        // A subset's shards may hold more samples than it has.
        assert_eq!(classes(&merged), expected);
        assert_eq!(extracted(&merged, &at(&format!("back{how}"))).len(), expected.len());
        fs::rename(&moved, from).unwrap();
    }
}

#[test]
fn shards_that_stay_in_place_may_be_of_any_datasets_with_shards_of_their_own() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two, _] = three(temp.path());
    let at = |name: &str| temp.path().join(name);
    // The same paths twice are no fault, as nothing is ever compared with a source by them.
    run_well(&[&"merge", &at("twice"), &one, &two, &one, &"--relabel", &"--in-place", &"-q"]);
    run_well(&[&"verify", &at("twice"), &"-q"]);
    let counted: Value = serde_json::from_str(&run_well(&[&"info", &at("twice"), &"--json"])).unwrap();
    assert_eq!(counted["samples"], 90);
    let refused = |args: &[&dyn AsRef<std::ffi::OsStr>], say: &str| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
        assert!(stderr_of(&output).contains(say), "{}", stderr_of(&output));
    };
    refused(&[&"merge", &at("x"), &at("twice"), &two, &"-q"], "and merge needs");
    refused(&[&"append", &at("one"), &at("twice"), &"-q"], "and append needs");
    refused(&[&"merge", &at("x"), &one, &two, &"--in-place", &"--link"], "cannot be used with");
    refused(
        &[&"merge", &"s3://bucket/x", &one, &"--in-place"],
        "--in-place: s3://bucket/x is in an object store",
    );
    assert!(!at("x").exists());
    // Each says what can be done: no remedy of another kind of index would work.
    refused(&[&"append", &at("one"), &at("twice"), &"-q"], "append to the last of the datasets");
    refused(&[&"merge", &at("x"), &at("twice"), &two, &"-q"], "merge the datasets that it was merged of");
    refused(&[&"subset", &at("twice"), &at("x"), &"--fraction", &"1"], "take subsets of the datasets");
    write(&at("labels.csv"), b"path,label\n");
    let labels = at("labels.csv");
    refused(&[&"relabel", &at("twice"), &at("x"), &"--labels", &labels], "relabel the datasets");
    let (first, path) = (one.canonicalize().unwrap(), "samples 0 and 60 have the same path 'bee/");
    let (first, twice) = (first.to_str().unwrap(), at("twice"));
    for command in
        [[&"extract" as &dyn AsRef<std::ffi::OsStr>, &twice, &at("x")], [&"diff", &at("one"), &twice]]
    {
        refused(&command, path);
        refused(&command, &format!("they are of {first} and of {first}, so"));
    }
    let output = run(&[&"create", &at("one"), &twice, &"-q"]);
    let text = stderr_of(&output);
    assert!(output.status.code() == Some(2) && !text.contains("not in the source"), "{text}");
}

#[test]
fn damaged_shards_in_place_are_made_again_in_their_datasets() {
    let temp = tempfile::tempdir().unwrap();
    let parts = three(temp.path());
    let placed = temp.path().join("placed");
    run_well(&[&"merge", &placed, &parts[0], &parts[1], &parts[2], &"--relabel", &"--in-place", &"-q"]);
    for part in &parts[..2] {
        let shard = fs::OpenOptions::new().write(true).open(part.join("shard-000000.tar")).unwrap();
        shard.set_len(1024).unwrap();
    }
    let output = run(&[&"verify", &placed, &"-q"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    let remedies: Vec<&str> = text.lines().filter(|line| line.starts_with("remedy: ")).collect();
    assert!(remedies.len() == 2 && !text.contains("shade-pack create"), "{text}");
    for (part, remedy) in parts.iter().zip(remedies) {
        let part = part.canonicalize().unwrap();
        assert!(remedy.contains(&format!("`shade-pack verify {}`", part.display())), "{text}");
    }
    for (source, part, more) in
        [("one", &parts[0], &[][..]), ("two", &parts[1], &["--compress", "zstd", "--cls"])]
    {
        fs::remove_file(part.join("shard-000000.tar")).unwrap();
        let mut create =
            program(&[&"create", &temp.path().join(source), part, &"--shard-size", &"8KiB", &"-q"]);
        assert!(create.args(more).output().unwrap().status.success());
    }
    run_well(&[&"verify", &placed, &"-q"]);
}
