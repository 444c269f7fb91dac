//! verify --repair makes every file again what it was, or says why it cannot and leaves it as it
//! is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{noise, picture, run, run_well, tar_of, tree, write};
use serde_json::Value;
use shade_formats::ShardId;
use shade_formats::index::INDEX_FILE;
use shade_pack::dataset::Dataset;

/// A source with every kind of sample that is packed differently.
fn images(root: &Path) {
    for number in 0..40u64 {
        let class = ["ant", "bee", "cat"][usize::try_from(number % 3).unwrap()];
        write(&root.join(format!("{class}/{number:02}.ppm")), &picture(number, 40, 30));
        write(&root.join(format!("{class}/more/{number:02}.png")), &noise(number, 700));
    }
}

fn tars(root: &Path) {
    for tar in 0..3u64 {
        let members: Vec<(String, Vec<u8>)> = (0..10u64)
            .flat_map(|n| {
                let caption = format!("{{\"caption\": \"number {n}\"}}").into_bytes();
                let label = (n % 4).to_string().into_bytes();
                [
                    (format!("{n:04}.ppm"), picture(tar * 10 + n, 20, 20)),
                    (format!("{n:04}.cls"), label),
                    (format!("{n:04}.json"), caption),
                    (format!("{n:04}.mask.bin"), noise(n, 900)),
                ]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        tar_of(&root.join(format!("part{tar}.tar")), &members);
    }
}

fn report(args: &[&dyn AsRef<std::ffi::OsStr>]) -> (Option<i32>, Value) {
    let output = run(args);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("{output:?}")))
}

/// Damages five shards in five ways, and the bytes between records of a sixth, if there is one.
fn damage(out: &Path) -> usize {
    let dataset = Dataset::open(out).unwrap();
    let shards = dataset.samples_by_shard();
    assert!(shards.len() > 5, "{} shards", shards.len());
    let path = |number: u32| dataset.shard_path(ShardId(number));
    let bend = |number: u32, at: u64| {
        let mut bytes = fs::read(path(number)).unwrap();
        bytes[usize::try_from(at).unwrap()] ^= 0x40;
        fs::write(path(number), bytes).unwrap();
    };
    bend(0, shards[0].last().unwrap().1.offset + 3);
    bend(1, shards[1][0].1.offset - 512 + 9);
    let cut = shards[2][0].1.offset + 10;
    fs::OpenOptions::new().write(true).open(path(2)).unwrap().set_len(cut).unwrap();
    fs::remove_file(path(3)).unwrap();
    bend(4, dataset.index.shard(ShardId(4)).unwrap().bytes - 5);
    // Behind the record and its padding: a field, a .cls member, or the next header.
    let (sample, entry) = shards[5][0];
    let behind = dataset.extent(sample, &entry).end;
    bend(5, behind.min(dataset.index.shard(ShardId(5)).unwrap().bytes - 1) - 600);
    6
}

fn check(source: &Path, out: &Path) {
    let before = tree(out);
    let broken = damage(out);
    let (code, found) = report(&[&"verify", &out, &"--json", &"-q"]);
    assert_eq!(code, Some(3));
    assert!(found["repaired"].is_null());
    let (code, found) = report(&[&"verify", &out, &"--repair", &source, &"--json", &"-q"]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(found["repaired"]["shards"].as_array().unwrap().len(), broken, "{found:#}");
    assert!(tree(out) == before, "not the same files");
    let (code, found) = report(&[&"verify", &out, &"--repair", &source, &"--json", &"-q"]);
    assert!(code == Some(0) && found["repaired"].is_null());
    let output = run(&[&"verify", &out, &"--repair", &source.join("nothing"), &"-q"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Sets every byte between records that no sample owns, one kind after the other.
#[test]
fn padding_is_filled_with_zeros_again() {
    let temp = tempfile::tempdir().unwrap();
    let sources = ["images", "tars"].map(|name| temp.path().join(name));
    images(&sources[0]);
    tars(&sources[1]);
    let all: [&[&str]; 4] = [&[], &["--cls"], &["--compress", "zstd"], &["--cls", "--format", "jpeg"]];
    for (source, more) in sources.iter().flat_map(|source| all.map(|more| (source, more))) {
        let out = temp.path().join("out");
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"create", source, &out, &"-q", &"--shard-size", &"20kB", &"--on-bad", &"skip"];
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        assert!(run(&args).status.code().is_some_and(|code| [0, 4].contains(&code)));
        let merged = temp.path().join("merged");
        run_well(&[&"merge", &merged, &out, &"-q"]);
        for out in [&out, &merged] {
            let before = tree(out);
            let dataset = Dataset::open(out).unwrap();
            let shards = dataset.samples_by_shard();
            for (number, samples) in (0u32..).zip(&shards) {
                let path = dataset.shard_path(ShardId(number));
                let mut bytes = fs::read(&path).unwrap();
                for (_, entry) in samples {
                    let end = usize::try_from(entry.offset).unwrap() + entry.stored_len as usize;
                    // The last byte of a field's padding, or of a label's, has a checksum or is
                    // known; the record's own has none.
                    bytes[end..end.next_multiple_of(512)].fill(0x40);
                }
                fs::write(&path, bytes).unwrap();
            }
            let (code, found) = report(&[&"verify", out, &"--json", &"-q"]);
            assert!(code == Some(3) && found["damaged"].as_array().unwrap().is_empty(), "{found:#}");
            let (code, found) = report(&[&"verify", out, &"--repair", source, &"--json", &"-q"]);
            assert_eq!(code, Some(0), "{more:?}: {found:#}");
            assert!(tree(out) == before, "{more:?}: not the same files");
        }
        [&out, &merged].into_iter().for_each(|out| fs::remove_dir_all(out).unwrap());
    }
}

#[test]
fn image_folders_are_repaired_however_they_were_packed() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    images(&source);
    let all: [&[&str]; 6] = [
        &[],
        &["--cls", "--no-shuffle"],
        &["--compress", "zstd:5"],
        &["--compress", "auto", "--cls"],
        &["--format", "jpeg", "--resize-short", "24", "--exclude", "more"],
        &["--format", "jpeg", "--restart-markers", "--exclude", "more"],
    ];
    for (number, more) in all.into_iter().enumerate() {
        let out: PathBuf = temp.path().join(format!("out {number}"));
        let size = if number >= 4 { "4KiB" } else { "12KiB" };
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"create", &source, &out, &"-q", &"--shard-size", &size];
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        run_well(&args);
        check(&source, &out);
    }
}

#[test]
fn fields_and_tars_are_repaired() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("tars"), temp.path().join("out"));
    tars(&source);
    run_well(&[&"create", &source, &out, &"-q", &"--shard-size", &"12KiB", &"--compress", &"zstd"]);
    check(&source, &out);
}

#[test]
fn the_labels_behind_records_are_repaired_without_a_fault_of_their_sample() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q", &"--cls"]);
    let before = tree(&out);
    let dataset = Dataset::open(&out).unwrap();
    let (sample, entry) = dataset.samples_by_shard()[0][7];
    let label = usize::try_from(dataset.extent(sample, &entry).end).unwrap() + 512;
    let shard = dataset.shard_path(ShardId(0));
    let mut bytes = fs::read(&shard).unwrap();
    assert!(bytes[label].is_ascii_digit());
    bytes[label] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let (code, found) = report(&[&"verify", &out, &"--json", &"-q"]);
    assert_eq!((code, found["damaged"].as_array().unwrap().len()), (Some(3), 0));
    let (code, found) = report(&[&"verify", &out, &"--repair", &source, &"--json", &"-q"]);
    assert_eq!((code, &found["repaired"]["samples"]), (Some(0), &0.into()), "{found:#}");
    assert!(tree(&out) == before);
}

#[test]
fn a_source_that_has_changed_repairs_nothing_it_does_not_hold() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q", &"--shard-size", &"12KiB"]);
    let whole = tree(&out);
    let dataset = Dataset::open(&out).unwrap();
    let shards = dataset.samples_by_shard();
    for shard in 0..3 {
        let path = dataset.shard_path(ShardId(shard));
        let mut bytes = fs::read(&path).unwrap();
        bytes[usize::try_from(shards[shard as usize][0].1.offset).unwrap() + 20] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let changed = dataset.path_text(shards[0][0].0);
    let gone = dataset.path_text(shards[1][0].0);
    let mut bytes = fs::read(source.join(&changed)).unwrap();
    bytes[50] ^= 1;
    fs::write(source.join(&changed), bytes).unwrap();
    fs::remove_file(source.join(&gone)).unwrap();
    let damaged = tree(&out);
    let (code, found) = report(&[&"verify", &out, &"--repair", &source, &"--json", &"-q"]);
    assert_eq!(code, Some(3));
    let failed: BTreeMap<&str, &str> = found["repaired"]["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failed| (failed["path"].as_str().unwrap(), failed["fault"].as_str().unwrap()))
        .collect();
    assert_eq!(failed.len(), 2, "{found:#}");
    assert!(failed[&changed[..]].contains("cannot be repaired: the source has changed"));
    assert!(failed[&gone[..]].contains("it is not in the source"));
    let after = tree(&out);
    for shard in [0, 1] {
        let name = dataset.index.shard(ShardId(shard)).unwrap().name;
        assert!(after[name] == damaged[name], "{name} was touched");
    }
    let name = dataset.index.shard(ShardId(2)).unwrap().name;
    assert!(after[name] == whole[name] && after[INDEX_FILE] == whole[INDEX_FILE]);
    assert_eq!(after.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    let text = String::from_utf8(run(&[&"verify", &out, &"--repair", &source, &"-q"]).stdout).unwrap();
    assert!(text.contains(&format!("({changed})")) && text.contains("not repaired"), "{text}");
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
    let (code, found) = report(&[&"verify", &out, &"--decode", &"--json", &"-q"]);
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
    // The source is damaged in the same way.
    let (code, found) = report(&[&"verify", &out, &"--decode", &"--repair", &source, &"--json", &"-q"]);
    assert!(code == Some(3) && found["repaired"].is_null());
    fs::remove_file(source.join("a/zeros.jpg")).unwrap();
    fs::remove_file(source.join("a/cut.ppm")).unwrap();
    let fine = temp.path().join("fine");
    run_well(&[&"create", &source, &fine, &"-q"]);
    let text = run_well(&[&"verify", &fine, &"--decode", &"-q"]);
    assert!(text.contains("not decodable: sample 0 (a/really gif.png)"), "{text}");
    assert!(text.contains("note: all pixels are there, but sample 2 (a/unfinished.png)"), "{text}");
}
