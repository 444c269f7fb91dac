//! How a simulated store answers: its slots, latencies, link and faults, as pure functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Add;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal, StandardUniform};
use rustix::io::Errno;
use shade_formats::ShardId;
use shade_job::{LatencyModel, StoreModel};

/// Extra latency of a stuck read.
pub const STUCK: Duration = Duration::from_secs(30);

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

/// The answer of `model` to the `tried`-th try (from 0) of the read at `offset` in `shard`.
pub(super) fn answer(model: &StoreModel, shard: ShardId, offset: u64, tried: u32) -> Answer {
    let mut seed = [0; 32];
    let parts = [model.seed, u64::from(shard.0), offset, u64::from(tried)];
    for (to, part) in seed.chunks_exact_mut(8).zip(parts) {
        to.copy_from_slice(&part.to_le_bytes());
    }
    let mut rng = ChaCha8Rng::from_seed(seed);
    let mut uniform = || -> f64 { StandardUniform.sample(&mut rng) };
    let (mut dice, part) = (uniform(), uniform());
    let faults = [
        (model.faults.short, Fate::Short(part.clamp(0.001, 0.999))),
        (model.faults.interrupted, Fate::Error(Errno::INTR)),
        (model.faults.again, Fate::Error(Errno::AGAIN)),
        (model.faults.io, Fate::Error(Errno::IO)),
        (model.faults.stale, Fate::Error(Errno::STALE)),
    ];
    let mut fate = None;
    for (share, then) in faults {
        if fate.is_none() && dice < share {
            fate = Some(then);
        }
        dice -= share;
    }
    let stuck = fate.is_none() && (0.0..model.faults.stuck).contains(&dice);
    let latency = match model.latency {
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
pub fn latency_of(model: &StoreModel, number: u64) -> Duration {
    match model.latency {
        LatencyModel::Fixed(latency) if model.faults.stuck <= 0.0 => latency,
        _ => answer(model, ShardId(0), number, 0).latency,
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
    use shade_job::FaultShares;

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
        assert_eq!(answer(&model, SHARD, 512, 0), answer(&model, SHARD, 512, 0));
        let others = [
            answer(&model, SHARD, 512, 1),
            answer(&model, SHARD, 1024, 0),
            answer(&model, ShardId(4), 512, 0),
            answer(&StoreModel { seed: 1, ..model }, SHARD, 512, 0),
        ];
        assert!(others.iter().all(|other| *other != answer(&model, SHARD, 512, 0)));
    }

    #[test]
    fn faults_come_as_often_as_their_shares_say() {
        let (model, tries) = (faulty(), 20_000);
        let attempts: Vec<Answer> = (0..tries).map(|at| answer(&model, SHARD, 512 * at, 0)).collect();
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
