//! create, then extract: the same files with the same names and bytes, however they were stored.

use std::fs;

use crate::support::{names, run, run_well, stderr_of, torchvision_order, tree, varied_image_folder};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, INDEX_FILE, IndexBuilder, Media, Shard};
use shade_formats::shard::{END_OF_ARCHIVE, member_header};
use shade_formats::{SampleId, ShardId};
use shade_pack::dataset::Dataset;

#[test]
fn every_sample_comes_back_byte_for_byte() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    varied_image_folder(&source);
    let all = tree(&source);
    let expected: Vec<_> = torchvision_order(&source).into_iter().map(|(path, _)| path).collect();
    for compress in ["none", "zstd:19"] {
        let (out, back) = (temp.path().join(compress), temp.path().join(format!("back from {compress}")));
        run_well(&[&"create", &source, &out, &"--shard-size", &"20kB", &"--compress", &compress, &"-q"]);
        run_well(&[&"verify", &out, &"-q"]);
        run_well(&[&"extract", &out, &back, &"-q"]);
        let back = tree(&back);
        assert_eq!(back.len(), expected.len());
        for path in &expected {
            assert!(back[path] == all[path], "{compress}: {path} differs");
        }
        assert!(back.contains_key("linked class/far.jpg"));
        assert_eq!(names(temp.path()).iter().filter(|name| name.contains(".part")).count(), 0);
    }
}

#[test]
fn only_records_that_gain_are_compressed_and_named_so() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    varied_image_folder(&source);
    run_well(&[&"create", &source, &out, &"--compress", &"zstd", &"-q"]);
    let dataset = Dataset::open(&out).unwrap();
    let compressed: Vec<String> = (0..dataset.index.len())
        .map(SampleId)
        .filter(|sample| dataset.index.entry(*sample).unwrap().codec == Codec::Zstd)
        .map(|sample| dataset.path_text(sample))
        .collect();
    assert_eq!(compressed, ["bee/flat.bmp"]);
    let shard = fs::read(dataset.shard_path(ShardId(0))).unwrap();
    let zst = shard.windows(8).filter(|window| window == b".bmp.zst").count();
    assert_eq!(zst, 1);
    let flat =
        (0..dataset.index.len()).map(SampleId).find(|sample| dataset.path_text(*sample) == "bee/flat.jpg");
    assert_eq!(dataset.index.entry(flat.unwrap()).unwrap().media, Media::Jpeg);
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in
        ["../escaped.png", "/tmp/escaped.png", "cat/../../escaped.png", "cat/\0.png", "", "cat//1.png"]
    {
        let temp = tempfile::tempdir().unwrap();
        let (hostile, back) = (temp.path().join("hostile"), temp.path().join("back"));
        let record = b"payload";
        let mut shard = member_header("000000000000.png", 7).unwrap().to_vec();
        shard.extend(record);
        shard.resize(1024, 0);
        shard.extend(END_OF_ARCHIVE);
        let mut index = IndexBuilder::new();
        let row = Shard { name: "s.tar", bytes: shard.len() as u64, crc32c: crc32c(&shard), records: 1 };
        index.push_shard(row).unwrap();
        index.push_class(b"cat").unwrap();
        let (shard_id, codec, media) = (ShardId(0), Codec::None, Media::Png);
        let (stored_len, raw_len, crc32c) = (7, 7, crc32c(record));
        let (offset, label, width, height) = (512, 0, 0, 0);
        let entry = Entry {
            shard: shard_id,
            offset,
            stored_len,
            raw_len,
            crc32c: Some(crc32c),
            label,
            width,
            height,
            codec,
            media,
        };
        index.push_sample(&entry, path.as_bytes()).unwrap();
        fs::create_dir(&hostile).unwrap();
        fs::write(hostile.join("s.tar"), shard).unwrap();
        fs::write(hostile.join(INDEX_FILE), index.finish().unwrap()).unwrap();
        let output = run(&[&"extract", &hostile, &back, &"-q"]);
        assert_eq!(output.status.code(), Some(3), "{path:?}: {output:?}");
        assert!(stderr_of(&output).contains("may lead elsewhere"));
        assert_eq!(names(temp.path()), ["hostile"], "{path:?}");
    }
}

#[test]
fn a_damaged_record_stops_extraction_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, back) = (temp.path().join("images"), temp.path().join("out"), temp.path().join("back"));
    varied_image_folder(&source);
    run_well(&[&"create", &source, &out, &"-q"]);
    let dataset = Dataset::open(&out).unwrap();
    let bee = torchvision_order(&source).iter().position(|(path, _)| path == "bee/0.jpg").unwrap();
    let entry = dataset.index.entry(SampleId(u32::try_from(bee).unwrap())).unwrap();
    let shard = dataset.shard_path(entry.shard);
    let mut bytes = fs::read(&shard).unwrap();
    bytes[usize::try_from(entry.offset).unwrap() + 5] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let output = run(&[&"extract", &out, &back, &"-q"]);
    assert_eq!(output.status.code(), Some(3));
    let text = stderr_of(&output);
    assert!(
        text.contains("bee/0.jpg") && text.contains("CRC32C") && text.contains("shard-000000.tar"),
        "{text}"
    );
    assert!(!names(temp.path()).iter().any(|name| name.starts_with("back")));
}
