//! The named systems through the core: what each promises about its epochs, its hits and its
//! batches.

use crate::replay::{Replay, Taken, index, spec};
use shade_job::{JobSpec, Order, Policy, Preset, Tail};

const SAMPLES: u32 = 2_000;
/// A fifth of the dataset: records of 400 bytes take a block of 512.
const CACHED: u32 = 400;
const BATCH: u32 = 20;

/// A core that is `preset`, and its job.
fn core(preset: Preset, world_size: u32) -> (Replay, JobSpec) {
    let cache_bytes = u64::from(CACHED) * 512;
    let replay = Replay::new(index(SAMPLES, 4, |_| 400), preset.policy(), cache_bytes, 4, 3);
    let mut job = spec(BATCH, world_size);
    (job.plan.sampler, job.plan.order) = (preset.sampler(), preset.order());
    (replay, job)
}

fn loss(id: u32) -> f32 {
    (id * 7919 % SAMPLES) as f32
}

fn sorted(taken: &[Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn permutations_are_permutations_whatever_changes_places() {
    for preset in [Preset::Permutations, Preset::Quiver, Preset::Deepio, Preset::Coordl, Preset::Default] {
        for world_size in [1, 3] {
            let (mut replay, job) = core(preset, world_size);
            replay.attach_all(&job, 0);
            for epoch in 0..4 {
                let taken = replay.epoch(epoch);
                assert_eq!(sorted(&taken), (0..SAMPLES).collect::<Vec<_>>(), "{preset}, epoch {epoch}");
            }
        }
    }
}

#[test]
fn what_is_cached_when_an_epoch_begins_is_hit_in_it() {
    for preset in [Preset::Permutations, Preset::Quiver, Preset::Deepio, Preset::Coordl] {
        let (mut replay, job) = core(preset, 1);
        replay.attach_all(&job, 0);
        for epoch in 0..4 {
            replay.epoch(epoch);
            let counts = replay.core().stats(0).epoch.counts.counts;
            let expected = if epoch == 0 { 0 } else { u64::from(CACHED) };
            assert_eq!(counts.hits, expected, "{preset}, epoch {epoch}");
            assert_eq!(counts.exchanged, 0, "every one of them is a hit");
        }
    }
}

/// Else the tail would be what is not cached, epoch after epoch.
#[test]
fn a_tail_that_is_dropped_is_the_plans_whatever_is_cached() {
    let epochs = |policy: Policy, package_bytes: u32| {
        let (index, cache_bytes) = (index(SAMPLES, 4, |_| 400), u64::from(CACHED) * 512);
        let mut replay = Replay::packaged(index, policy, cache_bytes, package_bytes, 3);
        replay.attach_all(&JobSpec { tail: Tail::Drop, ..spec(150, 1) }, 0);
        let epoch = |epoch| {
            let taken = replay.epoch(epoch);
            replay.report(&taken, loss);
            sorted(&taken)
        };
        (0..4).map(epoch).collect::<Vec<_>>()
    };
    let as_planned = epochs(Policy::Lru, 0);
    assert!(as_planned.iter().all(|ids| ids.len() == 1950));
    for policy in [Policy::Quiver, Policy::Icache] {
        for package_bytes in [0, 16 << 10] {
            assert!(epochs(policy, package_bytes) == as_planned, "{policy}, packages of {package_bytes}");
        }
    }
}

#[test]
fn quivers_batches_take_what_is_cached_first() {
    let (mut replay, job) = core(Preset::Quiver, 1);
    replay.attach_all(&job, 0);
    replay.epoch(0);
    let resident: Vec<bool> = {
        let mut before = replay.epoch(1);
        before.sort_by_key(|taken| taken.batch);
        // Those that the epoch used last are what is cached when it ends.
        let mut resident = vec![false; SAMPLES as usize];
        let last: Vec<u32> =
            before.iter().flat_map(|taken| taken.ids.clone()).rev().take(CACHED as usize).collect();
        last.iter().for_each(|&id| resident[id as usize] = true);
        resident
    };
    let mut taken = replay.epoch(2);
    taken.sort_by_key(|taken| taken.batch);
    let hits = |taken: &Taken| taken.ids.iter().filter(|&&id| resident[id as usize]).count();
    // Two of ten batches: the first batch is filled, and from then on what the window has more is
    // ten batches early.
    assert!(hits(&taken[0]) >= 19, "{} of {BATCH}", hits(&taken[0]));
    let late: usize = taken[95..].iter().map(hits).sum();
    assert!(late <= 5, "{late} in the last five batches, where a shuffle has 20");
}

/// A daemon that dies is replaced for a job that does not train, as its batches follow from its
/// document: also if it has the cache, as it is alone.
#[test]
fn nothing_changes_places_in_a_job_that_does_not_train() {
    let epochs = |policy: Policy| {
        let cache_bytes = u64::from(CACHED) * 512;
        let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), policy, cache_bytes, 4, 3);
        replay.attach_all(&JobSpec { admit: false, ..spec(BATCH, 1) }, 0);
        let ids = (0..3).flat_map(|epoch| replay.epoch(epoch)).map(|taken| taken.ids);
        ids.collect::<Vec<_>>()
    };
    let as_planned = epochs(Policy::Lru);
    for policy in [Policy::Quiver, Policy::Icache] {
        assert!(epochs(policy) == as_planned, "{policy}");
    }
}

#[test]
fn icache_leaves_samples_out_and_exchanges_those_of_low_importance() {
    let (mut replay, job) = core(Preset::Icache, 2);
    replay.attach_all(&job, 0);
    let (mut lens, mut exchanged, mut seen) = (Vec::new(), 0, vec![0; SAMPLES as usize]);
    for epoch in 0..9 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, loss);
        let ids = sorted(&taken);
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "no sample comes twice in an epoch");
        ids.iter().for_each(|&id| seen[id as usize] = epoch);
        assert!(seen.iter().all(|&last| epoch - last < 3), "every sample comes within three epochs");
        let counts = replay.core().stats(0).epoch.counts.counts;
        assert_eq!(counts.accesses, ids.len() as u64);
        assert_eq!(counts.accesses, counts.hits + counts.misses + counts.exchanged);
        exchanged += counts.exchanged;
        lens.push(ids.len());
        assert_eq!(replay.ended.len(), 2 * (epoch as usize + 1), "both ranks are told of the end");
    }
    // Epochs 0 to 4, then every third, are full.
    let selective: Vec<usize> = [5, 7, 8].map(|epoch| lens[epoch]).to_vec();
    assert!(selective.iter().all(|&len| (1400..1600).contains(&len)), "{lens:?}");
    assert!([0, 4, 6].iter().all(|&epoch| lens[epoch] == SAMPLES as usize), "{lens:?}");
    // The low region holds 40 samples, each of which can stand in once an epoch.
    assert!((100..=9 * 40).contains(&exchanged), "{exchanged}");
}

#[test]
fn base_delivers_everything_and_marks_what_is_not_trained_on() {
    let (mut replay, job) = core(Preset::Base, 1);
    replay.attach_all(&job, 0);
    for epoch in 0..6 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, loss);
        assert_eq!(sorted(&taken).len(), SAMPLES as usize);
        let forwarded =
            taken.iter().flat_map(|taken| &taken.weights).filter(|&&weight| weight == 0.0).count();
        assert!(
            if epoch < 5 { forwarded == 0 } else { (400..600).contains(&forwarded) },
            "{epoch}: {forwarded}"
        );
    }
}

#[test]
fn a_plan_that_would_read_nothing_is_told_and_counted() {
    let (mut replay, mut job) = core(Preset::Shade, 1);
    (job.plan.rep, job.plan.hit_cap, job.plan.cover) = (50.0, 1.0, 0);
    replay.attach_all(&job, 0);
    for epoch in 0..3 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, loss);
    }
    assert_eq!(replay.core().stats(0).total.counts.counts.absorbing_epochs, 2);
    assert_eq!(replay.warnings.len(), 2, "{:?}", replay.warnings);
    assert!(replay.warnings[0].contains("epoch 1 reads nothing") && replay.warnings[0].contains("hit_cap"));
    // The guards are on by default.
    let (mut replay, mut job) = core(Preset::Shade, 1);
    job.plan.rep = 50.0;
    replay.attach_all(&job, 0);
    (0..3).for_each(|epoch| drop(replay.epoch(epoch)));
    assert_eq!(replay.core().stats(0).total.counts.counts.absorbing_epochs, 0);
}

/// The draws of `clairvoyant` go by losses alone. All of them may be cached when their epoch
/// begins, as they were read before it.
#[test]
fn a_plan_that_was_read_ahead_is_no_plan_that_reads_nothing() {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 1_800 * 512, 4, 3);
    let (_, mut job) = core(Preset::Clairvoyant, 1);
    (job.plan.draw_ahead, job.plan.cover) = (true, 0);
    replay.attach_all(&job, 0);
    for epoch in 0..4 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, loss);
    }
    assert_eq!(replay.core().stats(0).total.counts.counts.absorbing_epochs, 0);
    assert!(replay.warnings.is_empty(), "{:?}", replay.warnings);
}

#[test]
fn plans_that_are_drawn_early_are_those_of_a_saved_state() {
    let run = |stop: bool| {
        let (mut replay, mut job) = core(Preset::Clairvoyant, 1);
        job.plan.draw_ahead = true;
        job.plan.order = Order::Spaced;
        replay.attach_all(&job, 0);
        for epoch in 0..3 {
            let taken = replay.epoch(epoch);
            replay.report(&taken, loss);
        }
        if stop {
            let state = replay.save(3, 0);
            let (mut other, _) = core(Preset::Clairvoyant, 1);
            other.attach_all(&job, 0);
            other.step(shade_core::Event::LoadState { strata: 0, session: 0, bytes: state });
            assert_eq!(other.failed, [""; 0]);
            replay = other;
        }
        let taken = replay.epoch(3);
        replay.report(&taken, loss);
        (taken, replay.epoch(4))
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn permutations_are_the_same_early_or_late() {
    let run = |policy| {
        let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), policy, u64::from(CACHED) * 512, 4, 3);
        replay.attach_all(&spec(BATCH, 1), 0);
        let mut batches: Vec<Taken> = (0..3).flat_map(|epoch| replay.epoch(epoch)).collect();
        batches.sort_by_key(|taken| (taken.epoch, taken.batch));
        batches
    };
    assert_eq!(run(Policy::Lookahead), run(Policy::Lru));
}
