//! A trainer is killed with SIGKILL: its ring goes, its rank can attach again, other ranks notice
//! nothing.

use std::time::Duration;

use shade_client::Next;
use shade_tests::{
    Daemon, Packed, TrainerProcess, attach, copy, eventually, next, sorted_ids, spec, take_rest,
};

#[test]
fn its_ring_is_freed_and_its_rank_gets_the_whole_epoch_anew() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let idle = daemon.session_resources();
    for round in 0..3 {
        let mut trainer = TrainerProcess::start(&packed.dataset, 0, 1, 8, 3);
        trainer.holds_batches();
        assert!(daemon.session_resources() > idle, "a session has a ring");
        trainer.kill();
        eventually("the daemon has closed what belonged to the session", || {
            daemon.session_resources() <= idle
        });

        let session = attach(&packed.dataset, 0, spec(8, 1));
        session.start_epoch(0, 0).unwrap();
        assert!(sorted_ids(&take_rest(&session).unwrap()).into_iter().eq(0..102), "round {round}");
        drop(session);
        eventually("and again after a session that left", || daemon.session_resources() <= idle);
    }
}

#[test]
fn the_other_rank_goes_on() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let job = spec(8, 2);
    let steady = attach(&packed.dataset, 0, job.clone());
    steady.start_epoch(0, 0).unwrap();
    let mut trainer = TrainerProcess::start(&packed.dataset, 1, 2, 8, 2);
    trainer.holds_batches();
    let first = next(&steady).unwrap().unwrap();
    let before = copy(&first);
    trainer.kill();

    let mine = take_rest(&steady).unwrap();
    assert_eq!(copy(&first), before, "a batch in hand stays as it was");
    drop(first);
    // The killed rank starts the epoch again, from the plan that the other still follows.
    let again = attach(&packed.dataset, 1, job.clone());
    again.start_epoch(0, 0).unwrap();
    let all = [mine, take_rest(&again).unwrap(), vec![before]].concat();
    assert!(sorted_ids(&all).into_iter().eq(0..102));

    // Both go on to the next epoch together.
    steady.start_epoch(1, 0).unwrap();
    assert!(matches!(steady.next(Duration::ZERO).unwrap(), Next::Pending), "one rank alone starts nothing");
    again.start_epoch(1, 0).unwrap();
    let batches = [&steady, &again].map(|session| take_rest(session).unwrap().len());
    assert_eq!(batches, [7, 7]);
    drop(daemon);
}
