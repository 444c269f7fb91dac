//! Commands name a source file that was written to since it was packed, at any length; a dataset
//! without times says so.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use crate::support::{picture, run, run_well, stderr_of, tree, write};
use serde_json::Value;

const TIMES: &str = "dataset.times";

fn images(root: &Path) {
    for number in 0..12u64 {
        write(&root.join(format!("c{}/{number:02}.ppm", number % 2)), &picture(number, 20, 10));
    }
}

/// The folder of images and the dataset that it was packed into.
fn packed(temp: &Path) -> (PathBuf, PathBuf) {
    let (source, out) = (temp.join("images"), temp.join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q"]);
    (source, out)
}

/// Gives a file another time, an hour ago.
fn touch(path: &Path) {
    let time = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Changes a byte of a file, and so its time.
fn edit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[100] ^= 1;
    fs::write(path, bytes).unwrap();
    touch(path);
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, Value) {
    let output = run(args);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}")))
}

#[test]
fn an_edit_of_equal_length_is_no_finished_work() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    let before = tree(&out);
    assert!(run_well(&[&"create", &source, &out, &"-q"]).ends_with("nothing was written\n"));
    assert!(run_well(&[&"append", &source, &out, &"-q"]).contains("nothing new"));
    edit(&source.join("c0/04.ppm"));
    touch(&source.join("c1/07.ppm"));
    for command in ["create", "append"] {
        let output = run(&[&command, &source, &out, &"-q"]);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let text = text(&output);
        assert!(
            text.contains("2 files of the source were written to") && text.contains("at equal length"),
            "{text}"
        );
        assert!(text.contains("c0/04.ppm, c1/07.ppm") && !text.contains("c0/02.ppm"), "{text}");
        assert!(text.contains("shade-pack diff"), "{text}");
        let (code, report) = json(&[&command, &source, &out, &"-q", &"--json"]);
        let part = report.get("parts").map_or(&report, |parts| &parts[0]);
        assert_eq!((code, &part["changes"]["touched"]["count"]), (Some(5), &2.into()), "{report:#}");
    }
    // diff says which of the two has other bytes.
    let (code, found) = json(&[&"diff", &source, &out, &"-q", &"--json"]);
    assert_eq!((code, found["different"].as_array().unwrap().len()), (Some(1), 1));
    assert_eq!(found["different"][0]["path"], "c0/04.ppm");
    assert!(tree(&out) == before);
}

#[test]
fn of_many_changed_files_some_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    for number in 0..12 {
        touch(&source.join(format!("c{}/{number:02}.ppm", number % 2)));
    }
    let output = run(&[&"create", &source, &out, &"-q"]);
    assert!(text(&output).contains("c0/08.ppm and 7 more"), "{output:?}");
    assert_eq!(run(&[&"diff", &source, &out, &"-q"]).status.code(), Some(0));
}

#[test]
fn new_samples_are_appended_although_known_ones_were_written_to() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    touch(&source.join("c1/03.ppm"));
    write(&source.join("c1/99.ppm"), &picture(99, 20, 10));
    let (code, report) = json(&[&"append", &source, &out, &"-q", &"--json"]);
    assert_eq!(
        (code, &report["appended"], &report["changes"]["touched"]["count"]),
        (Some(5), &1.into(), &1.into())
    );
    // The times of appended files are known, too.
    touch(&source.join("c1/99.ppm"));
    let output = run(&[&"append", &source, &out, &"-q"]);
    assert!(text(&output).contains("c1/03.ppm, c1/99.ppm"), "{output:?}");
}

#[test]
fn a_destination_that_is_other_work_is_compared() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    write(&source.join("c0/04.ppm"), b"shorter");
    touch(&source.join("c0/06.ppm"));
    fs::rename(source.join("c1/01.ppm"), source.join("c1/renamed.ppm")).unwrap();
    let output = run(&[&"create", &source, &out, &"-q", &"--seed", &"9"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = stderr_of(&output);
    for part in [
        "exists: remove it",
        "c0/04.ppm (613 bytes then, 7 now)",
        "at equal length: c0/06.ppm",
        "are new: c1/renamed.ppm",
        "any more: c1/01.ppm",
        "others: seed",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn other_labels_of_the_same_files_are_other_work() {
    let temp = tempfile::tempdir().unwrap();
    let (list, out) = (temp.path().join("list.csv"), temp.path().join("out"));
    write(&temp.path().join("img/1.ppm"), &picture(1, 20, 10));
    write(&list, b"path,label\nimg/1.ppm,bee\n");
    run_well(&[&"create", &list, &out, &"-q"]);
    write(&list, b"path,label\nimg/1.ppm,wasp\n");
    let output = run(&[&"create", &list, &out, &"-q"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr_of(&output).contains("labels or fields are others"), "{output:?}");
}

#[test]
fn lengths_of_transformed_images_are_known() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q", &"--format", &"jpeg"]);
    write(&source.join("c0/04.ppm"), &picture(4, 21, 10));
    let output = run(&[&"append", &source, &out, &"-q"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr_of(&output).contains("of 613 bytes, not 643"), "{output:?}");
}

#[test]
fn a_dataset_without_times_is_read_and_says_that_it_does_not_know() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    edit(&source.join("c0/04.ppm"));
    let whole = fs::read(out.join(TIMES)).unwrap();
    fs::write(out.join(TIMES), [&whole[..whole.len() - 1], &[whole[whole.len() - 1] ^ 1]].concat()).unwrap();
    let verified = run_well(&[&"verify", &out, &"-q"]);
    assert!(verified.contains("dataset.times is damaged") && verified.contains("are whole"), "{verified}");
    let told = run_well(&[&"create", &source, &out, &"-q"]);
    assert!(told.contains("is not known (dataset.times is damaged: crc32c"), "{told}");
    fs::remove_file(out.join(TIMES)).unwrap();
    for command in ["create", "append"] {
        let told = run_well(&[&command, &source, &out, &"-q"]);
        assert!(told.contains("12 files of the source") && told.contains("not recorded"), "{told}");
        assert!(told.contains("shade-pack diff"), "{told}");
    }
    assert!(run_well(&[&"info", &out]).contains("known of the source files of 0 samples"));
    // Files that are appended from now on have times.
    write(&source.join("c1/99.ppm"), &picture(99, 20, 10));
    run_well(&[&"append", &source, &out, &"-q"]);
    let about: Value = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
    assert_eq!(about["times_known"], 1);
    touch(&source.join("c1/99.ppm"));
    assert_eq!(run(&[&"append", &source, &out, &"-q"]).status.code(), Some(5));
    assert!(!run_well(&[&"verify", &out, &"-q"]).contains("damaged"));
}

#[test]
fn a_copy_of_a_source_gives_the_same_index_and_shards() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    let (copy, again) = (temp.path().join("copy"), temp.path().join("again"));
    images(&copy);
    touch(&copy.join("c0/00.ppm"));
    run_well(&[&"create", &copy, &again, &"-q"]);
    let (mut first, mut second) = (tree(&out), tree(&again));
    assert!(first.remove(TIMES).unwrap() != second.remove(TIMES).unwrap());
    assert!(first == second, "{:?} and {:?}", first.keys(), second.keys());
    assert_eq!(run(&[&"create", &source, &out, &"-q"]).status.code(), Some(0));
    assert_eq!(run(&[&"create", &copy, &out, &"-q"]).status.code(), Some(5));
}

#[test]
fn merged_datasets_keep_the_times_of_each() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = packed(temp.path());
    let (more, other, all) = (temp.path().join("more"), temp.path().join("other"), temp.path().join("all"));
    write(&more.join("c2/50.ppm"), &picture(50, 20, 10));
    run_well(&[&"create", &more, &other, &"-q"]);
    run_well(&[&"merge", &all, &other, &out, &"--relabel", &"-q"]);
    assert!(run_well(&[&"append", &source, &all, &"-q"]).contains("nothing new"));
    edit(&source.join("c0/04.ppm"));
    let output = run(&[&"append", &source, &all, &"-q"]);
    assert!(output.status.code() == Some(5) && text(&output).contains("c0/04.ppm"), "{output:?}");
}

#[test]
fn every_split_is_compared() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for split in ["train", "val"] {
        images(&source.join(split));
    }
    run_well(&[&"create", &source, &out, &"-q", &"--splits", &"train,val"]);
    edit(&source.join("val/c0/04.ppm"));
    let output = run(&[&"create", &source, &out, &"-q", &"--splits", &"train,val"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let (text, out) = (text(&output), out.join("val"));
    assert!(
        text.contains(&format!("shade-pack diff {} {}", source.join("val").display(), out.display())),
        "{text}"
    );
}

#[test]
fn of_transformed_images_nobody_is_sent_to_diff() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q", &"--format", &"raw"]);
    edit(&source.join("c0/04.ppm"));
    for (command, format) in [("create", &["--format", "raw"][..]), ("append", &[])] {
        let mut args: Vec<&dyn AsRef<OsStr>> = vec![&command, &source, &out, &"-q"];
        args.extend(format.iter().map(|arg| arg as &dyn AsRef<OsStr>));
        let told = || text(&run(&args));
        assert_eq!(run(&args).status.code(), Some(5), "{}", told());
        assert!(told().contains("c0/04.ppm") && !told().contains("shade-pack diff"), "{}", told());
        assert!(told().contains("images were transformed: only packing again tells"), "{}", told());
        let times = fs::read(out.join(TIMES)).unwrap();
        fs::remove_file(out.join(TIMES)).unwrap();
        assert!(told().contains("not recorded") && !told().contains("shade-pack diff"), "{}", told());
        fs::write(out.join(TIMES), times).unwrap();
    }
}
