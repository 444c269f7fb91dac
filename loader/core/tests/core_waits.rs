//! The time that a trainer waits goes to what its next batch waits for, to the nanosecond.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::replay::{Replay, index, spec};
use shade_core::{Cause, Completion, Event, RankStatus, Waits};
use shade_formats::SampleId;
use shade_job::Policy;

const MS: Duration = Duration::from_millis(1);
const SAMPLES: u32 = 400;
/// Time of a tick.
const TICK_NS: u64 = 1_000;

fn replay(ranks: u32) -> Replay {
    let mut replay = Replay::on_demand(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 100 * 512, 8, 5);
    replay.attach_all(&spec(10, ranks), 0);
    replay
}

fn rank(replay: &Replay, session: u32) -> RankStatus {
    replay.core().stats(session).rank.unwrap()
}

fn waits(replay: &Replay, session: u32) -> Waits {
    rank(replay, session).waits
}

/// Answers all reads; rows are not filled.
fn read_all(replay: &mut Replay) {
    while !replay.reading.is_empty() {
        for op in std::mem::take(&mut replay.reading) {
            let completion = Completion { op, outcome: Ok(()), checked: false, latency: MS };
            replay.step(Event::Read(completion));
        }
    }
}

#[test]
fn time_goes_to_reads_then_to_workers_then_to_the_trainer() {
    let mut replay = replay(1);
    replay.hold = true;
    replay.wait(9 * MS);
    assert_eq!(waits(&replay, 0), Waits::default(), "no epoch is wanted");
    replay.start(0, 0, 0);
    replay.wait(5 * MS);
    assert_eq!(rank(&replay, 0).waits_for, Some(Cause::Storage));
    read_all(&mut replay);
    replay.wait(3 * MS);
    assert_eq!(rank(&replay, 0).waits_for, Some(Cause::Workers));
    let expected = Waits { storage_ns: 5_000_000, workers_ns: 3_000_000, ..Waits::default() };
    assert_eq!(waits(&replay, 0), expected);
    while replay.taken.is_empty() {
        replay.tick();
    }
    let first = waits(&replay, 0);
    replay.run();
    replay.wait(7 * MS);
    let full = waits(&replay, 0);
    assert_eq!(full.waited_ns(), first.waited_ns(), "it does not say that it waits");
    // From the tick on at which the last block was filled.
    assert!((7_000_000..7_000_000 + TICK_NS).contains(&full.ring_full_ns), "{full:?}");
    let RankStatus { in_ring, open, waits_for, attached_ns, .. } = rank(&replay, 0);
    assert_eq!((in_ring as usize, open, waits_for), (replay.taken.len(), 0, None));
    assert!(attached_ns >= 24_000_000);
}

#[test]
fn a_rank_that_begins_first_waits_for_the_others() {
    let mut replay = replay(2);
    replay.start(1, 0, 0);
    replay.wait(4 * MS);
    assert_eq!(waits(&replay, 1), Waits { ranks_ns: 4_000_000, ..Waits::default() });
    assert_eq!(waits(&replay, 0), Waits::default());
    replay.start(0, 0, 0);
    replay.wait(2 * MS);
    assert_eq!(waits(&replay, 1), Waits { ranks_ns: 4_000_000, storage_ns: 2_000_000, ..Waits::default() });
    assert_eq!(waits(&replay, 0), Waits { storage_ns: 2_000_000, ..Waits::default() });
}

#[test]
fn the_time_of_a_draw_is_the_plans() {
    let mut replay = replay(1);
    let (core, mut actions) = (replay.core_mut(), Vec::new());
    let start = Event::StartEpoch { session: 0, generation: 1, epoch: 0, first_batch: 0, has_taken: false };
    core.step(0, start, &mut actions);
    assert!(core.advance(0, &mut actions), "there is more to do");
    while core.advance(6_000_000, &mut actions) {}
    assert_eq!(waits(&replay, 0), Waits { plan_ns: 6_000_000, ..Waits::default() });
}

#[test]
fn a_wait_begins_when_it_is_told_and_only_for_what_comes_next() {
    let mut replay = replay(1);
    replay.start(0, 0, 0);
    while replay.taken.is_empty() {
        replay.tick();
    }
    let next = replay.taken.len() as u64;
    for stale_or_wrong in [0, next + 1, u64::MAX] {
        replay.step(Event::Waits { session: 0, seq: stale_or_wrong });
        replay.step(Event::Waits { session: 77, seq: 0 });
    }
    let before = waits(&replay, 0);
    replay.wait(MS);
    assert_eq!(waits(&replay, 0), before, "it computes");
    replay.step(Event::Waits { session: 0, seq: next });
    replay.wait(2 * MS);
    assert_eq!(waits(&replay, 0).waited_ns() - before.waited_ns(), 2_000_000);
}

#[test]
fn every_moment_of_a_trainer_that_only_waits_is_counted_once() {
    for seed in 0..20 {
        let index = index(SAMPLES, 4, |id| 300 + id % 7 * 100);
        let mut replay = Replay::new(index, Policy::Lookahead, 100 * 512, 8, seed);
        replay.attach_all(&spec(10, 1), 0);
        let mut ticks = 0;
        for epoch in 0..3 {
            replay.start(0, epoch, 0);
            while replay.ended.len() == epoch as usize {
                // After all batches, and the end of each epoch.
                let seq = replay.taken.len() as u64 + u64::from(epoch);
                replay.step(Event::Waits { session: 0, seq });
                assert!(replay.tick(), "the epoch ends");
                ticks += 1;
            }
            replay.run();
            replay.wait(9 * MS);
        }
        assert_eq!(waits(&replay, 0).waited_ns(), ticks * TICK_NS, "{:?}", waits(&replay, 0));
    }
}

#[test]
fn an_epoch_that_all_ranks_have_ended_is_told_once() {
    let mut replay = replay(2);
    replay.start(0, 0, 0);
    replay.wait(3 * MS);
    replay.start(1, 0, 0);
    replay.run();
    replay.wait(MS);
    let [line] = &replay.informed[..] else { panic!("{:?}", replay.informed) };
    assert!(line.starts_with("job \"job\", epoch 0: waited ") && line.contains(" (ranks), "), "{line}");
    assert!(line.contains(", 0.0 % hits, ") && line.ends_with(" MB/s"), "{line}");
}

/// The share of the time that the line about an epoch says.
fn told_percent(line: &str) -> f64 {
    line.split("waited ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_epoch_is_told_when_its_last_batch_is_released_over_the_time_until_then() {
    for goes_on in [false, true] {
        let mut replay = Replay::on_demand(index(8, 4, |_| 400), Policy::Lookahead, 8 * 512, 8, 5);
        replay.attach_all(&spec(4, 1), 0);
        replay.hold = true;
        replay.start(0, 0, 0);
        replay.wait(10 * MS);
        read_all(&mut replay);
        replay.run();
        assert!(replay.ended.len() == 1 && replay.informed.is_empty(), "all is published, nothing released");
        // It takes nine times as long as it has waited for the first batch.
        replay.wait(90 * MS);
        replay.hold = false;
        if goes_on {
            replay.start(0, 1, 0);
        } else {
            replay.release_all(0);
        }
        let [line] = &replay.informed[..] else { panic!("{:?}", replay.informed) };
        assert!(line.contains("epoch 0: ") && (9.0..11.0).contains(&told_percent(line)), "{line}");
    }
}

#[test]
fn no_epoch_waits_for_longer_than_it_takes() {
    for seed in 0..20 {
        let mut replay = Replay::new(index(40, 4, |_| 400), Policy::Lookahead, 10 * 512, 8, seed);
        replay.attach_all(&spec(5, 2), 0);
        for epoch in 0..6 {
            // One rank breaks off in the middle of each epoch, and what it waited for comes later.
            for rank in [0, 1] {
                replay.start(rank, epoch, 0);
            }
            for _ in 0..(seed + u64::from(epoch)) % 7 {
                replay.tick();
            }
            replay.wait(3 * MS);
            if epoch % 2 == 1 {
                replay.run();
            }
        }
        replay.run();
        replay.detach(0);
        assert!(!replay.informed.is_empty());
        for line in &replay.informed {
            assert!((0.0..=100.0).contains(&told_percent(line)), "{line}");
        }
    }
}

#[test]
fn the_number_of_samples_seen_is_right_after_deliveries_and_in_a_loaded_state() {
    let share = |replay: &Replay| {
        let table = replay.core().importance(0).unwrap();
        let seen = (0..SAMPLES).filter(|&id| table.last_epoch(SampleId(id)).is_some()).count();
        assert_eq!(table.seen() as usize, seen);
        replay.core().stats(0).total.ever_seen_share
    };
    let mut replay = self::replay(1);
    assert!(share(&replay).abs() < 1e-12);
    replay.start(0, 0, 0);
    while replay.taken.len() < 10 {
        replay.tick();
    }
    let batches = u32::try_from(replay.taken.len()).unwrap();
    let expected = f64::from(batches) / 40.0;
    assert!((share(&replay) - expected).abs() < 1e-12);
    let state = replay.save(0, batches);
    let mut resumed = self::replay(1);
    resumed.load(&state);
    assert!((share(&resumed) - expected).abs() < 1e-12);
    resumed.start(0, 0, batches);
    resumed.run();
    assert!((share(&resumed) - 1.0).abs() < 1e-12);
    resumed.epoch(1);
    assert!((share(&resumed) - 1.0).abs() < 1e-12);
}
