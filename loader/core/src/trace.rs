//! The lines of a trace. They are made only while there is an observer.

use shade_formats::limits::RANKS_TOLD_MAX;
use shade_formats::ring::FLAG_PADDING;
use shade_formats::trace::{Done, Job as JobLine, Line, Open, RankSnapshot, Release, Report, Snapshot};
use shade_job::JobSpec;

use crate::action::Action;
use crate::batches::{Batch, BatchRow, RowState};
use crate::brain::Core;
use crate::figures::RankStatus;
use crate::ids::{BatchId, JobId, SessionId};
use crate::memory::Memory;
use crate::training::Job;

pub(super) const NS_PER_US: u64 = 1000;

impl<M: Memory> Core<M> {
    /// `observer` has come, for the job of this name, or gone.
    pub(super) fn observe(
        &mut self,
        now_ns: u64,
        observer: SessionId,
        job: Option<String>,
        actions: &mut Vec<Action<M>>,
    ) {
        for (job, observer) in self.figures.observe(observer, job) {
            let job = self.training.job(job).map(|job| job_line(now_ns, true, job));
            actions.extend(job.map(|line| trace(observer, line)));
        }
    }

    /// Traces the job of a session, which has begun.
    pub(super) fn trace_job(&self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        if let Some(job) = self.training.job_of(session)
            && let Some(observer) = self.figures.observer(job.id())
        {
            actions.push(trace(observer, job_line(now_ns, false, job)));
        }
    }

    /// Traces what a rank has released.
    pub(super) fn trace_release(&self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        if let Some(observer) = self.training.job_of(session).and_then(|job| self.figures.observer(job.id()))
            && let Some((rank, before_seq)) =
                self.training.rank(session).zip(self.batches.first_unreleased(session))
        {
            let (at_us, rank) = (now_ns / NS_PER_US, rank.number());
            actions.push(trace(observer, Line::Release(Release { at_us, rank, before_seq })));
        }
    }

    /// Traces the counters of each job that has an observer and has had no snapshot lately.
    pub(super) fn trace_snapshots(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        for (job, observer) in self.figures.take_due_snapshots(now_ns) {
            let snapshot = self.training.job(job).map(|job| self.snapshot(now_ns, job));
            actions.extend(snapshot.map(|snapshot| trace(observer, Line::Snapshot(snapshot))));
        }
    }

    fn snapshot(&self, now_ns: u64, job: &Job) -> Snapshot {
        let records = self.records.stats();
        let total = self.figures.total(job.id());
        Snapshot {
            at_us: now_ns / NS_PER_US,
            epoch: job.epoch(),
            opened_share: self.training.opened_share(job),
            accesses: total.accesses,
            hits: total.hits,
            delivered: total.delivered,
            bytes_read: total.bytes_read,
            tier_bytes: total.tier_bytes,
            fill_ns: total.fill_ns,
            cache_bytes: records.cache_bytes,
            cache_used_bytes: records.cache_used_bytes,
            reads_submitted: records.reads_submitted,
            reads_late: records.reads_late,
            p50_us: records.read_latency.map(|latency| latency.p50_us),
            p99_us: records.read_latency.map(|latency| latency.p99_us),
            by_rank: self.ranks_of(job.id(), RANKS_TOLD_MAX).iter().map(rank_snapshot).collect(),
        }
    }

    /// Traces losses that came for a batch of `rank`.
    pub(super) fn trace_report(
        &self,
        now_ns: u64,
        job: JobId,
        BatchId { epoch, number: batch }: BatchId,
        rank: u32,
        losses: &[f32],
        actions: &mut Vec<Action<M>>,
    ) {
        if let Some(observer) = self.figures.observer(job) {
            let losses = losses.iter().map(|loss| loss.is_finite().then_some(*loss)).collect();
            let at_us = now_ns / NS_PER_US;
            actions.push(trace(observer, Line::Report(Report { at_us, epoch, batch, rank, losses })));
        }
    }
}

fn rank_snapshot(rank: &RankStatus) -> RankSnapshot {
    RankSnapshot {
        rank: rank.rank,
        in_ring: rank.in_ring,
        open: rank.open,
        attached_ns: rank.attached_ns,
        storage_ns: rank.waits.storage_ns,
        workers_ns: rank.waits.workers_ns,
        plan_ns: rank.waits.plan_ns,
        ranks_ns: rank.waits.ranks_ns,
        ring_full_ns: rank.waits.ring_full_ns,
    }
}

/// The action that hands a line to an observer.
fn job_line(now_ns: u64, under_way: bool, job: &Job) -> Line {
    let document = JobSpec { plan: job.plan_spec(), ..job.spec().clone() }.to_value();
    Line::Job(JobLine { at_us: now_ns / NS_PER_US, under_way, document })
}

pub(super) fn trace<M: Memory>(observer: SessionId, line: Line) -> Action<M> {
    Action::Trace(observer, Box::new(line))
}

/// The line of a batch that is opened, without its samples yet.
pub(super) fn open_line(
    now_ns: u64,
    rank: u32,
    BatchId { epoch, number }: BatchId,
    seq: u64,
    rows: usize,
) -> Open {
    let (ids, served) = (Vec::with_capacity(rows), String::with_capacity(rows));
    Open { at_us: now_ns / NS_PER_US, epoch, batch: number, rank, seq, ids, served }
}

/// The line of a batch that is published.
pub(super) fn done_line<M: Memory>(
    now_ns: u64,
    observer: SessionId,
    rank: u32,
    batch: &Batch<M>,
) -> Action<M> {
    let as_opened = batch.rows.iter().all(|row| row.state == RowState::Done && row.flags == 0);
    let given = !batch.abandoned && batch.failure.is_none();
    let real = |row: &&BatchRow| row.state == RowState::Done && row.flags & FLAG_PADDING == 0;
    let delivered = if given && as_opened {
        None
    } else {
        Some(batch.rows.iter().filter(|_| given).filter(real).map(|row| row.sample.0).collect())
    };
    trace(
        observer,
        Line::Done(Done {
            at_us: now_ns / NS_PER_US,
            epoch: batch.id.epoch,
            batch: batch.id.number,
            rank,
            seq: batch.seq,
            opened_us: batch.opened_ns / NS_PER_US,
            read_us: batch.read_ns / NS_PER_US,
            slot_wait_us: batch.slot_wait_ns / NS_PER_US,
            delivered,
        }),
    )
}
