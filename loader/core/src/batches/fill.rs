//! Rows go to workers and come back.

use std::sync::Arc;

use shade_formats::{Geometry, SampleId};
use shade_job::Output;

use super::Batches;
use super::batch::{Batch, BatchStage, RowState};
use super::fill_turns::Waiting;
use crate::action::Action;
use crate::figures::Figures;
use crate::ids::{JobId, RowId, SessionId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{FillOrder, FillRow, Pixels, Ticket};
use crate::training::Jobs;

/// Rows of one order: few enough to spread a batch over the workers, enough that handing over costs
/// little beside filling. An order of small rows has [`ORDER_BYTES`] instead.
const ORDER_ROWS: usize = 8;
const ORDER_BYTES: u64 = 192 * 1024;
/// Bytes of an order of raw rows. Copying this many takes 0.1 ms. Waking a worker, and then the
/// core, takes a tenth of that.
const ORDER_BYTES_RAW: u64 = 2 << 20;
/// Large raw rows that are at hand together become as many orders at least.
const ORDERS_RAW_MIN: usize = 4;

/// Rows of a job whose pixels another job was to decode, and did not: they need their records.
pub(crate) struct Lost {
    pub(crate) job: JobId,
    pub(crate) rows: Vec<(SampleId, RowId)>,
}

impl<M: Memory> Batches<M> {
    /// Gives the next rows with their records to a worker: those of the rank whose turn it is.
    /// `runs_dry` says of each job how long its finished batches last, ns, where there are several
    /// jobs. Returns what the rows lack; `None` if nothing can be given.
    pub(crate) fn hand_out(
        &mut self,
        jobs: &Jobs,
        runs_dry: &[(JobId, u64)],
        figures: &mut Figures,
        actions: &mut Vec<Action<M>>,
    ) -> Option<Lost> {
        let are_several = jobs.len() > 1;
        // At least one for each job: else one with a late deadline could wait for ever.
        let orders_max = if are_several { self.orders_max.max(jobs.len()) } else { usize::MAX };
        if self.fill_turns.out() >= orders_max {
            return None;
        }
        let share = (orders_max / (2 * jobs.len().max(1))).max(1);
        let waiting = self.rings.iter().filter_map(|ring| {
            let batch = ring.open.iter().find(|batch| !batch.ready.is_empty())?;
            let deadline = || runs_dry.iter().find(|(job, _)| *job == ring.job);
            // One job has its rows in the order in which its ranks came.
            let (deadline_ns, batch) = if are_several { (deadline()?.1, batch.id.number) } else { (0, 0) };
            Some(Waiting { session: ring.session, job: ring.job, deadline_ns, batch })
        });
        let session = self.fill_turns.next(waiting, share)?;
        Some(self.hand_out_order(session, jobs, figures, actions))
    }

    /// Gives the next rows of this rank to a worker, or to those that decode the same rows.
    fn hand_out_order(
        &mut self,
        session: SessionId,
        jobs: &Jobs,
        figures: &mut Figures,
        actions: &mut Vec<Action<M>>,
    ) -> Lost {
        let Ok(at) = self.find(session) else { unreachable!("session {session} has its turn, and no ring") };
        let ring = &mut self.rings[at];
        let Some(job) = jobs.get(ring.job) else { unreachable!("session {session} is of no job") };
        let batch = ring.open.iter_mut().find(|batch| !batch.ready.is_empty());
        let Some(batch) = batch else { unreachable!("session {session} has its turn, and no row") };
        let ticket = Ticket { session, seq: batch.seq };
        let (output, draws) = (Arc::clone(&batch.output), job.draws(batch.id.epoch));
        batch.order_rows = batch.order_rows.max(rows_in_order(&batch.ready, &output));
        let (later_views, fields) = (Arc::clone(&batch.later_views), batch.fields.clone());
        let rest = batch.ready.split_off(batch.ready.len().min(batch.order_rows));
        let mut rows = std::mem::replace(&mut batch.ready, rest);
        if batch.ready.is_empty() {
            batch.order_rows = 0;
        }
        if let Some(shared) = self.decoded_rows.output_of(job.id(), batch.id.epoch, jobs) {
            self.decoded_rows.assign(shared, ticket, &mut rows);
        }
        let is_copy = |row: &FillRow<M::Lent>| matches!(row.pixels, Pixels::Decoded { .. });
        let (mut lost, mut copies) = (Vec::new(), 0);
        // Without a group all rows are plain. Some may be copies although nobody shares rows any
        // more.
        if !rows.iter().all(FillRow::is_plain) {
            lost.extend(rows.extract_if(.., |row| row.record.is_none() && !is_copy(row)));
            lost.iter().for_each(|row| batch.unready(row.position));
            copies = rows.iter().filter(|row| is_copy(row)).count() as u64;
        }
        figures.count(job.id(), |counts| counts.copied += copies);
        if !rows.is_empty() {
            self.fill_turns.gave(session, job.id());
            actions.push(Action::Fill(FillOrder { ticket, output, later_views, fields, draws, rows }));
        }
        let row_of =
            |row: FillRow<M::Lent>| (row.sample, RowId { session, seq: ticket.seq, position: row.position });
        Lost { job: job.id(), rows: lost.into_iter().map(row_of).collect() }
    }

    /// Batches whose rows have all ended go on.
    pub(crate) fn settle(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        for ring in &mut self.rings {
            for batch in &mut ring.open {
                let ticket = Ticket { session: ring.session, seq: batch.seq };
                batch.settle(ticket, now_ns, actions);
            }
        }
    }

    /// A worker has given rows back after `fill_ns`, those at `bad` without bytes. `geometry` says
    /// what each view of each row shows.
    pub(crate) fn filled(
        &mut self,
        ticket: Ticket,
        rows: &[FillRow<M::Lent>],
        bad: impl Iterator<Item = usize>,
        geometry: &[Geometry],
        fill_ns: u64,
    ) {
        self.fill_turns.took_back(ticket.session);
        let Some(batch) = self.batch_mut(ticket) else { return };
        batch.fill_ns += fill_ns;
        let mut bad = bad.peekable();
        let views = batch.layout.views().len();
        assert_eq!(geometry.len(), views * rows.len(), "workers tell what each view of each row shows");
        for (at, row) in rows.iter().enumerate() {
            let geometry = &geometry[at * views..][..views];
            if bad.next_if_eq(&at).is_none() {
                batch.filled(row.position, row.size, geometry);
            }
        }
    }

    /// A worker has given back a row whose pixels others wait for: they have them, or need their
    /// records. Returns the records of those that nobody wants any more.
    pub(crate) fn came_back(&mut self, row: &FillRow<M::Lent>) -> Vec<Option<M::Lent>> {
        let mut spare = Vec::new();
        for (ticket, row) in self.decoded_rows.came_back(row) {
            match self.batch_mut(ticket) {
                Some(batch) if !batch.abandoned => batch.ready.push(row),
                batch => {
                    batch.into_iter().for_each(|batch| batch.finish(row.position, RowState::Skipped));
                    spare.push(row.record);
                }
            }
        }
        spare
    }

    /// A batch's columns are written.
    pub(crate) fn finalized(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batch_mut(ticket) {
            batch.stage = BatchStage::Complete;
        }
    }
}

impl<M: Memory> Batch<M> {
    /// Its rank has moved on: rows that no worker has end. Their records become `spare`.
    pub(super) fn abandon(&mut self, spare: &mut Vec<Option<M::Lent>>) {
        self.abandoned = true;
        for row in std::mem::take(&mut self.ready) {
            self.finish(row.position, RowState::Skipped);
            spare.push(row.record);
        }
        for position in 0..self.rows.len() {
            if self.rows[position].state == RowState::Waiting {
                self.finish(to_u32(position), RowState::Skipped);
            }
        }
    }
}

/// Number of rows in an order. All orders are of one size, so that none is a remainder.
fn rows_in_order<R>(rows: &[FillRow<R>], output: &Output) -> usize {
    let bytes = rows.iter().map(|row| row.len).sum::<u64>().div_ceil(rows.len().max(1) as u64).max(1);
    let rows_of = |order_bytes: u64| usize::try_from(order_bytes / bytes).unwrap_or(usize::MAX);
    let mut most = rows_of(ORDER_BYTES);
    if matches!(output, Output::Raw) {
        // What one burst of reads brought is shared by several workers.
        most = most.max(rows_of(ORDER_BYTES_RAW).min(rows.len().div_ceil(ORDERS_RAW_MIN)));
    }
    rows.len().div_ceil(rows.len().div_ceil(most.max(ORDER_ROWS)).max(1))
}
