//! Keys, dictionaries and extra fields as their readers see them, and the golden dataset that has
//! them all.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helper functions too"
)]

use std::path::PathBuf;

use proptest::prelude::*;
use shade_formats::checksum::crc32c;
use shade_formats::index::{
    Codec, Entry, FieldEnd, FieldsRow, FieldsSpan, INDEX_FILE, Index, IndexBuilder, Media, Shard,
};
use shade_formats::limits::{DICTIONARIES_MAX, DICTIONARY_BYTES_MAX, FIELDS_BYTES_MAX};
use shade_formats::shard::{END_OF_ARCHIVE, Field, member_header, member_name, parse_fields};
use shade_formats::{FormatError, SampleId, ShardId};

const SHARD: &str = "shard-000000.tar";
const SIZE: u64 = 8 << 20;

/// What the golden dataset's compressed record holds, and what its dictionary was trained on.
fn text(number: u32) -> Vec<u8> {
    let line = |n: u32| format!("P3 # picture {} of the golden dataset {}\n", n * 7919 % 1000, n * 31 % 17);
    (number..number + 6).flat_map(|n| line(n).into_bytes()).collect()
}

/// A sample of the golden dataset: key, member's extension, stored bytes, codec, fields.
type Golden<'a> = (u32, &'a str, &'a [u8], Codec, &'a [(&'a str, &'a [u8])]);

/// Its label's member lies before the fields once, behind them once, and once there are no fields.
fn golden(frame: &[u8]) -> [Golden<'_>; 4] {
    [
        (7, "png", b"\x89PNG\r\n\x1a\n", Codec::None, &[("json", br#"{"caption":"a cat"}"#), ("cls", b"0")]),
        (0, "ppm.zst", frame, Codec::ZstdDictionary, &[]),
        (
            u32::MAX,
            "jpg",
            b"\xff\xd8\xff",
            Codec::None,
            &[("cls", b"1"), ("mask.bin", &[5; 600]), ("txt", b"")],
        ),
        (8, "bmp", b"BM", Codec::None, &[("cls", b"1")]),
    ]
}

fn append(shard: &mut Vec<u8>, key: u32, name: &str, bytes: &[u8]) -> u64 {
    shard.extend(member_header(&member_name(key, name), bytes.len() as u64).unwrap());
    let offset = shard.len() as u64;
    shard.extend(bytes);
    shard.resize(shard.len().next_multiple_of(512), 0);
    offset
}

fn write_golden(dictionary: &[u8], frame: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut shard = Vec::new();
    let mut index = IndexBuilder::new();
    let mut fields = Vec::new();
    for (number, (key, extension, stored, codec, extra)) in (0..).zip(golden(frame)) {
        let offset = append(&mut shard, key, extension, stored);
        let start = shard.len();
        for (name, bytes) in extra {
            append(&mut shard, key, name, bytes);
        }
        // A label's member alone is no field; behind the last field it is not in the span.
        let names: Vec<&str> = extra.iter().map(|(name, _)| *name).collect();
        let end = match names[..] {
            [.., "cls"] => shard.len() - 1024,
            _ => shard.len(),
        };
        let span = &shard[start..end.max(start)];
        fields.push(FieldsRow { blocks: u32::try_from(span.len() / 512).unwrap(), crc32c: crc32c(span) });
        let stored_len = u32::try_from(stored.len()).unwrap();
        let raw_len = if codec.is_compressed() { u32::try_from(text(3).len()).unwrap() } else { stored_len };
        let entry = Entry {
            shard: ShardId(0),
            offset,
            stored_len,
            raw_len,
            crc32c: Some(crc32c(stored)),
            label: number / 2,
            width: 0,
            height: 0,
            codec,
            media: Media::Other,
        };
        index.push_sample(&entry, format!("{number}").as_bytes()).unwrap();
    }
    shard.extend(END_OF_ARCHIVE);
    let bytes = shard.len() as u64;
    index.push_shard(Shard { name: SHARD, bytes, crc32c: crc32c(&shard), records: 4 }).unwrap();
    index.push_class(b"cat").unwrap();
    index.push_class(b"dog").unwrap();
    index.push_dictionary(dictionary).unwrap();
    index.set_keys(golden(frame).iter().map(|sample| sample.0).collect());
    index.set_fields(fields);
    index.set_options("{}");
    (shard, index.finish().unwrap())
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden-extras")
}

/// The golden dataset's shard and index as they lie in the repository.
fn read_golden() -> (Vec<u8>, Vec<u8>) {
    (std::fs::read(folder().join(SHARD)).unwrap(), std::fs::read(folder().join(INDEX_FILE)).unwrap())
}

fn record<'a>(index: &Index, shard: &'a [u8], sample: u32) -> &'a [u8] {
    let entry = index.entry(SampleId(sample)).unwrap();
    let at = usize::try_from(entry.offset).unwrap();
    &shard[at..at + entry.stored_len as usize]
}

/// Holds for any version of zstd: the dictionary and the frame are data here, not made by the
/// writer. After a wanted change of format: `SHADE_WRITE_GOLDEN=1 cargo test -p shade-formats
/// golden`.
#[test]
fn the_golden_extras_open_and_are_what_the_writer_writes() {
    if std::env::var_os("SHADE_WRITE_GOLDEN").is_some() {
        let samples: Vec<Vec<u8>> = (0..200).map(text).collect();
        let dictionary = zstd::dict::from_samples(&samples, 1024).unwrap();
        let frame =
            zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap().compress(&text(3)).unwrap();
        let (shard, index) = write_golden(&dictionary, &frame);
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(folder().join(SHARD), shard).unwrap();
        std::fs::write(folder().join(INDEX_FILE), index).unwrap();
    }
    let (shard, bytes) = read_golden();
    let index = Index::open(bytes.clone()).unwrap();
    let dictionary = index.dictionaries().next().unwrap();
    let frame = record(&index, &shard, 1);
    let (shard_now, bytes_now) = write_golden(dictionary, frame);
    assert!(shard == shard_now, "the shard's bytes changed");
    assert!(bytes == bytes_now, "the index's bytes changed");

    for (sample, (key, extension, stored, codec, extra)) in (0..).zip(golden(frame)) {
        assert_eq!(index.key(SampleId(sample)), key);
        let entry = index.entry(SampleId(sample)).unwrap();
        assert_eq!((record(&index, &shard, sample), entry.codec), (stored, codec));
        let header_at = usize::try_from(entry.offset).unwrap() - 512;
        let member = shade_formats::shard::parse_member_header(&shard[header_at..], 0).unwrap();
        assert_eq!(member.name, member_name(key, extension));
        let expected: Vec<Field<'_>> = extra
            .iter()
            .filter(|(name, _)| *name != "cls")
            .map(|&(name, bytes)| Field { name, bytes })
            .collect();
        let Some(FieldsSpan { offset, len, crc32c: crc }) = index.fields(SampleId(sample)) else {
            assert_eq!(expected, []);
            continue;
        };
        let start = usize::try_from(offset).unwrap();
        let span = &shard[start..start + usize::try_from(len).unwrap()];
        assert_eq!(Some(crc32c(span)), crc);
        assert_eq!(parse_fields(span, key, offset).unwrap(), expected);
    }
    let id = u32::from_le_bytes(dictionary[4..8].try_into().unwrap());
    assert_eq!(index.dictionary(id), Some(dictionary));
    assert_eq!(
        (index.dictionary(id ^ 1), index.fields(SampleId(4)), index.key(SampleId(4))),
        (None, None, 4)
    );
    let mut zstd = zstd::bulk::Decompressor::with_dictionary(dictionary).unwrap();
    assert_eq!(zstd.decompress(frame, 4096).unwrap(), text(3));
}

/// GNU tar's and Python's view of it: plain members, of which those of one sample share a key and
/// follow one another.
#[test]
fn the_tar_crate_reads_fields_as_members() {
    let (shard, _) = read_golden();
    let mut archive = tar::Archive::new(&shard[..]);
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|member| member.unwrap().path().unwrap().display().to_string())
        .collect();
    let expected = [
        "000000000007.png",
        "000000000007.json",
        "000000000007.cls",
        "000000000000.ppm.zst",
        "004294967295.jpg",
        "004294967295.cls",
        "004294967295.mask.bin",
        "004294967295.txt",
        "000000000008.bmp",
        "000000000008.cls",
    ];
    assert_eq!(names, expected);
}

#[test]
fn every_flipped_bit_and_every_truncation_is_an_error() {
    let (_, index) = read_golden();
    for at in 0..index.len() {
        assert!(Index::open(index[..at].to_vec()).is_err(), "{at} of {} bytes", index.len());
        for bit in 0..8 {
            let mut bent = index.clone();
            bent[at] ^= 1 << bit;
            assert!(Index::open(bent).is_err(), "byte {at} bit {bit} went unnoticed");
        }
    }
}

/// The part of a dictionary that the index checks.
fn dictionary(id: u32) -> Vec<u8> {
    [&0xEC30_A437_u32.to_le_bytes()[..], &id.to_le_bytes(), b"tables and content"].concat()
}

/// Two samples of one shard, one after the other, and what `change` adds.
fn built(codec: Codec, change: impl FnOnce(&mut IndexBuilder)) -> Result<Vec<u8>, FormatError> {
    let mut index = IndexBuilder::new();
    index.push_shard(Shard { name: "s.tar", bytes: SIZE, crc32c: 0, records: 2 })?;
    index.push_class(b"cat")?;
    for number in 0..2 {
        let entry = Entry {
            shard: ShardId(0),
            offset: 512 + number * 4096,
            stored_len: 600,
            raw_len: 600,
            crc32c: Some(0),
            label: 0,
            width: 0,
            height: 0,
            codec,
            media: Media::Other,
        };
        index.push_sample(&entry, b"cat/1.png")?;
    }
    change(&mut index);
    index.finish()
}

#[test]
fn what_says_nothing_is_not_written() {
    let plain = built(Codec::None, |_| ()).unwrap();
    let nothing = built(Codec::None, |index| {
        index.set_keys(vec![0, 1]);
        index.set_fields(vec![FieldsRow::default(); 2]);
    });
    assert_eq!(nothing.unwrap(), plain);
    let index = Index::open(plain).unwrap();
    assert_eq!((index.key(SampleId(1)), index.fields(SampleId(1)), index.has_fields()), (1, None, false));
    assert_eq!(index.dictionaries().count(), 0);
}

#[test]
fn fields_are_content_and_keys_and_dictionaries_are_not() {
    let id = |change: fn(&mut IndexBuilder)| {
        Index::open(built(Codec::None, change).unwrap()).unwrap().content_id()
    };
    let plain = id(|_| ());
    assert_eq!(id(|index| index.set_keys(vec![5, 5])), plain);
    assert_eq!(id(|index| index.push_dictionary(&dictionary(9)).unwrap()), plain);
    let one = id(|index| index.set_fields(vec![FieldsRow { blocks: 2, crc32c: 1 }, FieldsRow::default()]));
    let other = id(|index| index.set_fields(vec![FieldsRow { blocks: 2, crc32c: 2 }, FieldsRow::default()]));
    assert!(one != plain && other != plain && one != other);
}

/// An index of two samples, of which the second has fields that end where `ends` says.
fn with_ends(ends: &[(&str, u32, u32)], whole: FieldsRow) -> Result<Vec<u8>, FormatError> {
    built(Codec::None, |index| {
        for &(name, blocks, crc32c) in ends {
            index.push_field_end(FieldEnd { name, up_to: FieldsRow { blocks, crc32c } }).unwrap();
        }
        index.set_fields(vec![FieldsRow::default(), whole]);
    })
}

#[test]
fn who_wants_some_fields_is_told_where_the_last_of_them_ends() {
    let whole = FieldsRow { blocks: 9, crc32c: 3 };
    let index = Index::open(with_ends(&[("a", 2, 1), ("b", 4, 2), ("c", 9, 3)], whole).unwrap()).unwrap();
    let all = index.fields(SampleId(1)).unwrap();
    let up_to = |names: &[&str]| {
        let span = index.fields_up_to(SampleId(1), &index.wanted_fields(|name| names.contains(&name)));
        assert!(span.is_none_or(|span| span.offset == all.offset));
        span.map(|span| (span.len / 512, span.crc32c.unwrap()))
    };
    assert_eq!(up_to(&["a"]), Some((2, 1)));
    assert_eq!(up_to(&["b", "nothing"]), Some((4, 2)));
    assert_eq!(up_to(&["a", "c"]), Some((9, 3)));
    assert_eq!(up_to(&["nothing"]), None);
    assert_eq!(index.field_ends(SampleId(0)).count(), 0);
    let names: Vec<&str> = index.field_ends(SampleId(1)).map(|end| end.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(index.field_names().eq(names) && index.knows_all_field_names());
    // They follow from what the content id covers.
    let older = built(Codec::None, |index| index.set_fields(vec![FieldsRow::default(), whole])).unwrap();
    let older = Index::open(older).unwrap();
    assert_eq!(older.content_id(), index.content_id());
    assert_eq!(older.fields_up_to(SampleId(1), &older.wanted_fields(|name| name == "a")), Some(all));
    assert!(older.field_names().next().is_none() && !older.knows_all_field_names());
    // Samples of an older dataset beside one whose names are known.
    let beside = built(Codec::None, |index| {
        index.push_field_end(FieldEnd { name: "a", up_to: whole }).unwrap();
        index.set_fields(vec![whole, whole]);
    });
    let beside = Index::open(beside.unwrap()).unwrap();
    assert!(beside.field_names().eq(["a"]) && !beside.knows_all_field_names());
}

#[test]
fn ends_that_are_not_those_of_the_sample_are_refused() {
    let whole = FieldsRow { blocks: 9, crc32c: 3 };
    for (ends, say) in [
        (vec![("a", 2, 1), ("b", 4, 2)], "up to FieldsRow { blocks: 4"),
        (vec![("a", 2, 1), ("b", 9, 4)], "up to FieldsRow { blocks: 9"),
        (vec![("a", 10, 3)], "up to FieldsRow { blocks: 10"),
        (vec![("a", 0, 0), ("b", 9, 3)], "a field at block 0"),
        (vec![("a", 4, 1), ("b", 4, 1), ("c", 9, 3)], "a field at block 4"),
        (vec![("a", 4, 1), ("a", 9, 3)], "a field \"a\""),
        (vec![("cls", 9, 3)], "a field \"cls\""),
    ] {
        let text = with_ends(&ends, whole).unwrap_err().to_string();
        assert!(text.contains(say), "{text} does not say {say}");
    }
    assert!(with_ends(&[("a", 2, 1)], FieldsRow::default()).is_err(), "of a sample without fields");
}

/// An index of the first samples and classes of one and the same dataset. `has_fields` says which
/// samples have any.
fn beginning(samples: u32, classes: u32, has_fields: impl Fn(u32) -> bool) -> Index {
    let mut builder = IndexBuilder::new();
    let shard = Shard { name: "shard-000000.tar", bytes: 1 << 20, crc32c: 0, records: samples };
    builder.push_shard(shard).unwrap();
    for class in 0..classes {
        builder.push_class("name".repeat(class as usize + 1).as_bytes()).unwrap();
    }
    for sample in 0..samples {
        let entry = Entry {
            shard: ShardId(0),
            offset: 512 + 2048 * u64::from(sample),
            stored_len: 9,
            raw_len: 9,
            crc32c: Some(sample),
            label: sample % classes.min(2),
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Other,
        };
        builder.push_sample(&entry, format!("name/{sample}.png").as_bytes()).unwrap();
    }
    let row = |sample| {
        if has_fields(sample) { FieldsRow { blocks: 2, crc32c: sample } } else { FieldsRow::default() }
    };
    builder.set_fields((0..samples).map(row).collect());
    Index::open(builder.finish().unwrap()).unwrap()
}

#[test]
fn a_dataset_that_was_added_to_tells_what_it_was_before() {
    let patterns: [fn(u32) -> bool; 4] = [|_| false, |_| true, |sample| sample >= 5, |sample| sample < 2];
    for has_fields in patterns {
        let whole = beginning(8, 4, has_fields);
        for (samples, classes) in [(1, 2), (4, 2), (5, 3), (6, 4), (8, 2), (8, 4)] {
            let before = beginning(samples, classes, has_fields);
            assert_eq!(whole.content_id_of_first(samples, classes), Some(before.content_id()));
            assert_ne!(whole.content_id_of_first(samples, classes - 1), Some(before.content_id()));
        }
        assert_eq!(whole.content_id_of_first(9, 4), None);
        assert_eq!(whole.content_id_of_first(8, 5), None);
        let other = beginning(8, 4, |sample| !has_fields(sample));
        assert_ne!(other.content_id_of_first(4, 2), whole.content_id_of_first(4, 2));
    }
}

#[test]
fn the_writer_refuses_extras_that_do_not_fit() {
    let says = |built: Result<Vec<u8>, FormatError>, say: &str| {
        let text = built.unwrap_err().to_string();
        assert!(text.contains(say), "{text} does not say {say}");
    };
    for keys in [vec![], vec![1], vec![1, 2, 3]] {
        says(built(Codec::None, |index| index.set_keys(keys)), "one for each sample");
    }
    says(built(Codec::None, |index| index.set_fields(vec![FieldsRow::default()])), "one for each sample");
    let fields = |blocks, crc32c| {
        let rows = vec![FieldsRow::default(), FieldsRow { blocks, crc32c }];
        built(Codec::None, |index| index.set_fields(rows))
    };
    // The second record's padding ends at 512 + 4096 + 1024.
    let room = u32::try_from((SIZE - 5632) / 512).unwrap();
    assert!(fields(room, 7).is_ok());
    says(fields(room + 1, 7), "inside the shard's");
    says(fields(0, 7), "crc32c 0");
    for blocks in [u32::try_from(FIELDS_BYTES_MAX / 512).unwrap() + 1, u32::MAX] {
        says(fields(blocks, 7), "at most 67108864");
    }
    says(built(Codec::ZstdDictionary, |_| ()), "an index with one");
    assert!(built(Codec::ZstdDictionary, |index| index.push_dictionary(&dictionary(9)).unwrap()).is_ok());
    assert!(built(Codec::Zstd, |_| ()).is_ok());
}

#[test]
fn the_writer_refuses_dictionaries_that_readers_would() {
    let mut index = IndexBuilder::new();
    index.push_dictionary(&dictionary(9)).unwrap();
    let mut large = dictionary(10);
    large.resize(DICTIONARY_BYTES_MAX, 0);
    index.push_dictionary(&large).unwrap();
    large.push(0);
    large[4] = 11;
    for wrong in
        [large, dictionary(0), dictionary(9), b"raw content".to_vec(), dictionary(12)[..7].to_vec(), vec![]]
    {
        assert!(index.push_dictionary(&wrong).is_err());
    }
    for id in 2..DICTIONARIES_MAX {
        index.push_dictionary(&dictionary(1000 + id)).unwrap();
    }
    assert!(index.push_dictionary(&dictionary(5)).unwrap_err().to_string().contains("at most 256"));
    let index = Index::open(index.finish().unwrap()).unwrap();
    assert_eq!(index.dictionaries().count(), DICTIONARIES_MAX as usize);
    assert_eq!(index.dictionary(1255), Some(&dictionary(1255)[..]));
}

/// The sections from row `from` of the table on, changed by `bend`, with all checksums recomputed.
fn bent(index: &[u8], kind: u32, bend: impl FnOnce(&mut u32, &mut Vec<u8>)) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(index[at..at + 4].try_into().unwrap());
    let mut sections: Vec<(u32, u32, Vec<u8>)> = (0..word(20) as usize)
        .map(|row| {
            let at = 64 + row * 32;
            let start = word(at + 8) as usize;
            (word(at), word(at + 4), index[start..start + word(at + 16) as usize].to_vec())
        })
        .collect();
    let (_, flags, bytes) = sections.iter_mut().find(|section| section.0 == kind).unwrap();
    bend(flags, bytes);
    let mut table = Vec::new();
    let mut offset = 64 + 32 * sections.len() as u64;
    for (kind, flags, bytes) in &sections {
        table.extend([kind.to_le_bytes(), flags.to_le_bytes()].concat());
        table.extend([offset.to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat());
        table.extend([crc32c(bytes).to_le_bytes(), [0; 4]].concat());
        offset += bytes.len() as u64;
    }
    let part = |kind| &sections.iter().find(|section| section.0 == kind).unwrap().2[..];
    let id = xxhash_rust::xxh3::xxh3_128(&[part(3), part(2), part(8)].concat());
    let mut file = index[..56].to_vec();
    file[24..40].copy_from_slice(&id.to_le_bytes());
    file.extend(crc32c(&table).to_le_bytes());
    file.extend(crc32c(&file).to_le_bytes());
    file.extend(table);
    file.extend(sections.iter().flat_map(|section| &section.2));
    file
}

#[test]
fn wild_values_in_sections_with_right_checksums_are_refused() {
    let (_, index) = read_golden();
    assert_eq!(bent(&index, 6, |_, _| ()), index);
    let refused = |kind, say: &str, bend: &dyn Fn(&mut u32, &mut Vec<u8>)| {
        let text = Index::open(bent(&index, kind, bend)).unwrap_err().to_string();
        assert!(text.contains(say), "{text} does not say {say}");
    };
    let set = |at: usize, value: u32| {
        move |_: &mut u32, bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    for kind in [6, 8] {
        refused(kind, "each of 4 samples", &|_, bytes| bytes.push(0));
        refused(kind, "each of 4 samples", &|_, bytes| bytes.truncate(8));
        refused(kind, "each of 4 samples", &|_, bytes| bytes.clear());
    }
    refused(6, "flags", &|flags, _| *flags = 1 << 16);
    refused(8, "flags", &|flags, _| *flags = 0);
    refused(8, "flags", &|flags, _| *flags |= 1 << 17);
    refused(8, "inside the shard's", &set(0, 1000));
    refused(8, "at most", &set(0, u32::MAX));
    refused(8, "crc32c 0", &set(12, 1));
    refused(7, "an index with one", &|_, bytes| *bytes = vec![0; 16]);
    refused(7, "4294967295 dictionaries", &set(0, u32::MAX));
    refused(7, "2 names", &|_, bytes| *bytes = [&[2][..], &[0; 20]].concat());
    refused(7, "four zeros", &set(4, 1));
    refused(7, "four zeros", &|_, bytes| bytes.clear());
    refused(7, "offset", &set(8, 1));
    refused(7, "offset", &set(16, u32::MAX));
    refused(7, "without magic", &set(24, 1));
    refused(7, "without magic", &set(28, 0));
}

/// A reader of minor version 0 knew no required flag: it refuses fields by name instead of finding
/// another content id.
#[test]
fn only_fields_carry_a_required_flag() {
    let (_, index) = read_golden();
    let rows = index[64..64 + 8 * 32].chunks(32);
    let flags: Vec<(u8, u8)> = rows.map(|row| (row[0], row[6])).collect();
    assert_eq!(flags, [(3, 0), (1, 0), (2, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 1)]);
}

proptest! {
    #[test]
    fn a_bent_extra_never_panics(
        kind in prop_oneof![6u32..=8, Just(11)],
        at in any::<prop::sample::Index>(),
        value in any::<[u8; 8]>(),
        cut in 0usize..20,
    ) {
        let ends = || with_ends(&[("a", 2, 1), ("b", 4, 2), ("c", 9, 3)], FieldsRow { blocks: 9, crc32c: 3 }).unwrap();
        let index = if kind == 11 { ends() } else { read_golden().1 };
        let file = bent(&index, kind, |_, bytes| {
            bytes.truncate(bytes.len().saturating_sub(cut * usize::from(cut > 10)));
            let at = at.index(bytes.len() + 1);
            bytes[at..].iter_mut().zip(value).for_each(|(byte, value)| *byte = value);
        });
        if let Ok(index) = Index::open(file) {
            for sample in (0..index.len()).map(SampleId) {
                let _ = index.key(sample);
                for end in index.field_ends(sample) {
                    let wanted = index.wanted_fields(|name| name == end.name);
                    let span = index.fields_up_to(sample, &wanted).unwrap();
                    prop_assert!(span.len <= index.fields(sample).unwrap().len);
                }
                if let Some(span) = index.fields(sample) {
                    prop_assert!(span.offset + span.len <= index.shard(ShardId(0)).unwrap().bytes);
                    prop_assert!(span.len > 0 && span.len <= FIELDS_BYTES_MAX);
                }
            }
            for dictionary in index.dictionaries() {
                let id = u32::from_le_bytes(dictionary[4..8].try_into().unwrap());
                prop_assert_eq!(index.dictionary(id), Some(dictionary));
            }
        }
    }

    #[test]
    fn whatever_extras_are_written_are_read_back(
        samples in proptest::collection::vec((any::<u32>(), 0u32..2000, 1u32.., 0u32..3000), 0..40),
        ids in proptest::collection::btree_set(1u32.., 0..5),
        has in any::<[bool; 3]>(),
    ) {
        let mut index = IndexBuilder::new();
        let records = u32::try_from(samples.len()).unwrap();
        index.push_shard(Shard { name: "s.tar", bytes: SIZE, crc32c: 0, records }).unwrap();
        index.push_class(b"cat").unwrap();
        let mut rows = Vec::new();
        let mut entries = Vec::new();
        for &(_, blocks, crc32c, len) in &samples {
            let entry = Entry {
                shard: ShardId(0), offset: 512, stored_len: len, raw_len: len, crc32c: Some(0), label: 0, width: 0,
                height: 0, codec: Codec::None, media: Media::Other,
            };
            index.push_sample(&entry, b"").unwrap();
            rows.push(FieldsRow { blocks, crc32c: if blocks == 0 { 0 } else { crc32c } });
            entries.push(entry);
        }
        if has[0] {
            index.set_keys(samples.iter().map(|sample| sample.0).collect());
        }
        for &id in ids.iter().filter(|_| has[1]) {
            index.push_dictionary(&dictionary(id)).unwrap();
        }
        if has[2] {
            index.set_fields(rows.clone());
        }
        let index = Index::open(index.finish().unwrap()).unwrap();
        for (id, ((sample, row), entry)) in (0..).zip(samples.iter().zip(&rows).zip(&entries)) {
            prop_assert_eq!(index.key(SampleId(id)), if has[0] { sample.0 } else { id });
            prop_assert_eq!(index.entry(SampleId(id)), Some(*entry));
            let span = FieldsSpan {
                offset: 512 + u64::from(entry.stored_len).next_multiple_of(512),
                len: u64::from(row.blocks) * 512,
                crc32c: Some(row.crc32c),
            };
            prop_assert_eq!(index.fields(SampleId(id)), (has[2] && row.blocks > 0).then_some(span));
        }
        let expected: Vec<Vec<u8>> = ids.iter().filter(|_| has[1]).map(|&id| dictionary(id)).collect();
        prop_assert_eq!(index.dictionaries().collect::<Vec<_>>(), expected);
        prop_assert!(ids.iter().all(|&id| index.dictionary(id).is_some() == has[1]));
    }
}
