//! One access of the plan: a row gets its record, or waits for a read. And what has been read goes
//! to the rows that wait for it.

use shade_formats::SampleId;
use shade_formats::trace::Served;

use crate::action::Action;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::ids::{JobId, RowId, SessionId};
use crate::memory::Memory;
use crate::orders::{Completion, FaultKind};
use crate::records::{Arrival, Demand, Landed, Wanted};
use crate::samples::name_fault;
use crate::tier_orders::TierEvent;
use crate::training::{Job, Rank};

impl<M: Memory> Core<M> {
    /// Looks `sample` up for `row` of a job: the row gets its record, or waits for a read.
    pub(super) fn access(&mut self, wanted: Wanted, sample: SampleId, row: RowId) -> Served {
        let Wanted { job, admits } = wanted;
        if self.records.has(sample) {
            if admits {
                self.training.record_hit(job, sample);
            }
            if let Some((record, served)) =
                self.records.hit(sample, admits, self.training.jobs().importance())
            {
                self.batches.give(row, record);
                return served;
            }
        }
        if self.batches.join_decoded(job, sample, row, self.training.jobs()) {
            return Served::Joined;
        }
        self.records.request(wanted, sample, row)
    }

    /// Submits the reads that are queued.
    pub(super) fn submit_reads(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let runs_dry = self.runs_dry();
        let demand =
            Demand { jobs: self.training.jobs(), runs_dry: &runs_dry, has_begun: self.batches.have_begun() };
        self.records.submit(now_ns, demand, &mut self.figures, actions);
    }

    /// Prefetches while the store has nothing else to do.
    pub(super) fn prefetch(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if !self.records.policy().looks_ahead {
            return;
        }
        let runs_dry = self.runs_dry();
        let demand =
            Demand { jobs: self.training.jobs(), runs_dry: &runs_dry, has_begun: self.batches.have_begun() };
        let begins = |job: &Job| self.training.begins(job);
        self.records.prefetch(now_ns, demand, begins, &mut self.figures, actions);
    }

    /// A read has ended: all rows that wait get its record, or its fault.
    pub(super) fn read_done(
        &mut self,
        now_ns: u64,
        completion: Completion<M::Room>,
        actions: &mut Vec<Action<M>>,
    ) {
        match self.records.landed(now_ns, completion, &mut self.figures) {
            Landed::Came(arrival) => self.arrived(now_ns, arrival),
            Landed::Failed(_, _, rows) if rows.is_empty() => {}
            Landed::Failed(sample, fault, rows) => {
                let text = name_fault(&*self.index, sample, &fault);
                for row in rows {
                    if fault.kind == FaultKind::Store {
                        self.row_error(row, &text);
                    } else {
                        self.row_fault(row, &text, actions);
                    }
                }
            }
        }
    }

    /// A record has come. The rows that wait get it, then the cache may keep it.
    fn arrived(&mut self, now_ns: u64, arrival: Arrival<M>) {
        let Arrival { wanted, sample, len, record, rows } = arrival;
        for row in rows {
            self.batches.give_read(row, record.clone(), now_ns);
        }
        if self.records.keep(wanted, sample, len, record, self.training.jobs(), &mut self.figures) {
            self.training.add_stand_in(sample);
        }
    }

    /// Takes in an event of the tier.
    pub(super) fn tier_event(&mut self, now_ns: u64, event: TierEvent<M>) {
        match event {
            TierEvent::Room { bytes, get } => {
                self.records.tier_has_room(bytes, get);
                // It learns of the uses in sight when the next batch is opened.
                self.training.forget_lookaheads();
            }
            TierEvent::Held(samples) => self.records.tier_holds(samples),
            TierEvent::Got { op, outcome, latency } => {
                let training = &self.training;
                let job_of = |job, rows: &[RowId]| match training.job(job) {
                    Some(_) => Some(job),
                    // Its first job has ended. Rows of another may wait for it.
                    None => rows.first().and_then(|row| training.rank(row.session)).map(Rank::job),
                };
                let arrival = self.records.tier_got(op, outcome, latency, job_of, &mut self.figures);
                arrival.into_iter().for_each(|arrival| self.arrived(now_ns, arrival));
            }
            TierEvent::Put { sample, record, outcome } => {
                self.records.tier_put(sample, record, outcome, &mut self.figures);
            }
        }
    }

    /// A record that the job wants.
    pub(super) fn wanted_by(&self, job: JobId) -> Wanted {
        Wanted { job, admits: self.training.jobs().admits_job(job) }
    }

    /// Drops the rows of open batches of `session` that no worker has: the rank has moved on.
    pub(super) fn abandon(&mut self, session: SessionId, dropped: Dropped) {
        let (spare, seqs) = self.batches.abandon(session, dropped);
        spare.into_iter().for_each(|record| self.records.take_back(record));
        self.records.forget(session, |seq| seqs.contains(&seq));
    }
}
