//! The tier: what leaves the cache is stored in memory of other machines and comes back from there.
//! Servers that lose it, spoil it or do not answer cost a read of the store, once.

use std::collections::HashSet;
use std::time::Duration;

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::{Counts, TIER_OVERHEAD_BYTES, TierEvent, TierStats};
use shade_formats::SampleId;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 300;
const LEN: u32 = 1000;
/// Bytes of a record in the cache: blocks of 512 bytes.
const CHARGED: u64 = 1024;
const CACHE_BYTES: u64 = 30 * CHARGED;

type Event = shade_core::Event<Counted>;
use crate::replay::counted::Counted;

/// A core with a cache of 30 records and a tier of `records`, and its only job.
fn tiered(records: u64, job: &JobSpec, seed: u64) -> Replay {
    let mut replay = without_job(seed);
    replay.attach_all(job, 0);
    room(&mut replay, records);
    replay
}

fn without_job(seed: u64) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| LEN), Policy::Lookahead, CACHE_BYTES, 64, seed);
    replay.latency = Duration::from_millis(5);
    replay.tier.latency = Duration::from_micros(100);
    replay
}

/// The tier's servers are reached, and have room for this number of records.
fn room(replay: &mut Replay, records: u64) {
    let bytes = records * (u64::from(LEN) + TIER_OVERHEAD_BYTES);
    replay.step(Event::Tier(TierEvent::Room { bytes, get: Some(Duration::from_micros(100)) }));
}

fn by_importance() -> JobSpec {
    JobSpec { plan: PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() }, ..spec(10, 1) }
}

fn counts(replay: &Replay) -> Counts {
    replay.core().stats(0).total.counts.counts
}

/// The core's figures of the tier.
#[expect(clippy::unwrap_used, reason = "its servers were reached")]
fn tier_of(replay: &Replay) -> TierStats {
    replay.core().stats(0).tier.unwrap()
}

fn ids(taken: &[Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

/// An epoch of a permutation: each sample once, without an error.
fn whole_epoch(replay: &mut Replay, epoch: u32) -> Counts {
    let before = counts(replay);
    let taken = replay.epoch(epoch);
    assert!(ids(&taken).into_iter().eq(0..SAMPLES), "epoch {epoch}");
    assert!(replay.errors.is_empty(), "{:?}", replay.errors);
    counts(replay) - before
}

/// The tier is filled: an epoch reads nothing from the store. Returns the next epoch.
fn fill(replay: &mut Replay, first: u32) -> u32 {
    let filled = (first..first + 20).find(|&epoch| whole_epoch(replay, epoch).reads == 0);
    assert!(filled.is_some(), "the tier has room for all that the cache has not");
    filled.map_or(first, |epoch| epoch + 1)
}

#[test]
fn with_room_for_all_nothing_is_read_from_the_store_any_more() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 3);
    let epoch = fill(&mut replay, 0);
    let last = whole_epoch(&mut replay, epoch);
    assert_eq!((last.reads, last.tier_misses, last.tier_writes), (0, 0, 0), "{last:?}");
    assert_eq!(last.hits + last.tier_hits, u64::from(SAMPLES));
    assert_eq!(last.misses, last.tier_hits, "never counted as hits of the cache");
    assert!(last.hits >= 25, "{last:?}");
    let all = counts(&replay);
    assert_eq!(all.bytes_read, all.reads * u64::from(LEN), "of the store alone");
    assert_eq!(all.tier_bytes, all.tier_hits * u64::from(LEN));
    assert_eq!(all.tier_bytes_written, all.tier_writes * u64::from(LEN));
    assert_eq!((all.tier_hits, all.tier_writes), (replay.tier.asked, replay.tier.stored));
}

#[test]
fn a_sample_is_in_the_cache_or_in_the_tier_and_both_limits_hold() {
    for (records, job) in [(60, spec(10, 1)), (60, by_importance()), (0, by_importance())] {
        let mut replay = tiered(records, &job, 5);
        for epoch in 0..4 {
            let taken = replay.epoch(epoch);
            replay.report(&taken, |id| (id % 17) as f32);
            let stats = replay.core().stats(0);
            let tier = tier_of(&replay);
            assert_eq!(tier.samples, replay.tier.held.len() as u64, "the core knows what the servers have");
            assert!(tier.used_bytes <= tier.bytes && tier.samples <= records, "{tier:?}");
            assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes, "no block is lost");
        }
        assert_eq!(replay.tier.held.len() as u64, records, "it is full");
    }
}

#[test]
fn by_next_use_the_tier_brings_more_than_its_share_at_random_would() {
    let run = |records| {
        let mut replay = tiered(records, &by_importance(), 11);
        for epoch in 0..8 {
            let taken = replay.epoch(epoch);
            replay.report(&taken, |id| (id % 17) as f32);
        }
        counts(&replay)
    };
    let (without, with) = (run(0), run(60));
    assert_eq!(without.tier_hits, 0);
    // A fifth of the dataset: a tier that keeps any sample would bring a fifth of the misses.
    let share = with.tier_hits as f64 / with.misses as f64;
    assert!(share > 0.2, "{share}: {with:?}");
    assert!(with.reads < without.reads);
}

#[test]
fn what_the_servers_have_lost_is_read_from_the_store_once_each() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 7);
    let epoch = fill(&mut replay, 0);
    let lost: Vec<u32> = replay.tier.held.iter().copied().filter(|id| id % 3 == 0).collect();
    lost.iter().for_each(|id| assert!(replay.tier.held.remove(id)));
    let first = whole_epoch(&mut replay, epoch);
    assert_eq!((first.tier_misses, first.reads), (lost.len() as u64, lost.len() as u64), "{first:?}");
    fill(&mut replay, epoch + 1);
}

#[test]
fn wrong_bytes_are_removed_and_read_from_the_store() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 7);
    let epoch = fill(&mut replay, 0);
    replay.tier.wrong = replay.tier.held.iter().copied().filter(|id| id % 3 == 0).collect();
    let wrong = replay.tier.wrong.len() as u64;
    let next = whole_epoch(&mut replay, epoch);
    assert_eq!((next.tier_misses, next.reads), (wrong, wrong), "{next:?}");
    fill(&mut replay, epoch + 1);
    assert!(replay.tier.wrong.is_disjoint(&replay.tier.held), "they were stored anew, or are in the cache");
}

#[test]
fn servers_that_do_not_answer_cost_reads_and_nothing_else() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 9);
    let epoch = fill(&mut replay, 0);
    let held = replay.tier.held.len() as u64;
    replay.tier.down = true;
    let down = whole_epoch(&mut replay, epoch);
    assert_eq!(down.tier_hits, 0);
    assert!(down.tier_misses >= held - 5 && down.reads >= down.tier_misses, "{down:?}");
    replay.tier.down = false;
    let up = whole_epoch(&mut replay, epoch + 1);
    assert!(up.tier_hits > held / 2, "they still have it: {up:?}");
}

/// Each server that is reached adds its room.
#[test]
fn room_grows_with_each_server() {
    let mut replay = tiered(0, &spec(10, 1), 9);
    for records in [20, 60, u64::from(SAMPLES)] {
        room(&mut replay, records);
    }
    let epoch = fill(&mut replay, 0);
    assert!(whole_epoch(&mut replay, epoch).tier_hits > 0);
    room(&mut replay, 20);
    whole_epoch(&mut replay, epoch + 1);
    assert!(tier_of(&replay).samples <= 20 && replay.tier.held.len() <= 20, "it keeps its limit");
}

#[test]
fn a_full_server_ends_the_writes() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 9);
    replay.tier.samples_max = 50;
    for epoch in 0..3 {
        whole_epoch(&mut replay, epoch);
    }
    let tier = tier_of(&replay);
    assert!((40..=50).contains(&tier.samples), "{tier:?}");
    assert!(tier.bytes < 60 * (u64::from(LEN) + TIER_OVERHEAD_BYTES), "{tier:?}");
    let next = whole_epoch(&mut replay, 3);
    assert!(next.tier_hits >= 40, "{next:?}");
}

#[test]
fn a_tier_that_is_slower_than_the_store_is_left_alone_and_tried_again() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 9);
    replay.tier.latency = Duration::from_millis(50);
    let epoch = fill(&mut replay, 0);
    let is_left_alone = |replay: &Replay| tier_of(replay).left_alone;
    assert!(!is_left_alone(&replay), "looked at once a second");
    replay.wait(Duration::from_secs(2));
    assert!(is_left_alone(&replay));
    assert!(replay.warnings.iter().any(|text| text.contains("left alone")), "{:?}", replay.warnings);
    let asked = replay.tier.asked;
    let alone = whole_epoch(&mut replay, epoch);
    assert_eq!((replay.tier.asked, alone.tier_writes), (asked, 0));
    replay.tier.latency = Duration::from_micros(100);
    replay.wait(Duration::from_secs(61));
    assert!(!is_left_alone(&replay));
    whole_epoch(&mut replay, epoch + 1);
    assert!(replay.tier.asked > asked);
}

#[test]
fn what_an_earlier_daemon_stored_is_used() {
    let mut replay = tiered(100, &spec(10, 1), 9);
    // All samples, twice, and one of another dataset.
    replay.tier.held = (0..SAMPLES).collect();
    let held = (0..SAMPLES).chain(0..SAMPLES + 1).map(SampleId).collect();
    replay.step(Event::Tier(TierEvent::Held(held)));
    assert_eq!(tier_of(&replay).samples, 100);
    assert_eq!(replay.tier.held.len(), SAMPLES as usize, "what has no room may be another daemon's");
    let first = whole_epoch(&mut replay, 0);
    assert!(first.tier_hits >= 60 && first.tier_misses == 0, "{first:?}");
}

/// Nodes share the servers. A daemon that starts is told of the records of all.
#[test]
fn what_other_nodes_stored_is_left_to_them() {
    for job_first in [true, false] {
        let mut replay = without_job(9);
        room(&mut replay, u64::from(SAMPLES));
        replay.tier.held = (0..SAMPLES).collect();
        // One of two nodes of one rank each.
        let plan = PlanSpec { strata: 2, ..PlanSpec::default() };
        let spec = JobSpec { ranks_here: 1, plan, ..spec(10, 2) };
        if job_first {
            replay.attach(0, 0, &spec);
        }
        replay.step(Event::Tier(TierEvent::Held((0..SAMPLES).map(SampleId).collect())));
        if !job_first {
            assert_eq!(tier_of(&replay).samples, 0, "nobody here has asked for any");
            replay.attach(0, 0, &spec);
        }
        let mine: HashSet<u32> = (0..2).flat_map(|epoch| ids(&replay.epoch(epoch))).collect();
        assert_eq!(mine.len(), SAMPLES as usize / 2, "the node has half of the strata");
        let mut others = (0..SAMPLES).filter(|id| !mine.contains(id));
        assert!(others.all(|id| replay.tier.held.contains(&id)), "another node's are still there");
        assert!(counts(&replay).tier_hits > 0, "the node's own are used");
    }
}

#[test]
fn a_job_that_leaves_takes_no_row_of_another_along() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 9);
    let epoch = fill(&mut replay, 0);
    replay.attach_job(7, "other", &spec(10, 1));
    replay.tier.down = true;
    // Both want the same samples of the tier, then the one that asked for them leaves.
    replay.start(0, epoch, 0);
    replay.start(7, 0, 0);
    replay.detach(0);
    replay.run();
    let of_other: HashSet<u32> =
        replay.taken.iter().filter(|taken| taken.session == 7).flat_map(|taken| taken.ids.clone()).collect();
    assert_eq!(of_other.len(), SAMPLES as usize);
    assert!(replay.errors.is_empty());
}

#[test]
fn all_ranks_may_leave_while_the_tier_is_asked() {
    let mut replay = tiered(u64::from(SAMPLES), &spec(10, 1), 9);
    let epoch = fill(&mut replay, 0);
    replay.start(0, epoch, 0);
    assert!(!replay.core().is_idle(), "the tier is asked");
    replay.detach(0);
    // Memory for the answers is taken, and no row waits for them.
    replay.run();
    let stats = replay.core().stats(0);
    assert!(replay.core().is_idle() && stats.arena_used_bytes == stats.cache_used_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_servers_do_every_sample_is_delivered(
        seed in any::<u64>(), records in 0_u64..400, loses in prop::collection::vec((0_u32..4, 0_u32..SAMPLES), 0..40)
    ) {
        let mut replay = tiered(records, &spec(10, 1), seed);
        let mut loses = loses.into_iter();
        for epoch in 0..4 {
            replay.start(0, epoch, 0);
            let mut ticks = 0;
            while replay.tick() {
                ticks += 1;
                if ticks % 50 != 0 {
                    continue;
                }
                match loses.next() {
                    Some((0, _)) => replay.tier.down ^= true,
                    Some((1, id)) => drop(replay.tier.held.remove(&id)),
                    Some((2, id)) => drop(replay.tier.wrong.insert(id)),
                    Some((_, id)) => replay.tier.samples_max = id as usize,
                    None => {}
                }
            }
            let taken: Vec<Taken> = replay.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect();
            prop_assert!(ids(&taken).into_iter().eq(0..SAMPLES));
        }
        prop_assert!(replay.errors.is_empty());
        let stats = replay.core().stats(0);
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
        let counts = stats.total.counts.counts;
        prop_assert_eq!(counts.bytes_read, counts.reads * u64::from(LEN));
        prop_assert!(counts.reads + counts.tier_hits >= counts.misses);
    }
}
