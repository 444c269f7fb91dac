//! Several jobs share one cache: each is served as if it were alone, and they read less together.

use std::collections::BTreeMap;

use crate::replay::{Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::Event;
use shade_formats::limits::JOBS_MAX;
use shade_formats::trace::Line;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 600;
/// Digests of what one job was served, by policy.
const ONE_JOB: [&str; 10] = [
    "lookahead 343479295941339b",
    "app d9ea154b92355a9b",
    "topc 428977fdc24500f1",
    "lfu 183c2a561d009448",
    "lru d388684d67c29702",
    "fifo 442d08c2e8ab312e",
    "arc 83b05828d6b8e461",
    "static fae24dec18e7526d",
    "icache 4bb0d52aeacc6e0c",
    "quiver f0325c0ad1623cf4",
];
/// Bytes that a record of 400 bytes takes.
const BLOCK: u64 = 512;

fn job(sampler: Sampler, seed: u64) -> JobSpec {
    JobSpec { plan: PlanSpec { sampler, seed, ..PlanSpec::default() }, ..spec(20, 1) }
}

fn replay(cached: u32) -> Replay {
    Replay::new(index(SAMPLES, 4, |_| 400), Policy::Lookahead, u64::from(cached) * BLOCK, 8, 5)
}

/// What a session took in an epoch, as (sample, times).
fn delivered(taken: &[Taken], session: u32, epoch: u32) -> BTreeMap<u32, u32> {
    let mut times = BTreeMap::new();
    for taken in taken.iter().filter(|taken| taken.session == session && taken.epoch == epoch) {
        taken.ids.iter().for_each(|&id| *times.entry(id).or_default() += 1);
    }
    times
}

/// Trains jobs side by side for `epochs`, without reports. Returns the reads.
fn train(replay: &mut Replay, sessions: &[u32], epochs: u32) -> u64 {
    let before = replay.reads;
    for epoch in 0..epochs {
        sessions.iter().for_each(|&session| replay.start(session, epoch, 0));
        replay.run();
    }
    replay.reads - before
}

#[test]
fn while_there_are_several_jobs_few_rows_are_with_the_workers() {
    let most = |jobs: u32| {
        let mut replay = Replay::on_demand(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 0, 64, 5);
        for session in 0..jobs {
            replay.attach_job(session, &session.to_string(), &spec(20, 1));
            replay.start(session, 0, 0);
        }
        let mut most = 0;
        while replay.tick() {
            most = most.max(replay.filling.len());
        }
        assert_eq!(replay.ended.len(), jobs as usize);
        most
    };
    assert!(most(1) > 6, "one job's rows wait with the workers");
    assert_eq!(most(3), 6);
}

#[test]
fn rows_that_are_at_hand_together_become_four_equal_orders() {
    for jobs in [1, 2] {
        let all = 2 * u64::from(SAMPLES) * 10_240;
        let mut replay = Replay::on_demand(index(SAMPLES, 4, |_| 10_000), Policy::Lookahead, all, 64, 5);
        let spec = JobSpec { ring_bytes: 4 << 20, ..spec(200, 1) };
        (0..jobs).for_each(|session| replay.attach_job(session, &session.to_string(), &spec));
        let mut sizes = BTreeMap::new();
        for epoch in 0..2 {
            (0..jobs).for_each(|session| replay.start(session, epoch, 0));
            while replay.tick() {
                for order in replay.filling.iter().filter(|_| epoch == 1) {
                    let first = order.rows[0].position;
                    sizes.insert((order.ticket.session, order.ticket.seq, first), order.rows.len());
                }
            }
        }
        let sizes: Vec<usize> = sizes.into_values().collect();
        // An order that comes back within a tick is not seen.
        assert!(sizes.len() > 6 && sizes.iter().all(|&rows| rows == 50), "{jobs} jobs: {sizes:?}");
    }
}

#[test]
fn more_jobs_than_orders_go_on_together() {
    let mut replay = replay(SAMPLES);
    replay.attach_job(0, "0", &spec(20, 1));
    // All records are in the cache then.
    train(&mut replay, &[0], 1);
    replay.hold = true;
    (replay.ended, replay.taken) = (Vec::new(), Vec::new());
    for session in 0..12 {
        if session > 0 {
            replay.attach_job(session, &session.to_string(), &spec(20, 1));
        }
        replay.start(session, 1, 0);
    }
    // The last keeps what it has while it waits for more, as a loop in Python keeps a batch.
    while replay.ended.is_empty() && replay.tick() {
        (0..11).for_each(|session| replay.release_all(session));
    }
    let batches = |session| replay.taken.iter().filter(|taken| taken.session == session).count();
    let all: Vec<usize> = (0..12).map(batches).collect();
    assert!(all[11] > 1 && all[..11].iter().all(|&batches| batches > 10), "{all:?} of 30");
}

#[test]
fn each_job_has_its_own_epochs_and_counts_and_they_read_less_together() {
    let mut together = replay(120);
    together.attach_job(0, "a", &job(Sampler::Uniform, 1));
    together.attach_job(1, "b", &job(Sampler::Uniform, 2));
    let shared = train(&mut together, &[0, 1], 3);
    for (session, epoch) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
        let times = delivered(&together.taken, session, epoch);
        assert_eq!((times.len(), times.values().max()), (SAMPLES as usize, Some(&1)));
    }
    let order = |session| {
        let of = together.taken.iter().filter(move |taken| taken.session == session);
        of.flat_map(|taken| taken.ids.clone()).collect::<Vec<_>>()
    };
    assert_ne!(order(0), order(1), "each has a seed of its own");
    let counts = [0, 1].map(|session| together.core().stats(session).total.counts.counts);
    for counts in counts {
        assert_eq!(counts.accesses, 3 * u64::from(SAMPLES));
        assert_eq!(counts.hits + counts.misses + counts.prefetched, counts.accesses);
    }
    assert_eq!(counts[0].reads + counts[1].reads, shared);
    let names: Vec<_> =
        together.core().jobs().into_iter().map(|job| (job.name, job.ranks, job.epoch)).collect();
    assert_eq!(names, [("a".to_owned(), 1, Some(2)), ("b".to_owned(), 1, Some(2))]);

    let alone: u64 = [1, 2]
        .map(|seed| {
            let mut one = replay(60);
            one.attach_job(0, "a", &job(Sampler::Uniform, seed));
            train(&mut one, &[0], 3)
        })
        .iter()
        .sum();
    assert!(shared < alone * 9 / 10, "{shared} reads over one cache, {alone} over two halves");
}

#[test]
fn a_record_that_two_jobs_want_at_once_is_read_once() {
    let mut replay = replay(SAMPLES);
    replay.attach_job(0, "a", &job(Sampler::Uniform, 1));
    replay.attach_job(1, "b", &job(Sampler::Uniform, 2));
    assert_eq!(train(&mut replay, &[0, 1], 2), u64::from(SAMPLES));
}

#[test]
fn a_job_that_does_not_admit_leaves_the_cache_as_it_is() {
    let validate = JobSpec { admit: false, ..job(Sampler::Sequential, 0) };
    let trained = |validated: bool| {
        let mut replay = replay(120);
        replay.attach_job(0, "train", &job(Sampler::Pads, 1));
        for epoch in 0..4 {
            replay.start(0, epoch, 0);
            replay.run();
            if validated {
                let before = replay.core().stats(0);
                replay.attach_job(100 + epoch, "train.eval", &validate);
                replay.start(100 + epoch, 0, 0);
                replay.run();
                assert_eq!(delivered(&replay.taken, 100 + epoch, 0).len(), SAMPLES as usize);
                let counts = replay.core().stats(100 + epoch).total.counts.counts;
                assert_eq!((counts.admitted, counts.evicted, counts.bypassed), (0, 0, 0));
                assert!(counts.hits > 0 && counts.hits + counts.misses == u64::from(SAMPLES));
                // Nobody has admitted or evicted anything, so the residents are the same.
                let after = replay.core().stats(0);
                assert_eq!(after.total.counts.counts, before.total.counts.counts);
                assert_eq!(after.resident, before.resident);
                replay.detach(100 + epoch);
            }
            let taken: Vec<Taken> = replay
                .taken
                .iter()
                .filter(|taken| taken.session == 0 && taken.epoch == epoch)
                .cloned()
                .collect();
            for taken in taken {
                let losses = taken.ids.iter().map(|&id| (id * 7919 % SAMPLES) as f32).collect();
                replay.step(Event::Report { session: 0, epoch, batch: taken.batch, losses });
            }
        }
        let ids = replay.taken.iter().filter(|taken| taken.session == 0).map(|taken| taken.ids.clone());
        ids.collect::<Vec<_>>()
    };
    assert!(trained(false) == trained(true), "the training is that without validation");
}

#[test]
fn a_validation_brings_nothing_into_the_cache_of_a_training_that_waits() {
    // Small records: a read brings along what lies around it.
    let mut replay = Replay::around(index(SAMPLES, 4, |_| 400), 8, 5);
    replay.attach_job(0, "train", &job(Sampler::Uniform, 1));
    replay.attach_job(1, "train.eval", &JobSpec { admit: false, ..job(Sampler::Sequential, 0) });
    train(&mut replay, &[1], 2);
    assert_eq!(replay.core().stats(0).resident, 0);
    assert_eq!(delivered(&replay.taken, 1, 1).len(), SAMPLES as usize);
    // It has not used up what training may bring along.
    assert!(train(&mut replay, &[0], 1) < u64::from(SAMPLES) / 4);
    assert_eq!(replay.core().stats(0).resident, u64::from(SAMPLES));
}

#[test]
fn a_job_that_does_not_admit_has_the_cache_while_nobody_trains() {
    let mut replay = replay(120);
    let validate = JobSpec { admit: false, ..job(Sampler::Sequential, 0) };
    replay.attach_job(0, "eval", &validate);
    train(&mut replay, &[0], 2);
    let counts = |replay: &Replay| replay.core().stats(0).epoch.counts.counts;
    assert!(counts(&replay).hits >= 100, "{:?}", counts(&replay));
    replay.attach_job(1, "train", &job(Sampler::Uniform, 1));
    train(&mut replay, &[1], 2);
    replay.start(0, 2, 0);
    replay.run();
    let validated = counts(&replay);
    assert_eq!((validated.admitted, validated.evicted), (0, 0), "training has it now");
    replay.detach(1);
    replay.start(0, 3, 0);
    replay.run();
    assert!(counts(&replay).admitted > 0, "and leaves it");
}

#[test]
fn names_and_ranks_are_taken_until_they_are_left_and_jobs_have_a_limit() {
    let mut replay = replay(60);
    for session in 0..JOBS_MAX {
        replay.attach_job(session, &format!("job {session}"), &job(Sampler::Uniform, 1));
    }
    assert!(replay.refused.is_empty());
    replay.attach_job(50, "one more", &job(Sampler::Uniform, 1));
    replay.attach_job(51, "job 3", &job(Sampler::Uniform, 1));
    replay.attach_job(52, "job 3", &job(Sampler::Uniform, 2));
    for (text, part) in
        replay.refused.iter().zip(["16 jobs are attached", "attached already", "other arguments"])
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(replay.refused.len(), 3);
    replay.detach(3);
    replay.attach_job(53, "job 3", &job(Sampler::Uniform, 2));
    assert_eq!((replay.refused.len(), replay.core().jobs().len()), (3, JOBS_MAX as usize));
}

#[test]
fn a_state_is_saved_and_loaded_in_mid_epoch_while_another_job_goes_on() {
    let mut replay = replay(120);
    replay.attach_job(0, "a", &job(Sampler::Pads, 1));
    replay.attach_job(1, "b", &job(Sampler::Pads, 2));
    train(&mut replay, &[0, 1], 1);
    replay.start(0, 1, 0);
    replay.start(1, 1, 0);
    (0..200).for_each(|_| assert!(replay.tick()));
    let seen = replay.taken.iter().filter(|taken| taken.session == 0 && taken.epoch == 1).count();
    let state = replay.save(1, u32::try_from(seen).unwrap());
    replay.run();
    let whole = |replay: &Replay, session: u32| {
        let of = replay.taken.iter().filter(|taken| taken.session == session && taken.epoch == 1);
        of.map(|taken| taken.ids.clone()).collect::<Vec<_>>()
    };
    let (first, other) = (whole(&replay, 0), whole(&replay, 1));
    assert!(seen > 0 && seen < first.len());

    replay.detach(0);
    replay.attach_job(2, "a", &job(Sampler::Pads, 1));
    replay.start(1, 2, 0);
    replay.step(Event::LoadState { strata: 0, session: 2, bytes: state });
    assert!(replay.failed.is_empty(), "the other job is not interrupted: {:?}", replay.failed);
    replay.start(2, 1, u32::try_from(seen).unwrap());
    replay.run();
    assert_eq!(whole(&replay, 2), first[seen..]);
    assert_eq!(whole(&replay, 1), other);
    assert_eq!(delivered(&replay.taken, 1, 2).values().sum::<u32>(), SAMPLES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Jobs come and go at any moment. What is left is served whole, nothing is lost, and at the
    /// end nothing is in flight and all memory is the cache's.
    #[test]
    fn jobs_come_and_go(
        policy in prop::sample::select(Policy::ALL),
        cached in 0..200u32,
        seed: u64,
        moves in prop::collection::vec((0..5u32, 0..200usize, any::<bool>()), 1..30),
    ) {
        let mut replay =
            Replay::new(index(SAMPLES, 4, |_| 400), policy, u64::from(cached) * BLOCK, 8, seed);
        let mut next_session = 0;
        let mut attached: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (name, ticks, admit) in moves {
            match attached.get_mut(&name) {
                None => {
                    let of = JobSpec { admit, ..job(Sampler::Pads, name.into()) };
                    replay.attach_job(next_session, &name.to_string(), &of);
                    replay.start(next_session, 0, 0);
                    attached.insert(name, (next_session, 0));
                    next_session += 1;
                }
                Some((session, _)) if ticks % 3 == 0 => {
                    let session = *session;
                    replay.detach(session);
                    attached.remove(&name);
                }
                Some((session, epoch)) => {
                    *epoch += 1;
                    replay.start(*session, *epoch, 0);
                }
            }
            for _ in 0..ticks {
                replay.tick();
            }
        }
        replay.run();
        prop_assert!(replay.refused.is_empty() && replay.errors.is_empty() && replay.failed.is_empty());
        for &(session, epoch) in attached.values() {
            let times: u32 = delivered(&replay.taken, session, epoch).values().sum();
            prop_assert_eq!(times, SAMPLES);
        }
        let last: Vec<u32> = attached.values().map(|&(session, _)| session).collect();
        last.into_iter().for_each(|session| replay.detach(session));
        replay.run();
        let stats = replay.core().stats(0);
        prop_assert!(replay.core().is_idle() && replay.core().jobs().is_empty());
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
    }
}

/// What one job is served does not change because there could be others: the digests were made from
/// the core that had one job only, and are the same. Those of `icache` and `quiver` are newer: with
/// repeats that are dealt to ranks no sample changes places.
#[test]
fn one_job_is_served_as_before_there_were_several() {
    let digest = |policy| {
        let mut replay = Replay::new(index(SAMPLES, 4, |id| 300 + id % 7 * 100), policy, 90 * BLOCK, 8, 5);
        replay.step(Event::Observe { session: 99, job: Some("job".to_owned()) });
        replay.attach_all(
            &JobSpec { plan: PlanSpec { seed: 3, ..job(Sampler::Pads, 3).plan }, ..spec(20, 2) },
            0,
        );
        let mut text = String::new();
        for epoch in 0..4 {
            let taken = replay.epoch(epoch);
            replay.report(&taken, |id| (id * 7919 % SAMPLES) as f32);
        }
        for line in &replay.traced {
            if let Line::Open(open) = line {
                text.push_str(&format!("{} {:?} {}\n", open.batch, open.ids, open.served));
            }
        }
        let counts = replay.core().stats(0).total.counts.counts;
        text.push_str(&format!("{} {} {}", counts.admitted, counts.evicted, counts.bypassed));
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    };
    let digests: Vec<String> =
        Policy::ALL.iter().map(|&policy| format!("{policy} {:016x}", digest(policy))).collect();
    assert_eq!(digests, ONE_JOB);
}
