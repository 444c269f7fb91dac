//! Rows go to workers and come back; what is complete is published in the order of its ring.

use shade_formats::ring::{Descriptor, Kind};

use crate::action::Action;
use crate::bad_share::RowCounts;
use crate::batches::{Batch, EpochEnd, Turn};
use crate::brain::Core;
use crate::figures::Figures;
use crate::ids::RowId;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::orders::{FaultKind, FillRow, Filled, Ticket};
use crate::rank::{EpochRequest, Rank};
use crate::samples::name_fault;
use crate::trace::done_line;

impl<M: Memory> Core<M> {
    /// Gives rows with their records to the workers.
    pub(super) fn hand_out_rows(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let runs_dry = self.runs_dry();
        while let Some(lost) = self.batches.hand_out(&self.jobs, &runs_dry, &mut self.figures, actions) {
            if lost.rows.is_empty() {
                continue;
            }
            let wanted = self.wanted_by(lost.job);
            for (sample, row) in lost.rows {
                self.access(wanted, sample, row);
            }
            self.submit_reads(now_ns, actions);
            self.records.order_from_tier(now_ns, &self.jobs, actions);
        }
        self.batches.settle(now_ns, actions);
    }

    /// Rows came back from a worker.
    pub(super) fn filled(&mut self, filled: Filled<M::Lent>, actions: &mut Vec<Action<M>>) {
        let Filled { ticket, mut rows, faults, geometry, fill_ns } = filled;
        let Ticket { session, seq } = ticket;
        if let Some(job) = self.rank(session).map(|rank| rank.job) {
            self.count(job, |counts| counts.fill_ns += fill_ns);
        }
        self.batches.filled(ticket, &rows, faults.iter().map(|&(at, _)| at), &geometry, fill_ns);
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
                let spare = self.batches.came_back(row);
                spare.into_iter().for_each(|record| self.records.take_back(record));
            }
            self.records.take_back(row.record.take());
        }
        for (row, text) in lost {
            self.row_fault(row, &text, actions);
        }
    }

    /// Publishes complete batches and the ends of epochs, those of each rank in their order.
    pub(super) fn publish_complete(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let mut ended = Vec::new();
        for rank in &mut self.ranks {
            let Some(job) = self.jobs.get_mut(rank.job) else { continue };
            while let Some(turn) = self.batches.next_turn(rank.id, now_ns) {
                match turn {
                    Turn::Batch(batch) => publish(&mut self.figures, job, rank, *batch, now_ns, actions),
                    Turn::End(end) => {
                        actions.push(publish_end(rank, end));
                        ended.push((rank.job, end.epoch));
                    }
                }
            }
        }
        ended.sort_unstable();
        ended.dedup();
        for (job, epoch) in ended {
            let is_over = |request: EpochRequest| request.epoch == epoch && request.ended;
            let mut ranks = self.ranks.iter().filter(|rank| rank.job == job);
            if ranks.all(|rank| rank.request.is_some_and(is_over)) {
                self.figures.epoch_is_given(job);
                self.tell_of_epoch(job, now_ns, false, actions);
            }
        }
    }

    /// Gives the end of the epoch its number in the ring of every rank whose batches are all open.
    pub(super) fn number_ends(&mut self, job: JobId, epoch: u32, batches: u32) {
        for rank in self.ranks.iter().filter(|rank| rank.job == job) {
            let is_open = |request: &EpochRequest| request.epoch == epoch && request.next_batch >= batches;
            if let Some(request) = rank.request.filter(is_open).filter(|request| !request.ended) {
                self.batches.number_end(rank.id, request.generation, epoch, batches);
            }
        }
    }

    /// Each job with the time until the first of its trainers has used up its finished batches, ns.
    /// None where a job is alone: it has each turn.
    pub(super) fn runs_dry(&self) -> Vec<(JobId, u64)> {
        let jobs = if self.jobs.len() > 1 { self.jobs.len() } else { 0 };
        self.jobs.iter().take(jobs).map(|job| (job.id, self.runs_dry_in_ns(job))).collect()
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    fn runs_dry_in_ns(&self, job: &Job) -> u64 {
        let ranks = self.ranks.iter().filter(|rank| rank.job == job.id && rank.request.is_some());
        let batches = ranks.map(|rank| self.batches.outstanding(rank.id)).min().unwrap_or(usize::MAX);
        (batches as f64 * job.pace.batch_ns()) as u64
    }
}

/// Publishes a complete batch of the rank.
fn publish<M: Memory>(
    figures: &mut Figures,
    job: &mut Job,
    rank: &mut Rank,
    mut batch: Batch<M>,
    now_ns: u64,
    actions: &mut Vec<Action<M>>,
) {
    if !batch.abandoned && batch.failure.is_none() {
        batch.failure = job.judge(rank.rank, &batch);
    }
    let descriptor = Box::new(batch.descriptor(now_ns));
    // Nothing was told of one whose epoch has not begun.
    let observer = figures.observer(job.id).filter(|_| batch.held.is_none());
    actions.extend(observer.map(|observer| done_line(now_ns, observer, rank.rank, &batch)));
    if let Some(text) = batch.failure.take() {
        actions.push(Action::PublishError(rank.id, descriptor, text));
        return;
    }
    if !batch.abandoned {
        figures.count_rows(job.id, batch.row_counts());
        job.delivered(&batch);
        let samples = batch.real().map(|row| row.sample).collect();
        // A trainer that never reports has only its last batches to begin with.
        let awaits_losses = job.spec.plan.sampler.is_by_importance() || figures.has_reports(job.id);
        rank.deliver(batch.id, samples, awaits_losses);
    }
    actions.push(Action::Publish(rank.id, descriptor));
}

/// Publishes the end of the rank's epoch.
fn publish_end<M: Memory>(rank: &mut Rank, end: EpochEnd) -> Action<M> {
    let EpochEnd { seq, generation, epoch, batches } = end;
    if let Some(request) = rank.request.as_mut().filter(|request| request.generation == generation) {
        request.ended = true;
    }
    let kind = Kind::EpochEnd;
    let descriptor = Descriptor { seq, generation, kind, epoch, batch: batches, ..Descriptor::default() };
    Action::Publish(rank.id, Box::new(descriptor))
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
