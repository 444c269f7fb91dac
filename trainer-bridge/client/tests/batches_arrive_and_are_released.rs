//! Batches arrive whole and in order, are released in any order, and older epochs' batches are
//! never seen.

mod support;

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::Duration;

use shade_client::{Batch, ClientError, InRing, Next, Resumed};
use shade_formats::control::{Reply, Request};
use support::{Listener, PAYLOAD_BYTES, connect, content_id, next, next_batch, unique};

const RECORDS: [&[u8]; 3] = [b"first record", b"", b"the third"];

/// A page and a half, so that a batch takes two pages of the ring's sixteen.
fn long_record(byte: u8) -> Vec<u8> {
    vec![byte; 6000]
}

fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

#[test]
fn the_handshake_tells_what_the_daemon_says() {
    let name = unique("handshake");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || listener.serve());
    let session = connect(&name);
    let _daemon = daemon.join().unwrap();
    assert_eq!((session.samples(), session.batches_per_epoch()), (1000, 7));
    assert_eq!((session.daemon_pid(), session.content_id().0), (4242, content_id()));
    assert_eq!(session.settings()["cache"], "20%");
    assert!(session.heartbeat_age().unwrap().is_none());
}

#[test]
fn batches_arrive_in_order_with_their_bytes_and_the_end_is_told() {
    let name = unique("order");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        // More batches than the ring has descriptors or room.
        for batch in 0..200 {
            daemon.publish_batch(generation, batch, &RECORDS);
        }
        daemon.publish_end(generation);
        daemon
    });
    let session = connect(&name);
    assert!(matches!(session.next(Duration::ZERO), Err(ClientError::NotStarted)));
    session.start_epoch(0, 0).unwrap();
    for number in 0..200 {
        let batch = next_batch(&session);
        assert_eq!((batch.descriptor().batch, batch.records()), (number, 3));
        for (row, record) in RECORDS.iter().enumerate() {
            assert_eq!(batch.record(row).unwrap().unwrap(), *record);
        }
        assert_eq!(batch.record(3).unwrap(), None);
        assert_eq!(batch.ids().count, 3);
        assert_eq!(batch.ids().ptr.addr() % 64, 0);
        assert_eq!(batch.data().count, 21);
    }
    assert!(matches!(next(&session), Ok(Next::EpochEnd)));
    assert!(matches!(next(&session), Ok(Next::EpochEnd)), "and stays told");
    drop(session);
    let daemon = daemon.join().unwrap();
    assert_eq!(daemon.peer.hear(), Request::Bye);
}

#[test]
fn release_out_of_order_frees_room_at_once() {
    let name = unique("release");
    let listener = Listener::bind(&name);
    // The two sides take turns: the client releases, the daemon looks.
    let (client_done, client_turn) = channel();
    let (daemon_done, daemon_turn) = channel();
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        for batch in 0..8 {
            daemon.publish_batch(generation, batch, &[&long_record(7)]);
        }
        assert!(!daemon.has_room(1), "eight batches of two pages fill the ring");
        daemon_done.send(()).unwrap();
        client_turn.recv().unwrap();
        daemon.wait_for_doorbell();
        assert_eq!(daemon.reclaim(), 1);
        assert!(daemon.has_room(8192), "a younger one came back, the oldest did not");
        assert!(!daemon.has_room(8193));
        daemon_done.send(()).unwrap();
        client_turn.recv().unwrap();
        assert_eq!(daemon.reclaim(), 4);
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    let mut batches: Vec<Batch> = (0..4).map(|_| next_batch(&session)).collect();
    assert!(!batches.iter().any(Batch::is_copy));
    daemon_turn.recv().unwrap();
    drop(batches.remove(2));
    client_done.send(()).unwrap();
    daemon_turn.recv().unwrap();
    // Batches outlive their session, readable and releasable.
    drop(session);
    assert_eq!(batches[0].record(0).unwrap().unwrap(), long_record(7));
    drop(batches);
    client_done.send(()).unwrap();
    daemon.join().unwrap();
}

#[test]
fn who_keeps_every_batch_gets_copies_and_views_again_after_letting_go() {
    let name = unique("keeps-all");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        for batch in 0..400 {
            daemon.publish_batch(generation, batch, &[&long_record(low_byte(batch)), b"beside it"]);
        }
        daemon.publish_end(generation);
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    let kept: Vec<Batch> = (0..300).map(|_| next_batch(&session)).collect();
    let views = kept.iter().filter(|batch| !batch.is_copy()).count();
    assert_eq!(views, 4, "half of the ring's eight");
    let held = InRing { batches: 4, is_short_of_bytes: true, ring_bytes: PAYLOAD_BYTES };
    assert_eq!(session.held().unwrap(), held);
    for (number, batch) in (0..).zip(&kept) {
        assert_eq!(batch.descriptor().batch, number);
        assert_eq!(batch.record(0).unwrap().unwrap(), long_record(low_byte(number)));
        assert_eq!(batch.record(1).unwrap().unwrap(), b"beside it");
        assert_eq!((batch.records(), batch.labels().ptr.addr() % 64), (2, 0));
    }
    drop(kept);
    assert_eq!(session.held().unwrap().batches, 0);
    for number in 300..400_u32 {
        let batch = next_batch(&session);
        assert!(!batch.is_copy());
        assert_eq!(batch.record(0).unwrap().unwrap(), long_record(low_byte(number)));
    }
    assert!(matches!(next(&session), Ok(Next::EpochEnd)));
    assert_eq!(daemon.join().unwrap().reclaim(), 401);
}

#[test]
fn a_batch_kept_for_good_costs_no_copy_of_another() {
    let name = unique("keeps-one");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        for batch in 0..300 {
            daemon.publish_batch(generation, batch, &[&long_record(low_byte(batch))]);
        }
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    let first = next_batch(&session);
    // Like a loop, which drops a batch when it has the next.
    let mut in_hand = next_batch(&session);
    for number in 2..300_u32 {
        in_hand = next_batch(&session);
        assert!(!in_hand.is_copy());
        assert_eq!(in_hand.record(0).unwrap().unwrap(), long_record(low_byte(number)));
    }
    assert_eq!(first.record(0).unwrap().unwrap(), long_record(0));
    drop((first, in_hand));
    assert_eq!(daemon.join().unwrap().reclaim(), 300);
}

#[test]
fn a_new_epoch_drops_what_the_old_one_left() {
    let name = unique("generation");
    let listener = Listener::bind(&name);
    let (tell, told) = channel();
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let (unseen, taken) = daemon.epoch_replaced();
        assert!(!taken, "there was none before");
        daemon.publish_batch(unseen, 0, &[b"unseen"]);
        tell.send(()).unwrap();
        let (old, taken) = daemon.epoch_replaced();
        assert!(!taken, "it was published only");
        for batch in 0..5 {
            daemon.publish_batch(old, batch, &[b"old"]);
        }
        daemon.publish_end(old);
        tell.send(()).unwrap();
        let (new, taken) = daemon.epoch_replaced();
        assert!(new > old && taken);
        daemon.publish_batch(new, 3, &[b"new"]);
        daemon.publish_end(new);
        daemon
    });
    let session = connect(&name);
    session.start_epoch(9, 0).unwrap();
    told.recv().unwrap();
    session.start_epoch(0, 0).unwrap();
    let kept = next_batch(&session);
    assert_eq!(kept.record(0).unwrap().unwrap(), b"old");
    told.recv().unwrap();
    session.start_epoch(1, 3).unwrap();
    assert_eq!(next_batch(&session).record(0).unwrap().unwrap(), b"new");
    assert!(matches!(next(&session), Ok(Next::EpochEnd)));
    assert_eq!(kept.record(0).unwrap().unwrap(), b"old", "a held batch is nobody else's");
    let mut daemon = daemon.join().unwrap();
    assert_eq!(daemon.reclaim(), 8, "all but what is in hand");
    drop(kept);
    assert_eq!(daemon.reclaim(), 9);
}

#[test]
fn nothing_yet_is_pending_and_a_sleeper_is_woken() {
    let name = unique("pending");
    let listener = Listener::bind(&name);
    let (tell, told) = channel::<()>();
    let (look, looked) = channel::<()>();
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        told.recv().unwrap();
        assert!(!daemon.has_rung(), "a look is no wait");
        look.send(()).unwrap();
        let is_counted = (0..60_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            daemon.has_rung()
        });
        assert!(is_counted, "this wait is");
        daemon.publish_batch(generation, 0, &[b"late"]);
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(session.next(Duration::ZERO), Ok(Next::Pending)));
    tell.send(()).unwrap();
    looked.recv().unwrap();
    assert_eq!(next_batch(&session).record(0).unwrap().unwrap(), b"late");
    daemon.join().unwrap();
}

#[test]
fn reports_arrive_as_sent() {
    let name = unique("report");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 2, &RECORDS);
        assert_eq!(daemon.peer.hear(), Request::Report { epoch: 0, batch: 2, losses: vec![0.5, 1.5] });
        assert_eq!(daemon.peer.hear(), Request::ReportValidation { score: 0.75 });
        assert_eq!(daemon.peer.hear(), Request::Report { epoch: 0, batch: 2, losses: vec![1.0; 3] });
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    // What it is reported by outlives a batch.
    let id = next_batch(&session).id();
    session.report(id, &[0.5, 1.5]).unwrap();
    session.report_validation(0.75).unwrap();
    session.report(id, &[1.0; 3]).unwrap();
    assert!(matches!(session.report(id, &[1.0; 4]), Err(ClientError::Argument { what: "losses", .. })));
    daemon.join().unwrap();
}

#[test]
fn a_batch_of_another_session_or_of_before_a_loaded_state_is_not_reported() {
    let (name, other) = (unique("report-own"), unique("report-other"));
    let serve = |name: &str, loads: bool| {
        let listener = Listener::bind(name);
        std::thread::spawn(move || {
            let mut daemon = listener.serve();
            let generation = daemon.epoch_started();
            daemon.publish_batch(generation, 2, &RECORDS);
            if loads {
                assert_eq!(daemon.peer.hear(), Request::LoadState { strata: 0 });
                daemon.peer.say(&Reply::StateLoaded { epoch: 0, first_batch: 2, batches: 9 });
                let generation = daemon.epoch_started();
                daemon.publish_batch(generation, 2, &RECORDS);
                assert_eq!(daemon.peer.hear(), Request::Report { epoch: 0, batch: 2, losses: vec![0.5] });
            }
            daemon
        })
    };
    let (daemon, elsewhere) = (serve(&name, true), serve(&other, false));
    let (session, stranger) = (connect(&name), connect(&other));
    session.start_epoch(0, 0).unwrap();
    stranger.start_epoch(0, 0).unwrap();
    let foreign = next_batch(&stranger).id();
    drop(stranger);
    let refused = |id| match session.report(id, &[0.5]) {
        Err(error @ ClientError::Argument { what: "batch", .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(foreign).contains("of another session"));
    let before = next_batch(&session).id();
    session.load_state(b"state", 0).unwrap();
    assert!(refused(before).contains("before a state was loaded"));
    session.start_epoch(0, 2).unwrap();
    session.report(next_batch(&session).id(), &[0.5]).unwrap();
    assert!(refused(before).contains("before a state was loaded"));
    daemon.join().unwrap();
    elsewhere.join().unwrap();
}

#[test]
fn stats_and_state_are_asked_for_and_state_goes_back() {
    let name = unique("state");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let daemon = listener.serve();
        assert_eq!(daemon.peer.hear(), Request::Stats);
        daemon.peer.say(&Reply::Stats { json: "{\"hits\":1}".to_owned() });
        let (request, fds) = daemon.peer.hear_with_fds();
        assert_eq!((request, fds.len()), (Request::LoadState { strata: 12 }, 1));
        daemon.peer.say(&Reply::StateLoaded { epoch: 4, first_batch: 2, batches: 9 });
        assert_eq!(daemon.peer.hear(), Request::SaveState { epoch: 4, batch: 2 });
        daemon.peer.send(&Reply::State { bytes: 30_000 }, &[fds[0].as_fd()]);
        assert_eq!(daemon.peer.hear(), Request::LoadState { strata: 0 });
        daemon.peer.say(&Reply::Failed { text: "state of another dataset".to_owned() });
        assert_eq!(daemon.peer.hear(), Request::Stats);
        daemon.peer.say(&Reply::Stats { json: "{}".to_owned() });
    });
    let session = connect(&name);
    assert_eq!(session.stats().unwrap(), "{\"hits\":1,\"successors\":0}");
    let state: Vec<u8> = (0..30_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(session.load_state(&state, 12).unwrap(), Resumed { epoch: 4, first_batch: 2, batches: 9 });
    assert_eq!(session.save_state(4, 2).unwrap(), state);
    assert_eq!(
        session.load_state(&state, 0).unwrap_err().to_string(),
        "the daemon reports: state of another dataset"
    );
    assert_eq!(session.stats().unwrap(), "{\"successors\":0}", "a failed request is not the session's end");
    daemon.join().unwrap();
}
