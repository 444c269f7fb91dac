//! Which records were prefetched and are not used yet.

use foldhash::{HashMap, HashSet};
use shade_formats::SampleId;

use crate::ids::JobId;

/// Prefetched records, from the request to the first use.
#[derive(Debug, Default)]
pub(super) struct Prefetched {
    /// Records in flight, with the bytes that they will take of the cache.
    pub(super) in_flight: HashMap<SampleId, u64>,
    /// Records in flight that came along with another one.
    along: HashSet<SampleId>,
    /// Records in the cache, each with the job that it was read for.
    unused: HashMap<SampleId, JobId>,
    /// By job: the position of its known accesses at which the search for the next prefetch goes
    /// on.
    at: HashMap<JobId, u32>,
}

impl Prefetched {
    /// The position of the job's known accesses at which the search for the next prefetch goes on.
    pub(super) fn at(&self, job: JobId) -> u32 {
        self.at.get(&job).copied().unwrap_or(0)
    }

    /// The search goes on at this position.
    pub(super) fn set_at(&mut self, job: JobId, at: u32) {
        self.at.insert(job, at);
    }

    /// The search goes on behind the position that was found last.
    pub(super) fn go_on(&mut self, job: JobId) {
        self.set_at(job, self.at(job).saturating_add(1));
    }

    /// The search begins anew, as the job has another plan, or is over, as the job has ended.
    pub(super) fn forget_search(&mut self, job: JobId) {
        self.at.remove(&job);
    }

    /// The search begins anew for all jobs: there may be room again for what had left.
    pub(super) fn search_anew(&mut self) {
        self.at.clear();
    }

    /// The sample is prefetched, and will take `bytes` of the cache.
    pub(super) fn request(&mut self, sample: SampleId, bytes: u64) {
        self.in_flight.insert(sample, bytes);
    }

    /// The sample comes along with another one that is read.
    pub(super) fn bring(&mut self, sample: SampleId) {
        self.along.insert(sample);
    }

    /// The sample is used or evicted. Returns the job that it was prefetched for, if it was.
    pub(super) fn take(&mut self, sample: SampleId) -> Option<JobId> {
        if self.unused.is_empty() { None } else { self.unused.remove(&sample) }
    }

    /// A row waits for the sample's read. Returns whether that is a prefetch, which came too late.
    pub(super) fn join(&mut self, sample: SampleId) -> bool {
        self.remove(sample)
    }

    fn remove(&mut self, sample: SampleId) -> bool {
        self.in_flight.remove(&sample).is_some() || self.along.remove(&sample)
    }

    /// A read has ended. Returns whether it is a prefetch that no row has waited for.
    pub(super) fn completed(&mut self, sample: SampleId, job: JobId, kept: bool) -> bool {
        let prefetched = self.remove(sample);
        if prefetched && kept {
            self.unused.insert(sample, job);
        }
        prefetched
    }
}
