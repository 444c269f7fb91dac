//! One access of the plan. A hit is filled from the cache, a miss becomes a read: here and nowhere
//! else.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::trace::Served;

use crate::action::Action;
use crate::batch::{Batch, RowId, RowState};
use crate::block_size::charged_bytes;
use crate::brain::Core;
use crate::cache::Admission;
use crate::event::SessionId;
use crate::job::JobId;
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::{Completion, FaultKind, ReadOp};
use crate::reading::{Landed, Wanted};
use crate::session::runs_dry_in_ns;

/// Limit of the records in flight where reads bring several. It is higher if the depth is higher.
const RECORDS_MAX: usize = 512;

impl<M: Memory> Core<M> {
    /// Looks `sample` up for `row` of a job: the row gets its record, or waits for a read.
    pub(super) fn access(&mut self, wanted: Wanted, sample: SampleId, row: RowId) -> Served {
        let Wanted { job, admits } = wanted;
        if self.cache.get(sample).is_some() {
            let record = if admits {
                self.jobs.record_hit(job, sample);
                self.cache.hit(sample, self.jobs.importance())
            } else {
                self.cache.get(sample)
            };
            if let Some(record) = record.cloned() {
                if let Some(batch) = self.batch_mut(row.session, row.seq) {
                    batch.ready(row.position, record);
                }
                let was_prefetched = admits && self.prefetched.take(sample).is_some();
                return if was_prefetched { Served::Prefetched } else { Served::Hit };
            }
        }
        if self.join_decoded(job, sample, row) {
            return Served::Joined;
        }
        // A prefetch that is still in flight when its row comes is a miss like any other.
        let source = self.tier.source_of(sample);
        let is_first = self.reading.request(wanted, sample, row, source, &*self.index)
            || (admits && self.prefetched.join(sample));
        if is_first { Served::Miss } else { Served::Joined }
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

    /// Submits queued reads, oldest first, each with its neighbours, while blocks allow.
    pub(super) fn submit_reads(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let reads_max = self.reads_submitted_max as usize;
        // Each read of neighbours takes a bounce buffer. The engine reads them one by one when it
        // has none left.
        let records_max = reads_max.max(RECORDS_MAX);
        while self.reading.flights.in_flight() < reads_max
            && self.reading.flights.records_in_flight() < records_max
        {
            let share = (reads_max / (2 * self.jobs.len().max(1))).max(1);
            let (jobs, sessions) = (&self.jobs, &self.sessions);
            let deadline = |job| jobs.get(job).map_or(u64::MAX, |job| runs_dry_in_ns(job, sessions));
            let Some((job, first)) = self.reading.next(&*self.index, share, deadline) else { return };
            // Without room it waits until a fill gives some back.
            let Some(op) = self.read_op(first) else { return };
            self.widen(job, first);
            self.bring_package(job, first);
            let records = self.reading.find_group(first, op.shard, op.offset);
            let mut first_op = Some(op);
            let mut ops = Vec::new();
            if records > 1 {
                ops.reserve(records);
                for at in 0..records {
                    let Some(sample) = self.reading.member(at) else { break };
                    ops.extend(if sample == first { first_op.take() } else { self.neighbour_op(sample) });
                }
            }
            let samples = first_op.iter().chain(&ops).map(|op| op.sample);
            self.reading.submitted(job, samples, false, now_ns);
            let records = (ops.len() + usize::from(first_op.is_some())) as u64;
            let between = bytes_between(&ops);
            self.late_reads.records += records;
            self.count(job, |counts| {
                counts.reads += 1;
                counts.coalesced += records - 1;
                counts.bytes_between += between;
            });
            actions.push(match first_op {
                Some(op) => Action::Read(op),
                None => Action::ReadTogether(ops),
            });
        }
    }

    /// The read of a record as part of the next flight; `None` if no blocks are free for it.
    pub(super) fn read_op(&mut self, sample: SampleId) -> Option<ReadOp<M::Room>> {
        let Entry { shard, offset, stored_len: len, crc32c, .. } = self.index.entry(sample)?;
        let blocks = self.free.take(u64::from(len))?;
        let (flight, recheck) = (self.reading.flights.next_id(), self.reading.is_rechecked(sample));
        Some(ReadOp { flight, sample, shard, offset, len, crc32c, recheck, blocks })
    }

    /// The read of a neighbour. If no blocks are free the neighbour waits for its turn.
    fn neighbour_op(&mut self, sample: SampleId) -> Option<ReadOp<M::Room>> {
        let op = self.read_op(sample);
        if op.is_none() {
            self.reading.put_back(sample, &*self.index);
        }
        op
    }

    /// A read has ended: the record is offered to the cache and given to all rows that wait.
    pub(super) fn read_done(
        &mut self,
        now_ns: u64,
        completion: Completion<M::Room>,
        actions: &mut Vec<Action<M>>,
    ) {
        let Completion { op, outcome, checked, latency } = completion;
        let sample = op.sample;
        self.late_reads.latencies.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let Landed { job, wanted, rows: waiting } =
            self.reading.completed(op.flight, sample, outcome.is_ok(), now_ns);
        self.count(job, |counts| counts.bytes_read += u64::from(op.len));
        match outcome {
            Ok(()) => {
                let record = M::record(op.blocks, checked);
                // An answer that nobody waits for any more, as a hedge was first, is offered like
                // any other of its job.
                let wanted = wanted.unwrap_or_else(|| self.wanted_by(job));
                self.arrived(now_ns, wanted, sample, op.len, record, waiting);
            }
            Err(fault) => {
                self.free.give(op.blocks);
                self.prefetched.completed(sample, job, false);
                if waiting.is_empty() {
                    return;
                }
                let text = self.name_fault(sample, &fault);
                for row in waiting {
                    if fault.kind == FaultKind::Store {
                        self.row_error(row, &text);
                    } else {
                        self.row_fault(row, &text, actions);
                    }
                }
            }
        }
    }

    /// A record of `stored_len` bytes has come. The rows that wait get it. It is offered to the
    /// cache if a job that wants it keeps records there.
    pub(super) fn arrived(
        &mut self,
        now_ns: u64,
        Wanted { job: wanted_by, admits }: Wanted,
        sample: SampleId,
        stored_len: u32,
        record: M::Record,
        waiting: Vec<RowId>,
    ) {
        for row in waiting {
            if let Some(batch) = self.batch_mut(row.session, row.seq) {
                batch.read_ns = now_ns;
                batch.ready(row.position, record.clone());
            }
        }
        if self.cache.get(sample).is_some() {
            // A hedge brought it before.
            return self.release(record);
        }
        // Without any job nobody says what is worth keeping.
        if admits && !self.jobs.is_empty() {
            self.offer(wanted_by, sample, stored_len, record);
        } else {
            self.release(record);
        }
        let kept = self.cache.get(sample).is_some();
        if self.prefetched.completed(sample, wanted_by, kept) {
            if kept {
                self.await_use(sample);
            } else {
                self.count(wanted_by, |counts| counts.prefetches_unused += 1);
            }
        }
    }

    /// A record that the job wants.
    pub(super) fn wanted_by(&self, job: JobId) -> Wanted {
        Wanted { job, admits: self.admits(job) }
    }

    /// Whether the job may keep records in the cache.
    pub(super) fn admits(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|job| self.jobs.admits(job))
    }

    /// Offers a record that was read for `job` to the cache. The blocks of evicted records are free
    /// again.
    fn offer(&mut self, job: JobId, sample: SampleId, stored_len: u32, record: M::Record) {
        let bytes = charged_bytes(stored_len, self.config.block_bytes);
        let mut evicted = Vec::new();
        // A record that a worker still reads is pinned: its blocks are shared.
        let pinned = |held: &M::Record| M::holders(held) > 1;
        let admission =
            self.cache.offer(sample, bytes, record.clone(), self.jobs.importance(), pinned, &mut evicted);
        match admission {
            Admission::Admitted => {
                self.tier.remove(sample);
                let evictions = evicted.len() as u64;
                self.count(job, |counts| {
                    counts.admitted += 1;
                    counts.evicted += evictions;
                });
            }
            Admission::Bypassed(same) => {
                drop(same);
                self.count(job, |counts| counts.bypassed += 1);
                self.offer_to_tier(job, sample, &record);
            }
        }
        self.let_go(job, evicted);
        self.release(record);
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
        spare.into_iter().for_each(|row| self.take_back(row.record));
        self.reading.forget(session, |seq| dropped.contains(&seq));
    }
}

/// Bytes between records that are read together, by offset.
fn bytes_between<R>(ops: &[ReadOp<R>]) -> u64 {
    let Some((first, last)) = ops.first().zip(ops.last()) else { return 0 };
    let end = last.offset.saturating_add(u64::from(last.len));
    let records: u64 = ops.iter().map(|op| u64::from(op.len)).sum();
    end.saturating_sub(first.offset).saturating_sub(records)
}
