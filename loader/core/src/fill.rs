//! Rows go to workers and come back; what is complete is published in the order of its ring.

use shade_formats::ring::{Descriptor, Kind};

use crate::action::Action;
use crate::batches::{Batch, EpochEnd, Turn};
use crate::brain::Core;
use crate::ids::{JobId, RowId};
use crate::memory::Memory;
use crate::orders::{FaultKind, FillRow, Filled, Ticket};
use crate::samples::name_fault;
use crate::trace::done_line;
use crate::training::{EpochRequest, Job};

impl<M: Memory> Core<M> {
    /// Gives rows with their records to the workers.
    pub(super) fn hand_out_rows(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let runs_dry = self.runs_dry();
        while let Some(lost) =
            self.batches.hand_out(self.training.jobs(), &runs_dry, &mut self.figures, actions)
        {
            if lost.rows.is_empty() {
                continue;
            }
            let wanted = self.wanted_by(lost.job);
            for (sample, row) in lost.rows {
                self.access(wanted, sample, row);
            }
            self.submit_reads(now_ns, actions);
            self.records.order_from_tier(now_ns, self.training.jobs(), actions);
        }
        self.batches.settle(now_ns, actions);
    }

    /// Rows came back from a worker.
    pub(super) fn filled(&mut self, filled: Filled<M::Lent>, actions: &mut Vec<Action<M>>) {
        let Filled { ticket, mut rows, faults, geometry, fill_ns } = filled;
        let Ticket { session, seq } = ticket;
        if let Some(job) = self.job_id_of(session) {
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
        for at in 0..self.training.ranks().len() {
            let session = self.training.ranks()[at].session();
            while let Some(turn) = self.batches.next_turn(session, now_ns) {
                match turn {
                    Turn::Batch(batch) => self.publish(at, *batch, now_ns, actions),
                    Turn::End(end) => {
                        ended.push((self.training.ranks()[at].job(), end.epoch));
                        actions.push(self.publish_end(at, end));
                    }
                }
            }
        }
        ended.sort_unstable();
        ended.dedup();
        for (job, epoch) in ended {
            let is_over = |request: EpochRequest| request.epoch == epoch && request.ended;
            if self.training.ranks_of(job).all(|rank| rank.request().is_some_and(is_over)) {
                self.figures.epoch_is_given(job);
                self.tell_of_epoch(job, now_ns, false, actions);
            }
        }
    }

    /// Gives the end of the epoch its number in the ring of every rank whose batches are all open.
    pub(super) fn number_ends(&mut self, job: JobId, epoch: u32, batches: u32) {
        for rank in self.training.ranks_of(job) {
            let is_open = |request: &EpochRequest| request.epoch == epoch && request.next_batch >= batches;
            if let Some(request) = rank.request().filter(is_open).filter(|request| !request.ended) {
                self.batches.number_end(rank.session(), request.generation, epoch, batches);
            }
        }
    }

    /// Each job with the time until the first of its trainers has used up its finished batches, ns.
    /// None where a job is alone: it has each turn.
    pub(super) fn runs_dry(&self) -> Vec<(JobId, u64)> {
        let jobs = self.training.jobs();
        if jobs.len() < 2 {
            return Vec::new();
        }
        jobs.iter().map(|job| (job.id(), self.runs_dry_in_ns(job))).collect()
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    fn runs_dry_in_ns(&self, job: &Job) -> u64 {
        let ranks = self.training.ranks_of(job.id()).filter(|rank| rank.request().is_some());
        let batches = ranks.map(|rank| self.batches.outstanding(rank.session())).min().unwrap_or(usize::MAX);
        (batches as f64 * job.batch_ns()) as u64
    }

    /// Publishes a complete batch of the rank at `at`.
    fn publish(&mut self, at: usize, mut batch: Batch<M>, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let rank = &self.training.ranks()[at];
        let (session, job, number) = (rank.session(), rank.job(), rank.number());
        if !batch.abandoned && batch.failure.is_none() {
            batch.failure = self.training.judge(session, &batch.outcome());
        }
        let descriptor = Box::new(batch.descriptor(now_ns));
        // Nothing was told of one whose epoch has not begun.
        let observer = self.figures.observer(job).filter(|_| batch.held.is_none());
        actions.extend(observer.map(|observer| done_line(now_ns, observer, number, &batch)));
        if let Some(text) = batch.failure.take() {
            actions.push(Action::PublishError(session, descriptor, text));
            return;
        }
        if !batch.abandoned {
            self.figures.count_rows(job, batch.row_counts());
            let samples = batch.delivered().map(|row| row.sample);
            let real = batch.real().map(|row| row.sample).collect();
            self.training.deliver(session, batch.id, samples, real, self.figures.has_reports(job));
        }
        actions.push(Action::Publish(session, descriptor));
    }

    /// Publishes the end of the epoch of the rank at `at`.
    fn publish_end(&mut self, at: usize, end: EpochEnd) -> Action<M> {
        let EpochEnd { seq, generation, epoch, batches } = end;
        let rank = self.training.rank_at_mut(at);
        rank.give_all(generation);
        let kind = Kind::EpochEnd;
        let descriptor = Descriptor { seq, generation, kind, epoch, batch: batches, ..Descriptor::default() };
        Action::Publish(rank.session(), Box::new(descriptor))
    }
}
