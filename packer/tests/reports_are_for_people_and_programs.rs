//! --json prints one object on standard output; text tells the same; progress goes to standard
//! error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::support::{noise, run, run_well, stderr_of, write};
use serde_json::Value;

#[test]
fn json_and_text_tell_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, back) = (temp.path().join("images"), temp.path().join("out"), temp.path().join("back"));
    for number in 0..10u64 {
        write(
            &source.join(format!("{}/{number}.png", ["cat", "dog"][usize::from(number > 6)])),
            &noise(number, 100),
        );
    }
    write(&source.join("dog/flat.bmp"), &[b"BM\0\0\0\0\0\0\0\0\x36\0\0\0", &[7; 4000][..]].concat());
    let json = |text: String| -> Value {
        assert_eq!(text.lines().count(), 1);
        serde_json::from_str(&text).unwrap()
    };
    let created =
        json(run_well(&[&"create", &source, &out, &"--compress", &"zstd:9", &"--seed", &"5", &"--json"]));
    let part = &created["parts"][0];
    assert_eq!((&part["samples"], &part["classes"], &part["shards"]), (&11.into(), &2.into(), &1.into()));
    assert_eq!((&created["source_bytes"], &part["compressed"]), (&5014.into(), &1.into()));
    assert!(created["seconds"].as_f64().unwrap() > 0.0 && created["mb_per_s"].as_f64().unwrap() > 0.0);

    let info = json(run_well(&[&"info", &out, &"--json"]));
    assert_eq!(info["content_id"], part["content_id"]);
    assert_eq!(info["classes"][0]["name"], "cat");
    assert_eq!((&info["classes"][0]["samples"], &info["classes"][1]["samples"]), (&7.into(), &4.into()));
    assert_eq!((&info["raw_bytes"], &info["media"]["bmp"]), (&5014.into(), &1.into()));
    assert_eq!((&info["record_bytes"]["p50"], &info["record_bytes"]["max"]), (&100.into(), &100.into()));
    assert_eq!((&info["options"]["seed"], &info["options"]["compress"]), (&5.into(), &"zstd:9".into()));
    let text = run_well(&[&"info", &out]);
    let id = part["content_id"].as_str().unwrap();
    assert!(text.contains(id) && text.contains("cat") && text.contains("samples     11"), "{text}");

    let verified = json(run_well(&[&"verify", &out, &"--json"]));
    assert_eq!((&verified["samples"], &verified["damaged"]), (&11.into(), &Value::Array(Vec::new())));
    let extracted = json(run_well(&[&"extract", &out, &back, &"--json"]));
    assert_eq!((&extracted["samples"], &extracted["bytes"]), (&11.into(), &5014.into()));
}

#[test]
fn a_directory_whose_name_is_not_text_is_still_reported() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join(OsStr::from_bytes(b"out-\xff")));
    write(&source.join("cat/1.png"), b"x");
    let created: Value = serde_json::from_str(&run_well(&[&"create", &source, &out, &"--json"])).unwrap();
    assert!(created["dataset"].as_str().unwrap().contains("out-"));
}

#[test]
fn progress_is_lines_on_standard_error_unless_quiet() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    write(&source.join("cat/1.png"), b"x");
    let loud = run(&[&"create", &source, &temp.path().join("loud")]);
    assert!(stderr_of(&loud).contains("packing: 1 of 1 records"), "{loud:?}");
    let quiet = run(&[&"create", &source, &temp.path().join("quiet"), &"--quiet"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty() && !quiet.stdout.is_empty(), "{quiet:?}");
}

#[test]
fn help_explains_units_and_defaults() {
    let help = run_well(&[&"create", &"--help"]);
    for word in [
        "--shard-size <BYTES>",
        "Default: 1GiB",
        "--seed <N>",
        "zstd:LEVEL",
        "--no-shuffle",
        "--jobs",
        "--pair <NAME=FOLDER>",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    assert!(run_well(&[&"--help"]).contains("Exit codes: 0 done"));
    assert!(run_well(&[&"--version"]).starts_with("shade-pack "));
}
