//! A daemon that dies, reports an error, refuses or sends unsafe memory causes an error with a
//! reason, never a hang or a crash.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::SealFlags;
use shade_client::{ClientError, Launch, Next, Options, Session, Settings};
use shade_formats::control::{PROTOCOL, REFUSE_ENDING, REFUSE_RESOURCES, Reply, Request};
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES};
use support::{
    Daemon, Listener, Memory, PAYLOAD_BYTES, SIZE_SEALS, connect, dataset, next, next_batch, options,
    segment, spec, unique, welcome,
};

#[test]
fn a_daemon_that_dies_is_gone_after_its_last_batch() {
    let name = unique("dies");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"one"]);
        daemon.publish_batch(generation, 1, &[b"two"]);
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    daemon.join().unwrap();
    let first = next_batch(&session);
    assert_eq!(next_batch(&session).record(0).unwrap().unwrap(), b"two");
    assert!(matches!(next(&session), Err(ClientError::DaemonGone { pid: 4242, .. })));
    assert!(matches!(next(&session), Err(ClientError::DaemonGone { .. })), "and stays gone");
    assert!(matches!(session.stats(), Err(ClientError::DaemonGone { .. })));
    assert!(matches!(session.report(first.id(), &[1.0]), Err(ClientError::DaemonGone { .. })));
    assert_eq!(first.record(0).unwrap().unwrap(), b"one", "what was handed out stays readable");
}

#[test]
fn a_daemon_that_dies_wakes_a_sleeper() {
    let name = unique("wakes");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let daemon = listener.serve();
        daemon.epoch_started();
        // The daemon goes without a word, most likely while the client sleeps.
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(next(&session), Err(ClientError::DaemonGone { .. })));
    daemon.join().unwrap();
}

#[test]
fn a_bad_record_is_raised_with_its_name_and_the_epoch_is_over() {
    let name = unique("record");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_error(generation, "sample 7 (cat/7.png) in shard 0 at 512: checksum");
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"again"]);
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    for _ in 0..2 {
        let error = next(&session).unwrap_err();
        assert!(matches!(error, ClientError::Record { .. }));
        assert_eq!(error.to_string(), "sample 7 (cat/7.png) in shard 0 at 512: checksum");
    }
    session.start_epoch(1, 0).unwrap();
    drop(next_batch(&session));
    assert_eq!(daemon.join().unwrap().reclaim(), 2);
}

#[test]
fn a_failure_told_unasked_ends_next_and_no_answer_is_lost_to_it() {
    let name = unique("failed");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"before"]);
        daemon.peer.say(&Reply::Failed { text: "store gone".to_owned() });
        assert_eq!(daemon.peer.hear(), Request::Stats);
        // A failure overtakes the answer; the next answer is the next request's.
        daemon.peer.say(&Reply::Failed { text: "again".to_owned() });
        daemon.peer.say(&Reply::StateLoaded { epoch: 0, first_batch: 0, batches: 1 });
        assert_eq!(daemon.peer.hear(), Request::Stats);
        daemon.peer.say(&Reply::Stats { json: "{}".to_owned() });
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(next(&session), Ok(Next::Batch(_))), "published before it was told");
    assert_eq!(next(&session).unwrap_err().to_string(), "the daemon reports: store gone");
    assert!(matches!(session.stats(), Err(ClientError::Failed { .. })));
    assert_eq!(session.stats().unwrap(), "{\"successors\":0}");
    daemon.join().unwrap();
}

#[test]
fn an_interruption_is_no_answer_and_a_loaded_state_ends_it() {
    let name = unique("interrupted");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let interrupt = |daemon: &Daemon| daemon.peer.say(&Reply::Interrupted { text: "rank 0".to_owned() });
        daemon.epoch_started();
        assert_eq!(daemon.peer.hear(), Request::Stats);
        interrupt(&daemon);
        daemon.peer.say(&Reply::Stats { json: "{}".to_owned() });
        // One is told before the request, the other overtakes its answer.
        interrupt(&daemon);
        assert_eq!(daemon.peer.hear(), Request::LoadState { strata: 0 });
        interrupt(&daemon);
        daemon.peer.say(&Reply::StateLoaded { epoch: 0, first_batch: 0, batches: 1 });
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"after"]);
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert_eq!(session.stats().unwrap(), "{\"successors\":0}");
    assert_eq!(next(&session).unwrap_err().to_string(), "the daemon reports: rank 0");
    session.load_state(b"state", 0).unwrap();
    session.start_epoch(0, 0).unwrap();
    drop(next_batch(&session));
    daemon.join().unwrap();
}

#[test]
fn what_has_ended_an_epoch_is_told_before_batches_of_the_next() {
    let name = unique("interrupted-before");
    let listener = Listener::bind(&name);
    let (tell, published) = channel();
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        daemon.epoch_started();
        daemon.peer.say(&Reply::Interrupted { text: "rank 0".to_owned() });
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"next"]);
        tell.send(()).unwrap();
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    session.start_epoch(1, 0).unwrap();
    published.recv().unwrap();
    assert_eq!(next(&session).unwrap_err().to_string(), "the daemon reports: rank 0");
    // The batch is not lost.
    drop(next_batch(&session));
    daemon.join().unwrap();
}

#[test]
fn the_reason_is_told_before_the_end() {
    reason_before_end("reason", false);
    reason_before_end("reason-asked", true);
}

fn reason_before_end(test: &str, ask_first: bool) {
    let name = unique(test);
    let listener = Listener::bind(&name);
    let (tell, told) = channel();
    let (report, reported) = channel();
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation, 0, &[b"last"]);
        reported.recv().unwrap();
        daemon.peer.say(&Reply::Failed { text: "stopped by SIGTERM".to_owned() });
        drop(daemon);
        tell.send(()).unwrap();
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    // Never read: the kernel reports that before it delivers the daemon's messages.
    session.report_validation(1.0).unwrap();
    report.send(()).unwrap();
    told.recv().unwrap();
    let reason = "the daemon reports: stopped by SIGTERM";
    if ask_first {
        // A thread that asks is told the reason, and does not keep it from the one that trains.
        assert_eq!(session.stats().unwrap_err().to_string(), reason);
    }
    assert_eq!(next_batch(&session).record(0).unwrap().unwrap(), b"last");
    assert_eq!(next(&session).unwrap_err().to_string(), reason);
    let gone = next(&session).unwrap_err();
    assert!(
        matches!(&gone, ClientError::DaemonGone { end, .. } if end.contains("stopped by SIGTERM")),
        "{gone}"
    );
    daemon.join().unwrap();
}

#[test]
fn a_failure_that_may_be_the_last_word_is_waited_for_in_slices() {
    let name = unique("last-word");
    let listener = Listener::bind(&name);
    let (tell, told) = channel();
    let (end, ended) = channel();
    let daemon = std::thread::spawn(move || {
        let daemon = listener.serve();
        daemon.epoch_started();
        daemon.peer.say(&Reply::Failed { text: "a worker panicked".to_owned() });
        tell.send(()).unwrap();
        ended.recv().unwrap();
        drop(daemon);
        // Its successor is none.
        let protocol = (PROTOCOL + 1).to_le_bytes();
        listener.accept().send_bytes(&[&[1, 0, 9, 0][..], &protocol, &[0xab; 500]].concat(), &[]);
    });
    let options = Options { survive: true, ..options() };
    let session = Session::connect(&dataset(&name), "j", 1, spec(), &options).unwrap();
    session.start_epoch(0, 0).unwrap();
    told.recv().unwrap();
    for wait in [0, 0, 1] {
        let next = session.next(Duration::from_millis(wait));
        assert!(matches!(next, Ok(Next::Pending)), "it has not hung up: {next:?}");
    }
    end.send(()).unwrap();
    let gone = next(&session).unwrap_err();
    daemon.join().unwrap();
    assert!(
        matches!(&gone, ClientError::DaemonGone { end, .. } if end.contains("a worker panicked")),
        "{gone}"
    );
}

#[test]
fn a_reason_that_met_a_question_is_told_to_the_training_as_well() {
    let name = unique("reason-met");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let daemon = listener.serve();
        daemon.epoch_started();
        assert_eq!(daemon.peer.hear(), Request::TellScores { epoch: 0 });
        // It ends the session, which the thread that asks cannot know.
        daemon.peer.say(&Reply::Failed { text: "session 7 panicked".to_owned() });
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| session.tell_scores(0).unwrap_err().to_string());
        assert_eq!(asked.join().unwrap(), "the daemon reports: session 7 panicked");
    });
    daemon.join().unwrap();
    let gone = next(&session).unwrap_err();
    assert!(
        matches!(&gone, ClientError::DaemonGone { end, .. } if end.contains("session 7 panicked")),
        "{gone}"
    );
}

#[test]
fn an_answer_to_nothing_is_a_broken_protocol() {
    let name = unique("answer");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let daemon = listener.serve();
        daemon.epoch_started();
        daemon.peer.say(&Reply::StateLoaded { epoch: 0, first_batch: 0, batches: 1 });
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(next(&session), Err(ClientError::Format(_))));
    daemon.join().unwrap();
}

#[test]
fn a_generation_from_the_future_and_a_torn_descriptor_are_errors() {
    let name = unique("future");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let mut daemon = listener.serve();
        let generation = daemon.epoch_started();
        daemon.publish_batch(generation + 1, 0, &[b"x"]);
        let generation = daemon.epoch_started();
        daemon.memory().daemon_region.write(4096 + 128 + 7, b"torn").unwrap();
        daemon.memory().daemon_region.store_u64(128, 2).unwrap();
        let _ = generation;
        daemon
    });
    let session = connect(&name);
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(next(&session), Err(ClientError::Format(_))));
    session.start_epoch(1, 0).unwrap();
    let daemon = daemon.join().unwrap();
    assert!(matches!(next(&session), Err(ClientError::Format(_))));
    drop(daemon);
}

#[test]
fn a_refusal_comes_with_its_reason() {
    let name = unique("refuse");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        listener.accept().say(&Reply::Refuse { code: 4, text: "no such rank".to_owned() });
    });
    match Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err() {
        ClientError::Refused { code: 4, text, .. } => assert_eq!(text, "no such rank"),
        other => panic!("{other:?}"),
    }
    daemon.join().unwrap();
}

#[test]
fn a_refusal_before_the_greeting_comes_with_its_reason_too() {
    const ROUNDS: usize = 200;
    let name = unique("unheard");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        let reply = Reply::Refuse { code: REFUSE_RESOURCES, text: "no room".to_owned() };
        (0..ROUNDS).for_each(|_| listener.turn_away(&reply));
    });
    for round in 0..ROUNDS {
        match Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err() {
            ClientError::Refused { code: REFUSE_RESOURCES, text, .. } => assert_eq!(text, "no room"),
            other => panic!("round {round}: {other}"),
        }
    }
    daemon.join().unwrap();
}

#[test]
fn one_that_never_comes_up_does_not_hide_what_the_one_before_said() {
    let name = unique("not-ready");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        listener.accept().say(&Reply::Refuse { code: REFUSE_ENDING, text: "its store is gone".to_owned() });
        // The next request waits for an answer again.
        listener
    });
    let (binary, args) = ("/bin/sleep".into(), vec!["10".into()]);
    let launch = Launch { binary, args, settings: Settings::default() };
    let options = Options { launch: Some(launch), timeout: Duration::from_secs(3), ..options() };
    let error = Session::connect(&dataset(&name), "j", 1, spec(), &options).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::NoDaemon { .. }), "{text}");
    assert!(text.contains("its store is gone; /bin/sleep was started and is not ready"), "{text}");
    daemon.join().unwrap();
}

#[test]
fn a_daemon_of_a_later_protocol_is_named_whatever_it_says_then() {
    let name = unique("later");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        // The tag of a welcome, another version of it, the next protocol, and unknown bytes.
        let protocol = (PROTOCOL + 1).to_le_bytes();
        let welcome = [&[1, 0, 9, 0][..], &protocol, &[0xab; 500]].concat();
        listener.accept().send_bytes(&welcome, &[]);
    });
    let error = Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err();
    daemon.join().unwrap();
    assert!(matches!(error, ClientError::Version { .. }), "{error}");
    let text = error.to_string();
    let (theirs, ours) = (format!("speaks protocol {}", PROTOCOL + 1), format!("this client {PROTOCOL}"));
    // This test itself serves the socket.
    let program = std::env::current_exe().unwrap();
    let process = format!("process {}, started from {}", std::process::id(), program.display());
    for part in [&theirs, &ours, "use the same version of both", &process] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_successor_of_a_later_protocol_is_none_and_the_error_says_so() {
    let name = unique("later-heir");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        // It dies once the epoch is asked for. An upgraded program comes in its place.
        listener.serve().epoch_started();
        let protocol = (PROTOCOL + 1).to_le_bytes();
        listener.accept().send_bytes(&[&[1, 0, 9, 0][..], &protocol, &[0xab; 500]].concat(), &[]);
    });
    let options = Options { survive: true, ..options() };
    let session = Session::connect(&dataset(&name), "j", 1, spec(), &options).unwrap();
    session.start_epoch(0, 0).unwrap();
    let error = next(&session).unwrap_err();
    daemon.join().unwrap();
    let text = error.to_string();
    assert!(matches!(error, ClientError::DaemonGone { .. }), "{text}");
    for part in ["it has no successor", &format!("speaks protocol {}", PROTOCOL + 1), "use the same version"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_daemon_that_hangs_up_on_us_is_not_asked_for_ever() {
    let name = unique("hangs-up");
    let listener = Listener::bind(&name);
    let is_over = Arc::new(AtomicBool::new(false));
    let daemon = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut greetings = 0;
            while !is_over.load(Ordering::Relaxed) {
                greetings += u32::from(listener.accept_within(Duration::from_millis(20)).is_some());
            }
            greetings
        }
    });
    let error = Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err();
    is_over.store(true, Ordering::Relaxed);
    let ClientError::HungUp { times, .. } = error else { panic!("{error}") };
    let text = error.to_string();
    assert!(text.contains("another version") && text.contains(&std::process::id().to_string()), "{text}");
    assert_eq!(daemon.join().unwrap(), times);
}

#[test]
fn a_daemon_that_ends_is_waited_out() {
    let name = unique("gives-way");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        listener.accept().say(&Reply::Refuse { code: REFUSE_ENDING, text: "it ends".to_owned() });
        listener.serve()
    });
    assert_eq!(connect(&name).samples(), 1000);
    daemon.join().unwrap();
}

#[test]
fn a_rank_that_is_taken_is_asked_for_again() {
    let name = unique("busy");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        // The rank is free at the second attempt. On a busy machine there may be no third.
        listener.accept().say(&Reply::Refuse { code: 5, text: "rank 1 is taken".to_owned() });
        listener.accept().say(&Reply::Refuse { code: 4, text: "the second answer".to_owned() });
    });
    match Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err() {
        ClientError::Refused { code: 4, text, .. } => assert_eq!(text, "the second answer"),
        other => panic!("{other:?}"),
    }
    daemon.join().unwrap();
}

/// The error of `connect` for a welcome that comes with `fds`.
fn welcomed(test: &str, payload_bytes: u64, fds: &[BorrowedFd<'_>]) -> ClientError {
    let name = unique(test);
    let listener = Listener::bind(&name);
    std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().send(&welcome(payload_bytes), fds));
        Session::connect(&dataset(&name), "j", 1, spec(), &options()).unwrap_err()
    })
}

#[test]
fn memory_that_could_fault_or_be_too_short_is_never_mapped() {
    let good = Memory::new();
    let unsealed = |bytes| segment(bytes, SealFlags::empty()).0;
    let shrinkable = |bytes| segment(bytes, SealFlags::GROW | SealFlags::SEAL).0;
    let short = |bytes| segment(bytes - 4096, SIZE_SEALS).0;
    let not_memory = |_| eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let makers: [(&str, &dyn Fn(u64) -> OwnedFd); 4] =
        [("unsealed", &unsealed), ("shrinkable", &shrinkable), ("short", &short), ("eventfd", &not_memory)];
    for (name, make) in makers {
        for (place, bytes) in
            [DAEMON_SEGMENT_BYTES, CLIENT_SEGMENT_BYTES, PAYLOAD_BYTES].into_iter().enumerate()
        {
            let bad = make(bytes);
            let mut fds = good.fds();
            fds[place] = bad.as_fd();
            let error = welcomed(&format!("bad-{name}-{place}"), PAYLOAD_BYTES, &fds);
            assert!(matches!(error, ClientError::Segment { .. }), "{name} at {place}: {error}");
        }
    }
}

#[test]
fn wrong_headers_counts_and_doorbells_are_refused() {
    let good = Memory::new();
    let refused = |test: &str, payload_bytes: u64, fds: &[BorrowedFd<'_>]| {
        let error = welcomed(test, payload_bytes, fds);
        assert!(matches!(error, ClientError::Segment { .. } | ClientError::Format(_)), "{test}: {error}");
    };
    refused("three", PAYLOAD_BYTES, &good.fds()[..3]);
    refused("none", PAYLOAD_BYTES, &[]);
    let [daemon, client, payload, doorbell] = good.fds();
    refused("five", PAYLOAD_BYTES, &[daemon, client, payload, doorbell, payload]);
    refused("bytes", PAYLOAD_BYTES * 2, &good.fds());
    let counter = eventfd(0, EventfdFlags::empty()).unwrap();
    refused("blocking", PAYLOAD_BYTES, &[daemon, client, payload, counter.as_fd()]);
    let (zeroes, _) = segment(DAEMON_SEGMENT_BYTES, SIZE_SEALS);
    refused("header", PAYLOAD_BYTES, &[zeroes.as_fd(), client, payload, doorbell]);
}
