//! One access of the plan: a hit is filled from the cache, a miss becomes a read, here and nowhere else.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::trace::Served;

use crate::action::Action;
use crate::batch::{RowRef, RowState};
use crate::block_size::charged_bytes;
use crate::cache::Admission;
use crate::event::SessionId;
use crate::machine::Core;
use crate::memory::Memory;
use crate::orders::{Completion, FaultKind, ReadOp};
use crate::reading::FlightId;

/// Records submitted at a time, where reads bring several. More only if the depth is larger: a record is a read then.
const RECORDS_MAX: usize = 512;

/// The read of one record as part of `flight`; `recheck` if it was not what was packed when it came before.
pub(super) fn read_op<B>(
    flight: FlightId,
    sample: SampleId,
    entry: &Entry,
    recheck: bool,
    blocks: B,
) -> ReadOp<B> {
    let &Entry { shard, offset, stored_len: len, crc32c, .. } = entry;
    ReadOp { flight, sample, shard, offset, len, crc32c, recheck, blocks }
}

impl<M: Memory> Core<M> {
    /// Looks `sample` up for `row`: hands the row its record, or makes it wait for a read.
    pub(super) fn access(&mut self, sample: SampleId, row: RowRef) -> Served {
        if let Some(job) = &mut self.job
            && self.cache.get(sample).is_some()
        {
            job.importance.record_hit(sample);
            if let Some(record) = self.cache.hit(sample, &job.importance).cloned() {
                if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
                    batch.ready(row.position, record);
                }
                return if self.prefetch.take(sample) { Served::Prefetched } else { Served::Hit };
            }
        }
        // A prefetch that is still under way when its row comes is a miss like any other.
        let is_first = self.reading.want(sample, row, &*self.index) || self.prefetch.join(sample);
        if is_first { Served::Miss } else { Served::Joined }
    }

    /// Submits queued reads, oldest first, each with the neighbours that come along, while blocks allow.
    pub(super) fn submit_reads(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let reads_max = self.reads_submitted_max as usize;
        // Each read of neighbours takes a bounce buffer from now on, and where there is none left the engine reads them alone.
        let records_max = reads_max.max(RECORDS_MAX);
        while self.reading.in_flight() < reads_max && self.reading.records_in_flight() < records_max {
            let Some(first) = self.reading.next(&*self.index) else { return };
            let Some(entry) = self.index.entry(first) else { return };
            // No room: a fill that is under way will give some back.
            let Some(blocks) = self.free.take(u64::from(entry.stored_len)) else { return };
            self.widen(first);
            let flight = self.reading.next_flight();
            let mut ops = Vec::new();
            let recheck = self.reading.is_doubted(first);
            let mut first_op = Some(read_op(flight, first, &entry, recheck, blocks));
            let records = self.reading.find_group(first, &entry);
            if records > 1 {
                ops.reserve(records);
                for at in 0..records {
                    let Some(sample) = self.reading.member(at) else { break };
                    let op =
                        if sample == first { first_op.take() } else { self.neighbour_op(flight, sample) };
                    ops.extend(op);
                }
            }
            let samples = first_op.iter().chain(&ops).map(|op| op.sample);
            self.reading.submitted(samples, false, now_ns);
            self.count_flight((ops.len() + usize::from(first_op.is_some())) as u64);
            actions.push(match first_op {
                Some(op) => Action::Read(op),
                None => Action::ReadTogether(ops),
            });
        }
    }

    /// The read of a neighbour that comes along, if there are blocks for it; else it waits for its turn.
    fn neighbour_op(&mut self, flight: FlightId, sample: SampleId) -> Option<ReadOp<M::Room>> {
        let entry = self.index.entry(sample)?;
        match self.free.take(u64::from(entry.stored_len)) {
            Some(blocks) => Some(read_op(flight, sample, &entry, self.reading.is_doubted(sample), blocks)),
            None => {
                self.reading.put_back(sample, &*self.index);
                None
            }
        }
    }

    fn count_flight(&mut self, records: u64) {
        self.stalls.records += records;
        if let Some(job) = &mut self.job {
            job.count(|counts| {
                counts.reads += 1;
                counts.coalesced += records - 1;
            });
        }
    }

    /// A read came back: offer the record to the cache and serve all who wait.
    pub(super) fn read_done(
        &mut self,
        now_ns: u64,
        completion: Completion<M::Room>,
        actions: &mut Vec<Action<M>>,
    ) {
        let Completion { op, outcome, checked, latency } = completion;
        let sample = op.sample;
        self.stalls.latencies.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let waiting = self.reading.came_back(op.flight, sample, outcome.is_ok(), now_ns);
        if let Some(job) = &mut self.job {
            job.count(|counts| counts.bytes_read += u64::from(op.len));
        }
        match outcome {
            Ok(()) => {
                let record = M::record(op.blocks, checked);
                for row in waiting {
                    if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
                        batch.read_ns = now_ns;
                        batch.ready(row.position, record.clone());
                    }
                }
                if self.cache.get(sample).is_some() {
                    // A hedge brought it before.
                    return self.release(record);
                }
                self.offer(sample, op.len, record);
                let kept = self.cache.get(sample).is_some();
                if self.prefetch.came_back(sample, kept) && !kept {
                    self.count_unused_prefetch();
                }
            }
            Err(fault) => {
                self.free.give(op.blocks);
                self.prefetch.came_back(sample, false);
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

    /// Offers a record that was read to the cache; what it displaces is given back.
    fn offer(&mut self, sample: SampleId, stored_len: u32, record: M::Record) {
        let Some(job) = &mut self.job else { return self.release(record) };
        let bytes = charged_bytes(stored_len, self.config.block_bytes);
        let mut evicted = Vec::new();
        // A record some worker still reads is pinned: its blocks are shared.
        let pinned = |held: &M::Record| M::holders(held) > 1;
        let admission =
            self.cache.offer(sample, bytes, record.clone(), &job.importance, pinned, &mut evicted);
        match admission {
            Admission::Admitted => {
                let evictions = evicted.len() as u64;
                job.count(|counts| {
                    counts.admitted += 1;
                    counts.evicted += evictions;
                });
            }
            Admission::Bypassed(same) => {
                drop(same);
                job.count(|counts| counts.bypassed += 1);
            }
        }
        for (id, victim) in evicted {
            if self.prefetch.take(id) {
                self.count_unused_prefetch();
            }
            self.release(victim);
        }
        self.release(record);
    }

    fn count_unused_prefetch(&mut self) {
        if let Some(job) = &mut self.job {
            job.count(|counts| counts.prefetches_unused += 1);
        }
    }

    /// Rows of `session`'s open batches that nobody works on yet are dropped: the rank has moved on.
    pub(super) fn abandon_open(&mut self, session: SessionId) {
        let mut spare = Vec::new();
        if let Some(state) = self.session_mut(session) {
            for batch in &mut state.open {
                batch.abandoned = true;
                for row in std::mem::take(&mut batch.ready) {
                    batch.finish(row.position, RowState::Skipped);
                    spare.push(M::take_back(row.record));
                }
                for position in 0..batch.rows.len() {
                    if batch.rows.get(position).is_some_and(|row| row.state == RowState::Waiting) {
                        batch.finish(u32::try_from(position).unwrap_or(u32::MAX), RowState::Skipped);
                    }
                }
            }
        }
        for record in spare {
            self.release(record);
        }
        self.forget_waiting(session);
    }

    /// Nobody of `session` waits for a read any more.
    pub(super) fn forget_waiting(&mut self, session: SessionId) {
        self.reading.forget(session);
    }
}
