//! A row that several jobs of a group train on is decoded once.

use crate::replay::{Replay, index, spec};
use proptest::prelude::*;
use shade_job::{DECODED_BYTES, Decode, JobSpec, OnError, Pair, PlanSpec, Sampler, Transform, group_digest};

const SAMPLES: u32 = 240;
const JOBS: u32 = 4;
const ROW_BYTES: u64 = 3 * 8 * 8;

fn job(group: &str, sampler: Sampler, decode: Decode) -> JobSpec {
    let group = if group.is_empty() { 0 } else { group_digest(group) };
    let plan = PlanSpec { sampler, group, ..PlanSpec::default() };
    JobSpec { plan, decode, on_error: OnError::Substitute, bad_max: 1.0, ..spec(20, 1) }
}

fn decoded() -> Decode {
    Decode::cover(8, 8)
}

fn replay(decoded_bytes: u64) -> Replay {
    Replay::decoding_once(index(SAMPLES, 4, |_| 400), 100 * 512, decoded_bytes, 5)
}

/// An epoch of these jobs at the same time. Returns how many rows were made, and how many copied.
fn epoch(decoded_bytes: u64, jobs: &[JobSpec]) -> [u64; 2] {
    let mut replay = replay(decoded_bytes);
    for (session, job) in (0..).zip(jobs) {
        replay.attach_job(session, &session.to_string(), job);
    }
    for session in (0..).take(jobs.len()) {
        replay.start(session, 0, 0);
    }
    replay.run();
    assert_eq!(replay.ended.len(), jobs.len());
    let counted: u64 = replay.core().jobs().iter().map(|job| job.counts.counts.copied).sum();
    assert_eq!(counted, replay.copied);
    [replay.made, replay.copied]
}

#[test]
fn equal_rows_of_a_group_are_made_once() {
    let all = u64::from(SAMPLES);
    for decode in [decoded(), Decode::Whole] {
        let jobs = vec![job("sweep", Sampler::Uniform, decode); JOBS as usize];
        assert_eq!(epoch(DECODED_BYTES, &jobs), [all, 3 * all]);
        assert_eq!(epoch(0, &jobs), [4 * all, 0], "no window");
    }
}

#[test]
fn rows_that_may_differ_are_made_for_each() {
    let all = u64::from(SAMPLES);
    let uniform = |group, decode| job(group, Sampler::Uniform, decode);
    let other = Decode::cover(8, 9);
    for (what, jobs) in [
        ("no group", [uniform("", decoded()), uniform("", decoded())]),
        ("two groups", [uniform("a", decoded()), uniform("b", decoded())]),
        ("two sizes", [uniform("a", decoded()), uniform("a", other.clone())]),
        ("records", [uniform("a", Decode::Raw), uniform("a", Decode::Raw)]),
    ] {
        assert_eq!(epoch(DECODED_BYTES, &jobs), [2 * all, 0], "{what}");
    }
    let jobs = [uniform("a", decoded()), uniform("a", other), uniform("a", decoded())];
    assert_eq!(epoch(DECODED_BYTES, &jobs), [2 * all, all], "two of three are equal");
}

#[test]
fn a_job_that_comes_after_the_window_makes_its_own_rows() {
    for (window, made) in [(DECODED_BYTES, 0), (40 * ROW_BYTES, u64::from(SAMPLES))] {
        let mut replay = replay(window);
        let job = job("sweep", Sampler::Uniform, decoded());
        replay.attach_job(0, "first", &job);
        replay.attach_job(1, "last", &job);
        replay.start(0, 0, 0);
        replay.run();
        assert_eq!(replay.made, u64::from(SAMPLES));
        assert!(replay.core().stats(0).decoded_bytes <= window);
        replay.start(1, 0, 0);
        replay.run();
        assert_eq!(replay.made, u64::from(SAMPLES) + made, "a window of {window} bytes");
        assert_eq!(replay.ended.len(), 2);
        replay.detach(1);
        assert_eq!(replay.core().stats(0).decoded_bytes, 0, "nobody shares it any more");
    }
}

#[test]
fn what_another_job_had_decoded_is_not_read() {
    for (window, reads) in [(DECODED_BYTES, 1), (0, 2)] {
        let mut replay = Replay::decoding_once(index(SAMPLES, 4, |_| 400), 0, window, 5);
        let job = job("sweep", Sampler::Uniform, decoded());
        for session in 0..2 {
            replay.attach_job(session, &session.to_string(), &job);
        }
        for session in 0..2 {
            replay.start(session, 0, 0);
            replay.run();
        }
        assert_eq!(replay.reads, reads * u64::from(SAMPLES), "a window of {window} bytes");
        let counts = replay.core().stats(1).total.counts.counts;
        assert_eq!(counts.joined == counts.accesses, window > 0, "no cache, so all or none");
    }
}

#[test]
fn what_a_worker_decodes_for_another_job_is_not_read() {
    for behind in [1, 5, 20, 60, 150, 300] {
        let mut replay = Replay::decoding_once(index(SAMPLES, 4, |_| 400), 0, DECODED_BYTES, behind);
        let job = job("sweep", Sampler::Uniform, decoded());
        for session in 0..2 {
            replay.attach_job(session, &session.to_string(), &job);
        }
        replay.start(0, 0, 0);
        for _ in 0..behind {
            replay.tick();
        }
        replay.start(1, 0, 0);
        replay.run();
        assert_eq!(replay.reads, u64::from(SAMPLES), "{behind} steps behind");
    }
}

#[test]
fn rows_that_are_decoded_when_nobody_shares_them_are_not_kept() {
    let mut replay = replay(DECODED_BYTES);
    let job = job("sweep", Sampler::Uniform, decoded());
    replay.attach_job(0, "stays", &job);
    replay.attach_job(1, "leaves", &job);
    replay.start(0, 0, 0);
    while replay.filling.is_empty() {
        replay.tick();
    }
    replay.detach(1);
    replay.run();
    assert_eq!(replay.ended.len(), 1);
    assert_eq!(replay.core().stats(0).decoded_bytes, 0);
}

#[test]
fn copies_are_counted_though_the_job_that_had_them_decoded_has_left() {
    let mut replay = Replay::decoding_once(index(SAMPLES, 4, |_| 400), 0, DECODED_BYTES, 5);
    let job = job("sweep", Sampler::Uniform, decoded());
    replay.attach_job(0, "leaves", &job);
    replay.attach_job(1, "stays", &job);
    replay.start(0, 0, 0);
    replay.run();
    replay.start(1, 0, 0);
    replay.detach(0);
    replay.run();
    assert!(replay.copied > 0);
    assert_eq!(replay.core().stats(1).total.counts.counts.copied, replay.copied);
}

#[test]
fn a_late_copy_of_one_output_is_no_row_of_another() {
    let mut replay = Replay::decoding_once(index(SAMPLES, 4, |_| 400), 1 << 20, DECODED_BYTES, 5);
    let first = job("sweep", Sampler::Uniform, decoded());
    let flipped = vec![Transform::Cover { size: Pair([8, 8]) }, Transform::RandomHorizontalFlip { p: 0.5 }];
    let second = job("sweep", Sampler::Uniform, flipped.into());
    replay.attach_job(0, "0", &first);
    replay.attach_job(1, "1", &first);
    replay.start(0, 0, 0);
    replay.run();
    replay.start(1, 0, 0);
    // A worker is slow with this copy. Meanwhile nobody shares rows any more, and then others do.
    let late = replay.filling.remove(0);
    replay.detach(0);
    replay.attach_job(2, "2", &second);
    replay.attach_job(3, "3", &second);
    replay.start(2, 0, 0);
    let mut decoding = Vec::new();
    while replay.tick() {
        decoding.extend(replay.filling.extract_if(.., |order| order.ticket.session == 2));
    }
    replay.start(3, 0, 0);
    replay.filling.push(late);
    while replay.tick() {}
    replay.filling.extend(decoding);
    replay.run();
    assert_eq!(replay.ended.len(), 4);
}

#[test]
fn a_use_of_a_sample_is_the_same_row_wherever_the_plans_have_it() {
    let jobs = vec![job("sweep", Sampler::Pads, decoded()); 2];
    let mut replay = replay(DECODED_BYTES);
    for (session, job) in (0..).zip(&jobs) {
        replay.attach_job(session, &session.to_string(), job);
    }
    for epoch in 0..3 {
        (replay.made, replay.copied) = (0, 0);
        replay.start(0, epoch, 0);
        replay.start(1, epoch, 0);
        replay.run();
        let losses: Vec<_> = replay.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect();
        for taken in &losses {
            // The second job finds other samples hard.
            let loss = |id: u32| (id * (taken.session + 3) % 17) as f32;
            let event = shade_core::Event::Report {
                session: taken.session,
                epoch,
                batch: taken.batch,
                losses: taken.ids.iter().map(|&id| loss(id)).collect(),
            };
            replay.step(event);
        }
    }
    // Repeats are other rows: each job makes all that the other has not.
    let all = 2 * u64::from(SAMPLES);
    assert_eq!(replay.made + replay.copied, all);
    assert!(replay.copied > u64::from(SAMPLES) * 3 / 4, "{} copied", replay.copied);
    assert!(replay.made > u64::from(SAMPLES), "the plans differ");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Records that cannot be read or are damaged, trainers that leave or turn to another epoch in
    /// the middle: the others get all their rows, and all memory comes back.
    #[test]
    fn nobody_waits_for_a_row_that_does_not_come(
        seed in any::<u64>(),
        window in prop::sample::select(vec![0, 3 * ROW_BYTES, 50 * ROW_BYTES, DECODED_BYTES]),
        bad in prop::collection::vec(0..SAMPLES, 0..20),
        spoilt in prop::collection::vec((0..SAMPLES, 1..4_u32), 0..20),
        moves in prop::collection::vec((1..400_usize, 0..JOBS, any::<bool>()), 0..8),
    ) {
        let mut replay = Replay::decoding_once(index(SAMPLES, 4, |_| 400), 100 * 512, window, seed);
        replay.bad = bad.into_iter().collect();
        replay.spoilt = spoilt.into_iter().collect();
        let job = job("sweep", Sampler::Uniform, decoded());
        for session in 0..JOBS {
            replay.attach_job(session, &session.to_string(), &job);
            replay.start(session, 0, 0);
        }
        let mut left: Vec<u32> = (0..JOBS).collect();
        for (ticks, session, leaves) in moves {
            for _ in 0..ticks {
                replay.tick();
            }
            if !left.contains(&session) {
                continue;
            }
            if leaves {
                left.retain(|&other| other != session);
                replay.detach(session);
            } else {
                replay.start(session, 1, 0);
            }
        }
        replay.run();
        for &session in &left {
            replay.start(session, 2, 0);
        }
        replay.run();
        for session in left {
            let rows: usize = replay
                .taken
                .iter()
                .filter(|taken| (taken.session, taken.epoch) == (session, 2))
                .map(|taken| taken.ids.len())
                .sum();
            prop_assert_eq!(rows, SAMPLES as usize);
            prop_assert!(replay.core().stats(session).decoded_bytes <= window);
            replay.detach(session);
        }
        prop_assert_eq!(replay.core().stats(0).decoded_bytes, 0);
        let held = replay.core().arena_used_bytes();
        prop_assert_eq!(held, replay.core().stats(0).cache_used_bytes, "no record is lost");
    }
}
