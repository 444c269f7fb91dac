//! Workers write each row's bytes where the order says, keep bad rows from spoiling good ones, and
//! finalize batches.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};
use shade_core::{Columns, FinalizeOrder, Move, Pixels, SizeFault, Ticket, WholeSamples};
use shade_dataset::{Mismatch, ZstdFault};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::ring::{BatchLayout, Layout};
use shade_formats::{DrawnRow, Dtype, EpochDraws, Geometry, SampleId, ShardId, ViewShape};
use shade_images::{Draw, ImageFault, RowDecoder, Size};
use shade_job::{FieldsRead, Framing, ImageSpec, JpegDecoder, Output};
use shade_load::batches::{FillFault, FillOrder, Filled, LayoutFault, Row, Workers, finalize};
use shade_reads::blocks::{Arena, FreeList, Lent, Record};
use shade_shm::Region;

const TICKET: Ticket = Ticket { session: 3, seq: 41 };

struct Packed {
    stored: Vec<u8>,
    raw_len: u32,
    codec: Codec,
    media: Media,
    /// (width, height) as the index has it.
    size: (u16, u16),
}

impl Packed {
    fn plain(media: Media, bytes: &[u8]) -> Self {
        Self {
            stored: bytes.to_vec(),
            raw_len: u32::try_from(bytes.len()).unwrap(),
            codec: Codec::None,
            media,
            size: (0, 0),
        }
    }

    fn sized(self, width: u16, height: u16) -> Self {
        Self { size: (width, height), ..self }
    }

    fn zstd(media: Media, bytes: &[u8]) -> Self {
        let stored = zstd::bulk::compress(bytes, 3).unwrap();
        Self { stored, codec: Codec::Zstd, ..Self::plain(media, bytes) }
    }

    fn with_dictionary(media: Media, bytes: &[u8], dictionary: &[u8]) -> Self {
        let mut zstd = zstd::bulk::Compressor::with_dictionary(3, dictionary).unwrap();
        let stored = zstd.compress(bytes).unwrap();
        Self { stored, codec: Codec::ZstdDictionary, ..Self::plain(media, bytes) }
    }
}

/// Records in an arena of small blocks, so that they are scattered, and workers.
struct Rig {
    workers: Workers,
    done: Receiver<Filled>,
    arena: Arc<Arena>,
    free: FreeList,
    records: Vec<Packed>,
    index: Arc<Index>,
}

/// Records without fields.
fn alone(index: Arc<Index>) -> Arc<WholeSamples> {
    Arc::new(WholeSamples::new(index, &FieldsRead::None))
}

impl Rig {
    fn new(records: Vec<Packed>) -> Self {
        Self::with_dictionaries(records, &[])
    }

    fn with_dictionaries(records: Vec<Packed>, dictionaries: &[&[u8]]) -> Self {
        let index = Arc::new(index(&records, dictionaries));
        let (arena, free) = Arena::create(1 << 20, 512).unwrap();
        let arena = Arc::new(arena);
        let (answer, done) = unbounded();
        let workers =
            Workers::start(2, JpegDecoder::Auto, &alone(Arc::clone(&index)), Arc::clone(&arena), answer)
                .unwrap();
        Self { workers, done, arena, free, records, index }
    }

    /// The record, unchecked, in blocks that are not neighbours.
    fn record(&mut self, sample: usize) -> Arc<Record> {
        let stored = &self.records[sample].stored;
        let len = u32::try_from(stored.len()).unwrap();
        let singles = stored.len().div_ceil(512).max(1) * 2;
        let singles: Vec<_> = (0..singles).map(|_| self.free.take(1).unwrap()).collect();
        let mut kept = Vec::new();
        for (number, single) in singles.into_iter().enumerate() {
            if number % 2 == 0 { self.free.give(single) } else { kept.push(single) }
        }
        let mut blocks = self.free.take(stored.len() as u64).unwrap();
        kept.into_iter().for_each(|single| self.free.give(single));
        let mut rest = stored.as_slice();
        let mut pieces = 0;
        for slice in self.arena.slices_mut(&mut blocks, len).unwrap() {
            slice.copy_from_slice(rest.split_off(..slice.len()).unwrap());
            pieces += 1;
        }
        assert!(pieces == stored.len().div_ceil(512), "the test means to scatter the record");
        Arc::new(Record::new(blocks, false))
    }

    fn row(&mut self, sample: usize, offset: u64, len: u64) -> Row {
        let record = Lent::new(self.record(sample));
        let sample = SampleId(u32::try_from(sample).unwrap());
        Row {
            position: 100 + sample.0,
            sample,
            entry: self.index.entry(sample).unwrap(),
            offset,
            len,
            drawn: DrawnRow::default(),
            pixels: Pixels::Own,
            size: Size::default(),
            record: Some(record),
        }
    }

    fn fill(&self, output: Output, rows: Vec<Row>, payload: &Region) -> Filled {
        self.fill_views(output, &[], rows, payload)
    }

    fn fill_views(&self, output: Output, later_views: &[u64], rows: Vec<Row>, payload: &Region) -> Filled {
        let (output, later_views) = (Arc::new(output), later_views.into());
        let draws = EpochDraws::default();
        self.workers.submit(
            FillOrder { ticket: TICKET, output, later_views, fields: None, draws, rows },
            payload.clone(),
        );
        self.done.recv().unwrap()
    }
}

fn index(records: &[Packed], dictionaries: &[&[u8]]) -> Index {
    let mut builder = IndexBuilder::new();
    dictionaries.iter().for_each(|dictionary| builder.push_dictionary(dictionary).unwrap());
    let lens: Vec<u64> =
        records.iter().map(|record| record.stored.len().next_multiple_of(512) as u64).collect();
    let bytes = lens.iter().map(|len| 512 + len).sum::<u64>() + 1024;
    let count = u32::try_from(records.len()).unwrap();
    builder.push_shard(Shard { name: "shard-000000.tar", bytes, crc32c: 0, records: count }).unwrap();
    builder.push_class(b"only").unwrap();
    let mut offset = 512;
    for (number, (record, len)) in records.iter().zip(lens).enumerate() {
        let entry = Entry {
            shard: ShardId(0),
            offset,
            stored_len: u32::try_from(record.stored.len()).unwrap(),
            raw_len: record.raw_len,
            crc32c: Some(crc32c(&record.stored)),
            label: 0,
            width: record.size.0,
            height: record.size.1,
            codec: record.codec,
            media: record.media,
        };
        builder.push_sample(&entry, format!("only/{number:04}.bin").as_bytes()).unwrap();
        offset += len + 512;
    }
    Index::open(builder.finish().unwrap()).unwrap()
}

/// Bytes that do not compress.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}

fn read(payload: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    payload.read(offset, &mut bytes).unwrap();
    bytes
}

fn png(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&noise(3 * width as usize * height as usize, seed)).unwrap();
    drop(writer);
    bytes
}

/// Bytes of each row, or what is wrong with it.
fn outcomes(filled: &Filled) -> Vec<Result<u64, FillFault>> {
    let mut outcomes: Vec<_> = filled.rows.iter().map(|row| Ok(row.len)).collect();
    for (at, fault) in &filled.faults {
        outcomes[*at] = Err(fault.clone());
    }
    outcomes
}

#[test]
fn raw_rows_hold_the_records_bytes() {
    let long = noise(5000, 1);
    let text = b"compressible ".repeat(400);
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Other, &long),
        Packed::zstd(Media::Other, &text),
        Packed::plain(Media::Other, b"x"),
        Packed::zstd(Media::Other, &noise(3000, 9)),
    ]);
    let payload = Region::heap(32 << 10);
    let rows =
        vec![rig.row(2, 7, 1), rig.row(0, 4096, 5000), rig.row(1, 12_000, 5200), rig.row(3, 20_000, 3000)];
    let filled = rig.fill(Output::Raw, rows, &payload);
    assert_eq!(filled.ticket, TICKET);
    assert_eq!(outcomes(&filled), [Ok(1), Ok(5000), Ok(5200), Ok(3000)]);
    assert_eq!(filled.rows.iter().map(|row| row.position).collect::<Vec<_>>(), [102, 100, 101, 103]);
    assert_eq!(read(&payload, 4096, 5000), long);
    assert_eq!(read(&payload, 12_000, 5200), text);
    assert_eq!(read(&payload, 20_000, 3000), noise(3000, 9));
    assert_eq!(read(&payload, 6, 3), [0, b'x', 0], "neighbouring bytes are not touched");
}

/// Small images that resemble each other, and not those of another `family`.
fn alike(family: u32, number: u32) -> Vec<u8> {
    let mut image = b"P6 28 28 255\n".to_vec();
    let rows = (0..28u32).flat_map(|row| noise(84, family + (row * 7 + number) % 29));
    image.extend(rows);
    image
}

/// A dictionary as zstd trains it, and its id.
fn trained(family: u32) -> (Vec<u8>, u32) {
    let samples: Vec<_> = (0..60).map(|number| alike(family, number)).collect();
    let dictionary = zstd::dict::from_samples(&samples, 4096).unwrap();
    let id = u32::from_le_bytes(dictionary[4..8].try_into().unwrap());
    (dictionary, id)
}

#[test]
fn records_with_dictionaries_come_out_whole_raw_and_decoded() {
    let ((first, first_id), (second, second_id)) = (trained(1000), trained(2000));
    assert_ne!(first_id, second_id, "the test means two dictionaries");
    let (one, other, plain) = (alike(1000, 7), alike(2000, 9), alike(3000, 1));
    let records = vec![
        Packed::with_dictionary(Media::Ppm, &one, &first),
        Packed::zstd(Media::Ppm, &plain),
        Packed::with_dictionary(Media::Ppm, &other, &second),
        Packed::with_dictionary(Media::Ppm, &alike(1000, 11), &first),
    ];
    assert!(records[0].stored.len() < zstd::bulk::compress(&one, 3).unwrap().len(), "the dictionary is used");
    let mut rig = Rig::with_dictionaries(records, &[&first, &second]);
    let payload = Region::heap(32 << 10);
    let expected = [one, plain, other, alike(1000, 11)];
    // More than once: a context that had one dictionary serves frames with another, and with none.
    for _ in 0..3 {
        let rows = (0..4).map(|row| rig.row(row, row as u64 * 4096, expected[row].len() as u64)).collect();
        let filled = rig.fill(Output::Raw, rows, &payload);
        assert!(outcomes(&filled).iter().all(Result::is_ok), "{:?}", outcomes(&filled));
        for (row, bytes) in expected.iter().enumerate() {
            assert_eq!(read(&payload, row as u64 * 4096, bytes.len()), *bytes, "row {row}");
        }
    }
    let rows = (0..4).map(|row| rig.row(row, row as u64 * 4096, 3 * 28 * 28)).collect();
    let filled = rig.fill(Output::from(ImageSpec::cover(28, 28)), rows, &payload);
    for (row, bytes) in expected.iter().enumerate() {
        assert_eq!(outcomes(&filled)[row], Ok(3 * 28 * 28));
        let red: Vec<u8> = bytes[13..].iter().copied().step_by(3).collect();
        assert_eq!(read(&payload, row as u64 * 4096, 28 * 28), red);
    }
}

#[test]
fn a_record_whose_dictionary_is_missing_is_a_named_fault() {
    let ((held, _), (missing, missing_id)) = (trained(1000), trained(2000));
    // With a dictionary's head, and nothing behind it that zstd could use.
    let broken = [&held[..4], &77u32.to_le_bytes(), &[0xff; 40]].concat();
    let good = alike(1000, 7);
    let mut cut = Packed::with_dictionary(Media::Ppm, &good, &held);
    cut.stored.truncate(cut.stored.len() - 5);
    let mut names_broken = Packed::with_dictionary(Media::Ppm, &good, &held);
    let at = names_broken.stored.windows(4).position(|four| *four == held[4..8]).unwrap();
    names_broken.stored[at..at + 4].copy_from_slice(&77u32.to_le_bytes());
    let records = vec![
        Packed::with_dictionary(Media::Ppm, &alike(2000, 1), &missing),
        Packed { codec: Codec::ZstdDictionary, ..Packed::zstd(Media::Ppm, &good) },
        Packed { codec: Codec::Zstd, ..Packed::with_dictionary(Media::Ppm, &good, &held) },
        cut,
        names_broken,
        Packed { codec: Codec::ZstdDictionary, ..Packed::plain(Media::Ppm, &noise(700, 3)) },
        Packed::with_dictionary(Media::Ppm, &good, &held),
    ];
    let mut rig = Rig::with_dictionaries(records, &[&held, &broken]);
    let payload = Region::heap(64 << 10);
    let rows = (0..7)
        .map(|row| {
            let len = u64::from(rig.records[row].raw_len);
            rig.row(row, row as u64 * 4096, len)
        })
        .collect();
    let found = outcomes(&rig.fill(Output::Raw, rows, &payload));
    assert_eq!(found[0], Err(FillFault::Zstd(ZstdFault::Dictionary { id: missing_id })));
    assert!(found[0].as_ref().unwrap_err().to_string().contains(&format!("dictionary {missing_id}:")));
    assert_eq!(found[1], Err(FillFault::Zstd(ZstdFault::Dictionary { id: 0 })));
    for fault in &found[2..4] {
        assert!(matches!(fault, Err(FillFault::Zstd(ZstdFault::Frame { .. }))), "{fault:?}");
    }
    assert_eq!(found[4], Err(FillFault::Zstd(ZstdFault::Dictionary { id: 77 })));
    assert!(matches!(found[5], Err(FillFault::Zstd(ZstdFault::Dictionary { .. }))), "{:?}", found[5]);
    assert_eq!(found[6], Ok(good.len() as u64));
}

#[test]
fn the_last_owner_of_the_blocks_is_the_core_again() {
    let mut rig = Rig::new(vec![Packed::plain(Media::Other, &noise(2000, 1))]);
    let payload = Region::heap(4096);
    let rows = vec![rig.row(0, 0, 2000)];
    let free = rig.free.free_bytes();
    for row in rig.fill(Output::Raw, rows, &payload).rows {
        let record = Arc::into_inner(row.record.unwrap().into_record()).expect("a worker kept a clone");
        rig.free.give(record.into_blocks());
    }
    assert_eq!(rig.free.free_bytes(), free + 2048);
}

#[test]
fn a_record_is_checked_by_its_first_row_and_not_again() {
    let (long, image) = (noise(50_000, 1), png(28, 28, 2));
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Other, &long),
        Packed::zstd(Media::Other, &b"compressible ".repeat(400)),
        Packed::plain(Media::Png, &image),
        Packed::zstd(Media::Png, &image),
    ]);
    let payload = Region::heap(64 << 10);
    let decoded = Output::from(ImageSpec::cover(28, 28));
    for (sample, output, len) in [
        (0, Output::Raw, 50_000),
        (1, Output::Raw, 5200),
        (2, decoded.clone(), 3 * 28 * 28),
        (3, decoded, 3 * 28 * 28),
    ] {
        let good = rig.row(sample, 0, len);
        assert!(!good.record.as_ref().unwrap().is_checked());
        let filled = rig.fill(output.clone(), vec![good], &payload);
        assert_eq!(filled.faults, []);
        assert!(filled.rows[0].record.as_ref().unwrap().is_checked());

        // One bit in the last byte, which no decoder would notice.
        let stored = rig.records[sample].stored.clone();
        *rig.records[sample].stored.last_mut().unwrap() ^= 1;
        let mismatch = Mismatch { got: crc32c(&rig.records[sample].stored), expected: crc32c(&stored) };
        let bad = rig.row(sample, 0, len);
        let Filled { mut rows, faults, .. } = rig.fill(output.clone(), vec![bad], &payload);
        assert_eq!(faults, [(0, FillFault::Checksum(mismatch))]);
        let row = rows.remove(0);
        assert!(!row.record.as_ref().unwrap().is_checked());

        // A checked record is not checked again.
        row.record.as_ref().unwrap().record().set_checked();
        let faults = rig.fill(output.clone(), vec![row], &payload).faults;
        assert!(!matches!(faults[..], [(_, FillFault::Checksum(_))]), "{faults:?}");
        rig.records[sample].stored = stored;
    }
}

/// What a PNG becomes in a row of 28 x 28 pixels.
fn decoded(png: &[u8]) -> Vec<u8> {
    let mut row = vec![0; 3 * 28 * 28];
    let write = |at, piece: &[u8]| {
        let at = usize::try_from(at).unwrap();
        row[at..at + piece.len()].copy_from_slice(piece);
        Ok::<(), ImageFault>(())
    };
    RowDecoder::default().decode(Media::Png, png, &ImageSpec::cover(28, 28), Draw::default(), write).unwrap();
    row
}

#[test]
fn decoded_rows_hold_planes_of_the_image() {
    let images = [png(28, 28, 1), png(40, 30, 2)];
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Png, &images[0]),
        Packed::zstd(Media::Png, &images[1]),
        Packed::zstd(Media::Ppm, &[b"P6 28 28 255\n".as_slice(), &noise(3 * 28 * 28, 5)].concat()),
    ]);
    let len = 3 * 28 * 28;
    let payload = Region::heap(16 << 10);
    let rows = (0..3).map(|i| rig.row(i, i as u64 * len, len)).collect();
    let filled = rig.fill(Output::from(ImageSpec::cover(28, 28)), rows, &payload);
    assert_eq!(outcomes(&filled), [Ok(len), Ok(len), Ok(len)]);
    for (i, image) in images.iter().enumerate() {
        assert_eq!(read(&payload, i as u64 * len, 3 * 28 * 28), decoded(image));
    }
    let red: Vec<u8> = noise(3 * 28 * 28, 5).into_iter().step_by(3).collect();
    assert_eq!(read(&payload, 2 * len, 28 * 28), red);
}

/// Two views: the whole image, and a random part of it in grey.
fn two_views() -> Vec<ImageSpec> {
    let framing = Framing::RandomResized { scale: [0.1, 1.0], ratio: [0.5, 2.0] };
    let part = ImageSpec { framing, flip: 0.5, grey: true, ..ImageSpec::cover(5, 7) };
    vec![ImageSpec::cover(28, 28), part]
}

/// The bytes of both views of a PNG, and what they show.
fn decoded_views(png: &[u8], row: DrawnRow) -> ([Vec<u8>; 2], [Geometry; 2]) {
    let views = two_views();
    let mut images = [vec![0; 3 * 28 * 28], vec![0; 35]];
    let mut geometry = [Geometry::default(); 2];
    let draw = Draw { draws: EpochDraws::default(), row };
    let write = |view: usize, at, piece: &[u8]| {
        let at = usize::try_from(at).unwrap();
        images[view][at..at + piece.len()].copy_from_slice(piece);
        Ok::<(), ImageFault>(())
    };
    RowDecoder::default().decode_views(Media::Png, png, &views, draw, &mut geometry, write).unwrap();
    (images, geometry)
}

#[test]
fn each_view_of_a_row_goes_to_its_own_place() {
    let images = [png(28, 28, 1), png(40, 30, 2)];
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Png, &images[0]),
        Packed::plain(Media::Png, &images[1]),
        Packed::plain(Media::Png, b"no image"),
    ]);
    let (output, first, len) = (Output::Decoded(two_views()), 3 * 28 * 28, 3 * 28 * 28 + 35);
    let payload = Region::heap(16 << 10);
    for pixels in [Pixels::Own, Pixels::Wanted { output: 7 }] {
        let rows = [2, 0, 1].map(|sample| {
            let row = rig.row(sample, sample as u64 * first, len);
            let position = u32::try_from(sample).unwrap();
            Row { position, drawn: DrawnRow::at(position), pixels: pixels.clone(), ..row }
        });
        payload.write(0, &[0xA5; 16 << 10]).unwrap();
        let filled = rig.fill_views(output.clone(), &[3 * first], rows.into(), &payload);
        assert!(matches!(outcomes(&filled)[..], [Err(FillFault::Decode(_)), Ok(_), Ok(_)]));
        for (sample, image) in images.iter().enumerate() {
            let (expected, geometry) = decoded_views(image, DrawnRow::at(u32::try_from(sample).unwrap()));
            assert!(read(&payload, sample as u64 * first, 3 * 28 * 28) == expected[0]);
            assert_eq!(read(&payload, 3 * first + 35 * sample as u64, 35), expected[1]);
            assert_eq!(filled.geometry[2 * sample + 2..2 * sample + 4], geometry);
            let row = &filled.rows[sample + 1];
            if let Pixels::Decoded { row: kept, .. } = &row.pixels {
                assert!(kept.bytes == expected.concat() && kept.geometry == geometry);
                // Another batch has it at other places, and needs no record.
                let elsewhere = Region::heap(16 << 10);
                let pixels = row.pixels.clone();
                let copy = Row { position: 1, pixels, record: None, ..rig.row(0, first, len) };
                let copied = rig.fill_views(output.clone(), &[8000], vec![copy], &elsewhere);
                assert_eq!((outcomes(&copied), &copied.geometry[..]), (vec![Ok(len)], &geometry[..]));
                assert!(read(&elsewhere, first, 3 * 28 * 28) == expected[0]);
                assert_eq!(read(&elsewhere, 8035, 35), expected[1]);
            }
        }
    }
    let row = rig.row(0, 0, len);
    let found = outcomes(&rig.fill(output.clone(), vec![row], &payload));
    assert!(matches!(found[..], [Err(FillFault::Layout(LayoutFault::Payload(_)))]), "no place: {found:?}");
}

#[test]
fn a_row_that_others_want_is_kept_and_copied() {
    let image = png(28, 28, 1);
    let mut rig = Rig::new(vec![Packed::plain(Media::Png, &image), Packed::plain(Media::Png, b"no image")]);
    let (output, len) = (Output::from(ImageSpec::cover(28, 28)), 3 * 28 * 28);
    let payload = Region::heap(16 << 10);
    let wanted = |rig: &mut Rig, sample| {
        let row = rig.row(sample, 0, len);
        vec![Row { pixels: Pixels::Wanted { output: 7 }, ..row }]
    };

    let rows = wanted(&mut rig, 0);
    let filled = rig.fill(output.clone(), rows, &payload);
    assert_eq!(outcomes(&filled), [Ok(len)]);
    assert_eq!(read(&payload, 0, 3 * 28 * 28), decoded(&image));
    let Pixels::Decoded { output: 7, row: kept } = &filled.rows[0].pixels else {
        panic!("{:?}", filled.rows[0].pixels)
    };
    assert_eq!(kept.bytes, decoded(&image));

    // It needs no record.
    let copy = |rig: &mut Rig, len| {
        let row = rig.row(1, len, len);
        vec![Row { pixels: Pixels::Decoded { output: 7, row: Arc::clone(kept) }, record: None, ..row }]
    };
    let rows = copy(&mut rig, len);
    assert_eq!(outcomes(&rig.fill(output.clone(), rows, &payload)), [Ok(len)]);
    assert_eq!(read(&payload, len, 3 * 28 * 28), decoded(&image));

    let rows = wanted(&mut rig, 1);
    let filled = rig.fill(output.clone(), rows, &payload);
    assert!(matches!(outcomes(&filled)[..], [Err(FillFault::Decode(_))]), "{filled:?}");
    assert!(matches!(filled.rows[0].pixels, Pixels::Wanted { .. }), "nothing is kept");

    let rows = copy(&mut rig, 3 * 30 * 30);
    let room = LayoutFault::Room { got: 3 * 30 * 30, expected: len };
    let found = outcomes(&rig.fill(Output::from(ImageSpec::cover(30, 30)), rows, &payload));
    assert_eq!(found, [Err(FillFault::Layout(room))], "pixels of another size");

    let rows = vec![Row { record: None, ..rig.row(0, 0, len) }];
    assert_eq!(
        outcomes(&rig.fill(output.clone(), rows, &payload)),
        [Err(FillFault::Layout(LayoutFault::NoRecord))]
    );
}

/// A TIFF of 3 x 2 grey pixels, 0, 1, ... 5, with this orientation.
fn tiff(orientation: u16) -> Vec<u8> {
    // Tag, type (3: u16, 4: u32), value.
    let fields: [(u16, u16, u32); 9] = [
        (256, 3, 3),
        (257, 3, 2),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8 + 2 + 9 * 12 + 4),
        (274, 3, orientation.into()),
        (278, 3, 2),
        (279, 4, 6),
    ];
    let mut bytes = b"II\x2a\0\x08\0\0\0\x09\0".to_vec();
    for (tag, kind, value) in fields {
        bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        bytes.extend([1_u32.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend([0, 0, 0, 0, 0, 1, 2, 3, 4, 5]);
    bytes
}

#[test]
fn rows_of_their_own_sizes_are_the_whole_images() {
    let pixels = noise(3 * 200 * 30, 5);
    let ppm = [b"P6 200 30 255\n".as_slice(), &pixels].concat();
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Ppm, &ppm).sized(200, 30),
        Packed::zstd(Media::Ppm, &ppm).sized(200, 30),
        Packed::plain(Media::Png, &png(1, 9, 2)).sized(1, 9),
        Packed::plain(Media::Tiff, &tiff(1)).sized(3, 2),
        Packed::plain(Media::Tiff, &tiff(6)).sized(3, 2),
    ]);
    let places = [(0, 18_000), (18_000, 18_000), (36_000, 27), (36_027, 18), (36_045, 18)];
    for channels_last in [false, true] {
        let payload = Region::heap(40 << 10);
        let rows = places.iter().enumerate().map(|(i, &(at, len))| rig.row(i, at, len)).collect();
        let filled = rig.fill(Output::Ragged { channels_last }, rows, &payload);
        assert_eq!(filled.faults, []);
        let sides: Vec<_> = filled.rows.iter().map(|row| (row.size.width, row.size.height)).collect();
        assert_eq!(sides, [(200, 30), (200, 30), (1, 9), (3, 2), (2, 3)], "an orientation turns a TIFF only");

        let in_order = |rgb: &[u8]| match channels_last {
            true => rgb.to_vec(),
            false => (0..3).flat_map(|colour| rgb.iter().skip(colour).step_by(3).copied()).collect(),
        };
        assert_eq!(read(&payload, 0, 18_000), in_order(&pixels));
        assert_eq!(read(&payload, 18_000, 18_000), in_order(&pixels));
        assert_eq!(read(&payload, 36_000, 27), in_order(&noise(27, 2)));
        assert_eq!(read(&payload, 36_027, 18), in_order(&[0, 1, 2, 3, 4, 5].map(|grey| [grey; 3]).concat()));
        assert_eq!(read(&payload, 36_045, 18), in_order(&[3, 0, 4, 1, 5, 2].map(|grey| [grey; 3]).concat()));
    }
}

#[test]
fn an_image_of_another_size_than_the_indexs_is_a_fault_and_writes_nothing() {
    let (image, jpeg) = (png(20, 10, 1), include_bytes!("../../../images/tests/data/baseline.jpg"));
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Png, &image).sized(10, 10),
        Packed::plain(Media::Png, &image).sized(10, 20),
        Packed::plain(Media::Png, &image).sized(40, 10),
        Packed::plain(Media::Jpeg, jpeg).sized(37, 20),
        Packed::plain(Media::Tiff, &tiff(1)).sized(6, 1),
        Packed::plain(Media::Png, &image),
        Packed::plain(Media::Png, &image).sized(u16::MAX, u16::MAX),
        Packed::plain(Media::Png, &image).sized(20, 10),
        // By its header: nothing behind that is read.
        Packed::plain(Media::Png, &image[..60]).sized(10, 10),
    ]);
    let payload = Region::heap(16 << 10);
    let lens = [300, 600, 1200, 2220, 18, 0, 0, 600, 300];
    let ends: Vec<u64> = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
    let rows = (0..9).map(|i| rig.row(i, ends[i], lens[i])).collect();
    let found = outcomes(&rig.fill(Output::Ragged { channels_last: true }, rows, &payload));
    let other = |image: (u32, u32), indexed: (u32, u32)| {
        let [image, indexed] = [image, indexed].map(|(width, height)| Size { width, height });
        Err(FillFault::Decode(ImageFault::OtherSize { image, indexed }))
    };
    let side = u32::from(u16::MAX);
    assert_eq!(
        found,
        [
            other((20, 10), (10, 10)),
            other((20, 10), (10, 20)),
            other((20, 10), (40, 10)),
            other((37, 21), (37, 20)),
            other((3, 2), (6, 1)),
            Err(FillFault::Size(SizeFault::Unknown)),
            Err(FillFault::Size(SizeFault::TooLarge { width: side, height: side })),
            Ok(600),
            other((20, 10), (10, 10)),
        ]
    );
    let end = usize::try_from(ends[7]).unwrap();
    assert_eq!(read(&payload, 0, end), vec![0; end]);
    assert_eq!(read(&payload, ends[7], 600), noise(600, 1));
    assert_eq!(
        found[0].clone().unwrap_err().to_string(),
        "image of 20 x 10 pixels: expected 10 x 10, as the index says"
    );
}

#[test]
fn a_bad_row_among_good_ones_is_its_own_fault_only() {
    let good = png(28, 28, 1);
    let mut torn = good.clone();
    torn.truncate(good.len() / 2);
    let mut lying = Packed::zstd(Media::Png, &good);
    lying.raw_len -= 1;
    let mut short = Packed::zstd(Media::Png, &good);
    short.raw_len += 1;
    let mut rig = Rig::new(vec![
        Packed::plain(Media::Png, &good),
        Packed::plain(Media::Png, &torn),
        Packed::plain(Media::Other, &good),
        lying,
        short,
        Packed { codec: Codec::Zstd, ..Packed::plain(Media::Png, &noise(700, 3)) },
        Packed::plain(Media::Png, &good),
    ]);
    let len = 3 * 28 * 28;
    let payload = Region::heap(32 << 10);
    let rows = (0..7).map(|i| rig.row(i, i as u64 * len, len)).collect();
    let filled = rig.fill(Output::from(ImageSpec::cover(28, 28)), rows, &payload);
    let found = outcomes(&filled);
    assert_eq!((&found[0], &found[6]), (&Ok(len), &Ok(len)));
    assert!(
        matches!(found[1], Err(FillFault::Decode(ImageFault::Corrupt { media: Media::Png, .. }))),
        "{found:?}"
    );
    let other = "corrupt png: its index says that it is of another kind";
    assert!(matches!(&found[2], Err(fault) if fault.to_string() == other), "{found:?}");
    for outcome in &found[3..6] {
        assert!(matches!(outcome, Err(FillFault::Zstd(ZstdFault::Frame { .. }))), "{outcome:?}");
    }
    let expected = decoded(&good);
    assert_eq!(read(&payload, 0, 3 * 28 * 28), expected);
    assert_eq!(read(&payload, 6 * len, 3 * 28 * 28), expected);
    assert_eq!(
        read(&payload, 2 * len, 3 * 28 * 28),
        vec![0; 3 * 28 * 28],
        "a bad row's place is not written"
    );
}

#[test]
fn room_that_does_not_fit_the_row_is_a_fault() {
    let mut rig = Rig::new(vec![Packed::plain(Media::Png, &png(8, 8, 1))]);
    let raw_len = u64::from(rig.records[0].raw_len);
    let payload = Region::heap(4096);
    let room = |got, expected| Err(FillFault::Layout(LayoutFault::Room { got, expected }));

    let rows =
        vec![rig.row(0, 0, raw_len - 1), rig.row(0, 0, raw_len + 1), rig.row(0, 4096 - raw_len + 1, raw_len)];
    let found = outcomes(&rig.fill(Output::Raw, rows, &payload));
    assert_eq!(found[..2], [room(raw_len - 1, raw_len), room(raw_len + 1, raw_len)]);
    assert!(matches!(found[2], Err(FillFault::Layout(LayoutFault::Payload(_)))), "{found:?}");

    let rows = vec![rig.row(0, 0, raw_len)];
    let found = outcomes(&rig.fill(Output::from(ImageSpec::cover(5, 6)), rows, &payload));
    assert_eq!(found, [room(raw_len, 90)]);

    let mut short = rig.row(0, 0, raw_len);
    let (other, mut free) = Arena::create(1 << 20, 512).unwrap();
    short.record = Some(Lent::new(Arc::new(Record::new(free.take(4096).unwrap(), true))));
    let found = outcomes(&rig.fill(Output::Raw, vec![short], &payload));
    assert!(matches!(found[..], [Err(FillFault::Layout(LayoutFault::Blocks(_)))]), "{found:?}");
    drop(other);
}

#[test]
fn finalizing_closes_gaps_and_writes_every_column() {
    // Room for 4 rows of 12 bytes, and of 1; row 1 is not delivered.
    let views = [(2, 2, 3), (1, 1, 1)];
    let views =
        views.map(|(height, width, channels)| ViewShape { height, width, channels, ..ViewShape::default() });
    let layout = BatchLayout::of_views(Layout::Nchw, 4, &views).unwrap();
    let block = 4096;
    let payload = Region::heap(16 << 10);
    let data = block + layout.data;
    for row in 0..4_u8 {
        payload.write(data + 12 * u64::from(row), &[row + 1; 12]).unwrap();
    }
    let columns = Columns {
        ids: vec![10, 12, 1 << 31],
        labels: vec![-1, 2, 3],
        weights: vec![1.0, 0.5, -0.0],
        flags: vec![0, 1, 2],
        crops: (0..6_u8).map(|row| [row, row + 1, row + 2, row + 3].map(f32::from)).collect(),
        flipped: vec![0, 1, 0, 1, 1, 0],
        ..Columns::default()
    };
    let moves = vec![
        Move { from: data + 24, to: data + 12, len: 12 },
        Move { from: data + 36, to: data + 24, len: 12 },
    ];
    let order = FinalizeOrder { ticket: TICKET, block_offset: block, layout, columns, moves };
    finalize(&order, &payload, &mut Vec::new()).unwrap();
    let (table_at, table) = layout.table().unwrap();
    assert_eq!(read(&payload, block + table_at, 32), table);
    let floats = |first: u8| {
        let of_row = |row: u8| [row, row + 1, row + 2, row + 3].map(|value| f32::from(value).to_le_bytes());
        (first..first + 3).flat_map(of_row).collect::<Vec<_>>().concat()
    };
    assert_eq!(read(&payload, block + layout.crops(0).unwrap(), 48), floats(0));
    assert_eq!(read(&payload, block + layout.crops(1).unwrap(), 48), floats(3));
    assert_eq!(read(&payload, block + layout.flipped(0).unwrap(), 3), [0, 1, 0]);
    assert_eq!(read(&payload, block + layout.flipped(1).unwrap(), 3), [1, 1, 0]);
    let short = Columns { crops: vec![[0.0; 4]; 3], ..order.columns.clone() };
    let short = FinalizeOrder { columns: short, ..order };
    finalize(&short, &payload, &mut Vec::new()).unwrap_err();

    assert_eq!(read(&payload, data, 36), [[1; 12], [3; 12], [4; 12]].concat());
    let words = |values: [i64; 3]| values.map(i64::to_le_bytes).concat();
    assert_eq!(read(&payload, block + layout.ids, 24), words([10, 12, 1 << 31]));
    assert_eq!(read(&payload, block + layout.labels, 24), words([-1, 2, 3]));
    assert_eq!(
        read(&payload, block + layout.weights, 12),
        [1.0, 0.5, -0.0_f32].map(f32::to_le_bytes).concat()
    );
    assert_eq!(read(&payload, block + layout.flags, 12), [0, 1, 2_u32].map(u32::to_le_bytes).concat());
    assert_eq!(read(&payload, 0, 4096), vec![0; 4096], "nothing before the block is touched");
}

#[test]
fn moves_may_overlap_and_are_done_in_order() {
    let view = ViewShape { height: 2, width: 5, channels: 1, dtype: Dtype::Uint8 };
    let layout = BatchLayout::of_views(Layout::Nchw, 3, &[view]).unwrap();
    let payload = Region::heap(8192);
    let bytes = noise(30, 4);
    payload.write(layout.data, &bytes).unwrap();
    let at = |offset| layout.data + offset;
    let moves = vec![Move { from: at(3), to: at(0), len: 10 }, Move { from: at(15), to: at(10), len: 15 }];
    let order = FinalizeOrder { ticket: TICKET, block_offset: 0, layout, columns: Columns::default(), moves };
    finalize(&order, &payload, &mut Vec::new()).unwrap();
    assert_eq!(read(&payload, layout.data, 25), [&bytes[3..13], &bytes[15..30]].concat());
}

#[test]
fn raw_batches_have_offsets_and_lens_too() {
    let layout = BatchLayout::new(Layout::Raw, 2, 100).unwrap();
    let payload = Region::heap(8192);
    let columns = Columns {
        ids: vec![1, 2],
        labels: vec![3, 4],
        weights: vec![1.0, 1.0],
        flags: vec![0, 0],
        offsets: vec![0, 60],
        lens: vec![60, 40],
        ..Columns::default()
    };
    let order = FinalizeOrder {
        ticket: TICKET,
        block_offset: 0,
        layout,
        columns: columns.clone(),
        moves: Vec::new(),
    };
    finalize(&order, &payload, &mut Vec::new()).unwrap();
    let words = |values: [u64; 2]| values.map(u64::to_le_bytes).concat();
    assert_eq!(read(&payload, layout.offsets().unwrap(), 16), words([0, 60]));
    assert_eq!(read(&payload, layout.lens().unwrap(), 16), words([60, 40]));

    // A column too many, too few, or a move out of the segment: never published.
    let short = Columns { lens: vec![60], ..columns.clone() };
    let long = Columns { flags: vec![0; 3], ..columns.clone() };
    let none = Vec::new();
    let outside = vec![Move { from: 8190, to: 0, len: 3 }];
    for (columns, moves) in [(short, none.clone()), (long, none), (columns, outside)] {
        let order = FinalizeOrder { ticket: TICKET, block_offset: 0, layout, columns, moves };
        finalize(&order, &payload, &mut Vec::new()).unwrap_err();
    }
}

#[test]
fn images_of_their_own_sizes_have_sides_instead_of_lens() {
    let layout = BatchLayout::new(Layout::RaggedHwc, 3, 100).unwrap();
    let payload = Region::heap(8192);
    let columns = Columns {
        ids: vec![1, 2],
        labels: vec![3, 4],
        weights: vec![1.0, 1.0],
        flags: vec![0, 0],
        offsets: vec![0, 60],
        heights: vec![5, 13],
        widths: vec![4, 1],
        ..Columns::default()
    };
    let order = |columns: &Columns| FinalizeOrder {
        ticket: TICKET,
        block_offset: 4096,
        layout,
        columns: columns.clone(),
        moves: Vec::new(),
    };
    finalize(&order(&columns), &payload, &mut Vec::new()).unwrap();
    assert_eq!(
        read(&payload, 4096 + layout.offsets().unwrap(), 16),
        [0_u64, 60].map(u64::to_le_bytes).concat()
    );
    assert_eq!(
        read(&payload, 4096 + layout.heights().unwrap(), 8),
        [5_u32, 13].map(u32::to_le_bytes).concat()
    );
    assert_eq!(read(&payload, 4096 + layout.widths().unwrap(), 8), [4_u32, 1].map(u32::to_le_bytes).concat());

    let short = Columns { widths: vec![4], ..columns.clone() };
    let strange = Columns { lens: vec![60, 39], ..columns };
    for columns in [short, strange] {
        finalize(&order(&columns), &payload, &mut Vec::new()).unwrap_err();
    }
}

#[test]
fn a_drop_finishes_what_is_queued() {
    let mut rig = Rig::new(vec![Packed::plain(Media::Other, &noise(2000, 1))]);
    let payload = Region::heap(256 * 2048);
    for position in 0..256 {
        let rows = vec![rig.row(0, position * 2048, 2000)];
        let (output, later_views) = (Arc::new(Output::Raw), Arc::default());
        let draws = EpochDraws::default();
        rig.workers.submit(
            FillOrder { ticket: TICKET, output, later_views, fields: None, draws, rows },
            payload.clone(),
        );
    }
    drop(rig.workers);
    let answers: Vec<Filled> = rig.done.iter().collect();
    assert_eq!(answers.len(), 256);
    for position in 0..256 {
        assert_eq!(read(&payload, position * 2048, 2000), noise(2000, 1));
    }
}

#[test]
fn no_workers_are_refused() {
    let (arena, _free) = Arena::create(4096, 512).unwrap();
    let started = Workers::start(
        0,
        JpegDecoder::Auto,
        &alone(Arc::new(index(&[], &[]))),
        Arc::new(arena),
        unbounded().0,
    );
    assert_eq!(started.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
