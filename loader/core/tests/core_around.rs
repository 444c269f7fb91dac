//! Where the cache has room for the whole dataset, a small record brings along what lies around it,
//! and each is read once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::replay::{Replay, index, spec};
use shade_core::NEIGHBOURS_MAX;
use shade_core::{WINDOW_BYTES, window_bytes};
use shade_formats::index::Index;
use shade_job::{OnError, Policy};

const SAMPLES: u32 = 4_000;
const LEN: u32 = 1_500;
/// A record with its tar header and padding.
const PLACE: u32 = 2_048;
const BATCH: u32 = 50;
const DEPTH: u32 = 16;
const BLOCK_BYTES: u32 = 512;

fn core(on_error: OnError) -> Replay {
    let mut replay = Replay::around(index(SAMPLES, 4, |_| LEN), DEPTH, 3);
    let mut job = spec(BATCH, 1);
    job.on_error = on_error;
    job.bad_max = 1.0;
    replay.attach_all(&job, 0);
    replay
}

#[test]
fn a_read_brings_its_window_and_each_record_is_read_and_delivered_once() {
    let mut replay = core(OnError::Raise);
    let taken = replay.epoch(0);
    let mut delivered: HashMap<u32, u32> = HashMap::new();
    taken.iter().flat_map(|taken| &taken.ids).for_each(|&id| *delivered.entry(id).or_default() += 1);
    assert_eq!(delivered.len(), SAMPLES as usize);
    assert!(delivered.values().all(|&times| times == 1));
    let counts = replay.core().stats(0).total.counts.counts;
    assert_eq!(counts.bytes_read, u64::from(SAMPLES * LEN), "each record once");
    // Those of the first batch come alone, and break up the windows that they lie in.
    let windows = u64::from((SAMPLES * PLACE).div_ceil(WINDOW_BYTES));
    assert!(replay.reads <= windows + 3 * u64::from(BATCH) + 2 * u64::from(DEPTH), "{} reads", replay.reads);
    assert_eq!(counts.misses + counts.prefetched + counts.hits, u64::from(SAMPLES));
    assert_eq!(counts.hits, counts.joined, "what came along is no hit");
    let reads = replay.reads;
    replay.epoch(1);
    assert_eq!(replay.reads, reads, "all is there");
}

#[test]
fn reads_of_many_records_are_under_way_at_a_time_and_no_more_than_there_are_buffers_for() {
    for (depth, least, most) in
        [(4, 2 * WINDOW_BYTES / PLACE, 4 * NEIGHBOURS_MAX), (512, 400, 512 + NEIGHBOURS_MAX)]
    {
        let mut replay = Replay::around(index(SAMPLES, 4, |_| LEN), depth, 3);
        replay.attach_all(&spec(BATCH, 1), 0);
        replay.epoch(0);
        let records = replay.reads_at_once_max;
        assert!((least as usize..most).contains(&records), "{records} records at depth {depth}");
    }
}

#[test]
fn the_first_batch_waits_for_its_own_records_only() {
    let mut replay = core(OnError::Raise);
    replay.start(0, 0, 0);
    assert!(!replay.reading.is_empty(), "nothing is back yet");
    assert_eq!(replay.core().stats(0).total.counts.counts.prefetches, 0, "rows wait for all of them");
}

#[test]
fn what_came_along_and_is_bad_is_told_by_the_batch_that_wants_it_and_not_asked_for_by_every_neighbour() {
    let mut replay = core(OnError::Skip);
    replay.bad.extend((0..SAMPLES).filter(|id| id % 10 == 0));
    let taken = replay.epoch(0);
    let delivered: usize = taken.iter().map(|taken| taken.ids.len()).sum();
    assert_eq!(delivered, (SAMPLES - SAMPLES / 10) as usize);
    let counts = replay.core().stats(0).total.counts.counts;
    assert_eq!(counts.skipped, u64::from(SAMPLES / 10));
    let tries = counts.bytes_read - u64::from((SAMPLES - SAMPLES / 10) * LEN);
    assert!(tries <= u64::from(2 * SAMPLES / 10 * LEN), "each bad one is read twice at most");
}

#[test]
fn only_small_records_of_a_dataset_that_fits_come_together() {
    let small = index(100, 1, |_| LEN);
    let all = u64::from(100 * LEN.next_multiple_of(BLOCK_BYTES));
    let window =
        |index: &Arc<Index>, cache_bytes| window_bytes(&**index, cache_bytes, BLOCK_BYTES, Policy::Lookahead);
    assert_eq!(window(&small, all), WINDOW_BYTES);
    assert_eq!(window(&small, all - 1), 0);
    assert_eq!(window(&index(100, 1, |_| 110_000), u64::MAX), 0);
    assert_eq!(
        window_bytes(&*small, all, BLOCK_BYTES, Policy::Icache),
        0,
        "it evicts although all would fit"
    );
}

#[test]
fn each_job_may_bring_what_the_last_one_could_not() {
    let mut replay = core(OnError::Skip);
    replay.bad.extend(0..SAMPLES);
    replay.epoch(0);
    let sessions: Vec<_> = [0].into();
    sessions.into_iter().for_each(|session| replay.detach(session));
    replay.bad.clear();
    replay.reads = 0;
    let mut job = spec(BATCH, 1);
    job.bad_max = 1.0;
    replay.attach_all(&job, 1);
    let taken = replay.epoch(0);
    assert_eq!(taken.iter().map(|taken| taken.ids.len()).sum::<usize>(), SAMPLES as usize);
    let windows = u64::from((SAMPLES * PLACE).div_ceil(WINDOW_BYTES));
    assert!(replay.reads <= windows + 3 * u64::from(BATCH) + 2 * u64::from(DEPTH), "{} reads", replay.reads);
}
