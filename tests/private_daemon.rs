//! A daemon that trainers start by themselves: one for all ranks, gone after the last, never a zombie.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getpriority_process, kill_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use shade_client::{ClientError, JobSpec, Launch, Options, Session};
use shade_tests::{Daemon, Packed, Peer, eventually, processes_of, program, spec, take_epoch};

/// These tests count the processes that this one has started, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn options(dataset: &Path, linger: &str) -> Options {
    let args = ["serve".into(), dataset.as_os_str().to_owned(), "--private".into(), "--linger".into()];
    let args: Vec<OsString> = args.into_iter().chain([linger.into()]).collect();
    let launch = Some(Launch { binary: program("shade-load"), args });
    Options { socket: None, launch, timeout: Duration::from_secs(60) }
}

fn children() -> Vec<u32> {
    processes_of(std::process::id())
}

fn connect(dataset: &Path, rank: u32, job: JobSpec, options: &Options) -> Result<Session, ClientError> {
    Session::connect(dataset, "default", rank, job, options)
}

#[test]
fn ranks_that_race_to_start_it_share_one_and_it_ends_after_the_last() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(10);
    let options = options(&packed.dataset, "100ms");
    for round in 0..4 {
        let job = spec(4, 4);
        let start = Barrier::new(4);
        let pids: Vec<u32> = std::thread::scope(|scope| {
            let rank = |rank| {
                let (start, packed, options) = (&start, &packed, &options);
                scope.spawn(move || {
                    start.wait();
                    let session = connect(&packed.dataset, rank, job, options)
                        .unwrap_or_else(|error| panic!("round {round}, rank {rank}: {error}"));
                    let batches = take_epoch(&session, 0).expect("a whole epoch");
                    assert_eq!(batches.len(), session.batches_per_epoch() as usize);
                    // The first to leave does not take the daemon with it.
                    start.wait();
                    session.daemon_pid()
                })
            };
            let ranks: Vec<_> = (0..4).map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        assert!(pids.iter().all(|pid| *pid == pids[0]), "one daemon for all: {pids:?}");
        eventually("every daemon has ended and was reaped", || children().is_empty());
    }
}

#[test]
fn a_restarted_trainer_finds_the_daemon_that_lingers() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let options = options(&packed.dataset, "20s");
    let first = connect(&packed.dataset, 0, spec(4, 1), &options).unwrap();
    let pid = first.daemon_pid();
    drop(first);
    let mut second = None;
    eventually("the daemon has seen that the first session left", || {
        second = connect(&packed.dataset, 0, spec(4, 1), &options).ok();
        second.is_some()
    });
    assert_eq!(second.map(|session| session.daemon_pid()), Some(pid));
    // It would linger on: end it now.
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::TERM).unwrap();
    eventually("it has ended and was reaped", || children().is_empty());
}

#[test]
fn its_failure_is_the_trainer_s_error() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let index = packed.dataset.join("dataset.shade");
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let error = connect(&packed.dataset, 0, spec(4, 1), &options(&packed.dataset, "1s")).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Launch { .. }), "{text}");
    assert!(text.contains(&index.display().to_string()), "names the index: {text}");
    eventually("it was reaped", || children().is_empty());
}

/// Starts a daemon from a thread that has changed what processes inherit from it.
fn started_by(packed: &Packed, change: impl FnOnce() + Send) -> Session {
    let options = options(&packed.dataset, "20s");
    std::thread::scope(|scope| {
        let trainer = scope.spawn(|| {
            change();
            connect(&packed.dataset, 0, spec(4, 1), &options).unwrap()
        });
        trainer.join().unwrap()
    })
}

fn pid_of(session: &Session) -> Pid {
    Pid::from_raw(session.daemon_pid().cast_signed()).unwrap()
}

/// The tests run on one CPU at least; on a machine with one there is nothing to bind.
fn first_cpu() -> CpuSet {
    let mut one = CpuSet::new();
    let all = sched_getaffinity(None).unwrap();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    one
}

#[test]
fn signals_that_its_trainer_blocks_end_it_all_the_same() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let session = started_by(&packed, || SigSet::all().thread_block().unwrap());
    kill_process(pid_of(&session), Signal::TERM).unwrap();
    eventually("it has ended and was reaped", || children().is_empty());
}

#[test]
fn its_first_trainer_s_cpus_and_niceness_are_not_its_own() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let all = sched_getaffinity(None).unwrap();
    let session = started_by(&packed, || {
        sched_setaffinity(None, &first_cpu()).unwrap();
        // Of this thread: Linux has a niceness for each.
        setpriority_process(None, 5).unwrap();
    });
    let daemon = pid_of(&session);
    assert!(sched_getaffinity(Some(daemon)).unwrap() == all, "all CPUs that this process may use");
    // To go back takes a privilege.
    let expected = if rustix::process::geteuid().is_root() { 0 } else { 5 };
    assert_eq!(getpriority_process(Some(daemon)).unwrap(), expected);
    kill_process(daemon, Signal::TERM).unwrap();
    eventually("it has ended and was reaped", || children().is_empty());
}

#[test]
fn one_that_was_started_by_hand_keeps_its_cpus_and_says_so() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let all = sched_getaffinity(None).unwrap();
    let daemon = std::thread::scope(|scope| {
        let hand = scope.spawn(|| {
            sched_setaffinity(None, &first_cpu()).unwrap();
            Daemon::start(&packed.dataset, &[])
        });
        hand.join().unwrap()
    });
    let pid = Pid::from_raw(daemon.pid().cast_signed()).unwrap();
    assert_eq!(sched_getaffinity(Some(pid)).unwrap().count(), 1);
    assert!(all.count() == 1 || daemon.log().contains("bound to 1 of "), "{}", daemon.log());
}

#[test]
fn who_only_knocks_does_not_keep_it_alive() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    drop(connect(&packed.dataset, 0, spec(4, 1), &options(&packed.dataset, "1s")).unwrap());
    eventually("it ends after its linger", || {
        // Ten times as often as it would have to be.
        drop(Peer::try_connect(&packed.dataset));
        std::thread::sleep(Duration::from_millis(100));
        children().is_empty()
    });
}
