//! An open batch: its rows are filled in any order, then it is finalized and published.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::ring::{BatchLayout, FLAG_PADDING, FLAG_SUBSTITUTED};
use shade_formats::trace::Open;
use shade_formats::{DrawnRow, Geometry, Size};
use shade_job::Output;

use crate::bad_share::{Faults, Outcome, RowCounts};
use crate::batch_fields::BatchFields;
use crate::figures::Accesses;
use crate::ids::{BatchId, SessionId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{FillRow, Pixels};

/// State of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// It waits for its record.
    Waiting,
    /// A worker has it or gets it next.
    Filling,
    /// Its bytes are in place.
    Done,
    /// It will not be delivered.
    Skipped,
}

/// One row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchRow {
    pub(crate) sample: SampleId,
    /// The sample's entry of the index.
    pub(crate) entry: Entry,
    pub(crate) weight: f32,
    pub(crate) flags: u32,
    /// Offset of the row's data in the payload; where it has views, of the first one's image.
    pub(crate) offset: u64,
    /// Bytes of the data.
    pub(crate) len: u64,
    /// Bytes reserved for the data: more than `len` where a substitute may be longer.
    pub(crate) room: u64,
    /// True size of the row's image, once the row is filled.
    pub(crate) size: Size,
    pub(crate) drawn: DrawnRow,
    pub(crate) state: RowState,
    /// Substitutes tried so far.
    pub(crate) substitutes: u32,
    /// Its record was read again after a wrong checksum.
    pub(crate) reread: bool,
}

impl BatchRow {
    /// Whether it is a sample of the plan, not padding.
    pub(crate) fn is_sample(&self) -> bool {
        self.flags & FLAG_PADDING == 0
    }
}

/// Stage of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BatchStage {
    /// Rows are missing.
    Filling,
    /// Its columns are being written.
    Finalizing,
    /// It is published when its turn comes.
    Complete,
}

/// What is told of a batch once its epoch has begun.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// How its rows were served.
    pub(crate) accesses: Accesses,
    /// Its line of the trace, and the observer that gets it.
    pub(crate) traced: Option<(SessionId, Open)>,
}

/// A batch from its opening to its publication.
pub(crate) struct Batch<M: Memory> {
    pub(crate) seq: u64,
    pub(super) generation: u32,
    pub(crate) id: BatchId,
    /// Offset of the batch's block in the payload.
    pub(super) offset: u64,
    pub(super) layout: BatchLayout,
    /// What its rows become.
    pub(super) output: Arc<Output>,
    /// Where the extra fields of its rows go.
    pub(super) fields: Option<Arc<BatchFields>>,
    /// See [`FillOrder::later_views`](crate::FillOrder::later_views).
    pub(super) later_views: Arc<[u64]>,
    /// What each view of each row shows, once it is filled: row by row.
    pub(super) geometry: Vec<Geometry>,
    pub(crate) rows: Vec<BatchRow>,
    /// Rows neither done nor skipped.
    pub(super) pending: usize,
    /// Rows of these that wait for their record.
    pub(super) unread: usize,
    /// Rows with their records, for the workers.
    pub(super) ready: Vec<FillRow<M::Lent>>,
    /// Rows of each order, once some are ready: all orders are of one size.
    pub(super) order_rows: usize,
    pub(super) stage: BatchStage,
    /// Why the batch is not delivered.
    pub(crate) failure: Option<String>,
    /// Faults of rows that were skipped or substituted.
    pub(crate) faults: Faults,
    /// Set until the batch's epoch begins, if it was opened before. Until then nobody gets it.
    pub(crate) held: Option<Box<Held>>,
    /// The rank has moved on: the batch ends without work.
    pub(crate) abandoned: bool,
    pub(super) hits: u32,
    pub(super) misses: u32,
    /// Samples left out because their record is bad, without padding.
    pub(crate) skipped: u32,
    pub(crate) opened_ns: u64,
    /// When the last read that this batch waited for ended.
    pub(crate) read_ns: u64,
    pub(crate) slot_wait_ns: u64,
    pub(super) fill_ns: u64,
}

impl<M: Memory> Batch<M> {
    /// An empty batch with these rows, whose block begins at `offset`.
    pub(super) fn new(
        seq: u64,
        id: BatchId,
        offset: u64,
        layout: BatchLayout,
        rows: Vec<BatchRow>,
        now_ns: u64,
    ) -> Self {
        let views = layout.views().len();
        Self {
            seq,
            generation: 0,
            id,
            offset,
            layout,
            output: Arc::default(),
            fields: None,
            later_views: (1..views).filter_map(|view| layout.images(view)).map(|at| offset + at).collect(),
            geometry: vec![Geometry::default(); views * rows.len()],
            pending: rows.len(),
            unread: rows.len(),
            ready: Vec::with_capacity(rows.len()),
            order_rows: 0,
            rows,
            stage: BatchStage::Filling,
            failure: None,
            faults: Faults::default(),
            held: None,
            abandoned: false,
            hits: 0,
            misses: 0,
            skipped: 0,
            opened_ns: now_ns,
            read_ns: now_ns,
            slot_wait_ns: 0,
            fill_ns: 0,
        }
    }

    /// The record of row `position` is there: the workers get the row.
    pub(super) fn ready(&mut self, position: u32, record: M::Record) {
        self.make_ready(position, Some(M::lend(record)));
    }

    /// Another job has the pixels of row `position`: the workers get the row.
    pub(super) fn ready_decoded(&mut self, position: u32) {
        self.make_ready(position, None);
    }

    /// Inlined: with a record that may be there or not, each hit took 4 % longer.
    #[inline(always)]
    fn make_ready(&mut self, position: u32, record: Option<M::Lent>) {
        let row = &mut self.rows[position as usize];
        assert_eq!(row.state, RowState::Waiting, "row {position} has its record or pixels already");
        self.unread -= 1;
        row.state = RowState::Filling;
        let BatchRow { sample, entry, offset, len, drawn, .. } = *row;
        let (pixels, size) = (Pixels::Own, Size::default());
        self.ready.push(FillRow { position, sample, entry, offset, len, drawn, pixels, size, record });
    }

    /// Row `position` needs its record after all.
    pub(super) fn unready(&mut self, position: u32) {
        let row = &mut self.rows[position as usize];
        assert!(
            matches!(row.state, RowState::Waiting | RowState::Filling),
            "row {position} has ended, and needs its record"
        );
        self.unread += usize::from(row.state == RowState::Filling);
        row.state = RowState::Waiting;
    }

    /// Row `position` is filled.
    pub(super) fn filled(&mut self, position: u32, size: Size, geometry: &[Geometry]) {
        self.rows[position as usize].size = size;
        let first = position as usize * geometry.len();
        self.geometry[first..first + geometry.len()].copy_from_slice(geometry);
        self.finish(position, RowState::Done);
    }

    /// Asserts that what it counts is what its rows are: all of them done or skipped.
    pub(super) fn check_all_ended(&self) {
        let has_ended = |row: &BatchRow| matches!(row.state, RowState::Done | RowState::Skipped);
        assert!(self.rows.iter().all(has_ended), "no row is pending, and one has not ended");
        assert_eq!(self.unread, 0, "no row is pending, and some wait for their records");
        assert!(self.ready.is_empty(), "no row is pending, and some are ready for workers");
    }

    /// Positions of the rows that the trainer gets, in order.
    pub(super) fn delivered_positions(&self) -> impl Iterator<Item = usize> {
        let is_done = |(position, row): (usize, &BatchRow)| (row.state == RowState::Done).then_some(position);
        self.rows.iter().enumerate().filter_map(is_done)
    }

    /// Whether its epoch has not begun, and may.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some() && !self.abandoned
    }

    /// Rows that the trainer gets, in order.
    pub(crate) fn delivered(&self) -> impl Iterator<Item = &BatchRow> {
        self.rows.iter().filter(|row| row.state == RowState::Done)
    }

    /// The delivered rows without padding.
    pub(crate) fn real(&self) -> impl Iterator<Item = &BatchRow> {
        self.delivered().filter(|row| row.is_sample())
    }

    /// Number of rows with a substitute.
    pub(super) fn substituted(&self) -> u32 {
        let flagged = self.real().filter(|row| row.flags & FLAG_SUBSTITUTED != 0);
        to_u32(flagged.count())
    }

    /// Whether all samples of the batch were skipped. A batch of padding only (there are fewer
    /// samples than ranks) is void once all its padding was skipped.
    pub(crate) fn is_void(&self) -> bool {
        let has_samples = self.rows.iter().any(BatchRow::is_sample);
        let is_any_left =
            if has_samples { self.real().next().is_some() } else { self.delivered().next().is_some() };
        !is_any_left && self.rows.iter().any(|row| row.state == RowState::Skipped)
    }

    /// What the batch gives to its rank.
    pub(crate) fn row_counts(&self) -> RowCounts {
        let (rows, skipped) = (self.real().count() as u64, u64::from(self.skipped));
        RowCounts { rows, skipped, substituted: self.substituted().into() }
    }

    /// What became of its rows.
    pub(crate) fn outcome(&self) -> Outcome<'_> {
        let rows = if self.skipped > 0 { self.skipped as usize } else { self.rows.len() };
        let void = self.is_void().then_some(rows);
        Outcome { batch: self.id, counts: self.row_counts(), faults: &self.faults, void }
    }

    /// Marks row `position` finished as `state` ([`RowState::Done`] or [`RowState::Skipped`]).
    pub(super) fn finish(&mut self, position: u32, state: RowState) {
        let row = &mut self.rows[position as usize];
        if matches!(row.state, RowState::Waiting | RowState::Filling) {
            self.unread -= usize::from(row.state == RowState::Waiting);
            row.state = state;
            self.pending -= 1;
        }
    }
}
