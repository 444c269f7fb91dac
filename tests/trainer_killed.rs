//! A trainer is killed with SIGKILL: its ring goes, its rank can attach anew, the other ranks notice nothing.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use shade_client::Next;
use shade_tests::{Daemon, Packed, attach, copy, eventually, next, program, spec, take_rest};

/// A trainer's process that holds batches.
struct Trainer(Child);

impl Trainer {
    /// Starts it and waits until it holds `held` batches.
    fn holding(dataset: &Path, rank: u32, world_size: u32, batch_size: u32, held: u32) -> Self {
        let numbers = [rank, world_size, batch_size, held].map(|number| number.to_string());
        let mut command = Command::new(program("shade-test-trainer"));
        let command = command.arg(dataset).args(numbers).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut trainer = Self(command.spawn().expect("built with the tests"));
        let mut line = String::new();
        let stdout = trainer.0.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        assert_eq!(line, format!("holding {held}\n"));
        trainer
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn its_ring_is_freed_and_its_rank_gets_the_whole_epoch_anew() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let idle = daemon.session_resources();
    for round in 0..3 {
        let trainer = Trainer::holding(&packed.dataset, 0, 1, 8, 3);
        assert!(daemon.session_resources() > idle, "a session has a ring");
        trainer.kill();
        eventually("the daemon has closed what belonged to the session", || {
            daemon.session_resources() == idle
        });

        let session = attach(&packed.dataset, 0, spec(8, 1));
        session.start_epoch(0, 0).unwrap();
        let mut ids: Vec<u32> =
            take_rest(&session).unwrap().into_iter().flat_map(|batch| batch.ids).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..102), "round {round}");
        drop(session);
        eventually("and again after a session that left", || daemon.session_resources() == idle);
    }
}

#[test]
fn the_other_rank_goes_on() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let job = spec(8, 2);
    let steady = attach(&packed.dataset, 0, job);
    steady.start_epoch(0, 0).unwrap();
    let trainer = Trainer::holding(&packed.dataset, 1, 2, 8, 2);
    let first = next(&steady).unwrap().unwrap();
    let before = copy(&first);
    trainer.kill();

    let mine: Vec<u32> = take_rest(&steady).unwrap().into_iter().flat_map(|batch| batch.ids).collect();
    assert_eq!(copy(&first), before, "a batch in hand stays as it was");
    drop(first);
    // The rank that was killed starts the same epoch over, from the plan the other still follows.
    let again = attach(&packed.dataset, 1, job);
    again.start_epoch(0, 0).unwrap();
    let its = take_rest(&again).unwrap().into_iter().flat_map(|batch| batch.ids);
    let mut ids: Vec<u32> = its.chain(mine).chain(before.ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..102));

    // Both go on to the next epoch together.
    steady.start_epoch(1, 0).unwrap();
    assert!(matches!(steady.next(Duration::ZERO).unwrap(), Next::Pending), "one rank alone starts nothing");
    again.start_epoch(1, 0).unwrap();
    let batches = [&steady, &again].map(|session| take_rest(session).unwrap().len());
    assert_eq!(batches, [7, 7]);
    drop(daemon);
}
