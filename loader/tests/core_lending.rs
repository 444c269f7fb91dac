//! Raw batches show records where they lie in the cache: which ones, to how many, and until when.

mod replay;

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use replay::{Replay, Taken, index, index_of, spec};
use shade_formats::control::{JobSpec, Output, Policy, Sampler};
use shade_formats::index::Codec;
use shade_formats::ring::NOT_LENT;
use shade_load::blocks::block_bytes_for;
use shade_load::core::{Event, may_lend};

const SAMPLES: u32 = 40;
/// Two blocks of 4 KiB.
const RECORD_BYTES: u32 = 5000;

/// A job whose ring has room for five epochs.
fn raw_job() -> JobSpec {
    let mut spec = spec(8, 1);
    spec.plan.sampler = Sampler::Uniform;
    spec.ring_bytes = 1 << 20;
    spec
}

fn lending() -> Replay {
    let mut replay = Replay::lending(index(SAMPLES, 2, |_| RECORD_BYTES), 1);
    replay.attach_all(&raw_job(), 0);
    replay
}

/// Where each sample was shown; fails if one was at two places.
fn places(taken: &[Taken]) -> HashMap<u32, u64> {
    let mut places = HashMap::new();
    for batch in taken {
        for (&id, &place) in batch.ids.iter().zip(&batch.lent) {
            assert_eq!(*places.entry(id).or_insert(place), place, "sample {id}");
        }
    }
    places
}

fn lent(taken: &[Taken]) -> usize {
    taken.iter().flat_map(|batch| &batch.lent).filter(|&&place| place != NOT_LENT).count()
}

#[test]
fn what_is_in_the_cache_and_checked_is_shown_in_place_and_copied_by_nobody() {
    let mut replay = lending();
    let cold = replay.epoch(0);
    assert_eq!((lent(&cold), replay.rows_filled), (0, SAMPLES as usize), "nobody has checked them before");
    let (first, second) = (places(&replay.epoch(1)), places(&replay.epoch(2)));
    assert_eq!(first, second, "a record stays where it is");
    let starts: HashSet<u64> = first.values().copied().collect();
    assert_eq!(starts.len(), SAMPLES as usize, "each has a place of its own");
    let arena_bytes = u64::from(SAMPLES) * 8192;
    assert!(starts.iter().all(|at| at % 8192 == 0 && at + 8192 <= arena_bytes), "{starts:?}");
    assert_eq!(replay.rows_filled, SAMPLES as usize);
    assert_eq!(replay.core().stats().epoch.counts.counts.lent, u64::from(SAMPLES));
    assert_eq!(replay.core().arena_used_bytes(), arena_bytes);
}

#[test]
fn a_record_is_lent_once_at_a_time() {
    let mut replay = lending();
    replay.epoch(0);
    replay.hold = true;
    assert_eq!(lent(&replay.epoch(1)), SAMPLES as usize);
    assert_eq!(lent(&replay.epoch(2)), 0, "the epoch before has them all");
    assert_eq!(replay.rows_filled, 2 * SAMPLES as usize);
    replay.release_all(0);
    assert_eq!(lent(&replay.epoch(3)), SAMPLES as usize);
    replay.release_all(0);
    assert!(replay.failed.is_empty(), "{:?}", replay.failed);
}

#[test]
fn what_is_lent_is_nobody_elses_until_the_trainer_lets_go_even_of_a_session_that_is_over() {
    let mut replay = lending();
    replay.epoch(0);
    replay.hold = true;
    replay.epoch(1);
    let used = replay.core().arena_used_bytes();
    replay.detach(0);
    replay.hold = false;
    replay.attach_all(&raw_job(), 1);
    assert_eq!(lent(&replay.epoch(2)), 0, "its process may still look at them");
    // Nobody waits for a session that had nothing, or is not known.
    replay.step(Event::LetGo(7));
    assert_eq!(lent(&replay.epoch(3)), 0);
    replay.step(Event::LetGo(0));
    assert_eq!(lent(&replay.epoch(4)), SAMPLES as usize);
    assert_eq!(replay.core().arena_used_bytes(), used);
}

#[test]
fn batches_that_are_opened_and_never_published_lend_nothing_for_good() {
    let mut replay = lending();
    replay.epoch(0);
    // Opened in the ring; nothing is carried out that would publish them.
    replay.start(0, 1, 0);
    replay.detach(0);
    // Nobody has seen them, so nobody is waited for.
    replay.run();
    replay.attach_all(&raw_job(), 1);
    assert_eq!(lent(&replay.epoch(1)), SAMPLES as usize);
}

#[test]
fn compressed_records_and_decoded_batches_are_made_by_workers() {
    let zstd = index_of(
        SAMPLES,
        2,
        |_| RECORD_BYTES,
        |id, entry| {
            if id % 2 == 0 {
                (entry.codec, entry.raw_len) = (Codec::Zstd, RECORD_BYTES + 1000);
            }
        },
    );
    let mut replay = Replay::lending(zstd, 1);
    replay.attach_all(&raw_job(), 0);
    replay.epoch(0);
    let taken = replay.epoch(1);
    let copied = |taken: &Taken| {
        taken.ids.iter().zip(&taken.lent).all(|(id, &place)| (id % 2 == 0) == (place == NOT_LENT))
    };
    assert!(taken.iter().all(copied), "{taken:?}");

    let mut replay = Replay::lending(index(SAMPLES, 2, |_| RECORD_BYTES), 1);
    replay.attach_all(&JobSpec { output: Output::Ragged { channels_last: false }, ..raw_job() }, 0);
    replay.epoch(0);
    assert!(replay.epoch(1).iter().all(|batch| batch.lent.is_empty()));
    assert_eq!(replay.rows_filled, 2 * SAMPLES as usize);
}

#[test]
fn only_a_cache_of_everything_in_pages_of_its_own_lends() {
    let of = |len: u32| {
        let index = index(SAMPLES, 2, |_| len);
        let block_bytes = block_bytes_for((0..SAMPLES).map(|_| len));
        (index, block_bytes, u64::from(SAMPLES) * u64::from(len.next_multiple_of(block_bytes)))
    };
    let (large, block_bytes, bytes) = of(65_000);
    let lend = |index: &_, cache_bytes, block_bytes, page_bytes| {
        may_lend(index, cache_bytes, block_bytes, page_bytes, Policy::Lookahead)
    };
    assert!(lend(&large, bytes, block_bytes, 4096));
    assert!(!may_lend(&large, bytes, block_bytes, 4096, Policy::Icache), "it evicts although all would fit");
    assert!(!lend(&large, bytes - 1, block_bytes, 4096), "one of them may have to go");
    assert!(!lend(&large, bytes, block_bytes, 65536), "a page holds several");
    let (short, block_bytes, bytes) = of(61_000);
    assert!(!lend(&short, bytes, block_bytes, 4096), "15 pages are copied in less time than they are mapped");

    let index = index(SAMPLES, 2, |_| RECORD_BYTES);
    let mut replay = Replay::on_demand(index, Policy::App, u64::from(SAMPLES) * 8192, 8, 1);
    replay.attach_all(&raw_job(), 0);
    replay.epoch(0);
    assert_eq!(lent(&replay.epoch(1)), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Two ranks that release what they like, when they like, with samples that come many times.
    #[test]
    fn no_two_batches_in_hand_show_the_same_record(seed: u64, releases in prop::collection::vec(0..3_u32, 1..6)) {
        let mut job = spec(8, 2);
        job.plan.sampler = Sampler::Pads;
        job.ring_bytes = 1 << 20;
        let mut replay = Replay::lending(index(SAMPLES, 2, |_| RECORD_BYTES), seed);
        replay.attach_all(&job, 0);
        let losses = replay.epoch(0);
        replay.report(&losses, |id| if id < 4 { 100.0 } else { 0.01 });
        replay.hold = true;
        let mut in_hand: HashMap<u32, Vec<u64>> = HashMap::new();
        for (epoch, release) in (1..).zip(releases) {
            let taken = replay.epoch(epoch);
            replay.report(&taken, |id| if id < 4 { 100.0 } else { 0.01 });
            for batch in taken {
                in_hand.entry(batch.rank).or_default().extend(batch.lent);
            }
            let mut shown: Vec<u64> =
                in_hand.values().flatten().copied().filter(|&place| place != NOT_LENT).collect();
            let all = shown.len();
            shown.sort_unstable();
            shown.dedup();
            prop_assert_eq!(shown.len(), all);
            if release < 2 {
                replay.release_all(release);
                in_hand.remove(&release);
            }
        }
        prop_assert!(replay.failed.is_empty(), "{:?}", replay.failed);
    }
}
