//! A record and its fields are one piece of their shard: where it lies, what its checksum is, and
//! what it holds.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

use std::sync::Arc;

use proptest::prelude::*;
use shade_core::{Samples, WholeSamples};
use shade_formats::checksum::crc32c;
use shade_formats::index::{
    Codec, Entry, FieldEnd, FieldPlace, FieldsRow, Index, IndexBuilder, Media, PlacesKind, Shard,
};
use shade_formats::shard::{END_OF_ARCHIVE, member_header, member_name};
use shade_formats::{SampleId, ShardId};
use shade_job::FieldsRead;

fn entry(offset: u64, bytes: &[u8], crc32c: Option<u32>) -> Entry {
    let len = u32::try_from(bytes.len()).unwrap();
    Entry {
        shard: ShardId(0),
        offset,
        stored_len: len,
        raw_len: len,
        crc32c,
        label: 0,
        width: 0,
        height: 0,
        codec: Codec::None,
        media: Media::Other,
    }
}

fn append(shard: &mut Vec<u8>, key: u32, name: &str, bytes: &[u8]) -> u64 {
    shard.extend(member_header(&member_name(key, name), bytes.len() as u64).unwrap());
    let offset = shard.len() as u64;
    shard.extend(bytes);
    shard.resize(shard.len().next_multiple_of(512), 0);
    offset
}

/// By sample: its fields' names, and all up to the end of each.
type Ends = Vec<Vec<(String, FieldsRow)>>;

/// The index of these samples. It knows the ends of single fields or, as an older one, does not.
fn opened(entries: &[Entry], fields: &Ends, knows_ends: bool, shard: &[u8]) -> Arc<Index> {
    let mut index = IndexBuilder::new();
    index.push_class(b"cat").unwrap();
    let (bytes, records) = (shard.len() as u64, u32::try_from(entries.len()).unwrap());
    index.push_shard(Shard { name: "shard-000000.tar", bytes, crc32c: 0, records }).unwrap();
    for (number, (entry, ends)) in entries.iter().zip(fields).enumerate() {
        index.push_sample(entry, format!("cat/{number}.jpg").as_bytes()).unwrap();
        for (name, up_to) in ends.iter().filter(|_| knows_ends) {
            index.push_field_end(FieldEnd { name, up_to: *up_to }).unwrap();
        }
    }
    let last = |ends: &Vec<(String, FieldsRow)>| ends.last().map_or_else(FieldsRow::default, |(_, row)| *row);
    index.set_fields(fields.iter().map(last).collect());
    Arc::new(Index::open(index.finish().unwrap()).unwrap())
}

/// The bytes of the shard that an entry names.
fn piece_of<'a>(shard: &'a [u8], entry: &Entry) -> &'a [u8] {
    &shard[usize::try_from(entry.offset).unwrap()..][..entry.stored_len as usize]
}

/// Only the fields with these names.
fn named(names: &[&str]) -> FieldsRead {
    FieldsRead::None.with(names.iter().copied())
}

/// Lengths of a record and of its fields.
fn sample() -> impl Strategy<Value = (usize, Vec<usize>)> {
    (0..3000_usize, prop::collection::vec(0..2000_usize, 0..4))
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + 1).to_le_bytes()[0]).collect()
}

proptest! {
    #[test]
    fn a_packed_piece_is_the_record_and_its_fields_under_one_checksum(
        samples in prop::collection::vec(sample(), 1..12),
        wanted in prop::sample::subsequence(vec!["f0", "f1", "f2", "f3", "f4"], 1..5),
        knows_ends: bool,
    ) {
        let (mut shard, mut entries, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (key, (len, fields)) in (0..).zip(&samples) {
            let record = bytes(*len, key as usize);
            let offset = append(&mut shard, key, "jpg", &record);
            let start = shard.len();
            let mut ends = Vec::new();
            for (number, len) in fields.iter().enumerate() {
                let name = format!("f{number}");
                append(&mut shard, key, &name, &bytes(*len, number));
                let span = &shard[start..];
                let blocks = u32::try_from(span.len() / 512).unwrap();
                ends.push((name, FieldsRow { blocks, crc32c: crc32c(span) }));
            }
            rows.push(ends);
            entries.push(entry(offset, &record, Some(crc32c(&record))));
        }
        shard.extend([0; END_OF_ARCHIVE.len()]);
        let index = opened(&entries, &rows, knows_ends, &shard);
        let [whole, alone] =
            [FieldsRead::All, FieldsRead::None].map(|fields| WholeSamples::new(Arc::clone(&index), &fields));
        let some = WholeSamples::new(Arc::clone(&index), &named(&wanted));
        prop_assert!(!alone.has_fields());
        for (id, (len, fields)) in (0..).map(SampleId).zip(&samples) {
            prop_assert_eq!(alone.entry(id), index.entry(id));
            prop_assert_eq!(alone.checksum(id, &index.entry(id).unwrap()), index.entry(id).unwrap().crc32c);
            let (entry, stored) = (whole.entry(id).unwrap(), whole.stored(id).unwrap());
            let piece = piece_of(&shard, &entry);
            prop_assert_eq!(whole.checksum(id, &entry), Some(crc32c(piece)));
            prop_assert_eq!(&piece[stored.record_range()], bytes(*len, id.0 as usize));
            let found = stored.fields_range().map_or(Vec::new(), |range| index.fields_in(id, &piece[range]).unwrap());
            let found: Vec<usize> = found.iter().map(|field| field.bytes.len()).collect();
            prop_assert_eq!(&found, fields);
            let most: usize = fields.iter().sum();
            prop_assert!(whole.fields_bytes(id, &|_| true) >= most as u64);

            // The fields with names, and what lies before the last of them.
            let last = rows[id.index()].iter().rposition(|(name, _)| wanted.contains(&name.as_str()));
            let read = if knows_ends { last.map_or(0, |last| last + 1) } else { fields.len() };
            let (entry, stored) = (some.entry(id).unwrap(), some.stored(id).unwrap());
            let piece = piece_of(&shard, &entry);
            prop_assert_eq!(some.checksum(id, &entry), Some(crc32c(piece)));
            prop_assert_eq!(&piece[stored.record_range()], bytes(*len, id.0 as usize));
            let found = stored.fields_range().map_or(Vec::new(), |range| some.fields_in(id, &piece[range]).unwrap());
            let found: Vec<usize> = found.iter().map(|field| field.bytes.len()).collect();
            prop_assert_eq!(&found[..], &fields[..read]);
            let most: usize = found.iter().sum();
            prop_assert!(some.fields_bytes(id, &|name| wanted.contains(&name)) >= most as u64);
        }
    }

    #[test]
    fn a_piece_of_a_tar_of_others_has_fields_on_both_sides(
        samples in prop::collection::vec((1..2000_usize, 0..900_usize, 0..900_usize), 1..12)
    ) {
        let mut shard = Vec::new();
        let mut index = IndexBuilder::new();
        index.push_class(b"cat").unwrap();
        let mut places = Vec::new();
        for (key, (record, before, behind)) in (0..).zip(&samples) {
            let at_before = append(&mut shard, key, "a", &bytes(*before, 1));
            let offset = append(&mut shard, key, "jpg", &bytes(*record, 2));
            let at_behind = append(&mut shard, key, "z", &bytes(*behind, 3));
            places.push((entry(offset, &bytes(*record, 2), None), at_before, at_behind));
        }
        let records = u32::try_from(samples.len()).unwrap();
        index.push_shard(Shard { name: "a.tar", bytes: shard.len() as u64, crc32c: 0, records }).unwrap();
        for (number, ((entry, at_before, at_behind), (_, before, behind))) in places.iter().zip(&samples).enumerate() {
            index.push_sample(entry, format!("{number}.jpg").as_bytes()).unwrap();
            for (name, offset, len) in [("a", *at_before, *before), ("z", *at_behind, *behind)] {
                index.push_field(FieldPlace { name, offset, bytes: u32::try_from(len).unwrap(), crc32c: None }).unwrap();
            }
        }
        index.set_places(PlacesKind::Tars, b"/tars", vec![7]);
        let index = Arc::new(Index::open(index.finish().unwrap()).unwrap());
        let whole = WholeSamples::new(Arc::clone(&index), &FieldsRead::All);
        let behind_only = WholeSamples::new(Arc::clone(&index), &named(&["z"]));
        let nothing = WholeSamples::new(Arc::clone(&index), &named(&["x"]));
        for (id, (record, before, behind)) in (0..).map(SampleId).zip(&samples) {
            let (entry, stored) = (whole.entry(id).unwrap(), whole.stored(id).unwrap());
            prop_assert!(entry.offset.is_multiple_of(512));
            prop_assert_eq!(whole.checksum(id, &entry), None, "nobody knows it");
            let piece = piece_of(&shard, &entry);
            prop_assert_eq!(&piece[stored.record_range()], bytes(*record, 2));
            let found = index.fields_in(id, &piece[stored.fields_range().unwrap()]).unwrap();
            prop_assert_eq!(found[0].bytes, bytes(*before, 1));
            prop_assert_eq!(found[1].bytes, bytes(*behind, 3));
            prop_assert_eq!(whole.fields_bytes(id, &|name| name == "z"), behind.next_multiple_of(64) as u64);

            let (entry, stored) = (behind_only.entry(id).unwrap(), behind_only.stored(id).unwrap());
            let piece = piece_of(&shard, &entry);
            prop_assert_eq!(entry.offset, index.entry(id).unwrap().offset, "nothing before the record");
            prop_assert_eq!(&piece[stored.record_range()], bytes(*record, 2));
            let found = behind_only.fields_in(id, &piece[stored.fields_range().unwrap()]).unwrap();
            prop_assert_eq!(found.iter().map(|field| field.bytes).collect::<Vec<_>>(), [bytes(*behind, 3)]);
            prop_assert_eq!(behind_only.field_places(id).count(), 1);
            prop_assert_eq!(nothing.entry(id).unwrap().stored_len, index.entry(id).unwrap().stored_len);
            prop_assert_eq!(nothing.stored(id).unwrap().fields, None);
        }
    }
}
