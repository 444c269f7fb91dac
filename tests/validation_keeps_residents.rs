//! A validation beside a training, on one daemon: what is resident for the training stays resident,
//! and the training is served from then on as if there had been no validation. Compared id by id.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use shade_client::{Decode, JobSpec, PlanSpec, Sampler, Session};
use shade_tests::{Daemon, Packed, attach_to, copy, eventually, next, spec, stats, take_epoch, train};

const SAMPLES: u64 = 102;

fn uniform(batch_size: u32, seed: u64) -> JobSpec {
    JobSpec { plan: PlanSpec { seed, ..PlanSpec::default() }, ..spec(batch_size, 1) }
}

/// A validation of decoded images in another order each epoch, so that each is looked up late in
/// one of them.
fn validation() -> JobSpec {
    JobSpec { decode: Decode::cover(16, 16), admit: false, ..uniform(8, 7) }
}

/// The samples that hit, by id, in an epoch of a validation with one sample in a batch.
///
/// A sample that hits was resident before the epoch, as nothing is admitted. So these are all
/// residents if there are as many of them.
fn residents(probe: &Session, epoch: u32) -> BTreeSet<u32> {
    let batches = take_epoch(probe, epoch).unwrap();
    batches.iter().filter(|batch| batch.hits == 1).flat_map(|batch| batch.ids.clone()).collect()
}

#[test]
fn the_residents_are_the_same_before_and_after() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let trains = JobSpec { plan, ..spec(8, 1) };
    let training = attach_to(&packed.dataset, "t", 0, trains.clone()).unwrap();
    let probe = attach_to(&packed.dataset, "probe", 0, JobSpec { admit: false, ..uniform(1, 3) }).unwrap();
    let validating =
        ["t.eval", "t.test"].map(|job| attach_to(&packed.dataset, job, 0, validation()).unwrap());
    let mut all = Vec::new();
    for epoch in 0..3 {
        train(&training, &trains, (epoch, 0), Duration::ZERO).unwrap();
        // The losses that were reported have arrived, too.
        let before = stats(&training);
        let found = residents(&probe, 2 * epoch);
        assert_eq!(Some(found.len() as u64), before["resident"].as_u64(), "{before}");
        assert!(!found.is_empty() && (found.len() as u64) < SAMPLES);
        // Two at once.
        std::thread::scope(|scope| {
            for session in &validating {
                scope.spawn(move || take_epoch(session, epoch).unwrap());
            }
        });
        assert_eq!(residents(&probe, 2 * epoch + 1), found, "epoch {epoch}");
        let after = stats(&training);
        for name in ["total", "resident", "cache_used_bytes"] {
            assert_eq!(after[name], before[name], "{name}");
        }
        all.push(found);
    }
    assert!(all.first() != all.last(), "the training itself changes them");
    // What admits, changes them: this comparison would notice. Its samples come twice, so a
    // newcomer has a use in sight and displaces a resident that has none.
    let echo = PlanSpec { sampler: Sampler::Echo, ..PlanSpec::default() };
    let other = attach_to(&packed.dataset, "u", 0, JobSpec { plan: echo, ..spec(8, 1) }).unwrap();
    take_epoch(&other, 0).unwrap();
    assert_ne!(Some(&residents(&probe, 6)), all.last());
    drop(daemon);
}

/// Trains with one sample in a batch and one batch on its way. Returns each access's id and whether
/// it hit. `beside` says what else there is: a job that takes an epoch in the middle of each of
/// training's epochs and at their ends.
fn served(policy: &str, beside: Option<JobSpec>) -> Vec<(u32, u32)> {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"30%", &"--policy", &policy]);
    // All records are equally large, so the ring has room for three batches. Two are in hand from
    // the beginning to the end.
    // Drawn an epoch early: otherwise reads of the next epoch are under way at an epoch's end.
    let plan = PlanSpec { sampler: Sampler::Replacement, draw_ahead: true, ..PlanSpec::default() };
    let spec = JobSpec { plan, ring_bytes: 4096, ..spec(1, 1) };
    let training = attach_to(&packed.dataset, "t", 0, spec.clone()).unwrap();
    let beside = beside.map(|spec| attach_to(&packed.dataset, "t.eval", 0, spec.clone()).unwrap());
    let (mut served, mut held, mut validated) = (Vec::new(), Vec::new(), 0..);
    let mut validate = |accesses: u64| {
        let Some(session) = &beside else { return };
        eventually("the daemon has done what it can for the training", || {
            let told = stats(&training);
            told["total"]["accesses"] == accesses && told["reads_submitted"] == 0
        });
        take_epoch(session, validated.next().unwrap()).unwrap();
    };
    for epoch in 0..3 {
        training.start_epoch(epoch, 0).unwrap();
        while let Some(batch) = next(&training).unwrap() {
            let taken = copy(&batch);
            served.push((taken.ids.iter().sum(), taken.hits));
            if held.len() < 2 {
                held.push(batch);
            } else {
                drop(batch);
            }
            if taken.number == 50 {
                validate(served.len() as u64 + 1);
            }
        }
        validate(served.len() as u64);
    }
    drop(daemon);
    served
}

/// Not `lookahead`, whose prefetches depend on when the store has nothing to do.
#[test]
fn the_training_is_served_as_if_there_had_been_no_validation() {
    for policy in ["lru", "arc", "lfu", "app"] {
        let alone = served(policy, None);
        assert!(alone.iter().map(|&(_, hits)| hits).sum::<u32>() > 30, "{policy}: {alone:?}");
        assert_eq!(served(policy, Some(validation())), alone, "{policy}");
    }
    // A job that admits changes it: this comparison would notice.
    assert_ne!(served("lru", Some(uniform(8, 7))), served("lru", None));
}
