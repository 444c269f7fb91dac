//! Reads of records that no batch wants yet, into the cache.
//!
//! While no batch waits for a read, prefetches follow the plan: the next use that is missing is
//! read first, as soon as there is room for it. Room is what is free and what holds samples without
//! a known use. A sample whose use is known gives way to no prefetch, even if it is used later: its
//! hit would become a read, so no read would be saved. What the tier has is not missing: batches
//! get it in time, and what it displaced here would be written there.
//!
//! Where there are `windows`, a read also brings along the records around it.

use shade_formats::SampleId;

use crate::action::Action;
use crate::block_size::charged_bytes;
use crate::brain::Core;
use crate::job::JobId;
use crate::memory::Memory;
use crate::reading::Source;

/// Limit of prefetches in flight: the reads of batches come first, and must not find the store
/// full.
pub const PREFETCHES_MAX: u32 = 32;

impl<M: Memory> Core<M> {
    /// Prefetches while the store has nothing else to do.
    pub(super) fn prefetch(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if !self.cache.properties().looks_ahead {
            return;
        }
        while self.reading.is_drained(&*self.index) {
            let Some((job, sample, bytes)) = self.find_prefetch() else { return };
            self.prefetched.request(sample, bytes);
            if let Some(job) = self.jobs.get_mut(job) {
                // Not again if it fails: the batch that wants it tries once more, and tells.
                job.prefetch_at = job.prefetch_at.saturating_add(1);
                job.count(|counts| counts.prefetches += 1);
            }
            self.reading.prefetch(job, sample, &*self.index);
            self.submit_reads(now_ns, actions);
        }
    }

    /// The known use that is missing and due first, with its job and its bytes, if there is room
    /// for it and for its read.
    fn find_prefetch(&mut self) -> Option<(JobId, SampleId, u64)> {
        let most = self.config.prefetches_max.min(self.reads_submitted_max / 2);
        if self.prefetched.in_flight.len() >= most as usize {
            return None;
        }
        let mut first = None;
        for at in 0..self.jobs.len() {
            let job = self.jobs.iter().nth(at)?.id;
            if let Some((sample, position)) = self.missing_use(job) {
                let due = self.cache.clock(job).due(position);
                first = first.into_iter().chain([(due, job, sample)]).min();
            }
        }
        let (_, job, sample) = first?;
        let bytes = charged_bytes(self.index.entry(sample)?.stored_len, self.config.block_bytes);
        if !self.has_memory_to_prefetch(bytes) {
            return None;
        }
        let in_flight: u64 = self.prefetched.in_flight.values().sum();
        let pinned = |held: &M::Record| M::holders(held) > 1;
        self.cache
            .has_unused_room(in_flight.saturating_add(bytes), self.jobs.importance(), pinned)
            .then_some((job, sample, bytes))
    }

    /// Whether there is memory for a read that no batch waits for. Half of what is beside the cache
    /// stays free for the reads of batches.
    pub(super) fn has_memory_to_prefetch(&self, bytes: u64) -> bool {
        let reserve = self.free.total_bytes().saturating_sub(self.cache.capacity_bytes()) / 2;
        self.free.free_bytes() >= reserve.saturating_add(bytes)
    }

    /// The next sample of the job's known accesses that is missing, with its position.
    fn missing_use(&mut self, id: JobId) -> Option<(SampleId, u32)> {
        let job = self.jobs.get(id)?;
        let lookahead = job.lookahead.as_ref()?;
        let sight = lookahead.sight();
        let opened = self.next_batches(id, job.epoch()?).max()?;
        let known = job.known();
        let mut at = job.prefetch_at.max(job.start(opened));
        let missing = loop {
            match known.get(at) {
                Some(sample)
                    if lookahead.is_over(at)
                        || self.cache.get(sample).is_some()
                        || self.reading.is_pending(sample)
                        || self.tier.source_of(sample) == Source::Tier =>
                {
                    at += 1;
                }
                missing => break missing,
            }
        };
        self.jobs.get_mut(id)?.prefetch_at = at;
        // The cache would not keep what it does not know to be used.
        Some((missing.filter(|_| at < sight)?, at))
    }

    /// Prefetches the records around `sample`, which is about to be read. Not until a first batch
    /// is published, which this would delay.
    pub(super) fn widen(&mut self, job: JobId, sample: SampleId) {
        if !self.admits(job) {
            return;
        }
        let Some(windows) = &mut self.windows else { return };
        if !self.sessions.iter().any(|session| session.first_unpublished() > 0) {
            return;
        }
        let mut added = 0;
        for id in windows.around(sample, &*self.index) {
            let is_here = self.cache.get(id).is_some() || self.reading.is_pending(id);
            if is_here || !self.jobs.have(id) || !windows.bring(id) {
                continue;
            }
            let Some(entry) = self.index.entry(id) else { continue };
            self.prefetched.request(id, charged_bytes(entry.stored_len, self.config.block_bytes));
            self.reading.prefetch(job, id, &*self.index);
            added += 1;
        }
        self.count(job, |counts| counts.prefetches += added);
    }
}
