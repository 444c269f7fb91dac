//! Open batches: their rows go to workers, then they are finalized and published in order.

use std::sync::Arc;

use shade_formats::ring::{Descriptor, Kind};
use shade_job::Output;

use crate::action::Action;
use crate::bad_share::RowCounts;
use crate::batch::{Batch, BatchStage, RowId, RowState};
use crate::brain::Core;
use crate::event::SessionId;
use crate::figures::Figures;
use crate::fill_turns::Waiting;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{Columns, FaultKind, FillOrder, FillRow, Filled, FinalizeOrder, Move, Pixels, Ticket};
use crate::samples::name_fault;
use crate::session::{EpochEnd, EpochRequest, Outstanding, Session, runs_dry_in_ns};
use crate::trace::done_line;

/// Rows of one order: few enough to spread a batch over the workers, enough that handing over costs
/// little beside filling. An order of small rows has [`ORDER_BYTES`] instead.
const ORDER_ROWS: usize = 8;
const ORDER_BYTES: u64 = 192 * 1024;
/// Bytes of an order of raw rows. Copying this many takes 0.1 ms. Waking a worker, and then the
/// core, takes a tenth of that.
const ORDER_BYTES_RAW: u64 = 2 << 20;
/// Large raw rows that are at hand together become as many orders at least.
const ORDERS_RAW_MIN: usize = 4;

impl<M: Memory> Core<M> {
    /// Gives rows with their records to the workers.
    pub(super) fn hand_out_rows(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let are_several = self.jobs.len() > 1;
        // At least one for each job: else one with a late deadline could wait for ever.
        let orders_max = if are_several { self.config.orders_max.max(self.jobs.len()) } else { usize::MAX };
        let share = (orders_max / (2 * self.jobs.len().max(1))).max(1);
        while self.fill_turns.out() < orders_max {
            let ranks = self.sessions.iter().filter_map(|session| {
                let batch = session.open.iter().find(|batch| !batch.ready.is_empty())?;
                let job = self.jobs.get(session.job)?;
                // One job has its rows in the order of its ranks.
                let (deadline_ns, batch) =
                    if are_several { (runs_dry_in_ns(job, &self.sessions), batch.id.number) } else { (0, 0) };
                let (job, last_order) = (job.id, job.last_order);
                Some(Waiting { session: session.id, job, deadline_ns, last_order, batch })
            });
            let Some(session) = self.fill_turns.next(ranks, share) else { break };
            self.hand_out_order(session, now_ns, actions);
        }
        for session in &mut self.sessions {
            for batch in &mut session.open {
                let ticket = Ticket { session: session.id, seq: batch.seq };
                batch.settle(ticket, now_ns, actions);
            }
        }
    }

    /// Gives the next rows of this rank to a worker, or to those that decode the same rows.
    fn hand_out_order(&mut self, session: SessionId, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let Some(session) = self.sessions.iter_mut().find(|s| s.id == session) else { return };
        let Some(batch) = session.open.iter_mut().find(|batch| !batch.ready.is_empty()) else { return };
        let ticket = Ticket { session: session.id, seq: batch.seq };
        let Some(job) = self.jobs.get(session.job) else { return };
        let (output, draws) = (Arc::clone(&job.output), job.draws(batch.id.epoch));
        batch.order_rows = batch.order_rows.max(rows_in_order(&batch.ready, &output));
        let later_views = Arc::clone(&batch.later_views);
        let rest = batch.ready.split_off(batch.ready.len().min(batch.order_rows));
        let mut rows = std::mem::replace(&mut batch.ready, rest);
        if batch.ready.is_empty() {
            batch.order_rows = 0;
        }
        if let Some(shared) = self.decoded_rows.output_of(session.job, batch.id.epoch, &self.jobs) {
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
        let id = session.id;
        let Some(job) = self.jobs.get_mut(session.job) else { return };
        self.figures.count(job.id, |counts| counts.copied += copies);
        if !rows.is_empty() {
            job.last_order = self.fill_turns.gave(id, job.id);
            actions.push(Action::Fill(FillOrder { ticket, output, later_views, draws, rows }));
        }
        let job = job.id;
        let wanted = self.wanted_by(job);
        // The pixels that they were to have are gone.
        for FillRow { position, sample, .. } in &lost {
            self.access(wanted, *sample, RowId { session: id, seq: ticket.seq, position: *position });
        }
        if !lost.is_empty() {
            self.submit_reads(now_ns, actions);
            self.records.order_from_tier(now_ns, &self.jobs, actions);
        }
    }

    /// Rows came back from a worker.
    pub(super) fn filled(&mut self, filled: Filled<M::Lent>, actions: &mut Vec<Action<M>>) {
        let Filled { ticket: Ticket { session, seq }, mut rows, faults, geometry, fill_ns } = filled;
        self.fill_turns.took_back(session);
        if let Some(job) = self.session(session).map(|session| session.job) {
            self.count(job, |counts| counts.fill_ns += fill_ns);
        }
        if let Some(batch) = self.batch_mut(session, seq) {
            batch.fill_ns += fill_ns;
            let mut bad = faults.iter().map(|&(at, _)| at).peekable();
            let views = batch.layout.views().len();
            assert_eq!(geometry.len(), views * rows.len(), "workers tell what each view of each row shows");
            for (at, row) in rows.iter().enumerate() {
                let geometry = &geometry[at * views..][..views];
                if bad.next_if_eq(&at).is_none() {
                    batch.filled(row.position, row.size, geometry);
                }
            }
        }
        let mut lost = Vec::new();
        for (at, fault) in faults {
            let &FillRow { position, sample, ref record, .. } = &rows[at];
            let damaged = record.as_ref().filter(|_| fault.kind == FaultKind::Checksum);
            let (row, text) = (RowId { session, seq, position }, name_fault(&*self.index, sample, &fault));
            if damaged.is_some_and(|record| self.read_again(row, sample, M::lent(record))) {
                actions.push(Action::BadRecord(format!("{text}: reading it again")));
            } else {
                lost.push((row, text));
            }
        }
        // In place: to move whole rows costs a sixth of a hit (`shade-benches core`).
        for row in &mut rows {
            if !row.is_plain() {
                self.decoded(row);
            }
            self.records.take_back(row.record.take());
        }
        for (row, text) in lost {
            self.row_fault(row, &text, actions);
        }
    }

    /// Gives the rows of a batch that wait for a row's pixels back to it.
    pub(super) fn decoded(&mut self, row: &FillRow<M::Lent>) {
        for (Ticket { session, seq }, row) in self.decoded_rows.came_back(row) {
            match self.batch_mut(session, seq) {
                Some(batch) if !batch.abandoned => batch.ready.push(row),
                batch => {
                    batch.into_iter().for_each(|batch| batch.finish(row.position, RowState::Skipped));
                    self.records.take_back(row.record);
                }
            }
        }
    }

    /// A batch's columns are written.
    pub(super) fn finalized(&mut self, ticket: Ticket) {
        if let Some(batch) = self.batch_mut(ticket.session, ticket.seq) {
            batch.stage = BatchStage::Complete;
        }
    }

    /// Publishes complete batches and the ends of epochs, those of each session in their order.
    pub(super) fn publish_complete(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let mut ended = Vec::new();
        for session in &mut self.sessions {
            let Some(job) = self.jobs.get_mut(session.job) else { continue };
            loop {
                let first = session.open.front().map(|batch| batch.seq);
                if let Some(end) = session.end.take_if(|end| first.is_none_or(|first| first > end.seq)) {
                    actions.push(session.publish_end(end));
                    ended.push((session.job, end.epoch));
                    continue;
                }
                let is_due = |batch: &mut Batch<M>| batch.stage == BatchStage::Complete && !batch.is_held();
                let Some(batch) = session.open.pop_front_if(is_due) else { break };
                publish(&mut self.figures, job, session, batch, now_ns, actions);
            }
        }
        ended.sort_unstable();
        ended.dedup();
        for (job, epoch) in ended {
            let is_over = |request: EpochRequest| request.epoch == epoch && request.ended;
            let mut ranks = self.sessions.iter().filter(|session| session.job == job);
            if ranks.all(|session| session.request.is_some_and(is_over)) {
                self.figures.epoch_is_given(job);
                self.tell_of_epoch(job, now_ns, false, actions);
            }
        }
    }

    /// Gives the end of the epoch its number in the ring of every rank whose batches are all open.
    pub(super) fn number_ends(&mut self, job: JobId, epoch: u32, batches: u32) {
        for session in self.sessions.iter_mut().filter(|session| session.job == job) {
            let Some(request) = session.request else { continue };
            let is_open = request.epoch == epoch && request.next_batch >= batches;
            let is_new = session.end.is_none() && !request.ended;
            if is_open && is_new && session.ready && session.has_descriptor() {
                let (seq, generation) = (session.next_seq, request.generation);
                session.next_seq += 1;
                session.end = Some(EpochEnd { seq, generation, epoch, batches });
            }
        }
    }
}

/// Publishes a complete batch of the session.
fn publish<M: Memory>(
    figures: &mut Figures,
    job: &mut Job,
    session: &mut Session<M>,
    mut batch: Batch<M>,
    now_ns: u64,
    actions: &mut Vec<Action<M>>,
) {
    let held = Outstanding { block: Some(batch.offset), published_ns: now_ns };
    let before = session.outstanding.insert(batch.seq, held);
    assert!(before.is_none(), "descriptor {} is published twice", batch.seq);
    if !batch.abandoned && batch.failure.is_none() {
        batch.failure = job.judge(session.rank, &batch);
    }
    let descriptor = Box::new(batch.descriptor(now_ns));
    // Nothing was told of one whose epoch has not begun.
    let observer = figures.observer(job.id).filter(|_| batch.held.is_none());
    actions.extend(observer.map(|observer| done_line(now_ns, observer, session.rank, &batch)));
    if let Some(text) = batch.failure.take() {
        actions.push(Action::PublishError(session.id, descriptor, text));
        return;
    }
    if !batch.abandoned {
        figures.count_rows(job.id, batch.row_counts());
        job.delivered(&batch);
        let samples = batch.real().map(|row| row.sample).collect();
        // A trainer that never reports has only its last batches to begin with.
        let awaits_losses = job.spec.plan.sampler.is_by_importance() || figures.total(job.id).reported > 0;
        session.deliver(batch.id, samples, awaits_losses);
    }
    actions.push(Action::Publish(session.id, descriptor));
}

impl<M: Memory> Session<M> {
    /// Publishes the end of its epoch.
    fn publish_end(&mut self, end: EpochEnd) -> Action<M> {
        let EpochEnd { seq, generation, epoch, batches } = end;
        if let Some(request) = self.request.as_mut().filter(|request| request.generation == generation) {
            request.ended = true;
        }
        let before = self.outstanding.insert(seq, Outstanding { block: None, published_ns: 0 });
        assert!(before.is_none(), "descriptor {seq} is published twice");
        let kind = Kind::EpochEnd;
        let descriptor = Descriptor { seq, generation, kind, epoch, batch: batches, ..Descriptor::default() };
        Action::Publish(self.id, Box::new(descriptor))
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

impl Job {
    /// Counts a complete batch of `rank`. Returns why it is not delivered.
    fn judge<M: Memory>(&mut self, rank: u32, batch: &Batch<M>) -> Option<String> {
        self.faults.extend(&batch.faults);
        if let Some(of_rank) = self.row_counts.get_mut(rank as usize) {
            of_rank.add(batch.row_counts());
        }
        let mut of_all = RowCounts::default();
        self.row_counts.iter().for_each(|&of_rank| of_all.add(of_rank));
        let plan_len = self.plan.as_ref().map_or(0, |plan| plan.ids.len());
        let excess = of_all.excess(&self.spec, batch.id.epoch, plan_len, &self.faults);
        // A single rank goes without the batch. Several ranks must have the same number, and some
        // may have theirs already.
        excess.or_else(|| {
            (batch.is_void() && self.spec.world_size > 1).then(|| {
                format!(
                    "batch {} of epoch {} has no sample left, all {} were skipped, and no rank may have \
                     fewer batches than the others: {}",
                    batch.id.number,
                    batch.id.epoch,
                    if batch.skipped > 0 { batch.skipped as usize } else { batch.rows.len() },
                    batch.faults
                )
            })
        })
    }

    /// A batch is delivered, or left out because it is void.
    fn delivered<M: Memory>(&mut self, batch: &Batch<M>) {
        for row in batch.delivered() {
            if self.keeps_score_of(row.sample) {
                self.importance.record_delivery(row.sample, batch.id.epoch);
            }
        }
    }
}

impl<M: Memory> Batch<M> {
    /// Goes on once no row is pending: to the columns, or straight to completion if nothing is
    /// delivered.
    fn settle(&mut self, ticket: Ticket, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if self.pending > 0 || self.stage != BatchStage::Filling {
            return;
        }
        self.check_all_ended();
        self.read_ns = self.read_ns.min(now_ns);
        if self.abandoned || self.failure.is_some() || self.is_void() {
            self.stage = BatchStage::Complete;
            return;
        }
        self.stage = BatchStage::Finalizing;
        actions.push(Action::Finalize(Box::new(self.finalize_order(ticket))));
    }

    /// The columns of the delivered rows, and the moves that close the gaps of skipped ones.
    fn finalize_order(&self, ticket: Ticket) -> FinalizeOrder {
        let data_start = self.offset + self.layout.data;
        let mut columns = Columns::default();
        for row in self.delivered() {
            columns.ids.push(i64::from(row.sample.0));
            columns.labels.push(i64::from(row.entry.label));
            columns.weights.push(row.weight);
            columns.flags.push(row.flags);
            columns.offsets.extend(self.layout.offsets().map(|_| row.offset - data_start));
            columns.lens.extend(self.layout.lens().map(|_| row.len));
            columns.heights.extend(self.layout.heights().map(|_| row.size.height));
            columns.widths.extend(self.layout.widths().map(|_| row.size.width));
        }
        self.geometry_columns(&mut columns);
        let moves = self.moves();
        FinalizeOrder { ticket, block_offset: self.offset, layout: self.layout, columns, moves }
    }

    /// Adds the columns of what each view shows.
    fn geometry_columns(&self, columns: &mut Columns) {
        let views = self.layout.views().len();
        for view in 0..views {
            let places = self.delivered_positions().map(|position| position * views + view);
            for geometry in places.map(|at| &self.geometry[at]) {
                columns.crops.push(geometry.crop);
                columns.flipped.push(geometry.flipped);
            }
        }
        assert_eq!(columns.crops.len(), views * columns.ids.len(), "each view of each row has its crop");
    }

    /// The moves that close the gaps of skipped rows, view by view. Where each row has its own
    /// length and offset, none is moved.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (view, shape) in self.layout.views().iter().enumerate() {
            let Some(start) = self.layout.images(view).map(|start| self.offset + start) else { continue };
            let place = |row: usize| start + row as u64 * shape.bytes();
            for (to, from) in self.delivered_positions().enumerate().filter(|(to, from)| to != from) {
                moves.push(Move { from: place(from), to: place(to), len: shape.bytes() });
            }
        }
        moves
    }

    fn descriptor(&self, now_ns: u64) -> Descriptor {
        let is_empty = self.abandoned || self.failure.is_some() || self.is_void();
        let records = if is_empty { 0 } else { self.delivered().count() };
        // Generations count from 1, and no trainer takes a batch of generation 0. A rank whose
        // epoch another rank has ended is still in the generation of its batches.
        let is_for_nobody = self.abandoned || (self.failure.is_none() && self.is_void());
        let generation = if is_for_nobody { 0 } else { self.generation };
        Descriptor {
            seq: self.seq,
            generation,
            kind: if self.failure.is_some() { Kind::Error } else { Kind::Batch },
            layout: self.layout.layout,
            epoch: self.id.epoch,
            batch: self.id.number,
            offset: self.offset,
            len: self.layout.total,
            records: to_u32(records),
            capacity: self.layout.capacity,
            views: to_u32(self.layout.views().len()),
            hits: self.hits,
            misses: self.misses,
            skipped: self.skipped,
            substituted: self.substituted(),
            read_wait_ns: self.read_ns.min(now_ns).saturating_sub(self.opened_ns),
            fill_ns: self.fill_ns,
            slot_wait_ns: self.slot_wait_ns,
            // Set when it is published.
            mark: 0,
        }
    }
}
