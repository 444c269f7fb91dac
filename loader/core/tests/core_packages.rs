//! A miss brings along what lies around its record, as far as the cache would keep it: samples are
//! delivered as planned, and the store has fewer reads.

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::{Counts, Event};
use shade_formats::trace::Line;
use shade_job::{JobSpec, OnError, PlanSpec, Policy, Preset, Sampler};

const SAMPLES: u32 = 3_000;
const LEN: u32 = 1_500;
/// Bytes that a record takes of the cache.
const BLOCK: u64 = 1_536;
/// 16 records, each with header and padding.
const PACKAGE_BYTES: u32 = 32 * 1024;
const BATCH: u32 = 20;

/// Trains `epochs` with a cache of a fifth. Losses rise with the id.
fn train(policy: Policy, sampler: Sampler, package_bytes: u32, epochs: u32) -> Replay {
    let cache_bytes = u64::from(SAMPLES / 5) * BLOCK;
    let mut replay = Replay::packaged(index(SAMPLES, 4, |_| LEN), policy, cache_bytes, package_bytes, 3);
    replay.step(Event::Observe { session: 99, job: Some("job".to_owned()) });
    let plan = PlanSpec { sampler, ..PlanSpec::default() };
    replay.attach_all(&JobSpec { plan, ..spec(BATCH, 1) }, 0);
    for epoch in 0..epochs {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| id as f32);
    }
    replay
}

fn counts(replay: &Replay) -> Counts {
    replay.core().stats(0).total.counts.counts
}

fn sorted(taken: &[Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

/// Each epoch of permutations delivers every sample once, each access is counted once, each read
/// is one operation, and no memory is lost.
fn assert_whole(replay: &Replay, epochs: u32) {
    for epoch in 0..epochs {
        let of: Vec<Taken> = replay.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect();
        assert!(sorted(&of).into_iter().eq(0..SAMPLES), "epoch {epoch}");
    }
    let counts = counts(replay);
    assert_eq!(counts.accesses, counts.hits + counts.misses + counts.prefetched + counts.exchanged);
    assert_eq!((counts.reads, counts.coalesced), (replay.reads, replay.together));
    assert_eq!((counts.reads + counts.coalesced) * u64::from(LEN), counts.bytes_read);
    let stats = replay.core().stats(0);
    assert!(replay.core().is_idle() && stats.arena_used_bytes == stats.cache_used_bytes);
}

#[test]
fn lookahead_keeps_of_a_package_what_is_used_soon() {
    const EPOCHS: u32 = 3;
    let alone = train(Policy::Lookahead, Sampler::Uniform, 0, EPOCHS);
    let packaged = train(Policy::Lookahead, Sampler::Uniform, PACKAGE_BYTES, EPOCHS);
    for replay in [&alone, &packaged] {
        assert_whole(replay, EPOCHS);
    }
    let ids = |replay: &Replay| replay.taken.iter().map(|taken| taken.ids.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&alone), ids(&packaged), "nothing changes places");
    assert!(packaged.reads * 2 < alone.reads, "{} reads, {} without", packaged.reads, alone.reads);
    let counts = counts(&packaged);
    assert!(counts.bytes_between > counts.bytes_read / 2, "most of a package is not wanted: {counts:?}");
    // What would not be kept is not brought: of a few that land others have the room by then.
    assert!(counts.prefetches_unused < counts.prefetches / 4, "{counts:?}");
}

#[test]
fn icaches_misses_of_low_importance_bring_packages_whose_members_stand_in() {
    const EPOCHS: u32 = 6;
    let alone = train(Policy::Icache, Sampler::Uniform, 0, EPOCHS);
    let packaged = train(Policy::Icache, Sampler::Uniform, PACKAGE_BYTES, EPOCHS);
    for replay in [&alone, &packaged] {
        assert_whole(replay, EPOCHS);
    }
    let (before, after) = (counts(&alone), counts(&packaged));
    assert!(after.exchanged > 3 * before.exchanged, "{after:?}, without packages {before:?}");
    assert!(after.reads * 10 < before.reads * 9, "{} reads, {} without", after.reads, before.reads);
}

#[test]
fn a_miss_of_high_importance_is_read_alone_with_icache() {
    let replay = train(Policy::Icache, Sampler::Uniform, PACKAGE_BYTES, 4);
    // In an epoch with scores the upper 70 % are read as without packages.
    let (mut high, mut low) = ([0, 0], [0, 0]);
    for open in
        replay.traced.iter().filter_map(|line| if let Line::Open(open) = line { Some(open) } else { None })
    {
        for (&id, served) in open.ids.iter().zip(open.served.chars()).filter(|_| open.epoch == 3) {
            let of = if id >= SAMPLES * 3 / 10 { &mut high } else { &mut low };
            of[usize::from(served == 'm')] += 1;
        }
    }
    let share = |[others, misses]: [u32; 2]| f64::from(misses) / f64::from(others + misses);
    assert!(share(low) < 0.5 && share(high) > 0.6, "misses: {} of low, {} of high", share(low), share(high));
}

#[test]
fn icaches_own_epochs_leave_out_what_they_would_without_packages() {
    let of = |package_bytes| {
        let preset = Preset::Icache;
        let replay = train(preset.policy(), preset.sampler(), package_bytes, 9);
        let ids = |epoch| {
            let of: Vec<Taken> = replay.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect();
            sorted(&of)
        };
        // The sixth is the first selective one. Later ones have scores by other batches.
        ((0..6).map(ids).collect::<Vec<_>>(), replay.reads)
    };
    let ((alone, reads), (packaged, fewer)) = (of(0), of(PACKAGE_BYTES));
    assert!(fewer * 10 < reads * 9, "{fewer} reads, {reads} without packages");
    assert!(alone[..5] == packaged[..5] && (2_000..2_500).contains(&packaged[5].len()));
    assert!(packaged[5].windows(2).all(|pair| pair[0] < pair[1]), "none comes twice");
}

#[test]
fn a_package_never_spans_more_than_its_bytes_and_large_records_have_none() {
    let large = index(300, 4, |_| 60_000);
    let mut replay = Replay::packaged(large, Policy::Lookahead, 60 * 61_440, PACKAGE_BYTES, 3);
    replay.attach_all(&spec(BATCH, 1), 0);
    (0..2).for_each(|epoch| drop(replay.epoch(epoch)));
    let counts = counts(&replay);
    assert_eq!((counts.prefetches, counts.prefetched), (0, 0), "{counts:?}");
}

#[test]
fn a_bad_member_is_told_by_the_batch_that_wants_it() {
    let mut replay =
        Replay::packaged(index(SAMPLES, 4, |_| LEN), Policy::Lookahead, 600 * BLOCK, PACKAGE_BYTES, 3);
    replay.bad.extend((0..SAMPLES).filter(|id| id % 10 == 0));
    replay.attach_all(&JobSpec { on_error: OnError::Skip, bad_max: 1.0, ..spec(BATCH, 1) }, 0);
    let delivered = sorted(&replay.epoch(0));
    assert!(delivered.into_iter().eq((0..SAMPLES).filter(|id| id % 10 != 0)));
    assert_eq!(counts(&replay).skipped, u64::from(SAMPLES / 10));
}

/// Two jobs share an `icache`: it keeps what is hard for both, not what is hard for one.
#[test]
fn icache_goes_by_what_both_jobs_find_hard() {
    const THIRD: u32 = 100;
    // Samples below 100 are hard for both jobs, those below 200 for the first, below 300 for the
    // second.
    let loss = |job: u32, id: u32| {
        let is_hard = id < THIRD || id / THIRD == 1 + job;
        (if is_hard { 10_000 } else { 0 } + id * 7_919 % 3_001) as f32
    };
    let cache_bytes = u64::from(THIRD) * BLOCK;
    let mut replay = Replay::packaged(index(600, 4, |_| LEN), Policy::Icache, cache_bytes, 0, 3);
    replay.step(Event::Observe { session: 99, job: Some("0".to_owned()) });
    for job in 0..2 {
        let plan = PlanSpec { seed: job.into(), ..PlanSpec::default() };
        replay.attach_job(job, &job.to_string(), &JobSpec { plan, ..spec(60, 1) });
    }
    for epoch in 0..8 {
        let before = replay.taken.len();
        (0..2).for_each(|job| replay.start(job, epoch, 0));
        replay.run();
        let taken: Vec<_> = replay.taken[before..].to_vec();
        for taken in taken {
            let losses = taken.ids.iter().map(|&id| loss(taken.session, id)).collect();
            replay.step(Event::Report { session: taken.session, epoch, batch: taken.batch, losses });
        }
    }
    let mut hits = [0; 6];
    for line in &replay.traced {
        let Line::Open(open) = line else { continue };
        for (&id, served) in open.ids.iter().zip(open.served.chars()).filter(|_| open.epoch == 7) {
            hits[(id / THIRD) as usize] += u32::from(served == 'h');
        }
    }
    assert!(hits[0] > 60 && hits[0] > 3 * hits[1].max(hits[2]), "hits by hundred samples: {hits:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the policy, the sizes and the package: permutations stay permutations, and nothing
    /// is lost.
    #[test]
    fn permutations_stay_whole(
        policy in prop::sample::select(Policy::ALL),
        package_bytes in 0..300_000u32,
        cached in 0..400u64,
        longest in 1..6_000u32,
        seed: u64,
    ) {
        const FEW: u32 = 600;
        let index = index(FEW, 4, |id| 1 + id * 7_919 % longest);
        let mut replay = Replay::packaged(index, policy, cached * 4096, package_bytes, seed);
        replay.attach_all(&JobSpec { ring_bytes: 1 << 20, ..spec(BATCH, 2) }, 0);
        for epoch in 0..3 {
            let taken = replay.epoch(epoch);
            prop_assert!(sorted(&taken).into_iter().eq(0..FEW));
            replay.report(&taken, |id| (id * 7919 % FEW) as f32);
        }
        let counts = counts(&replay);
        prop_assert_eq!(counts.accesses, counts.hits + counts.misses + counts.prefetched + counts.exchanged);
        prop_assert_eq!((counts.reads, counts.coalesced), (replay.reads, replay.together));
        let stats = replay.core().stats(0);
        prop_assert!(replay.core().is_idle());
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
    }
}
