//! Daemons that end by a defect of their own: an assertion of the core, a signal for what a program
//! did wrong. They are replaced as killed ones are, and the warning has their last words.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shade_client::{ClientError, JobSpec, Launch, Next, Options, PlanSpec, Sampler, Session, Settings};
use shade_tests::{Packed, Taken, copy, eventually, is_gone, program, spec};

/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a region of memory that are looked at at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Longest region that is looked at: the arena is longer, and has records.
const REGION_BYTES_MAX: u64 = 64 << 20;

fn options(dataset: &Path, is_detached: bool) -> Options {
    let settings = Settings::from_text(r#"{"linger": 0.2, "cache": "100%"}"#).unwrap();
    let mut launch = Launch::new(program("shade-load"), dataset, None, &settings);
    launch.args.retain(|argument| is_detached || argument != "--detach");
    let timeout = Duration::from_secs(60);
    Options { launch: Some(launch), settings, timeout, ..Options::default() }
}

fn connect(packed: &Packed, is_detached: bool) -> Session {
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let job = JobSpec { plan, ring_bytes: 4096, ..spec(6, 1) };
    Session::connect(&packed.dataset, "job", 0, job, &options(&packed.dataset, is_detached)).unwrap()
}

/// The next batch, also of a successor; `None` at the epoch's end.
fn next(session: &Session) -> Result<Option<Taken>, ClientError> {
    let started = Instant::now();
    loop {
        match session.next(Duration::from_millis(100))? {
            Next::Batch(batch) => {
                let losses: Vec<f32> = copy(&batch).ids.iter().map(|id| (id * 31 % 97) as f32).collect();
                session.report(batch.id(), &losses)?;
                // A successor's cache begins empty.
                return Ok(Some(Taken { hits: 0, misses: 0, ..copy(&batch) }));
            }
            Next::EpochEnd => return Ok(None),
            Next::Pending => assert!(started.elapsed() < PATIENCE, "no batch within {PATIENCE:?}"),
        }
    }
}

/// Three epochs of a training whose daemon is ended by `end` where it is at rest behind the second:
/// what it was given, and what it was warned of.
fn train(packed: &Packed, is_detached: bool, end: Option<&dyn Fn(&Session)>) -> (Vec<Taken>, Vec<String>) {
    let session = connect(packed, is_detached);
    let mut taken = Vec::new();
    for epoch in 0..3 {
        session.start_epoch(epoch, 0).unwrap();
        taken.extend(std::iter::from_fn(|| next(&session).unwrap()));
        if let Some(end) = end.filter(|_| epoch == 1) {
            let pid = session.daemon_pid();
            end(&session);
            eventually("it has ended", || is_gone(pid));
        }
    }
    let told: Vec<String> = std::iter::from_fn(|| session.take_warning()).collect();
    assert_eq!(told.len(), session.successors() as usize, "{told:?}");
    (taken, told)
}

/// Where in the process's own memory this word is.
fn places_of(pid: u32, word: u64) -> Vec<u64> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut places = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let ends: Vec<u64> = range.split('-').map(|end| u64::from_str_radix(end, 16).unwrap()).collect();
        let [start, end] = ends[..] else { continue };
        if !rest.starts_with("rw-p") || end - start > REGION_BYTES_MAX {
            continue;
        }
        let mut piece = vec![0; PIECE_BYTES];
        for at in (start..end).step_by(PIECE_BYTES) {
            // Some of the system's cannot be read.
            let read = memory.read_at(&mut piece, at).unwrap_or(0).min(usize::try_from(end - at).unwrap());
            let words = piece[..read].chunks_exact(size_of::<u64>());
            let found = (at..)
                .step_by(size_of::<u64>())
                .zip(words)
                .filter(|(_, bytes)| **bytes == word.to_le_bytes());
            places.extend(found.map(|(place, _)| place));
        }
    }
    places
}

/// Changes what the daemon counts for its cache, as a fault of memory would: its books no longer
/// add up.
fn spoil(session: &Session) {
    let pid = session.daemon_pid();
    let stats: serde_json::Value = serde_json::from_str(&session.stats().unwrap()).unwrap();
    let used_bytes = stats["cache_used_bytes"].as_u64().unwrap();
    assert!(used_bytes > 0);
    let places = places_of(pid, used_bytes);
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).unwrap();
    for place in places {
        // It may have ended by now.
        let _ = memory.write_at(&(used_bytes + 512).to_le_bytes(), place);
    }
}

#[test]
fn a_core_whose_assertion_fails_costs_a_warning_that_has_its_words() {
    let packed = Packed::mixed(33);
    let (undisturbed, none) = train(&packed, false, None);
    assert!(none.is_empty());
    let (taken, told) = train(&packed, false, Some(&spoil));
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "a defect of shade-load",
        "at rest, the cache alone has memory",
        "it failed (exit code 1)",
        "has taken its place",
    ] {
        assert!(told[0].contains(part), "{part} in {told:?}");
    }
    assert!(taken == undisturbed);
}

#[test]
fn a_signal_for_what_a_program_did_wrong_is_named_though_the_daemon_is_nobodys_child() {
    let packed = Packed::mixed(33);
    let (undisturbed, _) = train(&packed, true, None);
    for signal in [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::TRAP] {
        let end = |session: &Session| {
            kill_process(Pid::from_raw(session.daemon_pid().cast_signed()).unwrap(), signal).unwrap();
        };
        let (taken, told) = train(&packed, true, Some(&end));
        let words = format!("it was killed by signal {}", signal.as_raw());
        assert!(told.len() == 1 && told[0].contains(&words), "{signal:?}: {told:?}");
        assert!(taken == undisturbed, "{signal:?}");
    }
}
