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

use super::access::is_pinned;
use super::reading::Source;
use super::{Demand, Records};
use crate::action::Action;
use crate::block_size::charged_bytes;
use crate::figures::Figures;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::training::{Job, Jobs};

/// Limit of prefetches in flight: the reads of batches come first, and must not find the store
/// full.
pub const PREFETCHES_MAX: u32 = 32;

impl<M: Memory> Records<M> {
    /// Prefetches while the store has nothing else to do, for a policy that looks ahead. `begins`
    /// says from which place on the job's accesses are not looked up yet.
    pub(crate) fn prefetch(
        &mut self,
        now_ns: u64,
        demand: Demand<'_>,
        begins: impl Fn(&Job) -> Option<u32>,
        figures: &mut Figures,
        actions: &mut Vec<Action<M>>,
    ) {
        while self.reading.is_drained(&*self.index) {
            let Some((job, sample, bytes)) = self.find_prefetch(demand.jobs, &begins) else { return };
            self.prefetched.request(sample, bytes);
            // Not again if it fails: the batch that wants it tries once more, and tells.
            self.prefetched.go_on(job);
            figures.count(job, |counts| counts.prefetches += 1);
            self.reading.prefetch(job, sample, &*self.index);
            self.submit(now_ns, demand, figures, actions);
        }
    }

    /// The known use that is missing and due first, with its job and its bytes, if there is room
    /// for it and for its read.
    fn find_prefetch(
        &mut self,
        jobs: &Jobs,
        begins: &impl Fn(&Job) -> Option<u32>,
    ) -> Option<(JobId, SampleId, u64)> {
        let most = self.prefetches_max.min(self.reads_submitted_max / 2);
        if self.prefetched.in_flight.len() >= most as usize {
            return None;
        }
        let mut first = None;
        for job in jobs.iter() {
            if let Some((sample, position)) = begins(job).and_then(|begin| self.missing_use(job, begin)) {
                let due = self.cache.clock(job.id()).due(position);
                first = first.into_iter().chain([(due, job.id(), sample)]).min();
            }
        }
        let (_, job, sample) = first?;
        let bytes = charged_bytes(self.index.entry(sample)?.stored_len, self.block_bytes);
        if !self.has_memory_to_prefetch(bytes) {
            return None;
        }
        let in_flight: u64 = self.prefetched.in_flight.values().sum();
        self.cache
            .has_unused_room(in_flight.saturating_add(bytes), jobs.importance(), is_pinned::<M>)
            .then_some((job, sample, bytes))
    }

    /// Whether there is memory for a read that no batch waits for. Half of what is beside the cache
    /// stays free for the reads of batches.
    pub(super) fn has_memory_to_prefetch(&self, bytes: u64) -> bool {
        let reserve = self.memory.total_bytes().saturating_sub(self.cache.capacity_bytes()) / 2;
        self.memory.free_bytes() >= reserve.saturating_add(bytes)
    }

    /// The next sample of the job's known accesses that is missing, with its position: at `begin`
    /// or later.
    fn missing_use(&mut self, job: &Job, begin: u32) -> Option<(SampleId, u32)> {
        let lookahead = job.lookahead()?;
        let sight = lookahead.sight();
        let known = job.known();
        let mut at = self.prefetched.at(job.id()).max(begin);
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
        self.prefetched.set_at(job.id(), at);
        // The cache would not keep what it does not know to be used.
        Some((missing.filter(|_| at < sight)?, at))
    }

    /// Prefetches the records around `sample`, which is about to be read for a job that keeps
    /// records in the cache.
    pub(super) fn widen(&mut self, job: JobId, sample: SampleId, jobs: &Jobs, figures: &mut Figures) {
        let Some(windows) = &mut self.windows else { return };
        let mut added = 0;
        for id in windows.around(sample, &*self.index) {
            let is_here = self.cache.get(id).is_some() || self.reading.is_pending(id);
            if is_here || !jobs.have(id) || !windows.bring(id) {
                continue;
            }
            let Some(entry) = self.index.entry(id) else { continue };
            self.prefetched.request(id, charged_bytes(entry.stored_len, self.block_bytes));
            self.reading.prefetch(job, id, &*self.index);
            added += 1;
        }
        figures.count(job, |counts| counts.prefetches += added);
    }
}
