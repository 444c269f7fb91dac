//! One access of the plan: a hit is filled from the cache, a miss becomes a read, here and nowhere else.

use std::sync::Arc;

use shade_formats::SampleId;

use super::action::Action;
use super::batch::{RowRef, RowState};
use super::event::SessionId;
use super::machine::Core;
use crate::blocks::{Blocks, charged_bytes};
use crate::cache::Admission;
use crate::reads::{Completion, ReadOp};

/// How an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// From the cache.
    Hit,
    /// By a read that another row had asked for.
    Joined,
    /// By a read of its own.
    Miss,
}

impl Core {
    /// Looks `sample` up for `row`: hands the row its record, or makes it wait for a read.
    pub(super) fn access(&mut self, sample: SampleId, row: RowRef) -> Served {
        if let Some(job) = &mut self.job
            && self.cache.get(sample).is_some()
        {
            job.importance.record_hit(sample);
            if let Some(blocks) = self.cache.hit(sample, &job.importance).map(Arc::clone) {
                if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
                    batch.ready(row.position, blocks);
                }
                return Served::Hit;
            }
        }
        if let Some(waiting) = self.reading.get_mut(&sample) {
            waiting.push(row);
            return Served::Joined;
        }
        self.reading.insert(sample, vec![row]);
        self.queued.push_back(sample);
        Served::Miss
    }

    /// Submits queued reads, oldest first, while depth and blocks allow.
    pub(super) fn submit_reads(&mut self, actions: &mut Vec<Action>) {
        while self.in_flight < self.config.depth {
            let Some(&sample) = self.queued.front() else { return };
            let wanted = self.reading.get(&sample).is_some_and(|waiting| !waiting.is_empty());
            let entry = self.index.entry(sample);
            let (true, Some(entry)) = (wanted, entry) else {
                self.queued.pop_front();
                self.reading.remove(&sample);
                continue;
            };
            // No room: a fill that is under way will give some back.
            let Some(blocks) = self.free.take(u64::from(entry.stored_len)) else { return };
            self.queued.pop_front();
            self.in_flight += 1;
            actions.push(Action::Read(ReadOp {
                sample,
                shard: entry.shard,
                offset: entry.offset,
                len: entry.stored_len,
                crc32c: entry.crc32c,
                blocks,
            }));
        }
    }

    /// A read came back: offer the record to the cache and serve all who wait.
    pub(super) fn read_done(&mut self, now_ns: u64, completion: Completion, actions: &mut Vec<Action>) {
        let Completion { op, outcome, .. } = completion;
        let sample = op.sample;
        self.in_flight = self.in_flight.saturating_sub(1);
        let waiting = self.reading.remove(&sample).unwrap_or_default();
        if let Some(job) = &mut self.job {
            job.count(|counts| counts.bytes_read += u64::from(op.len));
        }
        match outcome {
            Ok(()) => {
                let blocks = Arc::new(op.blocks);
                for row in waiting {
                    if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
                        batch.read_ns = now_ns;
                        batch.ready(row.position, Arc::clone(&blocks));
                    }
                }
                self.offer(sample, op.len, blocks);
            }
            Err(fault) => {
                self.free.give(op.blocks);
                let text = self.name_fault(sample, &fault);
                for row in waiting {
                    self.row_fault(row, &text, actions);
                }
            }
        }
    }

    /// Offers a record that was read to the cache; what it displaces is given back.
    fn offer(&mut self, sample: SampleId, stored_len: u32, blocks: Arc<Blocks>) {
        let Some(job) = &mut self.job else { return self.release(blocks) };
        let bytes = charged_bytes(stored_len, self.config.block_bytes);
        let mut evicted = Vec::new();
        // A record some worker still reads is pinned: its blocks are shared.
        let pinned = |held: &Arc<Blocks>| Arc::strong_count(held) > 1;
        let admission =
            self.cache.offer(sample, bytes, Arc::clone(&blocks), &job.importance, pinned, &mut evicted);
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
        for (_, victim) in evicted {
            self.release(victim);
        }
        self.release(blocks);
    }

    /// Rows of `session`'s open batches that nobody works on yet are dropped: the rank has moved on.
    pub(super) fn abandon_open(&mut self, session: SessionId) {
        let mut spare = Vec::new();
        if let Some(state) = self.session_mut(session) {
            for batch in &mut state.open {
                batch.abandoned = true;
                for row in std::mem::take(&mut batch.ready) {
                    batch.finish(row.position, RowState::Skipped);
                    spare.push(row.blocks);
                }
                for position in 0..batch.rows.len() {
                    if batch.rows.get(position).is_some_and(|row| row.state == RowState::Waiting) {
                        batch.finish(u32::try_from(position).unwrap_or(u32::MAX), RowState::Skipped);
                    }
                }
            }
        }
        for blocks in spare {
            self.release(blocks);
        }
        self.forget_waiting(session);
    }

    /// Nobody of `session` waits for a read any more.
    pub(super) fn forget_waiting(&mut self, session: SessionId) {
        for waiting in self.reading.values_mut() {
            waiting.retain(|row| row.session != session);
        }
    }
}
