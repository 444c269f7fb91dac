//! A batch on its way: opened in the ring, its rows filled in any order, sealed, published.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::ring::{BatchLayout, FLAG_PADDING, FLAG_SUBSTITUTED};
use shade_formats::{Draw, Size};

use crate::bad_share::{Faults, Given};
use crate::event::SessionId;
use crate::memory::Memory;
use crate::orders::Row;

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowState {
    /// Its record is being read or waits for its turn.
    Waiting,
    /// A worker has it, or will be given it next.
    Filling,
    /// Its bytes are in place.
    Done,
    /// It will not be delivered.
    Skipped,
}

/// One row of a batch.
#[derive(Clone, Debug)]
pub(super) struct BatchRow {
    pub(super) sample: SampleId,
    /// What the index says of it.
    pub(super) entry: Entry,
    pub(super) weight: f32,
    pub(super) flags: u32,
    /// Absolute payload offset of the row's data.
    pub(super) offset: u64,
    /// Bytes of it.
    pub(super) len: u64,
    /// Bytes reserved there: as many, or more where a substitute may be longer.
    pub(super) room: u64,
    /// Of an image in its own size, once it is there.
    pub(super) size: Size,
    pub(super) draw: Draw,
    pub(super) state: RowState,
    /// Substitutes tried so far.
    pub(super) substitutes: u32,
    /// Its record was read again, since what came first was not what was packed.
    pub(super) reread: bool,
}

impl BatchRow {
    /// Whether it is a sample of the plan's, and does not only fill up the batch.
    pub(super) fn is_sample(&self) -> bool {
        self.flags & FLAG_PADDING == 0
    }
}

/// How far a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Rows are missing.
    Filling,
    /// Its columns are being written.
    Sealing,
    /// It may be published when its turn comes.
    Complete,
}

/// A batch between its opening and its publication.
pub(super) struct Batch<M: Memory> {
    pub(super) seq: u64,
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) number: u32,
    /// Absolute payload offset of the batch's block.
    pub(super) offset: u64,
    pub(super) layout: BatchLayout,
    pub(super) rows: Vec<BatchRow>,
    /// Rows neither done nor skipped.
    pub(super) pending: usize,
    /// Rows whose record is at hand, to be given to workers together.
    pub(super) ready: Vec<Row<M::Lent>>,
    pub(super) progress: Progress,
    /// Why the batch is not delivered.
    pub(super) failure: Option<String>,
    /// What was wrong with rows that were skipped or substituted.
    pub(super) faults: Faults,
    /// The rank has moved on: finish without work.
    pub(super) abandoned: bool,
    pub(super) hits: u32,
    pub(super) misses: u32,
    /// Samples left out because their record is bad; rows that only fill up the batch are none.
    pub(super) skipped: u32,
    pub(super) opened_ns: u64,
    /// When the last read this batch waited for came back.
    pub(super) read_ns: u64,
    pub(super) slot_wait_ns: u64,
    pub(super) fill_ns: u64,
}

impl<M: Memory> Batch<M> {
    /// Hands row `position` to the workers, with its record.
    pub(super) fn ready(&mut self, position: u32, record: M::Record) {
        let Some(row) = self.rows.get_mut(position as usize) else { return };
        row.state = RowState::Filling;
        let BatchRow { sample, entry, offset, len, draw, .. } = *row;
        let (size, record) = (Size::default(), M::lend(record));
        self.ready.push(Row { position, sample, entry, offset, len, draw, size, record });
    }

    /// Row `position` is in place.
    pub(super) fn filled(&mut self, position: u32, size: Size) {
        if let Some(row) = self.rows.get_mut(position as usize) {
            row.size = size;
        }
        self.finish(position, RowState::Done);
    }

    /// Rows that will reach the trainer, in order.
    pub(super) fn delivered(&self) -> impl Iterator<Item = &BatchRow> {
        self.rows.iter().filter(|row| row.state == RowState::Done)
    }

    /// The same without rows that only fill the batch up.
    pub(super) fn real(&self) -> impl Iterator<Item = &BatchRow> {
        self.delivered().filter(|row| row.is_sample())
    }

    /// Samples delivered with another one in their place because they were bad.
    pub(super) fn substituted(&self) -> u32 {
        let flagged = self.real().filter(|row| row.flags & FLAG_SUBSTITUTED != 0);
        u32::try_from(flagged.count()).unwrap_or(u32::MAX)
    }

    /// Whether all samples that the batch was to have were left out. One that has none, as there
    /// are fewer samples than ranks want, is void once nothing is left that fills it up.
    pub(super) fn is_void(&self) -> bool {
        let has_samples = self.rows.iter().any(BatchRow::is_sample);
        let is_any_left =
            if has_samples { self.real().next().is_some() } else { self.delivered().next().is_some() };
        !is_any_left && self.rows.iter().any(|row| row.state == RowState::Skipped)
    }

    /// What the rank is given by it.
    pub(super) fn given(&self) -> Given {
        let (rows, skipped) = (self.real().count() as u64, u64::from(self.skipped));
        Given { rows, skipped, substituted: self.substituted().into() }
    }

    /// Marks row `position` finished as `state` ([`RowState::Done`] or [`RowState::Skipped`]).
    pub(super) fn finish(&mut self, position: u32, state: RowState) {
        let Some(row) = self.rows.get_mut(position as usize) else { return };
        if matches!(row.state, RowState::Waiting | RowState::Filling) {
            row.state = state;
            self.pending = self.pending.saturating_sub(1);
        }
    }
}

/// A row that waits for a read: which session, batch and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowRef {
    pub(super) session: SessionId,
    pub(super) seq: u64,
    pub(super) position: u32,
}
