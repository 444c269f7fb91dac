//! The daemon that trainers start by themselves: one for all ranks, gone after the last, never a
//! zombie.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{
    Pid, Signal, getpgid, getpid, getpriority_process, getsid, kill_process, set_child_subreaper,
    setpriority_process,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use shade_client::{ClientError, JobSpec, Launch, Options, Session, Settings};
use shade_formats::control::REFUSE_DATASET;
use shade_tests::{Daemon, Packed, Peer, eventually, processes_of, program, spec, take_epoch};

/// These tests count the processes that this one has started, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn options(dataset: &Path, linger: &str) -> Options {
    // Detached daemons become children of this process, so that the tests can see and count them.
    set_child_subreaper(Some(getpid())).unwrap();
    let settings = Settings::from_text(&json!({ "linger": linger }).to_string()).unwrap();
    let launch = Some(Launch::new(program("shade-load"), dataset, None, &settings));
    Options { launch, timeout: Duration::from_secs(60), ..Options::default() }
}

/// The same with this cache, both as the daemon's argument and as the setting that is asked for.
fn with_cache(dataset: &Path, linger: &str, cache: &str) -> Options {
    let settings = json!({ "cache": cache, "policy": "lookahead", "store": "none", "linger": linger });
    let settings = Settings::from_text(&settings.to_string()).unwrap();
    let launch = Some(Launch::new(program("shade-load"), dataset, None, &settings));
    Options { launch, settings, ..options(dataset, linger) }
}

/// Ends a daemon before its linger is over.
fn end(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    eventually("it has ended and was reaped", || children().is_empty());
}

/// Replaces the dataset by another.
fn replace(packed: &Packed, other: &Packed) {
    std::fs::rename(&packed.dataset, packed.beside("before")).unwrap();
    std::fs::rename(&other.dataset, &packed.dataset).unwrap();
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
                let job = job.clone();
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
    end(pid);
}

/// Connects once the daemon of what the dataset was has no rank: a busy one may notice that some
/// time after the last has left.
fn connect_when_free(dataset: &Path, options: &Options) -> Session {
    let mut session = None;
    eventually("no rank is left", || match connect(dataset, 0, spec(4, 1), options) {
        Err(ClientError::Refused { code: REFUSE_DATASET, .. }) => false,
        attached => {
            session = Some(attached.unwrap());
            true
        }
    });
    session.unwrap()
}

#[test]
fn a_dataset_that_was_replaced_or_grew_gets_a_daemon_of_its_own() {
    let _turn = TURN.lock();
    let (packed, other, more) = (Packed::mixed(3), Packed::mixed(5), Packed::mixed(7));
    let options = options(&packed.dataset, "60s");
    let first = connect(&packed.dataset, 0, spec(4, 1), &options).unwrap();
    assert_eq!(first.samples() as usize, packed.len());
    drop(first);
    // The first daemon still lingers. It is asked to end and does.
    replace(&packed, &other);
    let second = connect_when_free(&packed.dataset, &options);
    assert_eq!(second.samples() as usize, other.len());
    assert_eq!(
        take_epoch(&second, 0).unwrap().iter().map(|batch| batch.ids.len()).sum::<usize>(),
        other.len()
    );
    drop(second);
    // Files that the dataset does not have yet.
    for source in &other.sources {
        std::fs::remove_file(more.images.join(&source.path)).unwrap();
    }
    let command =
        ["append".as_ref(), more.images.as_os_str(), packed.dataset.as_os_str(), "--quiet".as_ref()];
    let appended = Command::new(program("shade-pack")).args(command).output().unwrap();
    assert!(appended.status.success(), "{appended:?}");
    let third = connect_when_free(&packed.dataset, &options);
    assert!(third.samples() as usize > other.len(), "{}", third.samples());
    let grown = third.samples() as usize;

    // A daemon with an attached rank does not end. The error says what changed and what to do.
    let pid = third.daemon_pid();
    std::fs::rename(&packed.dataset, packed.beside("grown")).unwrap();
    std::fs::rename(packed.beside("before"), &packed.dataset).unwrap();
    match connect(&packed.dataset, 0, spec(4, 1), &options) {
        Err(ClientError::Refused { code: REFUSE_DATASET, text, .. }) => {
            let (now, served) = (format!("{} samples", packed.len()), format!("{grown} samples"));
            for part in [&now, &served, &pid.to_string(), "content id", "start them again"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        other => panic!("not refused: {other:?}"),
    }
    drop(third);
    let fourth = connect_when_free(&packed.dataset, &options);
    assert_eq!(fourth.samples() as usize, packed.len());
    assert_ne!(fourth.daemon_pid(), pid);
    drop(fourth);
    for pid in children() {
        end(pid);
    }
}

#[test]
fn a_daemon_by_hand_that_serves_what_was_there_before_says_so() {
    let (packed, other) = (Packed::mixed(3), Packed::mixed(5));
    let daemon = Daemon::start(&packed.dataset, &[]);
    replace(&packed, &other);
    let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    match connect(&packed.dataset, 0, spec(4, 1), &options) {
        Err(ClientError::Refused { code: REFUSE_DATASET, text, .. }) => {
            assert!(text.contains("stop it and start it again"), "{text}");
        }
        other => panic!("not refused: {other:?}"),
    }
    drop(daemon);
}

#[test]
fn settings_are_what_was_asked_for_unless_others_use_the_daemon() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let (small, large) =
        (with_cache(&packed.dataset, "60s", "0"), with_cache(&packed.dataset, "60s", "100%"));
    let cache = |session: &Session| session.settings().get("cache").unwrap().to_owned();
    let first = connect(&packed.dataset, 0, spec(4, 2), &small).unwrap();
    assert_eq!(cache(&first), 0);
    // Another rank uses the daemon: it is told the settings and gets no others.
    let second = connect(&packed.dataset, 1, spec(4, 2), &large).unwrap();
    assert_eq!(second.daemon_pid(), first.daemon_pid());
    assert_eq!(cache(&second), 0);
    let pid = first.daemon_pid();
    drop((first, second));
    // No rank is left, so other settings get another daemon.
    let third = connect(&packed.dataset, 0, spec(4, 1), &large).unwrap();
    assert_ne!(third.daemon_pid(), pid);
    assert_eq!(cache(&third), "100%");
    let pid = third.daemon_pid();
    drop(third);
    // The same size in other words is the same setting.
    let bytes = with_cache(&packed.dataset, "1min", "1GiB");
    let fourth = connect(&packed.dataset, 0, spec(4, 1), &bytes).unwrap();
    assert_eq!((fourth.daemon_pid(), cache(&fourth)), (pid, (1 << 30).into()));
    drop(fourth);
    // The running daemon can change its linger.
    let short = with_cache(&packed.dataset, "100ms", "1GiB");
    let fifth = connect(&packed.dataset, 0, spec(4, 1), &short).unwrap();
    assert_eq!((fifth.daemon_pid(), &fifth.settings()["linger"]), (pid, &0.1.into()));
    drop(fifth);
    eventually("it has ended and was reaped", || children().is_empty());
}

#[test]
fn its_death_is_told_with_its_last_words() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let options = Options { survive: false, ..options(&packed.dataset, "1s") };
    let session = connect(&packed.dataset, 0, spec(4, 1), &options).unwrap();
    let pid = session.daemon_pid();
    // This leaves a line in its log. The thread that writes it does so after the peer was told.
    let peer = Peer::connect(&packed.dataset);
    assert!(peer.send(&[0xff; 10], None));
    while peer.receive().is_some() {}
    std::thread::sleep(Duration::from_secs(3));
    let process = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let error = session.stats().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::DaemonGone { .. }), "{text}");
    for part in [&format!("process {pid}"), "killed by signal 9", "memory ran out", "WARN session"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(session);
    eventually("it was reaped", || children().is_empty());
}

#[test]
fn its_failure_is_the_trainer_s_error() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let index = packed.dataset.join("dataset.shade");
    let mut bytes = std::fs::read(&index).unwrap();
    // After the header, which the trainer reads itself.
    bytes[70] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let error = connect(&packed.dataset, 0, spec(4, 1), &options(&packed.dataset, "1s")).unwrap_err();
    let text = error.to_string();
    // From the daemon's output, or from its socket if the trainer had connected by then.
    assert!(matches!(error, ClientError::Launch { .. } | ClientError::Refused { .. }), "{text}");
    assert!(text.contains(&index.display().to_string()), "names the index: {text}");
    eventually("it was reaped", || children().is_empty());
}

#[test]
fn its_failure_is_the_error_of_every_rank_that_waits_for_it() {
    const RANKS: u32 = 8;
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    packed.claim_to_be_huge();
    let options = with_cache(&packed.dataset, "1s", "100%");
    for round in 0..5 {
        let start = Barrier::new(RANKS as usize);
        let errors: Vec<ClientError> = std::thread::scope(|scope| {
            let rank = |rank| {
                let (start, packed, options) = (&start, &packed, &options);
                scope.spawn(move || {
                    start.wait();
                    connect(&packed.dataset, rank, spec(4, RANKS), options).unwrap_err()
                })
            };
            let ranks: Vec<_> = (0..RANKS).map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        for error in errors {
            let text = error.to_string();
            assert!(
                matches!(error, ClientError::Launch { .. } | ClientError::Refused { .. })
                    && text.contains("does not fit"),
                "round {round}: {text}"
            );
        }
        eventually("all were reaped", || children().is_empty());
    }
}

/// Starts a daemon from a thread that first changes what processes inherit.
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

/// The first CPU that this process may use.
fn first_cpu() -> CpuSet {
    let mut one = CpuSet::new();
    let all = sched_getaffinity(None).unwrap();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    one
}

#[test]
fn it_leaves_the_session_and_the_process_group_of_its_trainer() {
    let _turn = TURN.lock();
    let packed = Packed::mixed(3);
    let session = connect(&packed.dataset, 0, spec(4, 1), &options(&packed.dataset, "20s")).unwrap();
    let daemon = pid_of(&session);
    assert_ne!(daemon, getpid());
    assert_eq!(getsid(Some(daemon)).unwrap(), daemon, "the leader of a session");
    assert_eq!(getpgid(Some(daemon)).unwrap(), daemon);
    // The program that has started it has ended and was reaped.
    assert_eq!(children(), [session.daemon_pid()]);
    drop(session);
    end(daemon.as_raw_nonzero().get().cast_unsigned());
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
        // This is the thread's niceness, as Linux has one for each.
        setpriority_process(None, 5).unwrap();
    });
    let daemon = pid_of(&session);
    assert!(sched_getaffinity(Some(daemon)).unwrap() == all, "all CPUs that this process may use");
    // Lowering the niceness takes a privilege.
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
        // Ten times per linger.
        drop(Peer::try_connect(&packed.dataset));
        std::thread::sleep(Duration::from_millis(100));
        children().is_empty()
    });
}
