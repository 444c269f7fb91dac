//! The jobs that share the cache.
//!
//! With one job on all of the dataset the cache goes by its table of importance. With several, or
//! with one on a subset, it goes by a table of their aggregate: a(i) = Σ b s r(i) / Σ b s, over the
//! jobs that may keep records in it (iCACHE). r(i) is the sample's relative importance in a job,
//! the quantile of its loss, or 0 if it is not of the job's subset; s are the job's samples a
//! second; b is the share of its batches that its trainer waits for. A sample's uses are those of
//! all jobs together.

use shade_formats::SampleId;

use super::job::Job;
use crate::ids::JobId;
use crate::importance::{Importance, quantile_of, score_at};
use crate::number::to_u32;

/// Change of a weight with which the aggregate is made anew.
const WEIGHT_CHANGE: f64 = 1.25;

/// Scores of samples in jobs that one slice of the aggregate is made of: some milliseconds.
const SLICE_SCORES: usize = 1 << 18;

/// A new aggregate, which is made in slices.
struct NextAggregate {
    table: Importance,
    /// Samples below have their scores.
    made: u32,
}

/// All jobs.
pub(crate) struct Jobs {
    list: Vec<Job>,
    next: JobId,
    /// A job is there that asks to keep its records in the cache.
    is_training: bool,
    /// The table of their aggregate, while several jobs keep records in the cache, or one job on a
    /// subset.
    aggregate: Option<Importance>,
    /// The one that takes its place.
    next_aggregate: Option<NextAggregate>,
    /// The weights that the latest one is made with.
    weights: Vec<(JobId, f64)>,
    /// The table that the cache goes by while there is no such job.
    none: Importance,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            next: 0,
            is_training: false,
            aggregate: None,
            next_aggregate: None,
            weights: Vec::new(),
            none: Importance::new(0),
        }
    }
}

impl Jobs {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.list.iter().find(|job| job.id == id)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.list.iter_mut().find(|job| job.id == id)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Job> {
        self.list.iter().find(|job| job.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.list.iter_mut()
    }

    /// The jobs that keep records in the cache.
    pub(crate) fn admitting(&self) -> impl Iterator<Item = &Job> {
        self.list.iter().filter(|job| self.admits(job))
    }

    /// The other jobs of the job's group, if it is in one.
    pub(super) fn of_group<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Job> {
        let group = job.spec.plan.group;
        self.list
            .iter()
            .filter(move |other| group != 0 && other.spec.plan.group == group && other.id != job.id)
    }

    /// Whether several jobs keep records in the cache.
    pub(super) fn are_several(&self) -> bool {
        self.admitting().nth(1).is_some()
    }

    /// Their numbers.
    pub(crate) fn admitting_ids(&self) -> Vec<JobId> {
        self.admitting().map(|job| job.id).collect()
    }

    /// Whether the job keeps records in the cache. One that leaves the cache to others has it while
    /// there are none: a dataset that is only validated would never be cached else.
    pub(crate) fn admits(&self, job: &Job) -> bool {
        job.spec.admit || !self.is_training
    }

    /// Whether the job of this number keeps records in the cache.
    pub(crate) fn admits_job(&self, id: JobId) -> bool {
        self.get(id).is_some_and(|job| self.admits(job))
    }

    /// Whether a job that keeps records in the cache may use the sample. Otherwise ranks on other
    /// nodes have it.
    pub(crate) fn have(&self, sample: SampleId) -> bool {
        self.admitting().any(|job| job.has(sample))
    }

    /// The number of the next job.
    pub(super) fn next_id(&self) -> JobId {
        self.next
    }

    /// Adds a job with the number [`next_id`](Self::next_id).
    pub(super) fn add(&mut self, job: Job) {
        self.next = self.next.wrapping_add(1);
        self.list.push(job);
        self.count_training();
    }

    pub(super) fn remove(&mut self, id: JobId) {
        self.list.retain(|job| job.id != id);
        if self.weights.iter().any(|&(job, _)| job == id) {
            self.next_aggregate = None;
        }
        self.count_training();
    }

    fn count_training(&mut self) {
        self.is_training = self.list.iter().any(|job| job.spec.admit);
    }

    /// The table of importance that the cache goes by.
    pub(crate) fn importance(&self) -> &Importance {
        let only = || self.admitting().next().map_or(&self.none, |job| &job.importance);
        self.aggregate.as_ref().unwrap_or_else(only)
    }

    /// `job` has used a resident.
    pub(super) fn record_hit(&mut self, job: JobId, sample: SampleId) {
        if let Some(job) = self.get_mut(job) {
            job.importance.record_hit(sample);
        }
        for aggregate in self.tables_of(sample) {
            aggregate.record_hit(sample);
        }
    }

    /// The tables of the aggregate that have the sample.
    fn tables_of(&mut self, sample: SampleId) -> impl Iterator<Item = &mut Importance> {
        let has_it = |next: &&mut NextAggregate| sample.0 < next.made;
        let next = self.next_aggregate.as_mut().filter(has_it).map(|next| &mut next.table);
        self.aggregate.iter_mut().chain(next)
    }

    /// The sample's score has changed in a job.
    pub(super) fn aggregate(&mut self, sample: SampleId) {
        if self.aggregate.is_some() || self.next_aggregate.is_some() {
            let score = self.aggregate_score(sample);
            self.tables_of(sample).for_each(|table| table.set_score(sample, score));
        }
    }

    /// Jobs, their tables or their weights have changed: a new aggregate is made, if there is one.
    /// The caller calls [`go_on_aggregating`](Self::go_on_aggregating) until that is done.
    pub(super) fn aggregate_anew(&mut self) {
        self.next_aggregate = None;
        self.weights = self.admitting().map(|job| (job.id, job.pace.weight())).collect();
        // One job on a subset has it, too: by its own table, what it does not use would be worth as
        // much as what it has not seen yet.
        if !self.are_several() && !self.admitting().any(|job| job.strata.subset().is_some()) {
            self.aggregate = None;
            return;
        }
        let samples = self.admitting().map(|job| job.importance.len()).max().unwrap_or(0);
        self.next_aggregate = Some(NextAggregate { table: Importance::new(samples), made: 0 });
    }

    /// Makes a slice of the new aggregate. Returns whether there is more to make.
    pub(super) fn go_on_aggregating(&mut self) -> bool {
        let Some(NextAggregate { mut table, made }) = self.next_aggregate.take() else { return false };
        let slice = to_u32(SLICE_SCORES / self.weights.len().max(1));
        let end = made.saturating_add(slice).min(table.len());
        for sample in (made..end).map(SampleId) {
            table.set_score(sample, self.aggregate_score(sample));
            let uses = self.admitting().map(|job| job.importance.uses(sample));
            table.set_uses(sample, uses.fold(0, u32::saturating_add));
        }
        if end < table.len() {
            self.next_aggregate = Some(NextAggregate { table, made: end });
            return true;
        }
        self.aggregate = Some(table);
        false
    }

    /// Whether a new aggregate is being made.
    pub(crate) fn are_aggregating(&self) -> bool {
        self.next_aggregate.is_some()
    }

    fn aggregate_score(&self, sample: SampleId) -> f32 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for &(job, weight) in &self.weights {
            let Some(job) = self.get(job) else { continue };
            if job.strata.has(sample) {
                sum += weight * quantile_of(job.importance.score(sample));
            }
            weights += weight;
        }
        score_at(sum / weights)
    }

    /// Whether weights are far from those that the aggregate was made with.
    pub(crate) fn have_changed(&self) -> bool {
        let has_changed = |&(id, before): &(JobId, f64)| {
            let now = self.get(id).map_or(before, |job| job.pace.weight());
            !(1.0 / WEIGHT_CHANGE..=WEIGHT_CHANGE).contains(&(now / before))
        };
        // The weight of one job alone changes nothing.
        self.weights.len() > 1 && self.weights.iter().any(has_changed)
    }
}

#[cfg(test)]
mod tests {
    use shade_job::{JobSpec, Tables};

    use super::*;
    use crate::lens::{Lens, SAMPLES};

    /// A job that finds one sample hard, and whose trainer waits for batches or not.
    fn job(id: JobId, hard: u32, waits: bool) -> Job {
        let spec = JobSpec { batch_size: 1, ring_bytes: 1 << 20, ..JobSpec::default() };
        let mut job = Job::new(id, id.to_string(), spec, Tables::default(), &Lens, 0).ok().unwrap();
        for sample in 0..SAMPLES {
            job.importance.set_score(SampleId(sample), score_at(if sample == hard { 1.0 } else { 0.0 }));
        }
        (0..200).for_each(|_| job.pace.opened(!waits));
        job
    }

    #[test]
    fn the_job_that_gains_by_the_cache_decides_what_is_worth_keeping() {
        for waits in [0, 1] {
            let mut jobs = Jobs::default();
            jobs.add(job(0, 0, waits == 0));
            jobs.add(job(1, 1, waits == 1));
            jobs.aggregate_anew();
            while jobs.go_on_aggregating() {}
            let scores = [0, 1].map(|sample| jobs.importance().score(SampleId(sample)));
            assert!(scores[waits] > scores[1 - waits], "job {waits} waits for batches: {scores:?}");
        }
    }
}
