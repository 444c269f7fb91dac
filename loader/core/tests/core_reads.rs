//! The core's reads: neighbours together, late reads reported, every record served once.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::replay::{self, Replay, index, spec};
use shade_core::Event;
use shade_job::{JobSpec, OnError, Policy, Sampler};

const SECOND: Duration = Duration::from_secs(1);

fn sorted(taken: &[replay::Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn neighbours_of_the_window_are_read_together_and_delivered_once() {
    for seed in 0..5 {
        let index = index(4000, 10, |id| 200 + id % 300);
        let mut replay = Replay::reading(index, Policy::App, 50_000, 16, seed, 32 * 1024);
        replay.attach_all(&JobSpec { ring_bytes: 256 << 10, ..spec(64, 1) }, 0);
        let taken = replay.epoch(0);
        assert_eq!(sorted(&taken), (0..4000).collect::<Vec<_>>());
        let counts = replay.core().stats(0).epoch.counts.counts;
        assert_eq!(counts.reads + counts.coalesced, counts.misses);
        assert_eq!((counts.reads, counts.coalesced), (replay.reads, replay.together));
        // A window of 512 of 4,000 records of 1 KB each: a neighbour is 8 KB away on average.
        assert!(counts.reads * 3 < counts.misses, "{} reads for {} records", counts.reads, counts.misses);
        assert!(replay.core().is_idle());
        assert_eq!(
            replay.core().arena_used_bytes(),
            replay.core().stats(0).cache_used_bytes,
            "every block is back"
        );
    }
}

#[test]
fn no_more_is_submitted_than_the_depth_and_what_comes_next() {
    for (depth, most) in [(3, 6), (8, 16), (200, 16)] {
        // 16 at most, whatever the depth.
        let mut replay = Replay::new(index(300, 3, |_| 60_000), Policy::App, 0, 16, 1);
        replay.attach_all(&spec(64, 1), 0);
        replay.step(Event::Depth(depth));
        replay.epoch(0);
        assert_eq!(replay.reads_at_once_max, most, "depth {depth}");
    }
}

#[test]
fn records_far_apart_are_read_on_their_own() {
    let mut replay = Replay::reading(index(300, 3, |_| 60_000), Policy::App, 0, 16, 1, 8 * 1024);
    replay.attach_all(&spec(4, 1), 0);
    replay.epoch(0);
    let counts = replay.core().stats(0).epoch.counts.counts;
    // 8 batches of 4 in the ring: next to none of 32 in 300 are neighbours.
    assert!(counts.coalesced < 60, "{} of 300", counts.coalesced);
}

#[test]
fn a_bad_neighbour_is_one_fault() {
    let mut replay = Replay::reading(index(500, 5, |_| 300), Policy::App, 10_000, 8, 2, 32 * 1024);
    replay.bad.insert(77);
    let mut job = spec(20, 1);
    job.on_error = shade_job::OnError::Skip;
    replay.attach_all(&job, 0);
    let taken = replay.epoch(0);
    assert_eq!(sorted(&taken), (0..500).filter(|&id| id != 77).collect::<Vec<_>>());
    assert_eq!(replay.core().stats(0).epoch.counts.counts.faults, 1);
}

#[test]
fn a_record_that_is_not_what_was_packed_is_read_again_once() {
    for (times, faults) in [(1, 0), (2, 1)] {
        // The cache holds everything, so the spoilt record is in it when the worker finds out.
        let mut replay = Replay::new(index(500, 5, |_| 300), Policy::App, 1 << 20, 8, 2);
        replay.spoilt.insert(77, times);
        replay.attach_all(&JobSpec { on_error: OnError::Skip, ..spec(50, 1) }, 0);
        let taken = replay.epoch(0);
        let left_out = |id: &u32| faults == 0 || *id != 77;
        assert_eq!(sorted(&taken), (0..500).filter(left_out).collect::<Vec<_>>());
        assert_eq!(taken.iter().map(|batch| batch.skipped).sum::<u32>(), faults);
        let counts = replay.core().stats(0).epoch.counts.counts;
        assert_eq!((counts.reads, counts.misses, counts.faults), (501, 500, u64::from(faults)));
        let again: Vec<_> = replay.warnings.iter().filter(|text| text.contains("reading it again")).collect();
        assert!(again.len() == 1 && again[0].contains("sample 77 (class2/77.png)"), "{:?}", replay.warnings);
        assert!(replay.core().is_idle());
        // Only what is right stays.
        let stats = replay.core().stats(0);
        assert_eq!(stats.resident, 500 - u64::from(faults));
        assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
        assert!(replay.epoch(1).iter().flat_map(|batch| &batch.ids).any(|&id| id == 77), "it is read anew");
    }
}

#[test]
fn rows_that_share_a_spoilt_record_share_its_second_read() {
    // One batch, in which importance draws some samples more than once: workers find a spoilt
    // record as often.
    let second_epoch = |spoilt: Option<(u32, u32)>| {
        let mut replay = Replay::new(index(64, 2, |_| 300), Policy::App, 0, 64, 5);
        let mut job = spec(64, 1);
        job.plan.sampler = Sampler::Pads;
        replay.attach_all(&job, 0);
        let first = replay.epoch(0);
        replay.report(&first, |id| id as f32);
        replay.spoilt.extend(spoilt);
        let reads = replay.reads;
        let taken = replay.epoch(1);
        assert!(replay.core().is_idle());
        assert_eq!((replay.core().arena_used_bytes(), replay.errors.len()), (0, 0));
        (sorted(&taken), replay.reads - reads)
    };
    let (ids, reads) = second_epoch(None);
    let often = ids.chunk_by(|a, b| a == b).max_by_key(|rows| rows.len()).unwrap();
    assert!(often.len() > 1, "the test means a sample that is drawn more than once: {ids:?}");
    let spoilt = (often[0], u32::try_from(often.len()).unwrap());
    assert_eq!(second_epoch(Some(spoilt)), (ids, reads + 1));
}

/// A replay in the middle of an epoch of records far apart, `depth` of them in flight at most.
fn mid_epoch(samples: u32, depth: u32, ticks: u32) -> Replay {
    let mut replay = Replay::reading(index(samples, 4, |_| 5_000), Policy::App, 0, depth, 3, 0);
    replay.latency = Duration::from_millis(2);
    replay.attach_all(&spec(50, 1), 0);
    replay.start(0, 0, 0);
    for _ in 0..ticks {
        replay.tick();
    }
    replay
}

/// The same, and one read of many has no answer.
fn with_one_stuck() -> (Replay, u32) {
    let mut replay = mid_epoch(4000, 16, 3_000);
    let (flight, sample) = (replay.reading[0].flight, replay.reading[0].sample.0);
    replay.stuck.insert(flight);
    replay.run();
    (replay, sample)
}

#[test]
fn a_read_that_waits_for_its_turn_is_not_late() {
    // 64 are submitted; the store answers one after the other, each half a second after the one
    // before.
    let mut replay = mid_epoch(4000, 64, 0);
    for _ in 0..40 {
        let waits: Vec<u64> = replay.reading.iter().map(|op| op.flight).collect();
        let oldest = *waits.iter().min().unwrap();
        replay.stuck = waits.into_iter().filter(|flight| *flight != oldest).collect();
        replay.wait(SECOND / 2);
        replay.run();
    }
    assert_eq!((replay.warnings.len(), replay.core().stats(0).reads_late), (0, 0), "{:?}", replay.warnings);
}

#[test]
fn a_late_read_is_named_while_its_batch_waits_and_again_after_twice_the_time() {
    let (mut replay, sample) = with_one_stuck();
    let taken = replay.taken.len();
    replay.wait(4 * SECOND);
    assert_eq!(replay.warnings, Vec::<String>::new());
    replay.wait(2 * SECOND);
    let text = replay.warnings.last().unwrap().clone();
    for part in
        [format!("sample {sample} (class"), "shard-000000.tar at byte".into(), "no answer for 6.0 s".into()]
    {
        assert!(text.contains(&part), "{part:?} is not in {text:?}");
    }
    assert_eq!(replay.core().stats(0).reads_late, 1);
    replay.wait(5 * SECOND);
    assert_eq!(replay.warnings.len(), 1, "{:?}", replay.warnings);
    replay.wait(2 * SECOND);
    assert_eq!(replay.warnings.len(), 2, "{:?}", replay.warnings);
    assert_eq!(replay.taken.len(), taken, "its batch waits, and those behind it");
    replay.stuck.clear();
    replay.run();
    replay.wait(SECOND);
    assert_eq!(replay.warnings.last().unwrap(), "reads are answered again");
    assert_eq!(replay.core().stats(0).reads_late, 0);
    assert_eq!(sorted(&replay.taken), (0..4000).collect::<Vec<_>>());
}
