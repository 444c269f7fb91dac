//! The core prefetches what comes after all batches while there is room in the cache. It costs no
//! hit in sight.

use crate::replay::{Replay, index, spec};
use shade_job::{Policy, Sampler};

const SAMPLES: u32 = 4_000;
/// A tenth of the dataset: records of 400 bytes take a block of 512.
const CACHED: u32 = 400;
const BATCH: u32 = 20;
const DEPTH: u32 = 32;

fn core(policy: Policy, world_size: u32, depth: u32) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), policy, u64::from(CACHED) * 512, depth, 3);
    let mut job = spec(BATCH, world_size);
    job.plan.sampler = Sampler::Pads;
    replay.attach_all(&job, 0);
    replay
}

#[test]
fn a_trainer_that_is_busy_finds_the_cache_full_of_what_comes_next() {
    let mut replay = core(Policy::Lookahead, 1, DEPTH);
    replay.hold = true;
    replay.start(0, 0, 0);
    replay.run();
    // The ring is full and the cache, too.
    let open = replay.taken.len() as u64 * u64::from(BATCH);
    assert_eq!(replay.core().stats(0).resident, u64::from(CACHED));
    assert_eq!(
        replay.reads,
        open + u64::from(CACHED),
        "batches in the ring, and as much again as there is room"
    );
    replay.hold = false;
    replay.release_all(0);
    replay.run();
    let counts = replay.core().stats(0).total.counts.counts;
    assert_eq!(counts.accesses, u64::from(SAMPLES));
    assert!(counts.prefetched >= u64::from(CACHED), "{}", counts.prefetched);
    assert_eq!(replay.reads, u64::from(SAMPLES), "a permutation reads each sample once");
    assert_eq!(counts.prefetches_unused, 0);
}

/// Hit ratios of epochs 1 to 5, and the replay.
fn trained(world_size: u32, depth: u32) -> (Vec<f64>, Replay) {
    let mut replay = core(Policy::Lookahead, world_size, depth);
    let mut ratios = Vec::new();
    for epoch in 0..6 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| (id * 7919 % SAMPLES) as f32);
        let counts = replay.core().stats(0).epoch.counts.counts;
        assert_eq!(counts.accesses, counts.hits + counts.prefetched + counts.misses);
        ratios.push(counts.hit_ratio());
    }
    (ratios.split_off(1), replay)
}

#[test]
fn prefetching_leaves_the_hits_that_are_in_sight() {
    for world_size in [1, 3] {
        // One read at a time leaves none to prefetch with.
        let (without, replay) = trained(world_size, 1);
        assert_eq!(replay.core().stats(0).total.counts.counts.prefetches, 0);
        let (with, replay) = trained(world_size, DEPTH);
        let counts = replay.core().stats(0).total.counts.counts;
        // Prefetched samples displace some without a known use, which the next epoch would use.
        let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
        let lost = mean(&without) - mean(&with);
        assert!(lost < 0.04, "{without:.3?} without, {with:.3?} with");
        assert!(counts.prefetched > 0);
        assert!(counts.prefetches_unused * 100 <= counts.prefetches, "{counts:?}");
        assert!(replay.reads_at_once_max <= DEPTH as usize, "depth is kept");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_told_when_it_is_wanted_not_before() {
    let mut replay = core(Policy::Lookahead, 1, DEPTH);
    replay.hold = true;
    replay.bad.extend(0..SAMPLES);
    replay.start(0, 0, 0);
    replay.run();
    let in_batches = replay.errors.len();
    assert!(in_batches > 0, "batches in the ring");
    assert!(replay.warnings.is_empty(), "{:?}", replay.warnings);
    assert!(replay.core().is_idle(), "what failed ahead is not asked for again and again");
    let counts = replay.core().stats(0).total.counts.counts;
    assert!(counts.prefetches <= u64::from(SAMPLES), "each at most once: {}", counts.prefetches);
    let counts = replay.core().stats(0).total.counts.counts;
    assert!(counts.faults <= in_batches as u64 * u64::from(BATCH));
}

#[test]
fn only_who_knows_the_plan_prefetches() {
    for policy in [Policy::App, Policy::Lru, Policy::Quiver] {
        let mut replay = core(policy, 1, DEPTH);
        replay.epoch(0);
        assert_eq!(replay.core().stats(0).total.counts.counts.prefetches, 0, "{policy}");
    }
}
