//! When the uses of several jobs are due.
//!
//! A position of a plan says when a sample is used next, as long as there is one plan. Positions of
//! several jobs become times: a job that opens position p now, and takes `ns` for each, uses
//! position q at now + (q - p) ns. Times are predicted anew when they turn out to be wrong. With
//! one job no clock has an influence.

use super::Training;
use super::job::Job;
use crate::cache::Clock;
use crate::ids::{JobId, SessionId};

/// Share of an epoch by which a prediction may be wrong.
const ERROR_MAX: f64 = 0.01;
/// Change of a pace that makes predictions wrong.
const CHANGE_MAX: f64 = 0.2;
/// Predictions in an epoch of the fastest job, at most.
const PER_EPOCH: f64 = 64.0;
/// Shortest and longest time until the predictions are looked at again: to rank a large cache anew
/// takes a tenth of a second and more.
const LOOK_NS_MIN: f64 = 0.25e9;
const LOOK_NS_MAX: f64 = 10e9;

impl Training {
    /// Predicts when the uses of several jobs are due, now and then, for a cache that goes by next
    /// uses. `clock_of` is what it goes by now, and `batch_ns` how long a rank is at its batch.
    /// Returns new clocks if the old ones are wrong.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time below 10 s")]
    pub(crate) fn predict(
        &mut self,
        now_ns: u64,
        mut clock_of: impl FnMut(JobId) -> Clock,
        batch_ns: impl Fn(SessionId, bool) -> u64,
    ) -> Option<Vec<(JobId, Clock)>> {
        if now_ns < self.predict_at_ns {
            return None;
        }
        let are_several = self.jobs.are_several();
        let mut shortest_ns = LOOK_NS_MAX;
        let mut is_wrong = false;
        let mut clocks = Vec::new();
        for job in self.jobs.admitting().filter(|job| job.plan().is_some()) {
            let (clock, position) = (self.clock(job, now_ns, &batch_ns), self.position(job));
            let epoch_ns = clock.per() as f64 * job.known().plan.len() as f64;
            let old = clock_of(job.id);
            let error_ns = old.due(position).abs_diff(clock.due(position)) as f64;
            let change = (old.per() as f64 / clock.per() as f64 - 1.0).abs();
            is_wrong |= error_ns > ERROR_MAX * epoch_ns || change > CHANGE_MAX;
            is_wrong |= !are_several && old != clock;
            shortest_ns = shortest_ns.min(epoch_ns / PER_EPOCH).max(LOOK_NS_MIN);
            clocks.push((job.id, clock));
        }
        self.predict_at_ns = if are_several { now_ns.saturating_add(shortest_ns as u64) } else { u64::MAX };
        is_wrong.then_some(clocks)
    }

    /// The place that the job opens next.
    pub(super) fn position(&self, job: &Job) -> u32 {
        let opened = job.epoch().and_then(|epoch| self.next_batches(job.id, epoch).min());
        // Its ranks may be between two epochs.
        job.start(opened.unwrap_or(if job.plan().is_some() { u32::MAX } else { 0 }))
    }

    /// The clock of a job. See [`predict`](Self::predict).
    pub(super) fn clock(&self, job: &Job, now_ns: u64, batch_ns: &impl Fn(SessionId, bool) -> u64) -> Clock {
        if !self.jobs.are_several() {
            return Clock::POSITIONS;
        }
        let batch_ns = self.ranks_of(job.id).map(|rank| batch_ns(rank.id, rank.has_ended())).max();
        Clock::at(now_ns, self.position(job), job.pace.ns_per_position(batch_ns.unwrap_or(0)))
    }
}
