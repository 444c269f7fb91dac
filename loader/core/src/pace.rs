//! How fast a job's trainers take batches, and whether they wait for them.
//!
//! The cache compares uses of several jobs by time. So the pace of each turns its positions into
//! time.

/// Batches of all ranks in an interval that is measured.
const INTERVAL_BATCHES: u64 = 4;
/// Share of the latest interval in the average.
const LATEST: f64 = 0.25;
/// Time of a position before the first interval has ended. Jobs that begin together are equal.
const NS_PER_POSITION: f64 = 1e5;
/// Share of waiting below which it is not known well.
const WAITS_MIN: f64 = 0.05;

/// The pace of a job.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Positions of an interval.
    interval: u64,
    /// Average time of a position, ns; `None` before the first interval.
    average_ns: Option<f64>,
    /// When the interval under way began; `None` before the epoch's first release.
    since_ns: Option<u64>,
    /// Positions released in it.
    positions: u64,
    /// Share of batches that found room in the ring at once: the trainer waited for them.
    waits: f64,
}

impl Pace {
    /// Of a job with `batch_size` rows in the batches of each of `world_size` ranks.
    pub(super) fn new(batch_size: u32, world_size: u32) -> Self {
        let interval = INTERVAL_BATCHES * u64::from(batch_size) * u64::from(world_size);
        Self { interval, average_ns: None, since_ns: None, positions: 0, waits: 1.0 }
    }

    /// An epoch begins. The time between epochs is no pace.
    pub(super) fn begin_epoch(&mut self) {
        (self.since_ns, self.positions) = (None, 0);
    }

    /// A batch was opened, after a wait for room in the ring or without.
    pub(super) fn opened(&mut self, waited_for_room: bool) {
        let waits = if waited_for_room { 0.0 } else { 1.0 };
        self.waits += LATEST / 8.0 * (waits - self.waits);
    }

    /// A trainer has released batches with `positions` rows.
    pub(super) fn released(&mut self, now_ns: u64, positions: u64) {
        let Some(since_ns) = self.since_ns else {
            self.since_ns = Some(now_ns);
            return;
        };
        self.positions += positions;
        if self.positions >= self.interval {
            let latest_ns = now_ns.saturating_sub(since_ns) as f64 / self.positions as f64;
            let average_ns = self.average_ns.get_or_insert(latest_ns);
            *average_ns += LATEST * (latest_ns - *average_ns);
            (self.since_ns, self.positions) = (Some(now_ns), 0);
        }
    }

    /// Average time of a position, ns.
    pub(super) fn average_ns(&self) -> f64 {
        self.average_ns.unwrap_or(NS_PER_POSITION)
    }

    /// Time of a position, ns. A trainer that has stopped becomes slower and slower.
    pub(super) fn ns_per_position(&self, now_ns: u64) -> f64 {
        let stopped_ns = self.since_ns.map_or(0.0, |since_ns| {
            now_ns.saturating_sub(since_ns) as f64 / (self.positions + self.interval) as f64
        });
        self.average_ns().max(stopped_ns)
    }

    /// The job's weight among others: what it gains by the cache, times its speed.
    pub(super) fn weight(&self) -> f64 {
        self.waits.max(WAITS_MIN) / self.average_ns().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 batches of 10 rows, one every `batch_ns`.
    fn train(pace: &mut Pace, from_ns: u64, batch_ns: u64) -> u64 {
        pace.begin_epoch();
        (0..100)
            .map(|batch| from_ns + batch * batch_ns)
            .inspect(|&now_ns| pace.released(now_ns, 10))
            .last()
            .unwrap()
    }

    #[test]
    fn the_pace_follows_the_trainer_and_not_the_pauses_between_epochs() {
        let mut pace = Pace::new(10, 1);
        let end_ns = train(&mut pace, 0, 1_000);
        assert!((pace.ns_per_position(end_ns) - 100.0).abs() < 1.0);
        let end_ns = train(&mut pace, 1_000_000_000, 1_000);
        assert!((pace.ns_per_position(end_ns) - 100.0).abs() < 1.0);
        let end_ns = train(&mut pace, 2_000_000_000, 4_000);
        assert!((pace.ns_per_position(end_ns) - 400.0).abs() < 10.0);
    }

    #[test]
    fn a_stopped_trainer_becomes_slower_with_time() {
        let mut pace = Pace::new(10, 1);
        let end_ns = train(&mut pace, 0, 1_000);
        let after = |ns| pace.ns_per_position(end_ns + ns);
        assert!(after(1_000_000) > 1e4 && after(1_000_000_000) > 1e7);
    }

    #[test]
    fn fast_jobs_that_wait_weigh_more() {
        let (mut slow, mut fast, mut full) = (Pace::new(10, 1), Pace::new(10, 1), Pace::new(10, 1));
        train(&mut slow, 0, 10_000);
        train(&mut fast, 0, 1_000);
        train(&mut full, 0, 1_000);
        (0..200).for_each(|_| full.opened(true));
        assert!(fast.weight() > 9.0 * slow.weight() && fast.weight() > 9.0 * full.weight());
    }
}
