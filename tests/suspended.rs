//! A daemon that is stopped for a while, as on a laptop that sleeps, is no dead one: its ranks
//! wait, and go on with the same batches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use shade_client::{Options, Session};
use shade_tests::{Daemon, JobProcess, Packed, assert_undisturbed, checksums, copy, eventually, next, spec};

const EPOCHS: u32 = 2;
/// Longer than the client's pauses between looks.
const SLEEP: Duration = Duration::from_millis(1500);

/// What each epoch was, with `at` called before each batch.
fn train(session: &Session, mut at: impl FnMut(usize)) -> Vec<String> {
    let mut calls = 0;
    let epoch = |epoch| {
        session.start_epoch(epoch, 0).unwrap();
        let mut taken = Vec::new();
        loop {
            at(calls);
            calls += 1;
            let Some(batch) = next(session).unwrap() else { break };
            taken.push(copy(&batch));
        }
        checksums(epoch, &taken)
    };
    (0..EPOCHS).map(epoch).collect()
}

#[test]
fn a_stopped_daemon_is_waited_for_and_not_replaced() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    // A ring for a few batches, so that the rank soon waits.
    let job = shade_client::JobSpec { ring_bytes: 4096, ..spec(6, 1) };
    let connect =
        |name| Session::connect(&packed.dataset, name, 0, job.clone(), &Options::default()).unwrap();
    let undisturbed = train(&connect("undisturbed"), |_| {});
    let session = connect("stopped");
    let pid = Pid::from_raw(daemon.pid().cast_signed()).unwrap();
    let mut sleeps = Vec::new();
    let given = train(&session, |call| {
        // In the middle of an epoch, and at its end.
        if [5, 16].contains(&call) {
            daemon.signal(Signal::STOP);
            sleeps.push(std::thread::spawn(move || {
                std::thread::sleep(SLEEP);
                kill_process(pid, Signal::CONT).unwrap();
            }));
        }
    });
    assert_eq!(sleeps.len(), 2);
    sleeps.into_iter().for_each(|sleep| sleep.join().unwrap());
    assert_eq!(given, undisturbed);
    assert_eq!((session.successors(), session.take_warning()), (0, None));
    assert_eq!(session.daemon_pid(), daemon.pid());
}

#[test]
fn all_that_sleep_at_once_go_on_whoever_wakes_first() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let name = "permutations";
    let job = JobProcess::start(&packed.dataset, name, Duration::from_millis(1));
    let train_on = || {
        let before = job.epochs().len();
        eventually("it trains on", || job.epochs().len() > before + 1);
    };
    train_on();
    for daemon_first in [true, false] {
        daemon.signal(Signal::STOP);
        job.signal(Signal::STOP);
        std::thread::sleep(SLEEP);
        if daemon_first {
            daemon.signal(Signal::CONT);
            std::thread::sleep(SLEEP);
            job.signal(Signal::CONT);
        } else {
            job.signal(Signal::CONT);
            std::thread::sleep(SLEEP);
            daemon.signal(Signal::CONT);
        }
        train_on();
    }
    assert_undisturbed(&packed, &[(name, job.kill())]);
}
