//! Records whose decoders end the daemon: the second time such a record is a bad one, as any other.
//!
//! No decoder here is known to do that. So a thread of the test waits until a worker makes a row of
//! a certain sample, stops that worker and lets it go on where no code is: the processor raises
//! SIGSEGV in the middle of the decoder, in an ordinary daemon.
#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use shade_client::{ClientError, JobSpec, Launch, Next, OnError, Options, PlanSpec, Session, Settings};
use shade_formats::SampleId;
use shade_formats::ring::{WORKING, Working};
use shade_job::{Filters, Pair, Transform};
use shade_tests::{Packed, Source, class_names, jpeg, png, program, sorted_ids, spec};

/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// The sample whose decoder ends daemons, by its id: a large JPEG, so that it takes a while.
const POISONED: u32 = 4;
const SAMPLES: u32 = 15;
const WORKERS: u64 = 2;

/// These tests look at what this process has mapped, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn packed() -> Packed {
    let sources = (0..SAMPLES).map(|number| {
        let class = class_names().into_iter().nth(number as usize / 5).unwrap();
        let (name, bytes) = match number {
            POISONED => ("jpg", jpeg(3000, 3000, 1)),
            number => ("png", png(20, 20, number.into())),
        };
        Source { path: format!("{class}/{number:02}.{name}"), bytes, label: number / 5 }
    });
    Packed::of(sources.collect())
}

/// Daemons that are children of this process, which may trace them.
fn options(dataset: &Path) -> Options {
    let settings = Settings::from_text(&format!(r#"{{"linger": 0.2, "workers": {WORKERS}}}"#)).unwrap();
    let mut launch = Launch::new(program("shade-load"), dataset, None, &settings);
    launch.args.retain(|argument| argument != "--detach");
    let timeout = Duration::from_secs(60);
    Options { launch: Some(launch), settings, timeout, ..Options::default() }
}

fn job(on_error: OnError) -> JobSpec {
    let (scale, ratio, interpolation) = ([1.0, 1.0], [1.0, 1.0], Filters::default());
    let crop = Transform::RandomResizedCrop { size: Pair([16, 16]), scale, ratio, interpolation };
    let decode = vec![crop].into();
    JobSpec { plan: PlanSpec::default(), ring_bytes: 1 << 15, decode, on_error, bad_max: 1.0, ..spec(5, 1) }
}

/// Calls `end` with the daemon and its worker that makes a row of the sample, which is stopped, as
/// often as there is one until `is_over`.
fn poison(session: &Session, is_over: &AtomicBool, deaths: &AtomicUsize, end: impl Fn(Pid, Pid)) {
    let memory = File::open("/proc/self/mem").unwrap();
    let makes = |start: u64, worker: u64| {
        let mut word = [0; 8];
        let read = memory.read_exact_at(&mut word, start + WORKING + 8 * worker);
        read.is_ok() && u64::from_le_bytes(word) == Working::word(SampleId(POISONED))
    };
    while !is_over.load(Ordering::Relaxed) {
        let daemon = session.daemon_pid();
        // While there are two, it is not known which is the daemon's.
        let Some(ring) = only_ring().filter(|_| session.daemon_pid() == daemon) else { continue };
        let daemon = Pid::from_raw(daemon.cast_signed());
        let worker = (0..WORKERS).find(|worker| makes(ring, *worker));
        let Some((worker, thread)) = worker.and_then(|worker| Some((worker, thread_of(daemon, worker)?)))
        else {
            continue;
        };
        // It may end meanwhile.
        let stopped = ptrace::seize(thread, ptrace::Options::empty())
            .and_then(|()| ptrace::interrupt(thread))
            .and_then(|()| waitpid(thread, Some(WaitPidFlag::__WALL)));
        if !matches!(stopped, Ok(WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..))) {
            continue;
        }
        if makes(ring, worker) {
            end(daemon, thread);
            deaths.fetch_add(1, Ordering::Relaxed);
            while thread_of(daemon, worker).is_some() {
                std::thread::yield_now();
            }
        } else {
            let _ = ptrace::detach(thread, None);
        }
    }
}

/// Where the words of the one ring begin that this process has mapped.
fn only_ring() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut rings = maps.lines().filter(|line| line.contains("memfd:shade-ring-daemon"));
    let ring = rings.next().filter(|_| rings.next().is_none())?;
    u64::from_str_radix(ring.split_once('-')?.0, 16).ok()
}

/// The thread of this worker.
fn thread_of(daemon: Pid, worker: u64) -> Option<Pid> {
    let name = format!("shade-fill-{worker}\n");
    let threads = std::fs::read_dir(format!("/proc/{daemon}/task")).ok()?.flatten();
    let is_it = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name);
    let thread = threads.map(|thread| thread.path()).find(|path| is_it(path))?;
    thread.file_name()?.to_str()?.parse().ok().map(Pid::from_raw)
}

/// The stopped thread goes on where no code is.
fn fault(_daemon: Pid, thread: Pid) {
    let mut registers = ptrace::getregs(thread).unwrap();
    // And in no system call that would begin again.
    (registers.rip, registers.orig_rax) = (8, u64::MAX);
    ptrace::setregs(thread, registers).unwrap();
    ptrace::detach(thread, None).unwrap();
}

/// The whole process is killed, as when memory runs out.
fn kill(daemon: Pid, thread: Pid) {
    nix::sys::signal::kill(daemon, nix::sys::signal::Signal::SIGKILL).unwrap();
    // A thread that is traced stays until its tracer has heard of its end.
    while matches!(waitpid(thread, Some(WaitPidFlag::__WALL)), Ok(status) if status.pid().is_some()) {}
}

/// The ids of an epoch.
fn train(session: &Session, epoch: u32) -> Result<Vec<u32>, ClientError> {
    let (started, mut batches) = (Instant::now(), Vec::new());
    session.start_epoch(epoch, 0)?;
    loop {
        match session.next(Duration::from_millis(100))? {
            Next::Batch(batch) => batches.push(shade_tests::copy(&batch)),
            Next::EpochEnd => return Ok(sorted_ids(&batches)),
            Next::Pending => assert!(started.elapsed() < PATIENCE, "no batch within {PATIENCE:?}"),
        }
    }
}

/// What came of a training.
struct Seen {
    /// Ids of the first epoch that began after `deaths_max` deaths, or what has ended the training.
    ids: Result<Vec<u32>, ClientError>,
    deaths: usize,
    warnings: Vec<String>,
    successors: u32,
}

fn run(packed: &Packed, on_error: OnError, deaths_max: usize, end: impl Fn(Pid, Pid) + Sync) -> Seen {
    let options = options(&packed.dataset);
    let session = Session::connect(&packed.dataset, "job", 0, job(on_error), &options).unwrap();
    let (is_over, deaths) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ids = std::thread::scope(|scope| {
        scope.spawn(|| poison(&session, &is_over, &deaths, &end));
        let mut epochs = (0..).map(|epoch| {
            let before = deaths.load(Ordering::Relaxed);
            train(&session, epoch).map(|ids| (before, ids))
        });
        // On a busy machine the worker may be through before it is stopped.
        let last = epochs.find(|ids| ids.as_ref().map_or(true, |(before, _)| *before >= deaths_max)).unwrap();
        is_over.store(true, Ordering::Relaxed);
        last.map(|(_, ids)| ids)
    });
    let warnings = std::iter::from_fn(|| session.take_warning()).collect();
    Seen { ids, deaths: deaths.into_inner(), warnings, successors: session.successors() }
}

#[test]
fn the_second_time_on_error_decides_and_the_training_goes_on() {
    let _turn = turn();
    let packed = packed();
    let name = format!("sample {POISONED} ({})", packed.sources[POISONED as usize].path);
    let left: Vec<u32> = (0..SAMPLES).filter(|id| *id != POISONED).collect();
    for on_error in [OnError::Skip, OnError::Substitute, OnError::Raise] {
        let Seen { ids, deaths, warnings, successors } = run(&packed, on_error, 2, fault);
        assert_eq!((deaths, successors), (2, 2), "{on_error:?}: {warnings:?}");
        let at = format!("signal 11 came while it made a row of sample {POISONED}, ");
        assert!(warnings[0].contains(&format!("{at}once")), "{warnings:?}");
        assert!(warnings[1].contains(&format!("{at}the second time")), "{warnings:?}");
        match (on_error, ids) {
            (OnError::Skip, ids) => assert_eq!(ids.unwrap(), left),
            (OnError::Substitute, ids) => {
                let mut ids = ids.unwrap();
                assert_eq!(ids.len(), left.len() + 1);
                ids.dedup();
                assert_eq!(ids, left);
            }
            (OnError::Raise, ids) => {
                let error = ids.unwrap_err();
                let text = error.to_string();
                assert!(matches!(error, ClientError::Record { .. }), "{text}");
                assert!(text.contains(&name), "{text}");
                assert!(text.contains("its decoder has ended the daemon twice"), "{text}");
            }
        }
    }
}

#[test]
fn a_daemon_that_is_killed_at_a_record_is_no_fault_of_it_and_the_third_is_an_error_that_names_it() {
    let _turn = turn();
    let packed = packed();
    let Seen { ids, deaths, warnings, .. } = run(&packed, OnError::Skip, usize::MAX, kill);
    let text = ids.unwrap_err().to_string();
    assert!(deaths >= 3, "{deaths}: {text}");
    assert!(text.contains("3 daemons in a row have died before this rank had batch"), "{text}");
    let path = &packed.sources[POISONED as usize].path;
    // At each of them, also of one that the rank did not wait for.
    let (_, at) = text.rsplit_once(&format!("sample {POISONED} ({path}) at ")).unwrap();
    assert!(at.split(',').next().unwrap().parse::<u32>().unwrap() >= 3, "{text}");
    assert!(warnings.iter().all(|text| !text.contains("made a row of sample")), "{warnings:?}");
}
