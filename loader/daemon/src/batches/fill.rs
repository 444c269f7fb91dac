//! Fills rows: gather, decompress, decode, write.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use shade_core::{BatchFields, Pixels, WholeSamples, indexed_size, row_bytes};
use shade_dataset::{Decompressor, Dictionaries};
use shade_formats::index::Entry;
use shade_formats::{EpochDraws, Geometry};
use shade_images::{Draw, RowDecoder, Shown, Size, caught, shrink};
use shade_job::{ImageSpec, JpegDecoder, Output};
use shade_reads::blocks::{Arena, Lent};
use shade_shm::Region;

use super::fields::{FieldBuffers, Piece};
use super::{FillFault, FillOrder, Filled, LayoutFault, Room, Row, fatal, gather};

/// A worker's buffers and decoders, kept between rows so that a small row costs no allocation.
pub(super) struct Filler {
    /// Number of the worker.
    worker: usize,
    arena: Arc<Arena>,
    samples: Arc<WholeSamples>,
    jpeg: JpegDecoder,
    buffers: Buffers,
}

/// What the rows of an order become, and where.
struct Target<'a> {
    output: &'a Output,
    /// See [`FillOrder::later_views`].
    later_views: &'a [u64],
    fields: Option<&'a BatchFields>,
    draws: EpochDraws,
    payload: &'a Region,
}

impl Target<'_> {
    /// Byte in the payload at which the row's image of a view begins.
    fn place(&self, row: &Row, view: usize) -> u64 {
        let Some(later) = view.checked_sub(1) else { return row.offset };
        let bytes = self.output.views().get(view).map_or(0, ImageSpec::bytes);
        // One that is missing is outside the payload, and is refused there.
        let start = self.later_views.get(later).copied().unwrap_or(u64::MAX);
        start.saturating_add(bytes.saturating_mul(row.position.into()))
    }

    /// Bytes of the row's images of the views before this one.
    fn before(&self, view: usize) -> u64 {
        self.output.views().iter().take(view).map(ImageSpec::bytes).sum()
    }

    /// Writes the bytes of a row, which has its images view after view.
    fn copy(&self, row: &Row, bytes: &[u8]) -> Result<(), FillFault> {
        let views = self.output.views();
        if views.len() < 2 {
            return Ok(self.payload.write(row.offset, bytes)?);
        }
        let mut rest = bytes;
        for (view, spec) in views.iter().enumerate() {
            let len = usize::try_from(spec.bytes()).unwrap_or(usize::MAX);
            // `check_room` has compared the sum.
            let image = rest.split_off(..len.min(rest.len())).unwrap_or_default();
            self.payload.write(self.place(row, view), image)?;
        }
        Ok(())
    }
}

struct Buffers {
    decoder: RowDecoder,
    zstd: Decompressor,
    fields: FieldBuffers,
    /// A record's stored bytes, where they are scattered.
    stored: Vec<u8>,
    /// A record's bytes, decompressed.
    raw: Vec<u8>,
}

impl Filler {
    pub(super) fn new(
        worker: usize,
        arena: Arc<Arena>,
        samples: Arc<WholeSamples>,
        dictionaries: Dictionaries,
        jpeg: JpegDecoder,
    ) -> Self {
        Self { worker, arena, samples, jpeg, buffers: Buffers::new(jpeg, Decompressor::new(dictionaries)) }
    }

    /// Fills every row of `order`; a bad one does not spoil the others.
    pub(super) fn fill(&mut self, order: FillOrder, room: &Room) -> Filled {
        let start = Instant::now();
        let FillOrder { ticket, output, later_views, fields, draws, mut rows } = order;
        let Room { payload, board, avoided } = room;
        let is_decoded = !matches!(*output, Output::Raw);
        let fields = fields.as_deref();
        let target = Target { output: &output, later_views: &later_views, fields, draws, payload };
        let mut faults = Vec::new();
        let views = output.views().len();
        let mut geometry = vec![Geometry::default(); views * rows.len()];
        let mut of_rows = geometry.chunks_exact_mut(views.max(1));
        self.look_at_all(&rows);
        for (at, row) in rows.iter_mut().enumerate() {
            let of_row = of_rows.next().unwrap_or_default();
            let (worker, sample) = (self.worker, row.sample);
            // What is only copied cannot end the process.
            let board = board.as_ref().filter(|_| is_decoded || row.entry.codec.is_compressed());
            let made = || match board {
                _ if avoided.contains(&sample.0) => Err(FillFault::Fatal),
                Some(board) => fatal::marked(board, worker, sample, || self.fill_row(row, &target, of_row)),
                None => self.fill_row(row, &target, of_row),
            };
            if let Err(fault) = guard(made) {
                if matches!(fault, FillFault::Panicked { .. }) {
                    // The panic may have left the buffers half-changed.
                    self.buffers = Buffers::new(self.jpeg, self.buffers.zstd.renewed());
                }
                faults.push((at, fault));
            }
        }
        self.buffers.shrink();
        let fill_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Filled { ticket, rows, faults, geometry, fill_ns }
    }

    /// Loads the first byte of each row's record. Row by row, each would wait for its own cache
    /// line, which takes longer than a small image; together they come at the same time.
    fn look_at_all(&self, rows: &[Row]) {
        let first = |row: &Row| self.arena.slices_of(row.record.as_ref()?, 1).ok()?.next()?.first().copied();
        let zeros = rows.iter().filter(|row| first(row) == Some(0)).count();
        // Keeps the compiler from removing the loads.
        black_box(zeros);
    }

    /// Writes one row, and sets its size and what its views show.
    fn fill_row(
        &mut self,
        row: &mut Row,
        target: &Target<'_>,
        geometry: &mut [Geometry],
    ) -> Result<(), FillFault> {
        let bytes = row_bytes(target.output, &row.entry)?;
        check_room(row.len, bytes)?;
        match &row.pixels {
            Pixels::Own => {
                row.size = self.make_row(row, target, geometry, |view, at, bytes| {
                    // A sum that overflows is outside the payload, and is refused there.
                    let start = target.place(row, view).saturating_add(at);
                    target.payload.write(start, bytes).map_err(FillFault::from)
                })?;
            }
            Pixels::Wanted { .. } => {
                let mut made = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
                row.size = self.make_row(row, target, geometry, |view, at, bytes| {
                    place(&mut made, target.before(view).saturating_add(at), bytes)
                })?;
                target.copy(row, &made)?;
                row.keep(made, geometry);
            }
            Pixels::Decoded { row: decoded, .. } => {
                check_room(row.len, decoded.bytes.len() as u64)?;
                target.copy(row, &decoded.bytes)?;
                geometry.iter_mut().zip(&decoded.geometry).for_each(|(to, &from)| *to = from);
                row.size = decoded.size;
            }
        }
        match target.fields {
            Some(fields) => self.write_fields(row, fields, target),
            None => Ok(()),
        }
    }

    fn write_fields(
        &mut self,
        row: &Row,
        fields: &BatchFields,
        target: &Target<'_>,
    ) -> Result<(), FillFault> {
        let piece = Piece::new(&self.arena, &self.samples, row.sample, record_of(row)?)?;
        let draw = Draw { draws: target.draws, row: row.drawn };
        let shown = if fields.wanted.iter().any(|(_, kind)| kind.follows()) {
            Shown::of_views(row.size, target.output.views(), draw)?
        } else {
            Vec::new()
        };
        piece.write(fields, row.position, &shown, target.payload, &mut self.buffers.fields)
    }

    /// Makes a row of its record. A decoded one goes through `write`, piece by piece, each with its
    /// view and its offset in the view's image. Returns its size: see [`Row::size`].
    fn make_row(
        &mut self,
        row: &Row,
        target: &Target<'_>,
        geometry: &mut [Geometry],
        mut write: impl FnMut(usize, u64, &[u8]) -> Result<(), FillFault>,
    ) -> Result<Size, FillFault> {
        let entry = &row.entry;
        match target.output {
            Output::Raw => self.write_raw(row, entry, target.payload),
            Output::Decoded(views) => self.with_record(row, entry, |decoder, record| {
                let draw = Draw { draws: target.draws, row: row.drawn };
                decoder.decode_views(entry.media, record, views, draw, geometry, write)
            }),
            Output::Ragged { channels_last } => self.with_record(row, entry, |decoder, record| {
                let indexed = indexed_size(entry)?;
                let write = |at, bytes: &[u8]| write(0, at, bytes);
                decoder.decode_whole(entry.media, record, indexed, *channels_last, write)
            }),
        }
    }

    /// Passes the row's record to `decode`, checked, in one piece and decompressed.
    fn with_record(
        &mut self,
        row: &Row,
        entry: &Entry,
        decode: impl FnOnce(&mut RowDecoder, &[u8]) -> Result<Size, FillFault>,
    ) -> Result<Size, FillFault> {
        let Self { arena, samples, buffers: Buffers { decoder, zstd, stored, raw, .. }, .. } = self;
        let lent = record_of(row)?;
        let piece;
        let mut record = if samples.has_fields() {
            piece = Piece::new(arena, samples, row.sample, lent)?;
            piece.record(stored)?
        } else {
            gather::stored(arena, lent, entry, stored)?
        };
        if entry.codec.is_compressed() {
            record = zstd.decompress(record, entry, raw)?;
        }
        decode(decoder, record)
    }

    fn write_raw(&mut self, row: &Row, entry: &Entry, payload: &Region) -> Result<Size, FillFault> {
        if entry.codec.is_compressed() || self.samples.has_fields() {
            return self.with_record(row, entry, |_, record| {
                payload.write(row.offset, record)?;
                Ok(Size::default())
            });
        }
        // The index's reader has checked that both lengths are equal.
        gather::to_payload(&self.arena, record_of(row)?, entry, payload, row.offset)?;
        Ok(Size::default())
    }
}

impl Buffers {
    fn new(jpeg: JpegDecoder, zstd: Decompressor) -> Self {
        let (fields, stored, raw) = Default::default();
        Self { decoder: RowDecoder::new(jpeg), zstd, fields, stored, raw }
    }

    /// Frees memory that the buffers needed for one large record.
    fn shrink(&mut self) {
        self.fields.shrink();
        shrink(&mut self.stored);
        shrink(&mut self.raw);
    }
}

/// The record of a row that is made of it.
fn record_of(row: &Row) -> Result<&Lent, LayoutFault> {
    row.record.as_ref().ok_or(LayoutFault::NoRecord)
}

/// Refuses a row whose room is not that of its bytes.
fn check_room(got: u64, expected: u64) -> Result<(), LayoutFault> {
    if got == expected { Ok(()) } else { Err(LayoutFault::Room { got, expected }) }
}

/// Writes a piece of a row.
fn place(row: &mut [u8], at: u64, piece: &[u8]) -> Result<(), FillFault> {
    let end = at.saturating_add(piece.len() as u64);
    let expected = row.len() as u64;
    let range = usize::try_from(at).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
    let room = row.get_mut(range).ok_or(LayoutFault::Room { got: end, expected })?;
    room.copy_from_slice(piece);
    Ok(())
}

/// Runs a row's work and returns a panic as its fault. (A decoder's panic is an `ImageFault`.)
///
/// Otherwise a panic would end the thread: the order's rows would never come back, and the trainer
/// would wait for ever. As a fault it is one bad record with a name, handled as the job wishes.
fn guard<T>(work: impl FnOnce() -> Result<T, FillFault>) -> Result<T, FillFault> {
    caught(work).unwrap_or_else(|text| Err(FillFault::Panicked { text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_rows_fault_and_carries_its_message() {
        let panicked = guard::<()>(|| panic!("at byte {}", 7));
        let Err(FillFault::Panicked { text }) = panicked else { panic!("{panicked:?}") };
        assert!(text.starts_with("at byte 7 (fill.rs:"), "{text}");
        assert_eq!(guard(|| Ok(3)), Ok(3));
    }
}
