//! Packages: a miss brings along what lies around its record, as far as the cache would keep it.
//!
//! Records lie shuffled in their shards, so a package is a random sample of the dataset. One read
//! of it costs the store little more than one of a single record, where records are small.
//!
//! With a policy that exchanges samples, what came along stands in for samples that are missing
//! (iCACHE's dynamic packaging). There only a miss of a sample that may be exchanged brings a
//! package.

use shade_formats::SampleId;

use super::Records;
use super::access::is_pinned;
use crate::block_size::charged_bytes;
use crate::figures::Figures;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::training::Jobs;

/// Reads in flight up to which one brings a package. The engine has a buffer for each of so many,
/// and beyond its buffers it reads record by record. With more in flight, operations are not the
/// limit.
pub const PACKAGES_MAX: usize = 48;

impl<M: Memory> Records<M> {
    /// Requests the records around `first`, which is about to be read for a job that keeps records
    /// in the cache.
    pub(super) fn bring_package(&mut self, job: JobId, first: SampleId, jobs: &Jobs, figures: &mut Figures) {
        let Some(packages) = &self.packages else { return };
        let exchanges = self.cache.properties().exchanges;
        if self.reading.flights.in_flight() >= PACKAGES_MAX
            || (exchanges && !self.cache.may_be_exchanged(first))
        {
            return;
        }
        let mut added = 0;
        // Blocks are taken when the read is submitted.
        let mut taken = 0;
        for id in packages.around(first, &*self.index) {
            let Some(entry) = self.index.entry(id) else { continue };
            let bytes = charged_bytes(entry.stored_len, self.block_bytes);
            if self.reading.is_pending(id) || !jobs.have(id) || !self.is_wanted(job, id, bytes, jobs) {
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
        figures.count(job, |counts| counts.prefetches += added);
    }

    /// Whether a record that comes along for `job` would be kept, and used.
    fn is_wanted(&mut self, job: JobId, sample: SampleId, bytes: u64, jobs: &Jobs) -> bool {
        let is_due = || jobs.get(job).is_some_and(|job| job.will_use(sample));
        if self.cache.properties().exchanges && self.cache.may_be_exchanged(sample) && !is_due() {
            return false;
        }
        self.cache.would_admit(sample, bytes, jobs.importance(), is_pinned::<M>)
    }
}
