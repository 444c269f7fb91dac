//! A run that stopped in the middle of an epoch goes on in a new daemon as if it had not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use shade_client::{ClientError, JobSpec, PlanSpec, Sampler, Session};
use shade_tests::{Daemon, Packed, Taken, attach, copy, next, spec, take_rest};

/// Batches of the stopped epoch before the stop.
const BEFORE: u32 = 5;

fn job() -> JobSpec {
    let plan = PlanSpec { sampler: Sampler::Pads, seed: 3, ..PlanSpec::default() };
    JobSpec { plan, ..spec(6, 1) }
}

/// Two ranks. A ring has room for three of an epoch's nine batches, so a rank stays in the epoch's
/// middle until it takes the rest.
fn two_ranks(packed: &Packed) -> [Session; 2] {
    let job = JobSpec { world_size: 2, ring_bytes: 4096, ..job() };
    [0, 1].map(|rank| attach(&packed.dataset, rank, job.clone()))
}

/// Reports losses that follow from the samples.
fn report(session: &Session, batch: &Taken) {
    let loss = |&id: &u32| (id * 37 % 101) as f32 / 10.0 + 0.01;
    let losses: Vec<f32> = batch.ids.iter().map(loss).collect();
    session.report(batch.id, &losses).unwrap();
}

fn train_rest(session: &Session) -> Vec<Taken> {
    let batches = take_rest(session).unwrap();
    batches.iter().for_each(|batch| report(session, batch));
    batches
}

/// A batch without hits and misses, which may differ as a new daemon has an empty cache.
fn seen(batches: &[Taken]) -> Vec<Taken> {
    batches.iter().map(|batch| Taken { hits: 0, misses: 0, ..batch.clone() }).collect()
}

#[test]
fn the_rest_of_the_epoch_and_the_next_are_the_same() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let session = attach(&packed.dataset, 0, job());
    session.start_epoch(0, 0).unwrap();
    train_rest(&session);
    session.start_epoch(1, 0).unwrap();
    for _ in 0..BEFORE {
        let batch = next(&session).unwrap().unwrap();
        report(&session, &copy(&batch));
    }
    let state = session.save_state(1, BEFORE).unwrap();
    let rest = train_rest(&session);
    session.start_epoch(2, 0).unwrap();
    let after = train_rest(&session);
    assert_eq!((rest.len(), after.len()), (12, 17), "102 samples by 6, five batches taken");
    drop(session);
    daemon.kill();

    // Twice, as a state can be loaded again.
    for _ in 0..2 {
        let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%"]);
        let session = attach(&packed.dataset, 0, job());
        session.load_state(&state, 0).unwrap();
        session.start_epoch(1, BEFORE).unwrap();
        let resumed = train_rest(&session);
        assert!(seen(&resumed) == seen(&rest), "the rest of the epoch differs");
        session.start_epoch(2, 0).unwrap();
        let resumed = train_rest(&session);
        assert!(seen(&resumed) == seen(&after), "the next epoch differs");
        drop(daemon);
    }
}

#[test]
fn without_the_state_the_epoch_would_be_another() {
    // The control of the test above: without a state, what it compares differs.
    let packed = Packed::mixed(33);
    let second_epoch = |reporting: bool| {
        let daemon = Daemon::start(&packed.dataset, &[]);
        let session = attach(&packed.dataset, 0, job());
        session.start_epoch(0, 0).unwrap();
        let batches = take_rest(&session).unwrap();
        if reporting {
            batches.iter().for_each(|batch| report(&session, batch));
        }
        session.start_epoch(1, 0).unwrap();
        let ids: Vec<u32> = take_rest(&session).unwrap().into_iter().flat_map(|batch| batch.ids).collect();
        drop(daemon);
        ids
    };
    assert_ne!(second_epoch(true), second_epoch(false));
    assert_eq!(second_epoch(true), second_epoch(true));
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let packed = Packed::mixed(10);
    let other = Packed::mixed(11);
    let daemons = [&packed, &other].map(|packed| Daemon::start(&packed.dataset, &[]));
    let session = attach(&packed.dataset, 0, job());
    session.start_epoch(0, 0).unwrap();
    let first = take_rest(&session).unwrap();
    let state = session.save_state(1, 0).unwrap();

    let mut flipped = state.clone();
    flipped[state.len() / 2] ^= 1;
    let foreign = {
        let session = attach(&other.dataset, 0, job());
        session.start_epoch(0, 0).unwrap();
        take_rest(&session).unwrap();
        session.save_state(1, 0).unwrap()
    };
    for (what, bad) in
        [("flipped", &flipped[..]), ("cut", &state[..state.len() - 1]), ("empty", &[]), ("foreign", &foreign)]
    {
        let refused = session.load_state(bad, 0);
        assert!(matches!(refused, Err(ClientError::Failed { .. })), "{what}: {refused:?}");
    }
    // The refused states have changed nothing.
    session.start_epoch(0, 0).unwrap();
    assert!(seen(&take_rest(&session).unwrap()) == seen(&first));
    session.load_state(&state, 0).unwrap();
    drop(daemons);
}

#[test]
fn a_rank_that_loads_another_state_than_the_others_is_an_error_of_all() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let [first, second] = two_ranks(&packed);
    let ranks = [&first, &second];
    let states = [0, 1].map(|epoch| {
        ranks.iter().for_each(|rank| rank.start_epoch(epoch, 0).unwrap());
        for rank in ranks {
            train_rest(rank);
        }
        first.save_state(epoch + 1, 0).unwrap()
    });
    first.load_state(&states[0], 0).unwrap();
    let refused = second.load_state(&states[1], 0).unwrap_err();
    let told = first.start_epoch(0, 0).and_then(|()| next(&first).map(drop)).unwrap_err();
    for error in [refused, told] {
        let text = error.to_string();
        assert!(matches!(error, ClientError::Failed { .. }), "{text}");
        assert!(text.contains("rank 1 loads another state than ranks [0]"), "{text}");
    }
    // With equal states both go on.
    ranks.iter().for_each(|rank| assert_eq!(rank.load_state(&states[1], 0).unwrap().epoch, 2));
    ranks.iter().for_each(|rank| rank.start_epoch(2, 0).unwrap());
    assert!(next(&first).unwrap().is_some() && next(&second).unwrap().is_some());
    // A rank that loads a state in the middle of an epoch ends it for the others.
    first.load_state(&states[0], 0).unwrap();
    let mut rest = Vec::new();
    let told =
        std::iter::repeat_with(|| next(&second).map(|batch| rest.extend(batch.map(|batch| copy(&batch)))))
            .find_map(Result::err)
            .unwrap();
    assert!(told.to_string().contains("rank 0 has loaded a state"), "{told}");
    assert!(rest.iter().all(|batch| !batch.ids.is_empty()), "what was given up is not delivered");
    drop(daemon);
}

#[test]
fn all_ranks_go_back_in_the_middle_of_an_epoch() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let [first, second] = two_ranks(&packed);
    let ranks = [&first, &second];
    let start = |epoch, batch| ranks.iter().for_each(|rank| rank.start_epoch(epoch, batch).unwrap());
    let take = |rank: &Session, batches| {
        for _ in 0..batches {
            report(rank, &copy(&next(rank).unwrap().unwrap()));
        }
    };
    start(0, 0);
    ranks.iter().for_each(|rank| drop(train_rest(rank)));
    start(1, 0);
    ranks.iter().for_each(|rank| take(rank, 2));
    let state = first.save_state(1, 2).unwrap();
    let rest = ranks.map(train_rest);
    // Whether or not the second rank has learned by then that the first has loaded a state.
    for has_heard in [false, true] {
        start(2, 0);
        ranks.iter().for_each(|rank| take(rank, 3));
        first.load_state(&state, 0).unwrap();
        if has_heard {
            second.stats().unwrap();
        }
        second.load_state(&state, 0).unwrap();
        start(1, 2);
        for (rank, rest) in ranks.into_iter().zip(&rest) {
            assert!(
                seen(&train_rest(rank)) == seen(rest),
                "the rest of the epoch differs, heard: {has_heard}"
            );
        }
    }
    drop(daemon);
}
