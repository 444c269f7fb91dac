//! How fast a job's trainers compute, and whether they wait for batches.
//!
//! The cache compares uses of several jobs by time, so the pace of each turns its positions into
//! time. It is the time that trainers compute, without that in which they wait. Otherwise a job
//! that waits would count as slow, would get less of the cache, and would wait still more.

/// Share of the latest batch in the averages.
const LATEST: f64 = 1.0 / 16.0;
/// Time of a position before the first batch is computed. Jobs that begin together are equal.
const NS_PER_POSITION: f64 = 1e5;
/// A trainer has stopped if a batch takes longer than this many.
const STOPPED_BATCHES: f64 = 4.0;
/// Share of waiting below which it is not known well.
const WAITS_MIN: f64 = 0.05;

/// The pace of a job.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Positions of a batch of all ranks.
    positions: f64,
    /// Average time of a position, ns; `None` before the first batch.
    average_ns: Option<f64>,
    /// Share of batches that found room in the ring at once: the trainer waited for them.
    waits: f64,
}

impl Pace {
    /// The pace of a job whose ranks, `world_size`, have batches of `batch_size` rows each.
    pub(super) fn new(batch_size: u32, world_size: u32) -> Self {
        let positions = f64::from(batch_size) * f64::from(world_size);
        Self { positions, average_ns: None, waits: 1.0 }
    }

    /// A batch was opened, after a wait for room in the ring or without.
    pub(super) fn opened(&mut self, waited_for_room: bool) {
        let waits = if waited_for_room { 0.0 } else { 1.0 };
        self.waits += LATEST * (waits - self.waits);
    }

    /// A rank has computed a batch in this time.
    pub(super) fn computed(&mut self, batch_ns: u64) {
        let latest_ns = batch_ns as f64 / self.positions;
        let average_ns = self.average_ns.get_or_insert(latest_ns);
        *average_ns += LATEST * (latest_ns - *average_ns);
    }

    /// Average time of a position, ns.
    pub(super) fn average_ns(&self) -> f64 {
        self.average_ns.unwrap_or(NS_PER_POSITION)
    }

    /// Average time of a batch of all ranks, ns.
    pub(super) fn batch_ns(&self) -> f64 {
        self.average_ns() * self.positions
    }

    /// Time of a position, ns, where a rank is at a batch for `batch_ns` by now. A trainer that has
    /// stopped becomes slower and slower.
    pub(super) fn ns_per_position(&self, batch_ns: u64) -> f64 {
        self.average_ns().max(batch_ns as f64 / self.positions / STOPPED_BATCHES)
    }

    /// The job's weight among others: what it gains by the cache, times its speed.
    pub(super) fn weight(&self) -> f64 {
        self.waits.max(WAITS_MIN) / self.average_ns().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(batch_ns: u64) -> Pace {
        let mut pace = Pace::new(10, 2);
        (0..100).for_each(|_| pace.computed(batch_ns));
        pace
    }

    #[test]
    fn the_pace_follows_the_trainer() {
        let mut pace = pace(2_000);
        assert!((pace.ns_per_position(0) - 100.0).abs() < 1e-6);
        (0..100).for_each(|_| pace.computed(8_000));
        assert!((pace.ns_per_position(8_000) - 400.0).abs() < 2.0);
    }

    #[test]
    fn a_stopped_trainer_becomes_slower_with_time() {
        let pace = pace(2_000);
        assert!((pace.ns_per_position(7_000) - 100.0).abs() < 1e-6, "a long batch is no stop");
        assert!(pace.ns_per_position(1_000_000) > 1e4 && pace.ns_per_position(1_000_000_000) > 1e7);
    }

    #[test]
    fn fast_jobs_that_wait_weigh_more() {
        let (slow, fast, mut full) = (pace(10_000), pace(1_000), pace(1_000));
        (0..200).for_each(|_| full.opened(true));
        assert!(fast.weight() > 9.0 * slow.weight() && fast.weight() > 9.0 * full.weight());
    }
}
