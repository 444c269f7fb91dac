//! diff lists what only one side has and what differs. Its exit code is that of the program diff.

use std::fs;
use std::path::Path;

use crate::support::{noise, picture, run, run_well, stderr_of, tree, write};
use serde_json::Value;

fn images(root: &Path) {
    for number in 0..50u64 {
        let class = if number % 2 == 0 { "even" } else { "odd" };
        write(&root.join(format!("{class}/{number:02}.ppm")), &picture(number, 40, 30));
    }
    write(&root.join("odd/noise.png"), &noise(1, 2000));
}

fn diff(source: &Path, dataset: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"diff", &source, &dataset, &"--json", &"-q"];
    args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    let output = run(&args);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("{output:?}")))
}

#[test]
fn every_kind_of_difference_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    images(&source);
    for (name, compress) in [("plain", "none"), ("small", "zstd")] {
        run_well(&[&"create", &source, &temp.path().join(name), &"--compress", &compress, &"-q"]);
    }
    for name in ["plain", "small"] {
        let (code, found) = diff(&source, &temp.path().join(name), &[]);
        assert_eq!(
            (code, &found["same"], &found["in_both"]),
            (Some(0), &true.into(), &51.into()),
            "{found:#}"
        );
    }
    fs::rename(source.join("odd/01.ppm"), source.join("odd/new.ppm")).unwrap();
    let mut bytes = fs::read(source.join("even/02.ppm")).unwrap();
    bytes[1000] ^= 1;
    fs::write(source.join("even/02.ppm"), bytes).unwrap();
    write(&source.join("odd/03.ppm"), &picture(3, 41, 30));
    write(&source.join("odd/05.ppm"), b"");
    let before = tree(&source);
    for name in ["plain", "small"] {
        let out = temp.path().join(name);
        let (code, found) = diff(&source, &out, &[]);
        assert_eq!(code, Some(1));
        assert_eq!(found["only_in_source"], serde_json::json!(["odd/new.ppm"]));
        assert_eq!(found["only_in_dataset"], serde_json::json!(["odd/01.ppm", "odd/05.ppm"]));
        assert_eq!(found["different"].as_array().unwrap().len(), 2, "{found:#}");
        assert!(found["bad"][0]["path"].as_str().unwrap().ends_with("odd/05.ppm"));
        let text = String::from_utf8(run(&[&"diff", &source, &out, &"-q"]).stdout).unwrap();
        for line in [
            "+ odd/new.ppm",
            "- odd/01.ppm",
            "~ even/02.ppm: its content differs",
            "~ odd/03.ppm: 3703 bytes in the source, 3613 in the dataset",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let (code, found) = diff(&source, &out, &["--names-only"]);
        assert_eq!(
            (code, &found["different"], &found["contents"]),
            (Some(1), &serde_json::json!([]), &false.into())
        );
        let (code, found) = diff(&source, &out, &["--exclude", "odd"]);
        assert_eq!((code, found["only_in_dataset"].as_array().unwrap().len()), (Some(1), 26));
    }
    assert!(tree(&source) == before);
}

#[test]
fn classes_are_compared_by_name() {
    let temp = tempfile::tempdir().unwrap();
    let (out, list) = (temp.path().join("out"), temp.path().join("list.csv"));
    for number in 0..4u64 {
        write(&temp.path().join(format!("img/{number}.png")), &noise(number, 100));
    }
    fs::write(&list, "path,label\nimg/0.png,b\nimg/1.png,b\nimg/2.png,c\n").unwrap();
    run_well(&[&"create", &list, &out, &"-q"]);
    fs::write(&list, "path,label\nimg/0.png,a\nimg/1.png,b\nimg/2.png,c\n").unwrap();
    let (code, found) = diff(&list, &out, &["--from", "list"]);
    let expected = serde_json::json!([{"path": "img/0.png", "why": "its class is 'a' in the source, 'b' in the dataset"}]);
    assert_eq!((code, &found["different"]), (Some(1), &expected));
}

#[test]
fn transformed_images_are_compared_by_name_and_it_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    fs::remove_file(source.join("odd/noise.png")).unwrap();
    run_well(&[&"create", &source, &out, &"--format", &"jpeg", &"--resize-short", &"16", &"-q"]);
    let (code, found) = diff(&source, &out, &[]);
    assert_eq!((code, &found["contents"]), (Some(0), &false.into()));
    assert!(found["note"].as_str().unwrap().contains("transformed"));
    let output = run(&[&"diff", &temp.path().join("nothing"), &out]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
}
