//! The table of next uses: for each sample the position in each job's plan at which it is used
//! next, and the time at which that is due.

use shade_formats::SampleId;

/// Not known.
const UNKNOWN: u32 = u32::MAX;
/// Longest time of a position: then a time fits into 63 bits.
const PER_MAX: u64 = 1 << 31;

/// When the positions of a job's plan are due. Only the order of times matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Time of position 0, which may have been before the clock's start.
    start: i64,
    /// Time of a position.
    per: u64,
}

impl Clock {
    /// Times are positions: right for a single job.
    pub const POSITIONS: Self = Self { start: 0, per: 1 };

    /// Position `position` is due at `now_ns`, and each one takes `ns_per_position`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn at(now_ns: u64, position: u32, ns_per_position: f64) -> Self {
        let per = (ns_per_position as u64).clamp(1, PER_MAX);
        let since_start = i64::try_from(u64::from(position) * per).unwrap_or(i64::MAX);
        Self { start: i64::try_from(now_ns).unwrap_or(i64::MAX).saturating_sub(since_start), per }
    }

    /// The time of a position.
    #[must_use]
    pub fn per(self) -> u64 {
        self.per
    }

    /// When a position is due, below 2^63. Positions before the clock's start are due at 0.
    #[must_use]
    pub fn due(self, position: u32) -> u64 {
        let after_start = i64::try_from(u64::from(position) * self.per).unwrap_or(i64::MAX);
        u64::try_from(self.start.saturating_add(after_start)).unwrap_or(0)
    }
}

/// Positions of one job's plan by sample id.
struct OfJob {
    job: u32,
    clock: Clock,
    /// Empty while nothing is known.
    positions: Vec<u32>,
}

impl OfJob {
    fn due(&self, id: SampleId) -> Option<u64> {
        let position = self.positions.get(id.index()).copied().filter(|&position| position != UNKNOWN)?;
        Some(self.clock.due(position))
    }
}

/// The next uses by all jobs.
pub(super) struct NextUses {
    samples: u32,
    jobs: Vec<OfJob>,
}

impl NextUses {
    /// An empty table for samples `0..samples`. It takes 4 bytes a sample for each job of which
    /// anything is known.
    pub(super) fn new(samples: u32) -> Self {
        Self { samples, jobs: Vec::new() }
    }

    /// When the sample is used next, by the job that uses it first.
    pub(super) fn due(&self, id: SampleId) -> Option<u64> {
        match self.jobs.as_slice() {
            [of] => of.due(id),
            jobs => jobs.iter().filter_map(|of| of.due(id)).min(),
        }
    }

    pub(super) fn set(&mut self, job: u32, id: SampleId, position: Option<u32>) {
        if let Some(slot) = self.slot(job, id) {
            *slot = position.unwrap_or(UNKNOWN);
        }
    }

    /// Returns whether no use of the sample by `job` was known.
    pub(super) fn set_if_unknown(&mut self, job: u32, id: SampleId, position: u32) -> bool {
        let unknown = self.slot(job, id).filter(|slot| **slot == UNKNOWN);
        unknown.map(|slot| *slot = position).is_some()
    }

    fn slot(&mut self, job: u32, id: SampleId) -> Option<&mut u32> {
        let samples = self.samples as usize;
        let of = self.of_job(job);
        if of.positions.is_empty() {
            of.positions.resize(samples, UNKNOWN);
        }
        of.positions.get_mut(id.index())
    }

    /// Forgets all positions of `job` and frees their memory: drawing the next plan and looking
    /// through it needs as much for a while.
    pub(super) fn clear(&mut self, job: u32) {
        self.of_job(job).positions = Vec::new();
    }

    /// Forgets all of `job`.
    pub(super) fn forget(&mut self, job: u32) {
        self.jobs.retain(|of| of.job != job);
    }

    pub(super) fn clock(&self, job: u32) -> Clock {
        self.jobs.iter().find(|of| of.job == job).map_or(Clock::POSITIONS, |of| of.clock)
    }

    pub(super) fn set_clock(&mut self, job: u32, clock: Clock) {
        self.of_job(job).clock = clock;
    }

    fn of_job(&mut self, job: u32) -> &mut OfJob {
        let at = self.jobs.iter().position(|of| of.job == job).unwrap_or_else(|| {
            self.jobs.push(OfJob { job, clock: Clock::POSITIONS, positions: Vec::new() });
            self.jobs.len() - 1
        });
        &mut self.jobs[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_that_uses_a_sample_first_decides() {
        let mut uses = NextUses::new(3);
        uses.set(7, SampleId(1), Some(100));
        assert_eq!((uses.due(SampleId(1)), uses.due(SampleId(0))), (Some(100), None));
        // Job 8 is at position 50, ten times as fast as job 7, which is at position 90.
        uses.set_clock(7, Clock::at(1_000, 90, 10.0));
        uses.set_clock(8, Clock::at(1_000, 50, 1.0));
        uses.set(8, SampleId(1), Some(120));
        assert_eq!(uses.due(SampleId(1)), Some(1_070));
        uses.set(8, SampleId(1), Some(180));
        assert_eq!(uses.due(SampleId(1)), Some(1_100));
        assert!(!uses.set_if_unknown(8, SampleId(1), 170) && uses.set_if_unknown(8, SampleId(2), 170));
        uses.forget(7);
        assert_eq!(uses.due(SampleId(1)), Some(1_130));
        uses.clear(8);
        assert_eq!(uses.due(SampleId(1)), None);
    }

    #[test]
    fn times_keep_the_order_of_positions_even_at_the_ends() {
        for clock in [Clock::POSITIONS, Clock::at(0, u32::MAX, 1e18), Clock::at(u64::MAX, 0, 1e18)] {
            let dues = [0, 1, 1_000, u32::MAX].map(|position| clock.due(position));
            assert!(dues.is_sorted() && dues[3] < 1 << 63, "{dues:?}");
        }
        let clock = Clock::at(5_000, 1_000, 1.0);
        assert_eq!((clock.due(1_000), clock.due(1_010)), (5_000, 5_010));
    }
}
