//! A source that is not what it seems: the message says what to do, and nothing is taken for
//! something else without a word.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::{noise, run, run_well, stderr_of, tar_of, write};

#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let text = stderr_of(output);
    assert!(!output.status.success(), "{output:?}");
    for part in parts {
        assert!(text.contains(part), "{part} in: {text}");
    }
}

fn create(source: &Path, more: &[&str]) -> Output {
    let out = source.with_extension("out");
    let _ = fs::remove_dir_all(&out);
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &source, &out, &"-q"];
    args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    run(&args)
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const AVIF: &[u8] = b"\0\0\0\x20ftypavif\0\0\0\0avifmif1miaf and so on";

#[test]
fn folders_that_are_no_image_folder() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    write(&at("gz/a.tar.gz"), b"x");
    refused(&create(&at("gz"), &[]), &["compressed", "decompress"]);
    write(&at("nested/train/a.tar"), b"x");
    refused(&create(&at("nested"), &[]), &["holds tars", "a.tar", "SOURCE"]);
    write(&at("flat/1.jpg"), b"x");
    write(&at("flat/2.jpg"), b"y");
    refused(&create(&at("flat"), &[]), &["couldn't find any class", "2 images", "CSV", "--labels none"]);
    for split in ["train", "val"] {
        write(&at("splits").join(split).join("cat/1.jpg"), split.as_bytes());
    }
    assert!(
        said(&create(&at("splits"), &[])).contains(
            "note: folders called train,val became classes; if they are splits: --splits train,val"
        )
    );
    write(&at("tools/cat/1.jpg"), b"x");
    for folder in [".ipynb_checkpoints", "__MACOSX", ".git", "@eaDir", "cat/.ipynb_checkpoints"] {
        write(&at("tools").join(folder).join("2.jpg"), b"x");
    }
    let report = said(&create(&at("tools"), &["--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.contains("'cat/.ipynb_checkpoints'") && note.contains("'@eaDir'") && note.contains("--exclude")
    );
}

#[test]
fn classes_without_an_image_are_refused_or_kept() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    write(&at("one/cat/1.jpg"), b"x");
    fs::create_dir(at("one/lost+found")).unwrap();
    write(&at("one/.ipynb_checkpoints/notes.txt"), b"x");
    refused(
        &create(&at("one"), &["--on-bad", "skip"]),
        &[
            "found no valid file for the classes .ipynb_checkpoints, lost+found",
            "--exclude",
            "--allow-empty",
            "notes.txt",
        ],
    );
    let report = said(&create(&at("one"), &["--allow-empty"]));
    assert!(report.contains("1 samples of 3 classes"), "{report}");
    assert!(run(&[&"diff", &at("one"), &at("one.out"), &"-q"]).status.success());
    // As torchvision's labels: the class keeps its place.
    assert_eq!(run_well(&[&"ls", &at("one.out")]), "0\t1\tcat/1.jpg\n");
    // A class that one split lacks may also be an empty folder there.
    write(&at("two/train/cat/1.jpg"), b"x");
    write(&at("two/train/dog/1.jpg"), b"x");
    write(&at("two/val/dog/2.jpg"), b"x");
    fs::create_dir(at("two/val/cat")).unwrap();
    said(&create(&at("two"), &["--splits", "train,val"]));
    for split in ["train", "val"] {
        fs::create_dir(at("two").join(split).join("eel")).unwrap();
    }
    refused(&create(&at("two"), &["--splits", "train,val"]), &["classes eel"]);
    // The same in parts.
    let out = at("parts");
    for part in ["0/2", "1/2"] {
        run_well(&[&"list", &at("two"), &out, &"--splits", &"train,val", &"--part", &part, &"-q"]);
    }
    refused(
        &run(&[&"plan", &at("two"), &out, &"--splits", &"train,val", &"--listed", &"-q"]),
        &["classes eel"],
    );
    let plan: [&dyn AsRef<std::ffi::OsStr>; 8] =
        [&"plan", &at("two"), &out, &"--splits", &"train,val", &"--listed", &"--allow-empty", &"-q"];
    run_well(&plan);
    run_well(&[&"create", &at("two"), &out, &"--part", &"0/1", &"-q"]);
    run_well(&[&"finish", &out, &"-q"]);
}

#[test]
fn nothing_left_is_no_success() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    write(&at("a/cat/1.jpg"), b"");
    refused(&create(&at("a"), &["--on-bad", "skip", "--allow-empty"]), &["no sample is left", "cat/1.jpg"]);
    // What only decoding finds.
    write(&at("b/cat/1.jpg"), b"<html>");
    refused(
        &create(&at("b"), &["--on-bad", "skip", "--format", "raw"]),
        &["no sample is left", "no image: HTML"],
    );
    write(&at("b/dog/1.ppm"), b"P6\n1 1\n255\nabc");
    write(&at("b/eel/1.jpg"), AVIF);
    let skip = ["--on-bad", "skip", "--format", "raw"];
    refused(&create(&at("b"), &skip), &["classes cat, eel", "not decodable: AVIF", "--allow-empty"]);
    // What is complete is not packed again.
    let output = create(&at("b"), &[&skip[..], &["--allow-empty"]].concat());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert_eq!(run_well(&[&"ls", &at("b.out")]), "0\t1\tdog/1.ppm\n");
    // The same with parts, and for what is appended.
    for (more, is_refused) in [(&[][..], true), (&["--allow-empty"], false)] {
        let out = at(&format!("parts {is_refused}"));
        let mut plan: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"plan"];
        let source = at("b");
        plan.extend([&source as &dyn AsRef<std::ffi::OsStr>, &out, &"-q"]);
        plan.extend(skip.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        plan.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        run_well(&plan);
        run_well(&[&"create", &source, &out, &"--part", &"0/1", &"-q"]);
        let finished = run(&[&"finish", &out, &"-q"]);
        assert_eq!(finished.status.code(), Some(if is_refused { 1 } else { 4 }), "{finished:?}");
    }
    write(&at("c/fox/1.jpg"), b"<html>");
    let append: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"append", &at("c"), &at("b.out"), &"--on-bad", &"skip", &"-q"];
    refused(&run(&append), &["no sample is left"]);
    run_well(&[&"verify", &at("b.out"), &"-q"]);
}

#[test]
fn what_is_no_image_is_counted_and_named() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let kinds: [(&str, &[u8]); 6] = [
        ("1.jpg", b"<!DOCTYPE html>"),
        ("2.jpg", b"version https://git-lfs.github.com/spec/v1\n"),
        ("3.jpg", AVIF),
        ("4.jpg", b"GIF89a\x01\0\x01\0"),
        ("5.jpg", b"hello"),
        ("6.ppm", b"P6\n1 1\n255\nabc"),
    ];
    for (name, bytes) in kinds {
        write(&at("a/cat").join(name), bytes);
    }
    for more in [&["--json"][..], &["--json", "--compress", "zstd"]] {
        let report: Value = serde_json::from_str(&said(&create(&at("a"), more))).unwrap();
        let found = report["parts"][0]["not_decodable"].as_object().unwrap();
        let found: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(found, ["AVIF", "GIF", "HTML", "a Git LFS pointer", "text"]);
        assert_eq!(report["parts"][0]["not_decodable"]["AVIF"]["first"][0], "cat/3.jpg");
    }
    assert!(said(&create(&at("a"), &[])).contains("5 records cannot be decoded"));
    // An image of another kind is whole.
    for name in ["1.jpg", "2.jpg", "5.jpg"] {
        fs::remove_file(at("a/cat").join(name)).unwrap();
    }
    said(&create(&at("a"), &[]));
    let verified = run_well(&[&"verify", &at("a.out"), &"--decode", &"-q"]);
    assert!(
        verified.contains("not decodable:") && verified.contains(": AVIF") && !verified.contains("damaged")
    );
    write(&at("a/cat/1.jpg"), b"<html>");
    said(&create(&at("a"), &[]));
    let output = run(&[&"verify", &at("a.out"), &"--decode", &"-q"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no image: HTML"), "{output:?}");
}

#[test]
fn captions_are_no_classes() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let captions = ["a dog", "a photo of a dog", "two cats", "a dog", "a boat at sea"];
    let members: Vec<(String, Vec<u8>)> = (0u64..)
        .zip(captions)
        .flat_map(|(n, text)| {
            [(format!("{n}.jpg"), noise(n, 40)), (format!("{n}.txt"), text.as_bytes().to_vec())]
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    tar_of(&at("tars/a.tar"), &members);
    let report = said(&create(&at("tars"), &[]));
    assert!(report.contains(".txt members are captions") && report.contains("--labels txt"), "{report}");
    let info: Value = serde_json::from_str(&run_well(&[&"info", &at("tars.out"), &"--json"])).unwrap();
    assert_eq!((&info["classes"][0]["name"], &info["with_fields"]), (&"none".into(), &5.into()));
    assert_eq!(info["classes"].as_array().unwrap().len(), 1);
    // With their labels, as asked for, it is another dataset: each goes on as it began.
    refused(
        &run(&[&"create", &at("tars"), &at("tars.out"), &"-q", &"--labels", &"txt"]),
        &["labels or fields are others"],
    );
    assert!(said(&create(&at("tars"), &["--labels", "txt"])).contains("5 samples of 4 classes"));
    refused(
        &run(&[&"create", &at("tars"), &at("tars.out"), &"-q"]),
        &["labels or fields are others", "--labels txt"],
    );
    tar_of(&at("more/b.tar"), &[("1.jpg", b"x"), ("1.txt", b"two cats")]);
    let more: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"append", &at("more"), &at("tars.out"), &"-q"];
    refused(&run(&more), &["has labels", "--labels txt", "--labels none"]);
    assert!(run_well(&[&more[..], &[&"--labels", &"txt"]].concat()).contains("6 samples now"));
    let mut csv = "path,label\n".to_owned();
    for n in 0..12 {
        write(&at(&format!("csv/{n}.jpg")), &noise(n, 40));
        csv += &format!("{n}.jpg,caption number {n}\n");
    }
    write(&at("csv/list.csv"), csv.as_bytes());
    let list = at("csv/list.csv");
    refused(&create(&list, &[]), &["12 classes for 12 samples", "captions?"]);
    said(&create(&list, &["--labels", "none"]));
    let info: Value = serde_json::from_str(&run_well(&[&"info", &at("csv/list.out"), &"--json"])).unwrap();
    assert_eq!(info["with_fields"], 12, "the texts are fields");
}

#[test]
fn images_without_labels_are_packed() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    write(&at("flat/b.jpg"), b"x");
    write(&at("flat/a/2.jpg"), b"y");
    write(&at("flat/a/notes.txt"), b"z");
    write(&at("list.csv"), b"path\nflat/b.jpg\n");
    tar_of(&at("tars/t.tar"), &[("1.jpg", b"x"), ("1.json", b"{}"), ("2.jpg", b"y")]);
    refused(&create(&at("list.csv"), &[]), &["--labels none"]);
    refused(&create(&at("tars"), &[]), &["no label", "--labels none"]);
    for (source, lines) in [
        ("flat", "0\t0\tb.jpg\n1\t0\ta/2.jpg\n"),
        ("list.csv", "0\t0\tflat/b.jpg\n"),
        ("tars", "0\t0\tt/1.jpg\n1\t0\tt/2.jpg\n"),
    ] {
        said(&create(&at(source), &["--labels", "none"]));
        let out = at(source).with_extension("out");
        assert_eq!(run_well(&[&"ls", &out]), lines, "{source}");
        run_well(&[&"diff", &at(source), &out, &"--labels", &"none", &"-q"]);
        let shard = out.join("shard-000000.tar");
        let whole = fs::read(&shard).unwrap();
        fs::remove_file(&shard).unwrap();
        said(&create(&at(source), &["--labels", "none"]));
        assert!(fs::read(&shard).unwrap() == whole, "{source}");
    }
}

#[test]
fn dots_in_names_of_members_are_explained() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    tar_of(&at("a/t.tar"), &[("img.v1.0.jpg", b"x"), ("img.v2.0.jpg", b"x"), ("img.cls", b"0")]);
    refused(&create(&at("a"), &[]), &["first dot", "v1.0.jpg", "rename"]);
    tar_of(&at("b/t.tar"), &[("img.v1.0.jpg", b"x"), ("img-v1.cls", b"0")]);
    refused(&create(&at("b"), &[]), &["first dot", "v1.0.jpg"]);
}

#[test]
fn an_extension_that_no_member_can_have_is_a_bad_sample() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let long = format!("x.{}", "e".repeat(100));
    write(&at(&long), b"x");
    write(&at("good.jpg"), b"y");
    write(&at("list.csv"), format!("path,label\n{long},0\ngood.jpg,0\n").as_bytes());
    for more in [&[][..], &["--compress", "zstd"]] {
        refused(&create(&at("list.csv"), more), &["its extension of 100 bytes", "--on-bad skip"]);
        let output = create(&at("list.csv"), &[&["--on-bad", "skip"][..], more].concat());
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(run_well(&[&"ls", &at("list.out")]).contains("good.jpg"));
        refused(
            &create(&at("list.csv"), &[&["--on-bad", "list"][..], more].concat()),
            &["its extension of 100"],
        );
    }
}
