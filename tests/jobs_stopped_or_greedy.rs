//! A job that is stopped, or takes batches as fast as it can, does not keep the others from
//! training.

use std::time::Duration;

use rustix::process::Signal;
use shade_tests::{Daemon, JOBS, JobProcess, Packed, assert_undisturbed, eventually};

/// What a batch of an ordinary trainer computes.
const PACE: Duration = Duration::from_millis(1);

fn start(packed: &Packed, name: &'static str, pace: Duration) -> (&'static str, JobProcess) {
    (name, JobProcess::start(&packed.dataset, name, pace))
}

/// Waits until each of these jobs has ended `epochs` more.
fn train_on(jobs: &[(&'static str, JobProcess)], epochs: usize) {
    let before: Vec<usize> = jobs.iter().map(|(_, job)| job.epochs().len()).collect();
    eventually("each of them ends more epochs", || {
        jobs.iter().zip(&before).all(|((_, job), before)| job.epochs().len() >= before + epochs)
    });
}

#[test]
fn others_train_on_beside_a_stopped_one_which_goes_on_when_it_is_continued() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let idle = daemon.session_resources();
    let mut given = Vec::new();
    // One of a group, and one that trains on its own.
    for stopped in ["importance-2", "permutations"] {
        let others: Vec<_> =
            JOBS.into_iter().filter(|name| *name != stopped).map(|name| start(&packed, name, PACE)).collect();
        let stopped = [start(&packed, stopped, PACE)];
        train_on(&others, 1);
        train_on(&stopped, 1);
        let (name, job) = &stopped[0];
        job.signal(Signal::STOP);
        // A line that it had said before may be on its way.
        train_on(&others, 1);
        let before = job.epochs().len();
        train_on(&others, 10);
        assert_eq!(job.epochs().len(), before, "{name} is stopped");
        job.signal(Signal::CONT);
        train_on(&stopped, 2);
        job.signal(Signal::STOP);
        train_on(&others, 1);
        given.extend(stopped.into_iter().chain(others).map(|(name, job)| (name, job.kill())));
        eventually("nothing is left of one that was killed while it was stopped", || {
            daemon.session_resources() <= idle
        });
    }
    assert_undisturbed(&packed, &given);
}

#[test]
fn others_train_on_beside_a_greedy_one_on_a_scarce_store() {
    let packed = Packed::mixed(33);
    // Some 1,000 records a second. The others want half of that, the greedy one all of it.
    let store = "latency=1ms,depth=1";
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%", &"--store", &store]);
    let greedy = start(&packed, "permutations", Duration::ZERO);
    let others = ["importance", "importance-2", "validation"]
        .map(|name| start(&packed, name, Duration::from_millis(60)));
    train_on(&others, 3);
    let given: Vec<_> = others.into_iter().chain([greedy]).map(|(name, job)| (name, job.kill())).collect();
    let epochs = |name| given.iter().find(|(job, _)| *job == name).map_or(0, |(_, lines)| lines.len());
    assert!(epochs("permutations") > epochs("validation"), "it takes what the others leave");
    assert_undisturbed(&packed, &given);
    drop(daemon);
}
