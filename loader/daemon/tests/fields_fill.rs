//! Workers write the extra fields of a row from the piece of a tar that was read with its record,
//! and refuse what is not there.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};
use shade_core::{BatchFields, Pixels, Samples, Ticket, WholeSamples};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, FieldPlace, Index, IndexBuilder, Media, PlacesKind, Shard};
use shade_formats::ring::{FieldColumn, NO_FIELD};
use shade_formats::{DrawnRow, EpochDraws, SampleId, ShardId, Size};
use shade_job::{FieldKind, Fields, FieldsRead, JpegDecoder, Output};
use shade_load::batches::{FieldFault, FillFault, FillOrder, Filled, Row, Workers};
use shade_reads::blocks::{Arena, FreeList, Lent, Record};
use shade_shm::Region;

const RECORD: &[u8] = &[7; 700];
/// Where a row's record goes, and where the fields of the batch begin.
const RECORD_AT: u64 = 0;
const FIELDS_AT: u64 = 4096;

/// A tar of others with one record, at 2,048, and fields of these names at these places.
fn index(fields: &[(&str, u64, &[u8])]) -> Arc<Index> {
    let mut index = IndexBuilder::new();
    index.push_class(b"only").unwrap();
    index.push_shard(Shard { name: "a.tar", bytes: 100 << 20, crc32c: 0, records: 1 }).unwrap();
    let entry = Entry {
        shard: ShardId(0),
        offset: 2048,
        stored_len: 700,
        raw_len: 700,
        crc32c: Some(crc32c(RECORD)),
        label: 0,
        width: 0,
        height: 0,
        codec: Codec::None,
        media: Media::Other,
    };
    index.push_sample(&entry, b"a.bin").unwrap();
    for &(name, offset, bytes) in fields {
        let len = u32::try_from(bytes.len()).unwrap();
        index.push_field(FieldPlace { name, offset, bytes: len, crc32c: Some(crc32c(bytes)) }).unwrap();
    }
    index.set_places(PlacesKind::Tars, b"/tars", vec![1]);
    Arc::new(Index::open(index.finish().unwrap()).unwrap())
}

/// Fills the row of the tar's sample, whose piece has these fields at these places of the tar.
fn filled(
    wanted: Fields,
    fields: &[(&str, u64, &[u8])],
    damage: Option<usize>,
) -> (Filled, BatchFields, Region) {
    let samples = Arc::new(WholeSamples::new(index(fields), &FieldsRead::All));
    let entry = samples.entry(SampleId(0)).unwrap();
    let mut piece = vec![0; entry.stored_len as usize];
    for (offset, bytes) in fields.iter().map(|(_, offset, bytes)| (*offset, *bytes)).chain([(2048, RECORD)]) {
        let Some(at) = offset.checked_sub(entry.offset).and_then(|at| usize::try_from(at).ok()) else {
            continue;
        };
        if let Some(place) = piece.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    damage.into_iter().for_each(|at| piece[at] ^= 1);
    let (arena, mut free): (Arena, FreeList) = Arena::create(1 << 20, 512).unwrap();
    let mut blocks = free.take(piece.len() as u64).unwrap();
    let mut rest = piece.as_slice();
    for slice in arena.slices_mut(&mut blocks, entry.stored_len).unwrap() {
        slice.copy_from_slice(rest.split_off(..slice.len()).unwrap());
    }
    let room = samples.fields_bytes(SampleId(0), &|name| wanted.find(name).is_some());
    let of_batch = BatchFields {
        at: FIELDS_AT,
        ..BatchFields::new(&Arc::new(wanted), &[], [room].into_iter()).unwrap()
    };
    let row = Row {
        position: 0,
        sample: SampleId(0),
        entry,
        offset: RECORD_AT,
        len: 700,
        drawn: DrawnRow::default(),
        pixels: Pixels::Own,
        size: Size::default(),
        record: Some(Lent::new(Arc::new(Record::new(blocks, false)))),
    };
    let order = FillOrder {
        ticket: Ticket { session: 1, seq: 1 },
        output: Arc::new(Output::Raw),
        later_views: Arc::default(),
        fields: Some(Arc::new(of_batch.clone())),
        draws: EpochDraws::default(),
        rows: vec![row],
    };
    let payload = Region::heap(64 * 1024);
    let (answer, done): (_, Receiver<Filled>) = unbounded();
    let workers = Workers::start(1, JpegDecoder::Auto, &samples, Arc::new(arena), answer).unwrap();
    workers.submit(order, payload.clone());
    (done.recv().unwrap(), of_batch, payload)
}

fn wanted() -> Fields {
    let kind = |text: &str| text.parse::<FieldKind>().unwrap();
    [("none", kind("bytes")), ("txt", kind("text")), ("vec", kind("uint8[4]"))].into()
}

fn read(payload: &Region, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    payload.read(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn fields_around_a_record_are_written_beside_it() {
    let fields: [(&str, u64, &[u8]); 3] =
        [("txt", 1024, "caf\u{e9}".as_bytes()), ("other", 3584, b"not wanted"), ("vec", 4608, &[1, 2, 3, 4])];
    let (filled, of_batch, payload) = filled(wanted(), &fields, None);
    assert_eq!(filled.faults, []);
    assert_eq!(read(&payload, RECORD_AT, 700), RECORD);
    let [none, txt, vec] = of_batch.columns.columns[..] else { panic!("{of_batch:?}") };
    let word = |at: u64| u64::from_le_bytes(read(&payload, FIELDS_AT + at, 8).try_into().unwrap());
    let (FieldColumn::Varying { lens: of_none, .. }, FieldColumn::Varying { offsets, lens }) = (none, txt)
    else {
        panic!("{of_batch:?}")
    };
    assert_eq!((word(of_none), word(lens)), (NO_FIELD, 5));
    assert_eq!(read(&payload, FIELDS_AT + of_batch.columns.data + word(offsets), 5), "caf\u{e9}".as_bytes());
    let FieldColumn::Fixed { at, bytes: 4 } = vec else { panic!("{of_batch:?}") };
    assert_eq!(read(&payload, FIELDS_AT + at, 4), [1, 2, 3, 4]);
}

#[test]
fn what_is_not_there_or_not_as_it_was_is_a_fault() {
    let vec: (&str, u64, &[u8]) = ("vec", 3584, &[1, 2, 3, 4]);
    let fault = |fields: &[(&str, u64, &[u8])], damage| {
        let (mut filled, ..) = filled(wanted(), fields, damage);
        assert_eq!(filled.faults.len(), 1);
        filled.faults.remove(0).1
    };
    assert!(matches!(fault(&[], None), FillFault::Field(FieldFault::Missing { name, .. }) if name == "vec"));
    let bent: (&str, u64, &[u8]) = ("vec", 3584, &[1, 2, 3]);
    assert!(
        matches!(fault(&[bent], None), FillFault::Field(FieldFault::Kind { got, .. }) if got == "3 bytes")
    );
    // The record's last byte, and the field's last. Such a piece is read again.
    assert!(matches!(fault(&[vec], Some(699)), FillFault::Checksum(_)));
    assert!(matches!(fault(&[vec], Some(3584 - 2048 + 3)), FillFault::Checksum(_)));
    // What lies between is more than is read for fields. It is not read, and so it is not said to
    // be missing.
    let far: (&str, u64, &[u8]) = ("vec", 80 << 20, &[1, 2, 3, 4]);
    let text = fault(&[far], None).to_string();
    assert_eq!(text, "its fields: they lie too far from its record");
}
