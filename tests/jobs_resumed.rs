//! Each of several jobs is saved and resumed in mid-epoch while the others train on.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use shade_client::Session;
use shade_tests::{
    Daemon, JOBS, JobProcess, Packed, assert_undisturbed, attach_when_free, checksums, copy, eventually,
    job_named, next, report, take_rest, train, undisturbed,
};

/// Batches of the second epoch before the state is saved.
const BEFORE: u32 = 5;
/// What a batch of the others computes.
const PACE: Duration = Duration::from_millis(1);

#[test]
fn the_rest_is_what_it_would_have_been_and_the_others_notice_nothing() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let mut given = Vec::new();
    for name in JOBS {
        let others: Vec<_> = JOBS
            .into_iter()
            .filter(|other| *other != name)
            .map(|other| (other, JobProcess::start(&packed.dataset, other, PACE)))
            .collect();
        let train_on = || {
            let before: Vec<usize> = others.iter().map(|(_, job)| job.epochs().len()).collect();
            eventually("each of the others ends two more epochs", || {
                others.iter().zip(&before).all(|((_, job), before)| job.epochs().len() > before + 1)
            });
        };
        train_on();
        resume(&packed, name, train_on);
        given.extend(others.into_iter().map(|(other, job)| (other, job.kill())));
    }
    assert_undisturbed(&packed, &given);
    drop(daemon);
}

/// Trains a job into its second epoch, saves it, and ends the epoch, there and in a new session.
fn resume(packed: &Packed, name: &str, meanwhile: impl Fn()) {
    let spec = job_named(name);
    let saved = attach_when_free(&packed.dataset, name, 0, spec.clone());
    train(&saved, &spec, (0, 0), Duration::ZERO).unwrap();
    saved.start_epoch(1, 0).unwrap();
    let take = |session: &Session| {
        let batch = copy(&next(session).unwrap().unwrap());
        report(session, &spec, &batch).unwrap();
        batch
    };
    let mut epoch: Vec<_> = (0..BEFORE).map(|_| take(&saved)).collect();
    let state = saved.save_state(1, BEFORE).unwrap();
    let rest = take_rest(&saved).unwrap();
    drop(saved);
    meanwhile();

    let resumed = attach_when_free(&packed.dataset, name, 0, spec.clone());
    resumed.load_state(&state, 0).unwrap();
    resumed.start_epoch(1, BEFORE).unwrap();
    let mut again = vec![take(&resumed)];
    meanwhile();
    again.extend(take_rest(&resumed).unwrap());
    assert_eq!(checksums(1, &again), checksums(1, &rest), "{name}: the rest of the epoch");
    epoch.extend(again);
    assert_eq!(Some(&checksums(1, &epoch)), undisturbed(packed, name, 2).last(), "{name}: the epoch");
}
