//! Whole epochs through the core: what is planned is delivered, once, whatever the timing; faults
//! do what `on_error` says.

use std::collections::HashSet;

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::Event;
use shade_formats::ring::FLAG_PADDING;
use shade_job::{JobSpec, OnError, Policy, Sampler, Tail};

fn sorted(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids
}

#[test]
fn every_sample_is_delivered_once_over_one_two_and_three_ranks() {
    for world_size in [1, 2, 3] {
        let mut replay = Replay::new(index(1003, 10, |id| 100 + id % 700), Policy::App, 100_000, 8, 1);
        replay.attach_all(&spec(16, world_size), 0);
        let taken = replay.epoch(0);
        let ids: Vec<u32> = taken.iter().flat_map(|t| t.ids.clone()).collect();
        assert_eq!(sorted(ids), (0..1003).collect::<Vec<_>>(), "world size {world_size}");
        for rank in 0..world_size {
            let batches = taken.iter().filter(|t| t.rank == rank).count();
            assert_eq!(batches, replay.accepted[0].batches_per_epoch as usize);
        }
        assert_eq!(replay.ended.len(), world_size as usize);
        assert!(replay.reads_at_once_max <= 8, "depth is kept");
        assert!(replay.core().is_idle());
    }
}

#[test]
fn the_union_of_all_slices_is_the_same_plan_for_any_world_size() {
    // 60 positions hold whole global batches of one, two and three ranks of 10.
    let blocks = |world_size: u32| {
        let mut replay = Replay::new(index(600, 5, |_| 300), Policy::App, 40_000, 4, u64::from(world_size));
        let mut job = spec(10, world_size);
        job.plan.sampler = Sampler::Pads;
        replay.attach_all(&job, 0);
        // One loss, so that the second epoch is drawn by importance. It is that of the plan's first
        // sample.
        let mut first = replay.epoch(0);
        first.retain(|taken| (taken.rank, taken.batch) == (0, 0));
        first[0].ids.truncate(1);
        replay.report(&first, |_| 1.0);
        let mut taken = replay.epoch(1);
        taken.sort_by_key(|t| (t.batch, t.rank));
        let ids: Vec<u32> = taken.iter().flat_map(|t| t.ids.clone()).collect();
        ids.chunks(60).map(|block| sorted(block.to_vec())).collect::<Vec<_>>()
    };
    let alone = blocks(1);
    assert_eq!(alone.len(), 10);
    assert_eq!(alone, blocks(2));
    assert_eq!(alone, blocks(3));
}

#[test]
fn plans_do_not_depend_on_timing() {
    let run = |seed: u64| {
        let mut replay = Replay::new(index(600, 5, |_| 300), Policy::App, 40_000, 4, seed);
        let mut job = spec(10, 2);
        job.plan.sampler = Sampler::Pads;
        replay.attach_all(&job, 0);
        let mut epochs = Vec::new();
        for epoch in 0..3 {
            let mut taken = replay.epoch(epoch);
            // Reported in the order of delivery, which differs between seeds.
            replay.report(&taken, |id| (id * 7919 % 600) as f32);
            taken.sort_by_key(|t| (t.rank, t.batch));
            epochs.push(taken.into_iter().map(|t| t.ids).collect::<Vec<_>>());
        }
        epochs
    };
    let first = run(1);
    assert_eq!(first, run(2));
    assert_ne!(first[1], first[2], "epochs differ");
}

#[test]
fn hits_and_misses_add_up_and_only_misses_read() {
    let mut replay = Replay::new(index(400, 4, |_| 400), Policy::App, 100 * 512, 4, 3);
    let mut job = spec(20, 1);
    job.plan.sampler = Sampler::Pads;
    replay.attach_all(&job, 0);
    for epoch in 0..4 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| id as f32);
        let stats = replay.core().stats(0);
        let counts = stats.epoch.counts.counts;
        assert_eq!(counts.accesses, 400);
        assert_eq!(counts.hits + counts.misses, counts.accesses);
        assert_eq!(counts.admitted + counts.bypassed, counts.misses);
        assert!(stats.cache_used_bytes <= stats.cache_bytes);
    }
    let total = replay.core().stats(0).total;
    assert_eq!(total.counts.counts.misses, replay.reads);
    assert_eq!(total.counts.counts.bytes_read, replay.reads * 400);
    assert!(total.counts.counts.hits > 0);
    assert!((total.ever_seen_share - 1.0).abs() < 1e-9);
}

#[test]
fn a_trainer_that_releases_nothing_stops_its_own_ring_only() {
    let mut replay = Replay::new(index(4000, 4, |_| 400), Policy::Lru, 10_000, 4, 4);
    replay.attach_all(&spec(10, 1), 0);
    replay.hold = true;
    let taken = replay.epoch(0);
    assert!(!taken.is_empty() && taken.len() < 64, "{} batches fit a ring", taken.len());
    assert!(replay.core().is_idle(), "nothing is read ahead of the ring");
    replay.hold = false;
    replay.release_all(0);
    replay.run();
    assert_eq!(replay.taken.iter().map(|t| t.ids.len()).sum::<usize>(), 4000);
}

#[test]
fn a_client_that_releases_more_than_it_got_is_closed() {
    let mut replay = Replay::new(index(100, 4, |_| 400), Policy::Lru, 10_000, 4, 4);
    replay.attach_all(&spec(10, 1), 0);
    replay.step(Event::Released { session: 0, seqs: vec![7] });
    assert!(replay.failed[0].contains("released descriptor 7"), "{:?}", replay.failed);
}

#[test]
fn batches_kept_for_good_cost_their_room_and_no_more() {
    let mut replay = Replay::new(index(4000, 4, |_| 400), Policy::Lru, 10_000, 4, 4);
    replay.attach_all(&spec(10, 1), 0);
    // The ring has room for eight batches: those kept, and hundreds that pass them.
    replay.kept = HashSet::from([0, 2, 3]);
    let ids: HashSet<u32> = replay.epoch(0).into_iter().flat_map(|taken| taken.ids).collect();
    assert_eq!(ids.len(), 4000);
    assert_eq!(replay.ended, [(0, 0)]);
    assert_eq!(replay.epoch(1).len(), 400);
}

#[test]
fn a_batch_filled_up_far_beyond_the_dataset_finds_room() {
    let mut replay = Replay::new(index(7, 1, |_| 40_000), Policy::Lru, 1_000_000, 4, 4);
    replay.attach_all(&JobSpec { tail: Tail::Pad, ..spec(100, 1) }, 0);
    let payload = replay.accepted[0].payload;
    assert!(payload.gap_bytes >= 100 * 40_000 && payload.gap_bytes <= payload.bytes / 3, "{payload:?}");
    let taken = replay.epoch(0);
    assert_eq!(taken.iter().map(|taken| taken.ids.len()).collect::<Vec<_>>(), [100]);
}

#[test]
fn leaving_an_epoch_and_starting_again_delivers_it_whole() {
    let mut replay = Replay::new(index(500, 5, |_| 300), Policy::App, 20_000, 4, 5);
    replay.attach_all(&spec(10, 1), 0);
    let whole = replay.epoch(0);
    replay.start(0, 0, 0);
    for _ in 0..20 {
        replay.tick();
    }
    let before = replay.taken.len();
    let again = replay.epoch(0);
    assert!(replay.taken.len() > before);
    let strip = |taken: &[Taken]| taken.iter().map(|t| (t.batch, t.ids.clone())).collect::<Vec<_>>();
    assert_eq!(strip(&whole), strip(&again), "the same epoch is the same plan");
}

#[test]
fn an_epoch_waits_for_every_rank_and_says_for_whom() {
    let mut replay = Replay::new(index(100, 5, |_| 300), Policy::App, 20_000, 4, 5);
    replay.attach_all(&spec(10, 2), 0);
    replay.start(1, 0, 0);
    replay.run();
    assert!(replay.taken.is_empty());
    assert_eq!(replay.core().stats(0).waiting_for_ranks, [0]);
    replay.start(0, 0, 0);
    replay.run();
    assert_eq!(replay.taken.iter().map(|t| t.ids.len()).sum::<usize>(), 100);
}

#[test]
fn a_bad_record_is_raised_with_shard_offset_and_path() {
    let mut replay = Replay::new(index(50, 5, |_| 300), Policy::App, 20_000, 4, 6);
    replay.bad.insert(7);
    replay.attach_all(&spec(10, 1), 0);
    let taken = replay.epoch(0);
    assert_eq!(taken.len(), 4, "four batches of five arrive");
    let error = &replay.errors[0];
    for part in ["sample 7", "class2/7.png", "shard-000000.tar", "at byte 7680"] {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
    assert_eq!(replay.core().stats(0).total.counts.counts.faults, 1);
}

#[test]
fn a_bad_record_is_skipped_and_counted() {
    let mut replay = Replay::new(index(50, 5, |_| 300), Policy::App, 20_000, 4, 6);
    replay.bad.extend([7, 8]);
    let mut job = spec(10, 1);
    job.on_error = OnError::Skip;
    replay.attach_all(&job, 0);
    let taken = replay.epoch(0);
    assert_eq!(taken.len(), 5, "no batch is lost");
    let ids: Vec<u32> = taken.iter().flat_map(|t| t.ids.clone()).collect();
    assert_eq!(sorted(ids), (0..50).filter(|id| ![7, 8].contains(id)).collect::<Vec<_>>());
    assert_eq!(taken.iter().map(|t| t.skipped).sum::<u32>(), 2);
    assert_eq!(replay.core().stats(0).epoch.counts.counts.skipped, 2);
}

#[test]
fn a_bad_record_is_replaced_by_the_next_of_its_class() {
    let mut replay = Replay::new(index(50, 5, |_| 300), Policy::App, 20_000, 4, 6);
    replay.bad.extend([7, 12]);
    let mut job = spec(10, 1);
    job.on_error = OnError::Substitute;
    replay.attach_all(&job, 0);
    let taken = replay.epoch(0);
    let ids: Vec<u32> = taken.iter().flat_map(|t| t.ids.clone()).collect();
    assert_eq!(ids.len(), 50, "batches keep their size");
    assert_eq!(ids.iter().filter(|&&id| id == 17).count(), 3, "17 stands in for 7 and 12");
    let flagged: u32 = taken.iter().flat_map(|t| &t.flags).map(|flags| flags & 1).sum();
    assert_eq!(flagged, 2);
    assert_eq!(replay.core().stats(0).epoch.counts.counts.substituted, 2);
}

#[test]
fn a_class_without_another_sample_is_raised_even_under_substitute() {
    let mut replay = Replay::new(index(5, 5, |_| 300), Policy::App, 20_000, 4, 6);
    replay.bad.insert(3);
    let mut job = spec(5, 1);
    job.on_error = OnError::Substitute;
    replay.attach_all(&job, 0);
    assert!(replay.epoch(0).is_empty());
    assert!(replay.errors[0].contains("sample 3"), "{:?}", replay.errors);
}

#[test]
fn resuming_in_the_middle_gives_the_identical_rest() {
    let mut job = spec(10, 1);
    job.plan.sampler = Sampler::Pads;
    let loss = |id: u32| (id * 31 % 97) as f32;
    let mut first = Replay::new(index(300, 5, |_| 300), Policy::App, 20_000, 4, 7);
    first.attach_all(&job, 0);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    let whole = first.epoch(1);
    first.report(&whole[..10], loss);
    let state = first.save(1, 10);
    first.report(&whole[10..], loss);
    let next = first.epoch(2);

    let mut second = Replay::new(index(300, 5, |_| 300), Policy::App, 20_000, 4, 8);
    second.attach_all(&job, 0);
    second.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
    second.start(0, 1, 10);
    second.run();
    assert_eq!(second.taken, whole[10..]);
    let rest = second.taken.clone();
    second.report(&rest, loss);
    assert_eq!(second.epoch(2), next, "and so are the epochs after it");

    let mut flipped = state;
    flipped[100] ^= 1;
    second.step(Event::LoadState { strata: 0, session: 0, bytes: flipped });
    assert!(second.failed[0].contains("saved state"), "{:?}", second.failed);
}

#[test]
fn a_second_job_and_a_second_rank_zero_are_refused() {
    let mut replay = Replay::new(index(100, 5, |_| 300), Policy::App, 20_000, 4, 9);
    replay.attach(0, 0, &spec(10, 2));
    replay.attach(1, 0, &spec(10, 2));
    replay.attach(2, 1, &spec(11, 2));
    replay.attach(3, 5, &spec(10, 2));
    assert_eq!(replay.refused.len(), 3, "{:?}", replay.refused);
    for (text, part) in replay.refused.iter().zip(["rank 0 is attached already", "other arguments", "rank 5"])
    {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_rank_that_dies_frees_its_place_and_the_next_one_is_served() {
    let mut replay = Replay::new(index(300, 5, |_| 3000), Policy::App, 20_000, 4, 10);
    replay.attach_all(&spec(10, 1), 0);
    replay.hold = true;
    replay.start(0, 0, 0);
    for _ in 0..5 {
        replay.tick();
    }
    replay.detach(0);
    replay.run();
    replay.hold = false;
    replay.taken.clear();
    replay.attach(1, 0, &spec(10, 1));
    let taken = replay.epoch(0);
    assert_eq!(taken.iter().map(|t| t.ids.len()).sum::<usize>(), 300);
    assert!(replay.core().is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random sizes, caches, depths, ranks and faults: whatever is not bad is delivered exactly
    /// once, memory is given back, and no count is lost.
    #[test]
    fn nothing_is_lost_whatever_the_sizes(
        samples in 1u32..200, batch in 1u32..40, world in 1u32..4, cache in 0u64..200_000, depth in 1u32..9,
        lru: bool, seed: u64, bad in proptest::collection::hash_set(0u32..200, 0..5),
    ) {
        let policy = if lru { Policy::Lru } else { Policy::App };
        let mut replay = Replay::new(index(samples, 3, |id| 1 + id * 977 % 9000), policy, cache, depth, seed);
        replay.bad = bad.clone();
        let mut job = spec(batch, world);
        job.on_error = OnError::Skip;
        replay.attach_all(&job, 0);
        for epoch in 0..2 {
            let taken = replay.epoch(epoch);
            if epoch == 0 {
                // A rank for which the last batch has no sample gets a padding row.
                let rows = taken.iter().flat_map(|t| t.ids.iter().zip(&t.flags));
                let ids: Vec<u32> = rows.filter(|(_, flags)| **flags & FLAG_PADDING == 0).map(|(&id, _)| id).collect();
                let expected: Vec<u32> = (0..samples).filter(|id| !bad.contains(id)).collect();
                prop_assert_eq!(sorted(ids), expected);
            }
            replay.report(&taken, |id| id as f32);
        }
        let stats = replay.core().stats(0);
        prop_assert!(stats.cache_used_bytes <= cache);
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes, "blocks nobody uses are free");
        prop_assert_eq!(stats.reads_submitted, 0);
        let counts = stats.total.counts.counts;
        prop_assert_eq!(counts.hits + counts.misses, counts.accesses);
        prop_assert_eq!(counts.misses, replay.reads);
        prop_assert!(replay.core().is_idle());
    }
}
