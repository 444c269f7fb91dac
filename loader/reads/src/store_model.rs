//! A simulated store: its slots, latencies, link and faults, as pure functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Add;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal, StandardUniform};
use rustix::io::Errno;
use shade_formats::ShardId;

/// A simulated store.
///
/// A read waits for one of the store's slots and takes its latency. Then its bytes pass one link,
/// after those of the reads answered before. Its fate depends only on seed, shard, offset and how
/// often it was tried, not on other reads or timing.
///
/// As text: `latency=2ms,bandwidth=1Gbit,depth=32`, all parts optional: `latency=TIME` or
/// `latency=lognormal:MEDIAN:SIGMA`, `bandwidth=RATE`, `depth=SLOTS`, `seed=N`,
/// `clock=real|virtual`, and shares of reads that come back `short`, with `eintr`, `eagain`, `eio`,
/// `estale`, or are `stuck` for 30 s (`short=1%`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreModel {
    /// Latency of a read once it has a slot.
    pub latency: LatencyModel,
    /// Bytes a second that pass the link; `None` is no limit.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Reads that are served at a time; `None` is no limit.
    pub slots: Option<u32>,
    /// Faults of reads.
    pub faults: FaultShares,
    /// Whether answers are waited for.
    pub clock: ClockModel,
    /// Decides latencies and faults.
    pub seed: u64,
}

/// Latencies of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyModel {
    /// Always the same.
    Fixed(Duration),
    /// Half of the reads stay within `median`; the logarithm varies by `sigma`.
    LogNormal {
        /// The median.
        median: Duration,
        /// Standard deviation of the natural logarithm: 0.5 is a busy network, 1 an object store.
        sigma: f64,
    },
}

/// Shares of the tries, 0 to 1, to which each of these happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultShares {
    /// It brings fewer bytes than were asked for.
    pub short: f64,
    /// EINTR.
    pub interrupted: f64,
    /// EAGAIN.
    pub again: f64,
    /// EIO.
    pub io: f64,
    /// ESTALE.
    pub stale: f64,
    /// The answer takes [`STUCK`] longer.
    pub stuck: f64,
}

/// The clock of a simulated store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockModel {
    /// The machine's: an answer comes when it is due.
    Real,
    /// Its own, which jumps to the next answer: hours of reading pass in seconds.
    Virtual,
}

/// Extra latency of a stuck read.
pub const STUCK: Duration = Duration::from_secs(30);

impl Default for StoreModel {
    /// A near file server: 1 ms for everything.
    fn default() -> Self {
        Self {
            latency: LatencyModel::Fixed(Duration::from_millis(1)),
            bandwidth_bytes_per_s: None,
            slots: None,
            faults: FaultShares::default(),
            clock: ClockModel::Real,
            seed: 0,
        }
    }
}

/// The store's answer to one try of a read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) latency: Duration,
    pub(super) fate: Fate,
}

/// How a try ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// As a real read would.
    Whole,
    /// With this share of the bytes, more than 0 and less than 1.
    Short(f64),
    /// With an error.
    Error(Errno),
}

impl StoreModel {
    /// The answer to the `tried`-th try (from 0) of the read at `offset` in `shard`.
    pub(super) fn answer(&self, shard: ShardId, offset: u64, tried: u32) -> Answer {
        let mut seed = [0; 32];
        let parts = [self.seed, u64::from(shard.0), offset, u64::from(tried)];
        for (to, part) in seed.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&part.to_le_bytes());
        }
        let mut rng = ChaCha8Rng::from_seed(seed);
        let mut uniform = || -> f64 { StandardUniform.sample(&mut rng) };
        let (mut dice, part) = (uniform(), uniform());
        let faults = [
            (self.faults.short, Fate::Short(part.clamp(0.001, 0.999))),
            (self.faults.interrupted, Fate::Error(Errno::INTR)),
            (self.faults.again, Fate::Error(Errno::AGAIN)),
            (self.faults.io, Fate::Error(Errno::IO)),
            (self.faults.stale, Fate::Error(Errno::STALE)),
        ];
        let mut fate = None;
        for (share, then) in faults {
            if fate.is_none() && dice < share {
                fate = Some(then);
            }
            dice -= share;
        }
        let stuck = fate.is_none() && (0.0..self.faults.stuck).contains(&dice);
        let latency = match self.latency {
            LatencyModel::Fixed(latency) => latency,
            LatencyModel::LogNormal { median, sigma } => LogNormal::new(0.0, sigma)
                .ok()
                .and_then(|spread| {
                    Duration::try_from_secs_f64(median.as_secs_f64() * spread.sample(&mut rng)).ok()
                })
                .unwrap_or(median),
        };
        let latency = if stuck { latency + STUCK } else { latency };
        Answer { latency, fate: fate.unwrap_or(Fate::Whole) }
    }

    /// Latency of the `number`-th of many reads. Faults other than `stuck` do not count.
    #[must_use]
    pub fn latency_of(&self, number: u64) -> Duration {
        match self.latency {
            LatencyModel::Fixed(latency) if self.faults.stuck <= 0.0 => latency,
            _ => self.answer(ShardId(0), number, 0).latency,
        }
    }
}

/// The store's slots and link: when it answers. `T` is a point in time: the machine's `Instant`, or
/// the time since the start of a simulation.
#[derive(Debug)]
pub struct Queues<T> {
    /// When each slot that was ever used is free again.
    slots: BinaryHeap<Reverse<T>>,
    link_free: Option<T>,
}

impl<T: Ord> Default for Queues<T> {
    fn default() -> Self {
        Self { slots: BinaryHeap::new(), link_free: None }
    }
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Queues<T> {
    /// When a read of `bytes` is answered that arrives `now` and takes `latency`. Call this in the
    /// order of arrival.
    pub fn answer_at(&mut self, model: &StoreModel, now: T, latency: Duration, bytes: u64) -> T {
        let mut served = now;
        if let Some(slots) = model.slots {
            if self.slots.len() >= slots.max(1) as usize
                && let Some(Reverse(free)) = self.slots.pop()
            {
                served = served.max(free);
            }
            self.slots.push(Reverse(served + latency));
        }
        let answered = served + latency;
        let Some(rate) = model.bandwidth_bytes_per_s else { return answered };
        let transfer_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let start = self.link_free.map_or(answered, |free| free.max(answered));
        let end = start + Duration::from_nanos(u64::try_from(transfer_ns).unwrap_or(u64::MAX));
        self.link_free = Some(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SHARD: ShardId = ShardId(3);

    fn faulty() -> StoreModel {
        let faults =
            FaultShares { short: 0.1, interrupted: 0.05, again: 0.05, io: 0.2, stale: 0.1, stuck: 0.05 };
        StoreModel {
            faults,
            latency: LatencyModel::LogNormal { median: 2 * MS, sigma: 0.5 },
            ..StoreModel::default()
        }
    }

    #[test]
    fn what_befalls_a_read_depends_on_seed_place_and_try_alone() {
        let model = faulty();
        assert_eq!(model.answer(SHARD, 512, 0), model.answer(SHARD, 512, 0));
        let others = [
            model.answer(SHARD, 512, 1),
            model.answer(SHARD, 1024, 0),
            model.answer(ShardId(4), 512, 0),
            StoreModel { seed: 1, ..model }.answer(SHARD, 512, 0),
        ];
        assert!(others.iter().all(|other| *other != model.answer(SHARD, 512, 0)));
    }

    #[test]
    fn faults_come_as_often_as_their_shares_say() {
        let (model, tries) = (faulty(), 20_000);
        let attempts: Vec<Answer> = (0..tries).map(|at| model.answer(SHARD, 512 * at, 0)).collect();
        let share =
            |is: &dyn Fn(&Answer) -> bool| attempts.iter().filter(|a| is(a)).count() as f64 / tries as f64;
        for (expected, got) in [
            (0.1, share(&|a| matches!(a.fate, Fate::Short(_)))),
            (0.05, share(&|a| a.fate == Fate::Error(Errno::INTR))),
            (0.05, share(&|a| a.fate == Fate::Error(Errno::AGAIN))),
            (0.2, share(&|a| a.fate == Fate::Error(Errno::IO))),
            (0.1, share(&|a| a.fate == Fate::Error(Errno::STALE))),
            (0.05, share(&|a| a.latency > STUCK)),
        ] {
            assert!((got - expected).abs() < 0.01, "{got} of {expected}");
        }
        let mut latencies: Vec<Duration> = attempts.iter().map(|a| a.latency).collect();
        latencies.sort_unstable();
        let median = latencies[latencies.len() / 2].as_secs_f64() * 1e3;
        assert!((1.9..2.25).contains(&median), "median {median} ms");
    }

    #[test]
    fn without_limits_every_read_takes_its_latency() {
        let (model, mut queues, now) = (StoreModel::default(), Queues::default(), Instant::now());
        assert_eq!(queues.answer_at(&model, now, 2 * MS, 1 << 40), now + 2 * MS);
        assert_eq!(queues.answer_at(&model, now, 2 * MS, 1), now + 2 * MS);
    }

    #[test]
    fn transfers_follow_each_other_and_an_idle_link_saves_nothing_up() {
        let model = StoreModel { bandwidth_bytes_per_s: Some(1_000_000), ..StoreModel::default() };
        let (mut queues, now) = (Queues::default(), Instant::now());
        assert_eq!(queues.answer_at(&model, now, 2 * MS, 1000), now + 3 * MS);
        assert_eq!(queues.answer_at(&model, now, 2 * MS, 5000), now + 8 * MS);
        let later = now + 100 * MS;
        assert_eq!(queues.answer_at(&model, later, 2 * MS, 1000), later + 3 * MS);
    }

    #[test]
    fn reads_beyond_the_slots_wait_for_the_first_that_is_free() {
        let model = StoreModel { slots: Some(2), ..StoreModel::default() };
        let (mut queues, now) = (Queues::default(), Instant::now());
        let answers: Vec<Instant> =
            [5, 1, 1, 1].map(|latency| queues.answer_at(&model, now, latency * MS, 1)).into();
        assert_eq!(answers, [5, 1, 2, 3].map(|at| now + at * MS));
        assert_eq!(queues.answer_at(&model, now + 100 * MS, MS, 1), now + 101 * MS);
    }
}
