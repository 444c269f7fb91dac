//! Bad records are left out or replaced up to a share of the epoch: beyond it the epoch ends with
//! an error that says how many they were. What `stats()` counts is what was delivered.

use crate::replay::{self, Replay, index, spec};
use shade_core::{Counts, Event};
use shade_formats::ring::FLAG_SUBSTITUTED;
use shade_job::{JobSpec, OnError, PlanSpec, Policy, Sampler, Tail};

fn job(on_error: OnError, batch_size: u32, world_size: u32) -> JobSpec {
    // In order, so that a test knows which batch a sample is in.
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    JobSpec { plan, on_error, ring_bytes: 1 << 20, ..spec(batch_size, world_size) }
}

fn replay(samples: u32, bad: impl IntoIterator<Item = u32>, job: &JobSpec) -> Replay {
    let mut replay = Replay::new(index(samples, 5, |_| 300), Policy::App, 20_000, 4, 6);
    replay.bad.extend(bad);
    replay.attach_all(job, 0);
    replay
}

fn counts(replay: &Replay) -> Counts {
    replay.core().stats(0).total.counts.counts
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn more_than_the_share_end_the_epoch_with_figures_and_faults() {
    for on_error in [OnError::Skip, OnError::Substitute] {
        let job = job(on_error, 16, 1);
        // 1 % of 1,600 are 16. A bad sample in each batch, the next of its class is well.
        let mut within = replay(1600, (0..16).map(|batch| 16 * batch), &job);
        assert_eq!(within.epoch(0).len(), 100, "{on_error}");
        assert!(within.errors.is_empty());

        let mut beyond = replay(1600, (0..30).map(|batch| 16 * batch), &job);
        let taken = beyond.epoch(0);
        assert_eq!(
            taken.iter().map(|taken| taken.batch).max(),
            Some(15),
            "the 17th batch has the 17th bad record"
        );
        let text = &beyond.errors[0];
        holds(text, &["epoch 0", "of 272 samples", "at most 16 of the 1600", "bad_max=0.01"]);
        holds(text, &["the first: sample 0 (class0/0.png)", "the last: sample 256 (class1/256.png)", "byte"]);
        let (skipped, substituted) = if on_error == OnError::Skip { (16, 0) } else { (0, 16) };
        holds(text, &[if on_error == OnError::Skip { "17 of" } else { "17 substituted" }]);
        let counts = counts(&beyond);
        assert_eq!((counts.skipped, counts.substituted), (skipped, substituted), "of what was delivered");
        assert_eq!(counts.delivered, taken.iter().map(|taken| taken.ids.len() as u64).sum::<u64>());
        assert_eq!(counts.faults, 30);
    }
}

#[test]
fn a_few_are_let_pass_in_a_small_dataset_unless_none_may_be() {
    for (bad, bad_max, ends) in [
        (1, 0.01, false),
        (8, 0.01, false),
        (9, 0.01, true),
        (9, 0.2, false),
        (11, 0.2, true),
        (40, 1.0, false),
        (1, 0.0, true),
        (0, 0.0, false),
    ] {
        // Every other sample, so that no batch is without any.
        let job = JobSpec { bad_max, ..job(OnError::Skip, 10, 1) };
        let mut replay = replay(50, (0..50).filter(|id| id % 10 != 9).take(bad), &job);
        let taken = replay.epoch(0);
        assert_eq!(!replay.errors.is_empty(), ends, "{bad} of 50, bad_max {bad_max}: {:?}", replay.errors);
        assert_eq!(counts(&replay).skipped, taken.iter().map(|taken| u64::from(taken.skipped)).sum::<u64>());
    }
}

#[test]
fn ranks_are_counted_together_and_all_hear_of_it() {
    // Rank 0 has the even samples, and all that are bad.
    let mut replay = replay(400, (0..24).map(|bad| 16 * bad), &job(OnError::Skip, 8, 2));
    replay.epoch(0);
    assert!(replay.errors.len() > 2, "{:?}", replay.errors);
    for rank in 0..2 {
        assert!(
            replay.taken.iter().filter(|taken| taken.rank == rank).count() < 25,
            "rank {rank} ends early, too"
        );
    }
    holds(&replay.errors[0], &["9 of", "at most 8 of the 400"]);
}

/// A plan of several nodes has the rows of all their ranks.
#[test]
fn the_share_is_of_the_rows_of_the_ranks_here() {
    // Rank 0 has the even samples, and is alone here: 1 % of its 2,000 are 20.
    let job = JobSpec { ranks_here: 1, ..job(OnError::Skip, 16, 2) };
    for (bad, ends) in [(20, false), (21, true)] {
        let mut replay = Replay::new(index(4000, 5, |_| 300), Policy::App, 20_000, 4, 6);
        replay.bad.extend((0..bad).map(|bad| 32 * bad));
        replay.attach(0, 0, &job);
        replay.epoch(0);
        assert_eq!(!replay.errors.is_empty(), ends, "{bad}: {:?}", replay.errors);
        assert_eq!(replay.core().stats(0).epoch.planned, 2000);
    }
}

/// The limit is the epoch's, whatever its ranks do meanwhile.
#[test]
fn a_rank_that_is_ahead_or_gone_counts_on() {
    for leaves in [false, true] {
        // Rank 0 has the even samples. Nothing is cached, so that what is bad later is read again.
        let mut replay = Replay::new(index(400, 5, |_| 300), Policy::App, 0, 4, 6);
        replay.bad.extend((0..5).map(|bad| 16 * bad));
        replay.attach_all(&job(OnError::Skip, 8, 2), 0);
        replay.epoch(0);
        assert_eq!((replay.errors.len(), counts(&replay).skipped), (0, 5));
        if leaves {
            replay.detach(0);
        } else {
            replay.start(0, 1, 0);
        }
        replay.bad.extend((0..5).map(|bad| 16 * bad + 1));
        replay.start(1, 0, 0);
        replay.run();
        assert!(!replay.errors.is_empty(), "leaves: {leaves}");
        holds(&replay.errors[0], &["9 of", "at most 8 of the 400"]);
    }
}

#[test]
fn a_loaded_state_counts_anew() {
    let mut replay = Replay::new(index(400, 5, |_| 300), Policy::App, 0, 4, 6);
    replay.attach_all(&job(OnError::Skip, 8, 1), 0);
    let state = replay.save(0, 0);
    replay.bad.extend((0..8).map(|bad| 16 * bad));
    for _ in 0..2 {
        replay.epoch(0);
        assert_eq!((replay.errors.len(), replay.core().stats(0).epoch.counts.counts.skipped), (0, 8));
        replay.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
        let epoch = replay.core().stats(0).epoch;
        assert_eq!((epoch.epoch, epoch.counts.counts), (None, Counts::default()));
    }
}

#[test]
fn an_epoch_that_begins_again_counts_anew() {
    let mut replay = replay(50, [1, 2, 3, 4, 5], &job(OnError::Skip, 10, 1));
    for _ in 0..4 {
        replay.epoch(0);
    }
    assert!(replay.errors.is_empty(), "{:?}", replay.errors);
    assert_eq!(counts(&replay).skipped, 20);
}

#[test]
fn a_batch_of_which_nothing_is_left_is_not_delivered() {
    let mut alone = replay(50, [3, 10, 11, 12, 13, 14], &job(OnError::Skip, 5, 1));
    let taken = alone.epoch(0);
    assert_eq!(taken.iter().map(|taken| taken.batch).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 7, 8, 9]);
    assert!(taken.iter().all(|taken| !taken.ids.is_empty()));
    assert!(alone.errors.is_empty());
    assert_eq!(alone.ended, [(0, 0)]);
    assert_eq!((counts(&alone).delivered, counts(&alone).skipped), (44, 6), "what is lost is counted");

    // With batches of one sample every bad record is a batch.
    let mut single = replay(50, [0, 7, 49], &job(OnError::Skip, 1, 1));
    assert_eq!(single.epoch(0).len(), 47);
    assert_eq!((single.errors.len(), &single.ended), (0, &vec![(0, 0)]));

    // Padding is not counted as samples.
    let mut padded = replay(51, [50], &JobSpec { tail: Tail::Pad, ..job(OnError::Skip, 5, 1) });
    assert_eq!(padded.epoch(0).len(), 10);

    // Ranks must have the same number of batches.
    let mut two =
        replay(40, (0..40).filter(|id| (10..20).contains(id) && id % 2 == 1), &job(OnError::Skip, 5, 2));
    two.epoch(0);
    assert_eq!(two.errors.len(), 1);
    holds(
        &two.errors[0],
        &["batch 1 of epoch 0", "all 5 were skipped", "the first: sample 1", "the last: sample 1"],
    );
    assert_eq!(counts(&two).skipped, 0);
}

/// 18 samples for eight ranks by two: the second batch of most ranks is padding.
#[test]
fn rows_that_only_fill_up_a_batch_are_no_samples() {
    for on_error in [OnError::Skip, OnError::Substitute] {
        for bad in 0..16 {
            let mut replay = replay(18, [bad], &JobSpec { tail: Tail::Pad, ..job(on_error, 2, 8) });
            let taken = replay.epoch(0);
            assert!(replay.errors.is_empty(), "{on_error}, {bad}: {:?}", replay.errors);
            assert_eq!(replay.ended.len(), 8);
            let told = |of: fn(&replay::Taken) -> u32| taken.iter().map(of).sum::<u32>();
            let (skipped, substituted) = if on_error == OnError::Skip { (1, 0) } else { (0, 1) };
            let (is_skipped, is_substituted) = (told(|taken| taken.skipped), told(|taken| taken.substituted));
            assert_eq!((is_skipped, is_substituted), (skipped, substituted), "{on_error}, {bad}");
            let counts = counts(&replay);
            assert_eq!((counts.skipped, counts.substituted), (skipped.into(), substituted.into()));
            assert_eq!(counts.delivered, 18 - u64::from(skipped), "{on_error}, {bad}");
        }
    }
    // Nothing is left of rank 2's batch, which is padded with rank 0's first one. The other ranks
    // have theirs, so it is an error, too.
    let mut replay = replay(18, [0, 8], &JobSpec { tail: Tail::Pad, ..job(OnError::Skip, 2, 8) });
    replay.epoch(0);
    replay.errors.sort();
    assert_eq!(replay.errors.len(), 2, "{:?}", replay.errors);
    holds(&replay.errors[0], &["batch 0 of epoch 0", "all 2 were skipped"]);
    holds(&replay.errors[1], &["batch 1 of epoch 0", "all 2 were skipped"]);
}

/// A batch that ends as an error delivers no substitute, so none is counted.
#[test]
fn only_what_is_delivered_counts() {
    // The third of three classes has one sample, which nothing can stand in for.
    let dataset =
        replay::index_of(20, 3, |_| 300, |id, entry| entry.label = if id == 4 { 2 } else { id % 2 });
    let mut replay = Replay::new(dataset, Policy::App, 20_000, 4, 6);
    replay.bad.extend([3, 4, 13]);
    replay.attach_all(&job(OnError::Substitute, 10, 1), 0);
    let taken = replay.epoch(0);
    assert_eq!(taken.iter().map(|taken| taken.substituted).collect::<Vec<_>>(), [1]);
    assert_eq!(replay.errors.len(), 1);
    assert_eq!(counts(&replay).substituted, 1);
    assert_eq!(counts(&replay).delivered, 10);
}

/// Raw records are of different lengths, and a row has room for a substitute whichever of its class
/// is bad.
#[test]
fn any_raw_record_can_be_substituted() {
    // Within a class lengths rise with the sample id.
    let len = |id: u32| 100 + 40 * id;
    for bad in 0..60 {
        let mut replay = Replay::new(index(60, 5, len), Policy::App, 20_000, 4, 6);
        replay.bad.insert(bad);
        replay.attach_all(&job(OnError::Substitute, 10, 1), 0);
        let taken = replay.epoch(0);
        assert!(replay.errors.is_empty() && replay.failed.is_empty(), "{bad}: {:?}", replay.errors);
        let flagged: Vec<u32> = (taken.iter())
            .flat_map(|taken| taken.ids.iter().zip(&taken.flags))
            .filter(|(_, flags)| **flags & FLAG_SUBSTITUTED != 0)
            .map(|(&id, _)| id)
            .collect();
        assert_eq!(flagged.len(), 1, "{bad}");
        assert!(flagged[0] != bad && flagged[0] % 5 == bad % 5, "{bad}: {flagged:?}");
    }

    // Two of the shortest are bad, and the third substitutes both. If all of a class are bad there
    // is no substitute.
    let mut two = Replay::new(index(60, 5, len), Policy::App, 20_000, 4, 6);
    two.bad.extend([0, 5]);
    two.attach_all(&job(OnError::Substitute, 10, 1), 0);
    let taken = two.epoch(0);
    assert_eq!((taken[0].ids[0], taken[0].ids[5]), (10, 10), "{:?}", two.errors);

    let room = |on_error| {
        let mut replay = Replay::new(index(60, 5, len), Policy::App, 20_000, 4, 6);
        replay.attach_all(&job(on_error, 10, 1), 0);
        let taken = replay.epoch(0);
        taken.iter().map(|taken| taken.len).collect::<Vec<_>>()
    };
    let (exact, with_room) = (room(OnError::Skip), room(OnError::Substitute));
    assert!(
        with_room[0] > exact[0] && with_room[2..] == exact[2..],
        "room costs the shortest only: {with_room:?}, {exact:?}"
    );
}
