//! An index of files that shade has not written: what it says, what it refuses, and what
//! identifies it.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helper functions too"
)]

use proptest::prelude::*;
use shade_formats::checksum::crc32c;
use shade_formats::index::{
    Codec, Entry, FieldPlace, FieldsRow, Index, IndexBuilder, Media, Places, PlacesKind, Shard,
};
use shade_formats::shard::Field;
use shade_formats::{FormatError, SampleId, ShardId};

fn entry(shard: u32, offset: u64, len: u32) -> Entry {
    Entry {
        shard: ShardId(shard),
        offset,
        stored_len: len,
        raw_len: len,
        crc32c: None,
        label: 0,
        width: 3,
        height: 4,
        codec: Codec::None,
        media: Media::Jpeg,
    }
}

/// Two tars of odd lengths, three samples, fields before and behind a record.
fn tars() -> IndexBuilder {
    let mut index = IndexBuilder::new();
    index.push_class(b"cat").unwrap();
    index.push_shard(Shard { name: "a.tar", bytes: 5000, crc32c: 0, records: 2 }).unwrap();
    index.push_shard(Shard { name: "deep/b.tar", bytes: 700, crc32c: 0, records: 1 }).unwrap();
    let field = |name, offset, bytes, crc32c| FieldPlace { name, offset, bytes, crc32c };
    index.push_sample(&entry(0, 1024, 9), b"a/1.jpg").unwrap();
    index.push_field(field("json", 512, 2, Some(crc32c(b"{}")))).unwrap();
    index.push_field(field("txt", 2000, 3, None)).unwrap();
    index.push_sample(&entry(0, 4096, 904), b"a/2.jpg").unwrap();
    index.push_sample(&entry(1, 512, 188), b"b/1.jpg").unwrap();
    index.push_field(field("txt", 699, 0, Some(crc32c(b"")))).unwrap();
    index.set_places(PlacesKind::Tars, b"/data/tars", vec![7, -1]);
    index
}

fn files(paths: &[&str], base: &[u8]) -> IndexBuilder {
    let mut index = IndexBuilder::new();
    index.push_class(b"cat").unwrap();
    for (number, path) in (0..).zip(paths) {
        index.push_shard(Shard { name: "", bytes: 10 + u64::from(number), crc32c: 0, records: 1 }).unwrap();
        index.push_sample(&entry(number, 0, 10 + number), path.as_bytes()).unwrap();
    }
    index.set_places(PlacesKind::Files, base, (0..paths.len()).map(|n| n as i64 * 5).collect());
    index
}

fn opened(index: IndexBuilder) -> Index {
    Index::open(index.finish().unwrap()).unwrap()
}

#[test]
fn tars_and_their_fields_come_back() {
    let index = opened(tars());
    assert_eq!(index.places(), Some(Places { kind: PlacesKind::Tars, base: b"/data/tars" }));
    assert_eq!([0, 1, 2].map(|shard| index.changed_ns(ShardId(shard))), [Some(7), Some(-1), None]);
    assert_eq!(index.shard(ShardId(1)).unwrap().name, "deep/b.tar");
    assert_eq!(index.entry(SampleId(1)), Some(entry(0, 4096, 904)));
    assert!(index.has_fields() && !index.has_checksums());
    let span = index.fields(SampleId(0)).unwrap();
    assert_eq!((span.offset, span.len, span.crc32c), (512, 1491, None));
    assert!(index.fields(SampleId(1)).is_none() && index.fields(SampleId(3)).is_none());
    let mut bytes = vec![0; 1491];
    bytes[..2].copy_from_slice(b"{}");
    bytes[1488..].copy_from_slice(b"abc");
    let expected = [Field { name: "json", bytes: b"{}" }, Field { name: "txt", bytes: b"abc" }];
    assert_eq!(index.fields_in(SampleId(0), &bytes).unwrap(), expected);
    assert!(index.fields_in(SampleId(0), &bytes[..1490]).unwrap_err().to_string().contains("txt of 3 bytes"));
    bytes[1490] ^= 1;
    assert_eq!(index.fields_in(SampleId(0), &bytes).unwrap()[1].bytes, b"abb", "nothing is known of it");
    bytes[0] ^= 1;
    let wrong = index.fields_in(SampleId(0), &bytes).unwrap_err().to_string();
    assert!(wrong.contains("json of CRC32C"), "{wrong}");
    assert_eq!(index.fields_in(SampleId(2), &[]).unwrap(), [Field { name: "txt", bytes: b"" }]);
}

#[test]
fn files_are_named_by_their_samples() {
    let index = opened(files(&["cat/1.png", "cat/deep/2.png"], b"/data"));
    let shard = index.shard(ShardId(1)).unwrap();
    assert_eq!((shard.name, shard.bytes, index.changed_ns(ShardId(1))), ("cat/deep/2.png", 11, Some(5)));
    assert!(index.shard(ShardId(2)).is_none() && !index.has_fields());
}

#[test]
fn names_sizes_and_times_are_content_and_the_base_is_not() {
    let id = |index: IndexBuilder| opened(index).content_id();
    let one = id(files(&["a/1", "a/2"], b"/data"));
    assert_eq!(one, id(files(&["a/1", "a/2"], b"/mounted/elsewhere/on/another/node")));
    assert_eq!(one, id(files(&["a/1", "a/2"], b"s3://bucket/prefix")));
    assert_ne!(one, id(files(&["a/1", "a/3"], b"/data")));
    let mut touched = files(&["a/1", "a/2"], b"/data");
    touched.set_places(PlacesKind::Files, b"/data", vec![0, 6]);
    assert_ne!(one, id(touched));
    let mut moved = tars();
    moved.set_places(PlacesKind::Tars, b"/x", vec![7, -1]);
    assert_eq!(id(tars()), id(moved));
    let mut other = tars();
    other.push_field(FieldPlace { name: "json", offset: 0, bytes: 1, crc32c: None }).unwrap();
    assert_ne!(id(tars()), id(other));
    // Nothing is ever added to it, so it is the beginning of itself alone.
    let index = opened(tars());
    assert_eq!(index.content_id_of_first(3, 1), Some(index.content_id()));
    assert_eq!(index.content_id_of_first(2, 1), None);
}

#[test]
fn packed_shards_elsewhere_are_as_beside_the_index_in_all_but_their_names() {
    let built = |name: &str, bytes: u64, crc32c: Option<u32>, base: Option<&[u8]>, times: Vec<i64>| {
        let mut index = IndexBuilder::new();
        index.push_class(b"cat").unwrap();
        index.push_shard(Shard { name, bytes, crc32c: 5, records: 1 }).unwrap();
        index.push_sample(&Entry { crc32c, ..entry(0, 512, 3) }, b"cat/1").unwrap();
        index.set_fields(vec![FieldsRow { blocks: 2, crc32c: 9 }]);
        base.into_iter().for_each(|base| index.set_places(PlacesKind::Shards, base, times.clone()));
        index
    };
    let beside = opened(built("a.tar", 4096, Some(1), None, Vec::new()));
    let elsewhere = opened(built("deep/a.tar", 4096, Some(1), Some(b"/data"), Vec::new()));
    assert_eq!(beside.content_id(), elsewhere.content_id());
    assert_eq!(elsewhere.shard(ShardId(0)).unwrap().name, "deep/a.tar");
    assert!(elsewhere.has_checksums() && elsewhere.has_fields() && !elsewhere.is_of_others());
    assert_eq!(elsewhere.fields(SampleId(0)), beside.fields(SampleId(0)));
    assert_eq!(elsewhere.changed_ns(ShardId(0)), None);
    refused(built("deep/a.tar", 4096, Some(1), None, Vec::new()), "a plain UTF-8 file name");
    for (name, bytes, crc32c, times, say) in [
        ("../a.tar", 4096, Some(1), vec![], "a relative UTF-8 path"),
        ("a.tar", 4097, Some(1), vec![], "a multiple of 512"),
        ("a.tar", 4096, None, vec![], "no checksum"),
        ("a.tar", 4096, Some(1), vec![7], "8 for each shard of others"),
    ] {
        refused(built(name, bytes, crc32c, Some(b"/data"), times), say);
    }
}

fn refused(index: IndexBuilder, say: &str) {
    let text = index.finish().unwrap_err().to_string();
    assert!(text.contains(say), "{text} does not say {say}");
}

#[test]
fn what_leads_elsewhere_or_does_not_fit_is_refused() {
    for path in ["", "/etc/passwd", "a/../b", "..", "a//b", "./a", "a/", "a\0b"] {
        refused(files(&[path], b"/data"), "a relative UTF-8 path without '..'");
    }
    for base in
        [&b""[..], b"data", b"/a\0b", &[b'/'; 5000], b"s3://", b"ftp://x", b"s3://b/\0", b"s3://b/\xff"]
    {
        refused(files(&["a"], base), "an absolute path");
    }
    let mut more = files(&["a"], b"/data");
    more.push_shard(Shard { name: "", bytes: 1, crc32c: 0, records: 0 }).unwrap();
    more.set_places(PlacesKind::Files, b"/data", vec![0, 0]);
    refused(more, "2 shards");
    let mut few = files(&["a", "b"], b"/data");
    few.set_places(PlacesKind::Files, b"/data", vec![1]);
    refused(few, "8 for each shard");
    let one = |shard: Shard<'_>, entry: &Entry, kind: Option<PlacesKind>| {
        let mut index = IndexBuilder::new();
        index.push_class(b"cat").unwrap();
        index.push_shard(shard).unwrap();
        index.push_sample(entry, b"a/1.jpg").unwrap();
        kind.into_iter().for_each(|kind| index.set_places(kind, b"/data", vec![0]));
        index
    };
    let (files, tars) = (Some(PlacesKind::Files), Some(PlacesKind::Tars));
    let shard = |name, bytes| Shard { name, bytes, crc32c: 0, records: 1 };
    let named = Entry { crc32c: Some(1), ..entry(0, 512, 9) };
    refused(one(shard("a.tar", 1024), &entry(0, 512, 9), None), "no checksum");
    refused(one(shard("a.tar", 1000), &named, None), "a multiple of 512");
    refused(one(shard("a/b.tar", 1024), &named, None), "a plain UTF-8 file name");
    refused(one(shard("", 1000), &entry(0, 512, 9), tars), "a relative UTF-8 path");
    refused(one(shard("a.tar", 1000), &entry(0, 512, 489), tars), "inside the tar's 1000 bytes");
    refused(one(shard("a.tar", 1000), &entry(0, 0, 9), tars), "behind a header");
    refused(one(shard("a.jpg", 9), &entry(0, 0, 9), files), "no name");
    refused(one(shard("", 9), &entry(0, 0, 8), files), "the whole file 0 of 9 bytes");
    refused(one(shard("", 1024), &entry(0, 512, 512), files), "the whole file 0");
    let zstd = Entry { codec: Codec::Zstd, ..entry(0, 512, 9) };
    refused(one(shard("a.tar", 1000), &zstd, tars), "a compressed record");
    one(shard("a.tar", 1000), &entry(0, 512, 488), tars).finish().unwrap();
    one(shard("", 9), &entry(0, 0, 9), files).finish().unwrap();
}

#[test]
fn fields_of_places_stay_in_their_tars() {
    let with = |name, offset, bytes| {
        let mut index = tars();
        index.push_field(FieldPlace { name, offset, bytes, crc32c: None }).unwrap();
        index
    };
    with("json", 0, 700).finish().unwrap();
    refused(with("json", 0, 701), "701 bytes at 0 of 700");
    refused(with("json", u64::MAX, 1), "bytes at 18446744073709551615");
    refused(with("cls", 0, 1), "a field \"cls\"");
    refused(with("txt", 0, 1), "a field \"txt\"");
    let mut both = tars();
    both.set_fields(vec![FieldsRow { blocks: 1, crc32c: 1 }, FieldsRow::default(), FieldsRow::default()]);
    refused(both, "fields of another kind of index");
    let mut of_files = files(&["a"], b"/data");
    of_files.push_field(FieldPlace { name: "txt", offset: 0, bytes: 1, crc32c: None }).unwrap();
    refused(of_files, "fields of another kind of index");
}

/// All of an index, as far as its accessors answer.
fn walk(index: &Index) {
    for sample in (0..index.len()).map(SampleId) {
        let shard = index.entry(sample).unwrap().shard;
        assert!(index.shard(shard).is_some() && index.changed_ns(shard).is_some());
        let span = index.fields(sample).map_or(0, |span| usize::try_from(span.len).unwrap());
        let _ = index.fields_in(sample, &vec![0; span]);
        assert!(index.field_places(sample, None).count() < 5);
    }
}

/// Writes other bytes into a section and makes its checksums right, as no damage does.
fn bent(index: &[u8], kind: u32, at: usize, value: u8) -> Result<Index, FormatError> {
    let mut index = index.to_vec();
    let count = u32::from_le_bytes(index[20..24].try_into().unwrap()) as usize;
    let row = (0..count).map(|n| 64 + 32 * n).find(|&row| index[row..row + 4] == kind.to_le_bytes()).unwrap();
    let number = |index: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(index[at..at + 8].try_into().unwrap())).unwrap()
    };
    let (offset, len) = (number(&index, row + 8), number(&index, row + 16));
    index[offset + at % len] = value;
    let crc = crc32c(&index[offset..offset + len]);
    index[row + 24..row + 28].copy_from_slice(&crc.to_le_bytes());
    let table = crc32c(&index[64..64 + 32 * count]);
    index[56..60].copy_from_slice(&table.to_le_bytes());
    let header = crc32c(&index[..60]);
    index[60..64].copy_from_slice(&header.to_le_bytes());
    let opened = Index::open(index.clone());
    // The content id covers nearly all of it: with that made right, too, the rules alone decide.
    let Err(fault) = &opened else { return opened };
    let Some((_, id)) = fault.to_string().rsplit_once("expected ").map(|(a, b)| (a.to_owned(), b.to_owned()))
    else {
        return opened;
    };
    let Ok(id) = u128::from_str_radix(&id, 16) else { return opened };
    index[24..40].copy_from_slice(&id.to_le_bytes());
    let header = crc32c(&index[..60]);
    index[60..64].copy_from_slice(&header.to_le_bytes());
    Index::open(index)
}

proptest! {
    #[test]
    fn whatever_stands_in_a_section_is_refused_or_can_be_read(
        kind in 1u32..=10, at in any::<usize>(), value in any::<u8>(), of_tars in any::<bool>(),
    ) {
        let index = if of_tars { tars() } else { files(&["a/1", "a/2", "b/3"], b"/data") };
        let index = index.finish().unwrap();
        prop_assume!(!matches!(kind, 5..=8) && (of_tars || kind != 10));
        if let Ok(index) = bent(&index, kind, at, value) {
            walk(&index);
        }
    }

    #[test]
    fn every_flipped_bit_is_found(at in any::<usize>(), bit in 0u8..8, of_tars in any::<bool>()) {
        let index = if of_tars { tars() } else { files(&["a/1", "a/2", "b/3"], b"/data") };
        let mut index = index.finish().unwrap();
        let at = at % index.len();
        index[at] ^= 1 << bit;
        prop_assert!(Index::open(index).is_err());
    }
}

#[test]
fn an_older_reader_refuses_the_sections_by_their_flags() {
    let index = tars().finish().unwrap();
    assert_eq!(index[10..12], [2, 0], "minor version 2");
    let count = u32::from_le_bytes(index[20..24].try_into().unwrap()) as usize;
    let rows: Vec<(u8, u32)> = (0..count)
        .map(|n| 64 + 32 * n)
        .map(|row| (index[row], u32::from_le_bytes(index[row + 4..row + 8].try_into().unwrap())))
        .collect();
    let flagged: Vec<u8> =
        rows.iter().filter(|(_, flags)| *flags == 1 << 16).map(|(kind, _)| *kind).collect();
    assert_eq!(flagged, [9, 10]);
}
