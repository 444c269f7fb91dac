//! Packages: a miss brings along what lies around its record, as far as the cache would keep it.
//!
//! Records lie shuffled in their shards, so a package is a random sample of the dataset. One read
//! of it costs the store little more than one of a single record, where records are small.
//!
//! With a policy that exchanges samples, what came along stands in for samples that are missing
//! (iCACHE's dynamic packaging). There only a miss of a sample that may be exchanged brings a
//! package.

use shade_formats::SampleId;

use crate::block_size::charged_bytes;
use crate::brain::Core;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::plan::StandIns;

/// Reads in flight up to which one brings a package. The engine has a buffer for each of so many,
/// and beyond its buffers it reads record by record. With more in flight, operations are not the
/// limit.
pub const PACKAGES_MAX: usize = 48;

impl<M: Memory> Core<M> {
    /// Requests the records around `first`, which is about to be read for `job`. Not until a first
    /// batch is published, which this would delay.
    pub(super) fn bring_package(&mut self, job: JobId, first: SampleId) {
        let Some(packages) = &self.packages else { return };
        let exchanges = self.cache.properties().exchanges;
        if !self.admits(job)
            || self.reading.flights.in_flight() >= PACKAGES_MAX
            || (exchanges && !self.cache.may_be_exchanged(first))
            || !self.sessions.iter().any(|session| session.first_unpublished() > 0)
        {
            return;
        }
        let mut added = 0;
        // Blocks are taken when the read is submitted.
        let mut taken = 0;
        for id in packages.around(first, &*self.index) {
            let Some(entry) = self.index.entry(id) else { continue };
            let bytes = charged_bytes(entry.stored_len, self.config.block_bytes);
            if self.reading.is_pending(id) || !self.jobs.have(id) || !self.is_wanted(job, id, bytes) {
                continue;
            }
            if !self.has_memory_to_prefetch(taken + bytes) {
                break;
            }
            taken += bytes;
            added += 1;
            self.prefetched.bring(id);
            self.reading.prefetch(job, id, &*self.index);
        }
        self.count(job, |counts| counts.prefetches += added);
    }

    /// Whether a record that comes along for `job` would be kept, and used.
    fn is_wanted(&mut self, job: JobId, sample: SampleId, bytes: u64) -> bool {
        let is_due = || self.jobs.get(job).is_some_and(|job| job.will_use(sample));
        if self.cache.properties().exchanges && self.cache.may_be_exchanged(sample) && !is_due() {
            return false;
        }
        let pinned = |held: &M::Record| M::holders(held) > 1;
        self.cache.would_admit(sample, bytes, self.jobs.importance(), pinned)
    }

    /// The cache keeps a record that was read ahead of its use.
    pub(super) fn await_use(&mut self, sample: SampleId) {
        self.cache.await_use(sample);
        if self.packages.is_some() && self.cache.may_stand_in(sample) {
            self.jobs.iter_mut().filter_map(|job| job.stand_ins.as_mut()).for_each(|all| all.add(sample));
        }
    }

    /// The job's table of stand-ins for its current plan, made anew if there is none.
    pub(super) fn find_stand_ins(&mut self, job: JobId) {
        let (cache, samples) = (&self.cache, self.index.len());
        let Some(job) = self.jobs.get_mut(job).filter(|job| job.stand_ins.is_none()) else { return };
        let (Some(plan), true) = (&job.plan, self.packages.is_some()) else { return };
        let mut residents: Vec<SampleId> = cache.ids().filter(|&id| cache.may_stand_in(id)).collect();
        // In an order that does not depend on where they lie in memory.
        residents.sort_unstable();
        job.stand_ins = Some(StandIns::new(&plan.ids, samples, job.ranks_apart(), residents));
    }
}

impl Job {
    /// Whether the plan uses the sample in a batch that may still be exchanged.
    fn will_use(&self, sample: SampleId) -> bool {
        let from = self.start(self.settled);
        self.stand_ins.as_ref().is_some_and(|all| all.is_used_from(sample, from))
    }
}
