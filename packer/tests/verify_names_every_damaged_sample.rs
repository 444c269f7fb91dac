//! verify finds each kind of damage, names shard, offset and original path, and exits with 3.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::support::{copy_program, noise, picture, run, run_well, stderr_of, write};
use serde_json::Value;
use shade_formats::index::INDEX_FILE;
use shade_formats::{SampleId, ShardId};
use shade_pack::dataset::Dataset;

/// 30 samples in several shards.
fn dataset(temp: &Path) -> PathBuf {
    let (source, out) = (temp.join("images"), temp.join("out"));
    for number in 0..30u64 {
        write(&source.join(format!("class {}/{number:02}.png", number % 3)), &noise(number, 1000));
    }
    run_well(&[&"create", &source, &out, &"--shard-size", &"12KiB", &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    out
}

/// Exit code, paths of damaged samples, faults of shards.
fn verify(out: &Path) -> (Option<i32>, BTreeSet<String>, Vec<String>, Value) {
    let output = run(&[&"verify", &out, &"--json", &"-q"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let damaged = report["damaged"].as_array().unwrap().iter().map(|sample| text(&sample["path"])).collect();
    let shards = report["damaged_shards"].as_array().unwrap();
    let shards =
        shards.iter().map(|shard| format!("{} {}", text(&shard["shard"]), text(&shard["fault"]))).collect();
    (output.status.code(), damaged, shards, report)
}

fn bend(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

#[test]
fn flipped_bytes_in_records_and_headers_are_pinned_to_their_samples() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    let whole = Dataset::open(&out).unwrap();
    let (in_record, in_header) = (SampleId(4), SampleId(17));
    let record = whole.index.entry(in_record).unwrap();
    let header = whole.index.entry(in_header).unwrap();
    bend(&whole.shard_path(record.shard), record.offset + 999);
    bend(&whole.shard_path(header.shard), header.offset - 512 + 3);
    let (code, damaged, shards, report) = verify(&out);
    assert_eq!(code, Some(3));
    let expected = [in_record, in_header].map(|sample| whole.path_text(sample));
    assert_eq!(damaged, BTreeSet::from(expected));
    assert!(!shards.is_empty() && shards.iter().all(|fault| fault.contains("crc32c")), "{shards:?}");
    let of_record =
        report["damaged"].as_array().unwrap().iter().find(|sample| sample["sample"] == 4).unwrap();
    assert_eq!(of_record["offset"], record.offset);
    assert_eq!(of_record["shard"], whole.shard_path(record.shard).to_str().unwrap());
    assert!(of_record["fault"].as_str().unwrap().contains("CRC32C"));

    let output = run(&[&"verify", &out, &"-q"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!(
        "damaged sample 4 ({}) at byte {}",
        whole.path_text(in_record),
        record.offset
    )));
    assert!(text.contains("2 of 30 samples are damaged"), "{text}");
    let first = whole.shard_path(record.shard.min(header.shard));
    let remedy = format!("remedy: remove {} and the other damaged shards and run", first.display());
    let create = format!("`shade-pack create SOURCE {}` again", out.display());
    assert!(text.contains(&remedy) && text.contains(&create), "{text}");
}

#[test]
fn swapped_records_are_found_by_their_names() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    let whole = Dataset::open(&out).unwrap();
    let [(a, first), (b, second)] = whole.samples_by_shard()[0][..2] else { panic!("two records") };
    let path = whole.shard_path(ShardId(0));
    let mut bytes = fs::read(&path).unwrap();
    let at = |offset: u64| usize::try_from(offset).unwrap() - 512..usize::try_from(offset).unwrap() + 1024;
    let (one, two) = (bytes[at(first.offset)].to_vec(), bytes[at(second.offset)].to_vec());
    bytes[at(first.offset)].copy_from_slice(&two);
    bytes[at(second.offset)].copy_from_slice(&one);
    fs::write(path, bytes).unwrap();
    let (code, damaged, _, report) = verify(&out);
    assert_eq!((code, damaged), (Some(3), BTreeSet::from([a, b].map(|sample| whole.path_text(sample)))));
    assert!(report["damaged"][0]["fault"].as_str().unwrap().contains("tar header says"));
}

#[test]
fn a_byte_between_records_damages_the_shard_but_no_sample() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    let whole = Dataset::open(&out).unwrap();
    bend(&whole.shard_path(ShardId(1)), whole.index.shard(ShardId(1)).unwrap().bytes - 1);
    let (code, damaged, shards, _) = verify(&out);
    assert_eq!((code, damaged.len(), shards.len()), (Some(3), 0, 1));
    assert!(shards[0].contains("shard-000001.tar"));
}

#[test]
fn a_truncated_shard_loses_its_tail_and_a_missing_one_all() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    let whole = Dataset::open(&out).unwrap();
    let shards = whole.samples_by_shard();
    let cut = shards[0][2].1.offset + 100;
    fs::OpenOptions::new().write(true).open(whole.shard_path(ShardId(0))).unwrap().set_len(cut).unwrap();
    fs::remove_file(whole.shard_path(ShardId(2))).unwrap();
    let (code, damaged, faults, _) = verify(&out);
    let lost = shards[0][2..].iter().chain(&shards[2]);
    assert_eq!(code, Some(3));
    assert_eq!(damaged, lost.map(|(sample, _)| whole.path_text(*sample)).collect());
    assert!(
        faults.iter().any(|fault| fault.contains("shard-000000.tar") && fault.contains("bytes, expected"))
    );
    assert!(
        faults.iter().any(|fault| fault.contains("shard-000002.tar") && fault.contains("cannot be opened"))
    );
}

#[test]
fn a_damaged_index_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    bend(&out.join(INDEX_FILE), 300);
    for command in ["verify", "info"] {
        let output = run(&[&command, &out]);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr_of(&output).contains(INDEX_FILE) && stderr_of(&output).contains("at byte"));
    }
    fs::remove_file(out.join(INDEX_FILE)).unwrap();
    let output = run(&[&"verify", &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("is no dataset"));
}

/// Runs the program as a user who is not root.
fn run_as_nobody(temp: &Path, args: &[&dyn AsRef<std::ffi::OsStr>]) -> std::process::Output {
    let program = temp.join("shade-pack");
    copy_program(&program);
    fs::set_permissions(temp, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(program);
    command.args(args.iter().map(|arg| arg.as_ref()));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command.output().unwrap()
}

#[test]
fn shards_that_may_not_be_read_are_not_called_damaged() {
    let temp = tempfile::tempdir().unwrap();
    let out = dataset(temp.path());
    let whole = Dataset::open(&out).unwrap();
    let closed = whole.shard_path(ShardId(1));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let unread = whole.samples_by_shard()[1].len();
    let output = run_as_nobody(temp.path(), &[&"verify", &out, &"-q"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("cannot read shard") && text.contains("Permission denied"), "{text}");
    assert!(text.contains(&format!("{unread} of {} samples could not be read", whole.index.len())), "{text}");
    assert!(!text.contains("are damaged") && !text.contains("damaged shard"), "{text}");
    let output = run_as_nobody(temp.path(), &[&"verify", &out, &"-q", &"--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["unread"], &found["damaged"]), (&unread.into(), &serde_json::json!([])));
    assert!(
        found["unreadable_shards"][0]["shard"].as_str().unwrap().ends_with("shard-000001.tar"),
        "{found:#}"
    );

    // Other damage is found, and decides the exit code.
    bend(&whole.shard_path(ShardId(0)), whole.samples_by_shard()[0][0].1.offset);
    let output = run_as_nobody(temp.path(), &[&"verify", &out, &"-q"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        text.contains("1 of ") && text.contains(&format!("{unread} samples could not be read")),
        "{text}"
    );
}

/// A grey pixel, without the IEND chunk behind it.
fn png_without_end() -> Vec<u8> {
    let chunks = "0000000d49484452000000010000000108000000003a7e9b55\
                  0000000a49444154789c636800000082008177cd72b6";
    let digits: Vec<u8> = chunks.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    [&b"\x89PNG\r\n\x1a\n"[..], &digits.chunks(2).map(byte).collect::<Vec<_>>()].concat()
}

#[test]
fn decode_names_what_is_no_image() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("a/whole.ppm"), &picture(1, 30, 20));
    write(&source.join("a/zeros.jpg"), &[0; 500]);
    write(&source.join("a/cut.ppm"), &picture(1, 30, 20)[..100]);
    write(&source.join("a/really gif.png"), b"GIF89a\x01\0\x01\0\0\0\0;");
    let avif = [&b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf"[..], &[7; 90]].concat();
    write(&source.join("a/scraped.jpg"), &avif);
    write(&source.join("a/unfinished.png"), &png_without_end());
    run_well(&[&"create", &source, &out, &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    let output = run(&[&"verify", &out, &"--decode", &"--json", &"-q"]);
    let (code, found): (_, Value) = (output.status.code(), serde_json::from_slice(&output.stdout).unwrap());
    let paths = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
    };
    let mut damaged = paths(&found["damaged"]);
    damaged.sort();
    assert_eq!((code, damaged), (Some(3), vec!["a/cut.ppm".to_owned(), "a/zeros.jpg".to_owned()]));
    assert_eq!(paths(&found["not_decodable"]), ["a/really gif.png", "a/scraped.jpg"]);
    assert_eq!(found["not_decodable"][1]["fault"], "AVIF");
    assert_eq!(paths(&found["noted"]), ["a/unfinished.png"]);
    assert!(found["damaged_shards"].as_array().unwrap().is_empty());
    let text = String::from_utf8(run(&[&"verify", &out, &"--decode", &"-q"]).stdout).unwrap();
    assert!(!text.contains("remedy"), "its shards are what was packed: {text}");
    fs::remove_file(source.join("a/zeros.jpg")).unwrap();
    fs::remove_file(source.join("a/cut.ppm")).unwrap();
    let fine = temp.path().join("fine");
    run_well(&[&"create", &source, &fine, &"-q"]);
    let text = run_well(&[&"verify", &fine, &"--decode", &"-q"]);
    assert!(text.contains("not decodable: sample 0 (a/really gif.png)"), "{text}");
    assert!(text.contains("note: all pixels are there, but sample 2 (a/unfinished.png)"), "{text}");
}
