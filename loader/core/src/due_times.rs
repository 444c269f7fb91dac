//! When the uses of several jobs are due.
//!
//! A position of a plan says when a sample is used next, as long as there is one plan. Positions of
//! several jobs become times: a job that opens position p now, and takes `ns` for each, uses
//! position q at now + (q - p) ns. Times are predicted anew when they turn out to be wrong. With
//! one job no clock has an influence.

use crate::brain::Core;
use crate::cache::Clock;
use crate::job::Job;
use crate::memory::Memory;
use crate::rank::{Rank, next_batches};

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

impl<M: Memory> Core<M> {
    /// Predicts when the uses of several jobs are due, now and then.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time below 10 s")]
    pub(super) fn predict(&mut self, now_ns: u64) {
        if now_ns < self.predict_at_ns || !self.records.policy().looks_ahead {
            return;
        }
        let are_several = self.jobs.are_several();
        let clocks: Vec<_> = self
            .jobs
            .admitting()
            .filter(|job| job.plan.is_some())
            .map(|job| {
                let (clock, position) = self.clock(job, now_ns);
                (job.id, clock, position, clock.per() as f64 * job.known().plan.len() as f64)
            })
            .collect();
        let mut shortest_ns = LOOK_NS_MAX;
        let mut is_wrong = false;
        for &(job, clock, position, epoch_ns) in &clocks {
            let old = self.records.clock(job);
            let error_ns = old.due(position).abs_diff(clock.due(position)) as f64;
            let change = (old.per() as f64 / clock.per() as f64 - 1.0).abs();
            is_wrong |= error_ns > ERROR_MAX * epoch_ns || change > CHANGE_MAX;
            is_wrong |= !are_several && old != clock;
            shortest_ns = shortest_ns.min(epoch_ns / PER_EPOCH).max(LOOK_NS_MIN);
        }
        if is_wrong {
            self.records.set_clocks(clocks.iter().map(|&(job, clock, ..)| (job, clock)));
            self.records.rank_anew(self.jobs.importance());
        }
        self.predict_at_ns = if are_several { now_ns.saturating_add(shortest_ns as u64) } else { u64::MAX };
    }

    /// The clock of a job, and the position that it opens next.
    pub(super) fn clock(&self, job: &Job, now_ns: u64) -> (Clock, u32) {
        let opened = job.epoch().and_then(|epoch| next_batches(&self.ranks, job.id, epoch).min());
        // Its ranks may be between two epochs.
        let position = job.start(opened.unwrap_or(if job.plan.is_some() { u32::MAX } else { 0 }));
        if !self.jobs.are_several() {
            return (Clock::POSITIONS, position);
        }
        let ranks = self.ranks.iter().filter(|rank| rank.job == job.id);
        let batch_ns = |rank: &Rank| self.batches.batch_ns(rank.id, now_ns, rank.has_ended());
        let batch_ns = ranks.map(batch_ns).max().unwrap_or(0);
        (Clock::at(now_ns, position, job.pace.ns_per_position(batch_ns)), position)
    }
}
