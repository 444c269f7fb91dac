//! Jobs of a group wait for each other at an epoch's start, a little.
//!
//! Their plans are coupled, so they read least where they go side by side. A job that is ahead
//! waits if it takes a twentieth of an epoch at most. A job that is further behind is left behind:
//! then they lose what they share, and nothing else.

use super::Training;
use super::job::Job;
use crate::ids::JobId;

/// Longest wait, as a share of the epoch's time.
const WAIT_SHARE: f64 = 0.05;

impl Training {
    /// Whether a job whose ranks all want its next epoch waits for others of its group.
    pub(super) fn waits_for_group(&mut self, id: JobId, now_ns: u64) -> bool {
        let Some(job) = self.jobs.get(id) else { return false };
        let Some(epoch) = job.epoch() else { return false };
        let limit_ns = WAIT_SHARE * job.pace.average_ns() * job.known().plan.len() as f64;
        let since_ns = job.waits_since_ns.unwrap_or(now_ns);
        let left_ns = limit_ns - now_ns.saturating_sub(since_ns) as f64;
        let is_expected = |other: &Job| {
            other.epoch() == Some(epoch) && !self.is_due(other) && self.left_ns(other, epoch) <= left_ns
        };
        let waits = left_ns > 0.0 && self.jobs.of_group(job).any(is_expected);
        if let Some(job) = self.jobs.get_mut(id).filter(|_| waits) {
            job.waits_since_ns = Some(since_ns);
        }
        waits
    }

    /// Time that the job will take to open what is left of its epoch.
    fn left_ns(&self, job: &Job, epoch: u32) -> f64 {
        // Its ranks may be between two epochs.
        let opened = self.next_batches(job.id, epoch).min().unwrap_or(u32::MAX);
        let left = job.known().plan.len().saturating_sub(job.start(opened) as usize);
        left as f64 * job.pace.average_ns()
    }
}
