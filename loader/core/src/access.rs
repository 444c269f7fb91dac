//! One access of the plan: a row gets its record, or waits for a read. And what has been read goes
//! to the rows that wait for it.

use shade_formats::SampleId;
use shade_formats::trace::Served;

use crate::action::Action;
use crate::batch::{Batch, RowId, RowState};
use crate::brain::{Core, next_batches};
use crate::event::SessionId;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{Completion, FaultKind};
use crate::records::{Arrival, Demand, Landed, Wanted};
use crate::samples::name_fault;
use crate::session::runs_dry_in_ns;
use crate::tier_orders::TierEvent;

impl<M: Memory> Core<M> {
    /// Looks `sample` up for `row` of a job: the row gets its record, or waits for a read.
    pub(super) fn access(&mut self, wanted: Wanted, sample: SampleId, row: RowId) -> Served {
        let Wanted { job, admits } = wanted;
        if self.records.has(sample) {
            if admits {
                self.jobs.record_hit(job, sample);
            }
            if let Some((record, served)) = self.records.hit(sample, admits, self.jobs.importance()) {
                if let Some(batch) = self.batch_mut(row.session, row.seq) {
                    batch.ready(row.position, record);
                }
                return served;
            }
        }
        if self.join_decoded(job, sample, row) {
            return Served::Joined;
        }
        self.records.request(wanted, sample, row)
    }

    /// Lets a row have the pixels that another job of the group had decoded, or that a worker is
    /// decoding now. Returns `false` if there are none.
    fn join_decoded(&mut self, job: JobId, sample: SampleId, row: RowId) -> bool {
        if self.decoded_rows.is_empty() {
            return false;
        }
        let session = self.sessions.iter_mut().find(|session| session.id == row.session);
        let Some(batch) = session.and_then(|session| session.batch_mut(row.seq)) else { return false };
        let Some(output) = self.decoded_rows.output_of(job, batch.id.epoch, &self.jobs) else { return false };
        let drawn = batch.rows.get(row.position as usize).map(|row| row.drawn);
        let is_there = drawn.is_some_and(|drawn| self.decoded_rows.has(output, sample, drawn));
        if is_there {
            batch.ready_decoded(row.position);
        }
        is_there
    }

    /// Submits the reads that are queued.
    pub(super) fn submit_reads(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let (jobs, sessions) = (&self.jobs, &self.sessions);
        let runs_dry_in_ns = |job| jobs.get(job).map_or(u64::MAX, |job| runs_dry_in_ns(job, sessions));
        let has_begun = sessions.iter().any(|session| session.first_unpublished() > 0);
        let demand = Demand { jobs, runs_dry_in_ns: &runs_dry_in_ns, has_begun };
        self.records.submit(now_ns, demand, &mut self.figures, actions);
    }

    /// Prefetches while the store has nothing else to do.
    pub(super) fn prefetch(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let (jobs, sessions) = (&self.jobs, &self.sessions);
        let runs_dry_in_ns = |job| jobs.get(job).map_or(u64::MAX, |job| runs_dry_in_ns(job, sessions));
        let has_begun = sessions.iter().any(|session| session.first_unpublished() > 0);
        let demand = Demand { jobs, runs_dry_in_ns: &runs_dry_in_ns, has_begun };
        let begins = |job: &Job| {
            let opened = next_batches(sessions, job.id, job.epoch()?).max()?;
            Some(job.start(opened))
        };
        self.records.prefetch(now_ns, demand, begins, &mut self.figures, actions);
    }

    /// A read has ended: all rows that wait get its record, or its fault.
    pub(super) fn read_done(
        &mut self,
        now_ns: u64,
        completion: Completion<M::Room>,
        actions: &mut Vec<Action<M>>,
    ) {
        let jobs = &self.jobs;
        let wanted_by = |job| Wanted { job, admits: jobs.admits_job(job) };
        match self.records.landed(now_ns, completion, wanted_by, &mut self.figures) {
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
            if let Some(batch) = self.batch_mut(row.session, row.seq) {
                batch.read_ns = now_ns;
                batch.ready(row.position, record.clone());
            }
        }
        if self.records.keep(wanted, sample, len, record, &self.jobs, &mut self.figures) {
            self.jobs.iter_mut().filter_map(|job| job.stand_ins.as_mut()).for_each(|all| all.add(sample));
        }
    }

    /// Takes in an event of the tier.
    pub(super) fn tier_event(&mut self, now_ns: u64, event: TierEvent<M>) {
        match event {
            TierEvent::Room { bytes, get } => {
                self.records.tier_has_room(bytes, get);
                // It learns of the uses in sight when the next batch is opened.
                self.jobs.iter_mut().for_each(|job| job.lookahead = None);
            }
            TierEvent::Held(samples) => self.records.tier_holds(samples),
            TierEvent::Got { op, outcome, latency } => {
                let (jobs, sessions) = (&self.jobs, &self.sessions);
                let job_of_row = |row: &RowId| {
                    let session = sessions.iter().find(|session| session.id == row.session);
                    session.map(|session| session.job)
                };
                let job_of = |job, rows: &[RowId]| match jobs.get(job) {
                    Some(_) => Some(job),
                    // Its first job has ended. Rows of another may wait for it.
                    None => rows.first().and_then(job_of_row),
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
        Wanted { job, admits: self.jobs.admits_job(job) }
    }

    /// Drops the rows of these open batches of `session` that no worker has: the rank has moved on.
    pub(super) fn abandon(&mut self, session: SessionId, is_dropped: impl Fn(&Batch<M>) -> bool) {
        let (mut spare, mut dropped) = (Vec::new(), Vec::new());
        let Some(state) = self.session_mut(session) else { return };
        for batch in state.open.iter_mut().filter(|batch| is_dropped(batch)) {
            batch.abandoned = true;
            dropped.push(batch.seq);
            for row in std::mem::take(&mut batch.ready) {
                batch.finish(row.position, RowState::Skipped);
                spare.push(row);
            }
            for position in 0..batch.rows.len() {
                if batch.rows.get(position).is_some_and(|row| row.state == RowState::Waiting) {
                    batch.finish(to_u32(position), RowState::Skipped);
                }
            }
        }
        spare.into_iter().for_each(|row| self.records.take_back(row.record));
        self.records.forget(session, |seq| dropped.contains(&seq));
    }
}
