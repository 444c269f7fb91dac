//! The cache grows and shrinks while jobs train: every row comes, and limit and counts are right.

use std::collections::BTreeMap;

use crate::replay::{Replay, index, spec};
use proptest::prelude::*;
use shade_core::Event;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 300;
/// Bytes that a record of 400 bytes takes.
const BLOCK: u64 = 512;

fn job(sampler: Sampler, seed: u64) -> JobSpec {
    JobSpec { plan: PlanSpec { sampler, seed, ..PlanSpec::default() }, ..spec(10, 1) }
}

/// With memory for the whole dataset.
fn replay(policy: Policy, seed: u64) -> Replay {
    Replay::new(index(SAMPLES, 4, |_| 400), policy, u64::from(SAMPLES) * BLOCK, 8, seed)
}

fn resize(replay: &mut Replay, samples: u32) {
    replay.step(Event::Resize { cache_bytes: u64::from(samples) * BLOCK, window_bytes: 0 });
}

/// Times that each sample was delivered to a session in an epoch.
fn delivered(replay: &Replay, session: u32, epoch: u32) -> BTreeMap<u32, u32> {
    let mut times = BTreeMap::new();
    for taken in replay.taken.iter().filter(|taken| (taken.session, taken.epoch) == (session, epoch)) {
        taken.ids.iter().for_each(|&id| *times.entry(id).or_default() += 1);
    }
    times
}

#[test]
fn from_a_whole_dataset_those_leave_that_the_epoch_has_used() {
    let mut replay = replay(Policy::Lookahead, 1);
    replay.attach_job(0, "a", &job(Sampler::Uniform, 1));
    replay.start(0, 0, 0);
    replay.run();
    assert_eq!(replay.core().stats(0).resident, u64::from(SAMPLES));
    replay.start(0, 1, 0);
    while replay.taken.iter().filter(|taken| taken.epoch == 1).count() < 15 {
        assert!(replay.tick());
    }
    resize(&mut replay, SAMPLES / 2);
    let stats = replay.core().stats(0);
    assert!(stats.cache_used_bytes <= stats.cache_bytes && stats.cache_bytes == 150 * BLOCK);
    replay.run();
    // What was left of the epoch stayed, as all of it has a known use.
    assert_eq!(replay.core().stats(0).epoch.counts.counts.misses, 0);
    assert!(delivered(&replay, 0, 1).len() == SAMPLES as usize);
    // From now on it hits as a cache of a half.
    replay.start(0, 2, 0);
    replay.run();
    let counts = replay.core().stats(0).epoch.counts.counts;
    assert!((140..=160).contains(&counts.hits), "{counts:?}");
    // A larger one has room for all again, after one more epoch.
    resize(&mut replay, SAMPLES);
    for epoch in [3, 4] {
        replay.start(0, epoch, 0);
        replay.run();
    }
    assert_eq!(replay.core().stats(0).epoch.counts.counts.hits, u64::from(SAMPLES));
}

#[test]
fn small_records_bring_others_along_only_while_all_have_room() {
    let mut replay = Replay::around(index(SAMPLES, 4, |_| 400), 8, 5);
    replay.attach_job(0, "a", &job(Sampler::Uniform, 1));
    resize(&mut replay, SAMPLES / 2);
    let prefetches = |replay: &mut Replay, epoch| {
        replay.start(0, epoch, 0);
        replay.run();
        replay.core().stats(0).epoch.counts.counts.prefetches
    };
    assert_eq!(prefetches(&mut replay, 0), 0);
    replay.step(Event::Resize { cache_bytes: u64::from(SAMPLES) * BLOCK, window_bytes: 64 << 10 });
    assert!(prefetches(&mut replay, 1) > u64::from(SAMPLES) / 4);
    assert_eq!(replay.core().stats(0).resident, u64::from(SAMPLES));
}

#[test]
fn records_that_move_are_offered_once_each_and_a_few_at_a_time() {
    let mut replay = replay(Policy::Lru, 1);
    replay.attach_job(0, "a", &job(Sampler::Uniform, 1));
    replay.start(0, 0, 0);
    replay.run();
    let (mut offered, mut calls, mut from) = (0, 0, Some(0));
    while let Some(place) = from {
        let before = offered;
        from = replay.core_mut().move_records(place, 20 * BLOCK, |_, _| {
            offered += 1;
            true
        });
        assert!(offered - before <= 20);
        calls += 1;
    }
    assert_eq!((offered, calls), (SAMPLES, SAMPLES.div_ceil(20)));
}

#[test]
fn from_a_smaller_cache_some_thousand_leave_at_a_time_and_nothing_comes_meanwhile() {
    const MANY: u32 = 20_000;
    for &policy in Policy::ALL {
        let mut replay = Replay::new(index(MANY, 4, |_| 400), policy, u64::from(MANY) * BLOCK, 64, 3);
        replay.attach_job(0, "a", &JobSpec { batch_size: 500, ..job(Sampler::Uniform, 1) });
        replay.start(0, 0, 0);
        replay.run();
        let core = replay.core_mut();
        let (mut actions, mut slices) = (Vec::new(), 0);
        let mut resident = core.stats(0).resident;
        assert!(resident > u64::from(MANY) / 2, "{policy:?}: {resident}");
        core.step(0, Event::Resize { cache_bytes: 100 * BLOCK, window_bytes: 0 }, &mut actions);
        let mut has_more = true;
        while has_more {
            has_more = core.advance(0, &mut actions);
            let now = core.stats(0).resident;
            assert!(now <= resident && resident - now <= 4096, "{policy:?}: {resident}, then {now}");
            (resident, slices) = (now, slices + 1);
        }
        assert!(slices >= 2 && resident <= 100, "{policy:?}: {slices} slices, {resident} resident");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two jobs train and the cache is resized at any moment.
    #[test]
    fn any_sequence_of_sizes_keeps_the_limit_and_the_counts(
        policy in prop::sample::select(Policy::ALL),
        sampler in prop::sample::select(&[Sampler::Uniform, Sampler::Pads][..]),
        seed: u64,
        sizes in prop::collection::vec((0..=SAMPLES, 0..150usize), 1..20),
    ) {
        let mut replay = replay(policy, seed);
        replay.attach_job(0, "a", &job(sampler, 1));
        replay.attach_job(1, "b", &job(sampler, 2));
        let mut epoch = 0;
        for (samples, ticks) in sizes {
            resize(&mut replay, samples);
            for _ in 0..ticks {
                if !replay.tick() {
                    for session in [0, 1] {
                        replay.start(session, epoch, 0);
                    }
                    epoch += 1;
                }
                let stats = replay.core().stats(0);
                // Rows that are being filled may hold a few records longer.
                let is_idle = replay.core().is_idle();
                prop_assert!(stats.cache_used_bytes <= stats.cache_bytes || !is_idle);
            }
        }
        replay.run();
        prop_assert!(replay.errors.is_empty() && replay.failed.is_empty());
        for (session, epoch) in [0, 1].into_iter().flat_map(|session| (0..epoch).map(move |e| (session, e))) {
            prop_assert_eq!(delivered(&replay, session, epoch).values().sum::<u32>(), SAMPLES);
        }
        let stats = replay.core().stats(0);
        prop_assert!(stats.cache_used_bytes <= stats.cache_bytes);
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
        let counts = [0, 1].map(|session| replay.core().stats(session).total.counts.counts);
        let sum = |of: fn(&shade_core::Counts) -> u64| counts.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|counts| counts.admitted) - sum(|counts| counts.evicted), stats.resident);
        prop_assert_eq!(sum(|c| c.hits + c.misses + c.prefetched + c.exchanged), sum(|c| c.accesses));
    }
}
