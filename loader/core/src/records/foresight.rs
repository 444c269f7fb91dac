//! What the cache and the tier are told: next uses, scores, jobs that come and go.

use shade_formats::SampleId;

use super::Records;
use super::windows::Windows;
use crate::cache::Clock;
use crate::ids::JobId;
use crate::importance::Importance;
use crate::memory::Memory;
use crate::training::Jobs;

/// Residents that are ranked at once: some ms, with the next uses of several jobs.
const RANKED_AT_ONCE: u32 = 8192;

impl<M: Memory> Records<M> {
    /// `job` uses the sample now, and next at this position of its plan.
    pub(crate) fn use_at(
        &mut self,
        job: JobId,
        sample: SampleId,
        next: Option<u32>,
        importance: &Importance,
    ) {
        self.cache.use_at(job, sample, next);
        self.tier.use_at(job, sample, next, importance);
    }

    /// The use at `position` of the job's plan has come into sight.
    pub(crate) fn see(&mut self, job: JobId, sample: SampleId, position: u32, importance: &Importance) {
        self.cache.see(job, sample, position, importance);
        self.tier.see(job, sample, position, importance);
    }

    /// The job looks ahead over another plan, whose positions are due by this clock.
    pub(crate) fn begin_plan(&mut self, job: JobId, clock: Clock) {
        self.cache.set_clock(job, clock);
        self.cache.forget_uses(job);
        self.tier.begin_plan(job, clock);
        self.prefetched.forget_search(job);
    }

    /// When the job's positions are due.
    pub(crate) fn clock(&mut self, job: JobId) -> Clock {
        self.cache.clock(job)
    }

    /// When the positions of these jobs are due.
    pub(crate) fn set_clocks(&mut self, clocks: impl Iterator<Item = (JobId, Clock)> + Clone) {
        clocks.clone().for_each(|(job, clock)| self.cache.set_clock(job, clock));
        self.tier.set_clocks(clocks);
    }

    /// The sample's score has changed.
    pub(crate) fn rescore(&mut self, sample: SampleId, importance: &Importance) {
        self.cache.rescore(sample, importance);
        self.tier.rescore(sample, importance);
    }

    /// An epoch begins. `high` says which samples have high importance now.
    pub(crate) fn begin_epoch(&mut self, jobs: &Jobs, high: impl FnOnce() -> Vec<bool>) {
        self.cache.begin_epoch(|sample| jobs.have(sample), high);
    }

    /// The first job begins: records may come along with others again.
    pub(crate) fn begin_jobs(&mut self) {
        self.windows.iter_mut().for_each(Windows::forget_brought);
    }

    /// The job does not keep records in the cache any more. [`rank_anew`](Self::rank_anew) follows.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.cache.forget_job(job);
        self.tier.forget_job(job);
    }

    /// The job has ended: nothing is read for it any more.
    pub(crate) fn end_job(&mut self, job: JobId) {
        for sample in self.reading.end_job(job, &*self.index) {
            self.prefetched.join(sample);
        }
        self.prefetched.forget_search(job);
    }

    /// All residents are ranked anew, some of them at once: all of a small cache.
    pub(crate) fn rank_anew(&mut self, importance: &Importance) {
        self.cache.rank_anew();
        self.tier.rank_anew();
        self.rank_on(importance);
    }

    /// Goes on to rank residents anew. Returns whether there are more.
    pub(crate) fn rank_on(&mut self, importance: &Importance) -> bool {
        let of_cache = self.cache.rank_on(RANKED_AT_ONCE, importance);
        self.tier.rank_on(RANKED_AT_ONCE, importance) || of_cache
    }

    /// The cache has another capacity: its residents are kept ranked, unless it has room for all
    /// samples.
    pub(super) fn keep_ranked(&mut self) {
        self.cache.keep_ranked(self.cache.capacity_bytes() < self.all_bytes);
    }

    /// Whether another sample may stand in for this one, which is neither here nor on its way.
    pub(crate) fn wants_stand_in(&self, sample: SampleId) -> bool {
        self.cache.wants_stand_in(sample) && !self.reading.is_pending(sample)
    }

    /// Whether the sample is here, and may stand in for another.
    pub(crate) fn may_stand_in(&self, sample: SampleId) -> bool {
        self.cache.may_stand_in(sample)
    }

    /// Whether what came along with others may stand in for samples.
    pub(crate) fn brings_stand_ins(&self) -> bool {
        self.packages.is_some()
    }
}
