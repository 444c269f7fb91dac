//! The on-disk formats as their readers see them: round trip, damage, hostile bytes, and the golden
//! dataset.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helper functions too"
)]

use std::path::PathBuf;

use proptest::prelude::*;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, INDEX_FILE, Index, IndexBuilder, Media, Shard, sniff};
use shade_formats::shard::{END_OF_ARCHIVE, member_header, member_name, padded_len, parse_member_header};
use shade_formats::{SampleId, ShardId};

const GOLDEN_SHARD: &str = "shard-000000.tar";
/// Path, label and bytes of the golden dataset's samples.
const GOLDEN: [(&str, u32, &[u8]); 4] = [
    ("cat/1.png", 0, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x02\0 and so on"),
    ("cat/2.ppm", 0, b"P6 2 1 255 abcdef"),
    ("dog/a b.jpg", 1, b"\xff\xd8\xff\xc0\0\x0b\x08\0\x05\0\x07\x01"),
    ("dog/empty.bmp", 1, b""),
];
/// Samples lie on disk in this order.
const GOLDEN_ORDER: [usize; 4] = [2, 0, 3, 1];

/// A shard and its index, made by today's writers.
fn write_golden() -> (Vec<u8>, Vec<u8>) {
    let mut shard = Vec::new();
    let mut entries = [None; 4];
    for number in GOLDEN_ORDER {
        let (path, label, bytes) = GOLDEN[number];
        let extension = path.rsplit('.').next().unwrap();
        let name = member_name(u32::try_from(number).unwrap(), extension);
        shard.extend(member_header(&name, bytes.len() as u64).unwrap());
        let offset = shard.len() as u64;
        shard.extend(bytes);
        shard.resize(usize::try_from(padded_len(shard.len() as u64)).unwrap(), 0);
        let (media, width, height) = sniff(bytes);
        let stored_len = u32::try_from(bytes.len()).unwrap();
        entries[number] = Some(Entry {
            shard: ShardId(0),
            offset,
            stored_len,
            raw_len: stored_len,
            crc32c: Some(crc32c(bytes)),
            label,
            width,
            height,
            codec: Codec::None,
            media,
        });
    }
    shard.extend(END_OF_ARCHIVE);
    let mut index = IndexBuilder::new();
    let bytes = shard.len() as u64;
    index.push_shard(Shard { name: GOLDEN_SHARD, bytes, crc32c: crc32c(&shard), records: 4 }).unwrap();
    index.push_class(b"cat").unwrap();
    index.push_class(b"dog").unwrap();
    for (entry, (path, _, _)) in entries.iter().zip(GOLDEN) {
        index.push_sample(&entry.unwrap(), path.as_bytes()).unwrap();
    }
    index.set_options(r#"{"seed":0}"#);
    (shard, index.finish().unwrap())
}

fn assert_is_golden(index: &Index, shard: &[u8]) {
    assert_eq!((index.len(), index.shard_count(), index.class_count()), (4, 1, 2));
    assert_eq!(index.options(), r#"{"seed":0}"#);
    assert_eq!((index.class_name(0), index.class_name(1)), (Some(&b"cat"[..]), Some(&b"dog"[..])));
    assert_eq!(index.class_name(2), None);
    let row = index.shard(ShardId(0)).unwrap();
    assert_eq!((row.name, row.bytes, row.records), (GOLDEN_SHARD, shard.len() as u64, 4));
    assert_eq!(row.crc32c, crc32c(shard));
    for (sample, (path, label, bytes)) in (0..).map(SampleId).zip(GOLDEN) {
        assert_eq!(index.path(sample), Some(path.as_bytes()));
        let entry = index.entry(sample).unwrap();
        assert_eq!((entry.label, entry.raw_len as usize, entry.codec), (label, bytes.len(), Codec::None));
        let at = usize::try_from(entry.offset).unwrap();
        assert_eq!(&shard[at..at + bytes.len()], bytes);
        assert_eq!(entry.crc32c, Some(crc32c(bytes)));
        let member = parse_member_header(&shard[at - 512..at], entry.offset - 512).unwrap();
        assert_eq!(member.name, member_name(sample.0, path.rsplit('.').next().unwrap()));
        assert_eq!(member.stored_len, bytes.len() as u64);
    }
    let png = index.entry(SampleId(0)).unwrap();
    assert_eq!((png.media, png.width, png.height), (Media::Png, 256, 512));
    let jpeg = index.entry(SampleId(2)).unwrap();
    assert_eq!((jpeg.media, jpeg.width, jpeg.height), (Media::Jpeg, 7, 5));
    assert_eq!(
        (index.entry(SampleId(4)), index.path(SampleId(4)), index.shard(ShardId(1))),
        (None, None, None)
    );
}

/// Files written by an earlier version stay readable, and today's writer still writes the same
/// bytes. After a wanted change of format: `SHADE_WRITE_GOLDEN=1 cargo test -p shade-formats
/// golden`.
#[test]
fn golden_dataset_opens_and_is_what_the_writer_writes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let (shard, index) = write_golden();
    if std::env::var_os("SHADE_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(GOLDEN_SHARD), &shard).unwrap();
        std::fs::write(folder.join(INDEX_FILE), &index).unwrap();
    }
    let golden_shard = std::fs::read(folder.join(GOLDEN_SHARD)).unwrap();
    let golden_index = std::fs::read(folder.join(INDEX_FILE)).unwrap();
    assert_is_golden(&Index::open(golden_index.clone()).unwrap(), &golden_shard);
    assert!(shard == golden_shard, "the shard's bytes changed");
    assert!(index == golden_index, "the index's bytes changed");
}

#[test]
fn the_tar_crate_reads_our_shard() {
    let (shard, _) = write_golden();
    let mut archive = tar::Archive::new(&shard[..]);
    let mut names = Vec::new();
    for member in archive.entries().unwrap() {
        let mut member = member.unwrap();
        let mut bytes = Vec::new();
        std::io::copy(&mut member, &mut bytes).unwrap();
        assert_eq!(bytes, GOLDEN[GOLDEN_ORDER[names.len()]].2);
        names.push(member.path().unwrap().display().to_string());
    }
    assert_eq!(names, ["000000000002.jpg", "000000000000.png", "000000000003.bmp", "000000000001.ppm"]);
}

#[test]
fn every_flipped_bit_of_the_index_is_an_error() {
    let (_, index) = write_golden();
    for at in 0..index.len() {
        for bit in 0..8 {
            let mut bent = index.clone();
            bent[at] ^= 1 << bit;
            assert!(Index::open(bent).is_err(), "byte {at} bit {bit} went unnoticed");
        }
    }
}

#[test]
fn every_truncation_and_a_longer_file_are_errors() {
    let (_, index) = write_golden();
    for len in 0..index.len() {
        assert!(Index::open(index[..len].to_vec()).is_err(), "{len} of {} bytes", index.len());
    }
    let mut longer = index;
    longer.push(0);
    assert!(Index::open(longer).is_err());
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let entry = Entry {
        shard: ShardId(0),
        offset: 512,
        stored_len: 512,
        raw_len: 512,
        crc32c: Some(0),
        label: 0,
        width: 0,
        height: 0,
        codec: Codec::None,
        media: Media::Other,
    };
    let shard = Shard { name: "s.tar", bytes: 2048, crc32c: 0, records: 1 };
    let write = |shard: Shard<'_>, entry: Entry| {
        let mut index = IndexBuilder::new();
        index.push_shard(shard)?;
        index.push_class(b"cat")?;
        index.push_sample(&entry, b"cat/1.png")?;
        index.finish()
    };
    assert!(write(shard, entry).is_ok());
    let bad_entries = [
        (Entry { shard: ShardId(1), ..entry }, "shard 1"),
        (Entry { label: 1, ..entry }, "label 1"),
        (Entry { offset: 0, ..entry }, "behind a header"),
        (Entry { offset: 2048, ..entry }, "inside the shard"),
        (Entry { offset: 700, ..entry }, "multiple of 512"),
        (Entry { raw_len: 513, ..entry }, "raw length"),
        (Entry { stored_len: u32::MAX, raw_len: u32::MAX, ..entry }, "at most"),
    ];
    for (bad, say) in bad_entries {
        let text = write(shard, bad).unwrap_err().to_string();
        assert!(text.contains(say), "{text} does not say {say}");
    }
    for name in ["", ".", "..", "../s.tar", "/s.tar", "a\0b"] {
        assert!(write(Shard { name, ..shard }, entry).is_err(), "{name:?}");
    }
    assert!(write(Shard { bytes: 2047, ..shard }, entry).is_err());
    assert!(write(Shard { records: 2, ..shard }, entry).is_err());
}

/// The section table's rows as (kind, flags, bytes), to build odd but well-formed files from.
fn sections(index: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(index[at..at + 4].try_into().unwrap());
    let long =
        |at: usize| usize::try_from(u64::from_le_bytes(index[at..at + 8].try_into().unwrap())).unwrap();
    let rows = (0..word(20) as usize).map(|row| 64 + row * 32);
    rows.map(|row| (word(row), word(row + 4), index[long(row + 8)..long(row + 8) + long(row + 16)].to_vec()))
        .collect()
}

/// A file of these sections, with right checksums.
fn assemble(index: &[u8], sections: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut offset = 64 + 32 * sections.len() as u64;
    for (kind, flags, bytes) in sections {
        table.extend(kind.to_le_bytes());
        table.extend(flags.to_le_bytes());
        table.extend(offset.to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend(crc32c(bytes).to_le_bytes());
        table.extend([0; 4]);
        offset += bytes.len() as u64;
    }
    let mut file = index[..56].to_vec();
    file[20..24].copy_from_slice(&u32::try_from(sections.len()).unwrap().to_le_bytes());
    let part = |kind| sections.iter().find(|section| section.0 == kind).map_or(&[][..], |section| &section.2);
    let id = xxhash_rust::xxh3::xxh3_128(&[part(3), part(2)].concat());
    file[24..40].copy_from_slice(&id.to_le_bytes());
    file.extend(crc32c(&table).to_le_bytes());
    file.extend(crc32c(&file).to_le_bytes());
    file.extend(table);
    file.extend(sections.iter().flat_map(|section| &section.2));
    file
}

#[test]
fn unknown_sections_are_skipped_and_unknown_required_flags_refused() {
    let (shard, index) = write_golden();
    let known = sections(&index);
    assert_eq!(assemble(&index, &known), index);
    let mut more = known.clone();
    more.insert(2, (77, 0x1, b"from the future".to_vec()));
    more[0].1 = 0x8000;
    assert_is_golden(&Index::open(assemble(&index, &more)).unwrap(), &shard);
    for at in [0, 2] {
        let mut required = more.clone();
        required[at].1 |= 1 << 16;
        let text = Index::open(assemble(&index, &required)).unwrap_err().to_string();
        assert!(text.contains("required flags"), "{text}");
    }
    let mut twice = known.clone();
    twice.push(known[1].clone());
    assert!(Index::open(assemble(&index, &twice)).is_err());
    for missing in 0..known.len() {
        let mut less = known.clone();
        less.remove(missing);
        assert!(Index::open(assemble(&index, &less)).is_err(), "section {missing} is not missed");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        prop_assert!(Index::open(bytes).is_err());
    }

    /// With recomputed checksums, so that the later checks are reached.
    #[test]
    fn a_bent_section_never_panics(
        section in 0usize..5,
        at in any::<prop::sample::Index>(),
        value in any::<[u8; 8]>(),
        cut in 0usize..20,
    ) {
        let (_, index) = write_golden();
        let mut parts = sections(&index);
        let bytes = &mut parts[section].2;
        bytes.truncate(bytes.len() - cut.min(bytes.len()) * usize::from(cut > 10));
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            for (byte, value) in bytes[at..].iter_mut().zip(value) {
                *byte = value;
            }
        }
        if let Ok(index) = Index::open(assemble(&index, &parts)) {
            for sample in (0..index.len()).map(SampleId) {
                let entry = index.entry(sample).unwrap();
                let shard = index.shard(entry.shard).unwrap();
                prop_assert!(entry.offset + u64::from(entry.stored_len) <= shard.bytes);
                prop_assert!(index.class_name(entry.label).is_some() && index.path(sample).is_some());
            }
        }
    }

    #[test]
    fn whatever_is_written_is_read_back(
        samples in proptest::collection::vec(
            (0u32..3, 0u64..1000, 0u32..5000, any::<u32>(), 0u32..4, any::<(u16, u16)>(), any::<bool>(),
             proptest::collection::vec(any::<u8>(), 0..40)),
            0..50,
        ),
    ) {
        let mut index = IndexBuilder::new();
        for number in 0..3u32 {
            let records = u32::try_from(samples.iter().filter(|sample| sample.0 == number).count()).unwrap();
            index.push_shard(Shard { name: &format!("{number}.tar"), bytes: 1 << 30, crc32c: number, records }).unwrap();
        }
        for label in 0..4u8 {
            index.push_class(&[label, 0xff]).unwrap();
        }
        let entries: Vec<Entry> = samples.iter().map(|sample| Entry {
            shard: ShardId(sample.0),
            offset: (sample.1 + 1) * 512,
            stored_len: sample.2,
            raw_len: if sample.6 { sample.2 * 2 } else { sample.2 },
            crc32c: Some(sample.3),
            label: sample.4,
            width: sample.5.0,
            height: sample.5.1,
            codec: if sample.6 { Codec::Zstd } else { Codec::None },
            media: Media::Webp,
        }).collect();
        for (entry, sample) in entries.iter().zip(&samples) {
            index.push_sample(entry, &sample.7).unwrap();
        }
        let index = Index::open(index.finish().unwrap()).unwrap();
        prop_assert_eq!(index.len() as usize, samples.len());
        for (number, (entry, sample)) in (0..).map(SampleId).zip(entries.iter().zip(&samples)) {
            prop_assert_eq!(index.entry(number), Some(*entry));
            prop_assert_eq!(index.path(number), Some(&sample.7[..]));
        }
        for label in 0..4u8 {
            prop_assert_eq!(index.class_name(label.into()), Some(&[label, 0xff][..]));
        }
    }
}
