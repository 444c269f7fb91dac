//! An idle daemon sleeps: without a rank it never wakes, with one only for its heartbeat.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use shade_tests::{Daemon, Packed, attach, eventually, spec, take_epoch};

/// Interval of the heartbeat in rings.
const HEARTBEAT: Duration = Duration::from_millis(100);
const WATCHED: Duration = Duration::from_secs(3);

/// How often each thread of a process has gone to sleep so far: once per wake-up. By its number,
/// with its name.
fn sleeps(pid: u32) -> BTreeMap<OsString, (String, u64)> {
    let mut sleeps = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0").trim().to_owned()
        };
        let count: u64 = field("voluntary_ctxt_switches:").parse().unwrap();
        sleeps.insert(task.file_name(), (field("Name:"), count));
    }
    assert!(!sleeps.is_empty(), "no threads in process {pid}");
    sleeps
}

/// Sleeps of each thread while nothing happens, by name, and for how long that was watched.
fn while_idle(pid: u32) -> (BTreeMap<String, u64>, Duration) {
    let (before, started) = (sleeps(pid), Instant::now());
    std::thread::sleep(WATCHED);
    let mut woken = BTreeMap::new();
    for (thread, (name, count)) in sleeps(pid) {
        // A thread may end meanwhile, and another begin.
        *woken.entry(name).or_default() += count - before.get(&thread).map_or(0, |(_, count)| *count);
    }
    woken.retain(|_, count| *count > 0);
    (woken, started.elapsed())
}

#[test]
fn without_a_rank_nothing_wakes() {
    let packed = Packed::mixed(20);
    for engine in ["auto", "threads", "sim"] {
        let daemon = Daemon::start(&packed.dataset, &[&"--engine", &engine]);
        eventually(&format!("{engine}: nothing wakes"), || while_idle(daemon.pid()).0.is_empty());
    }
}

#[test]
fn with_a_rank_only_the_heartbeat_does() {
    let packed = Packed::mixed(20);
    for engine in ["auto", "threads", "sim"] {
        let daemon = Daemon::start(&packed.dataset, &[&"--engine", &engine]);
        let session = attach(&packed.dataset, 0, spec(8, 1));
        take_epoch(&session, 0).unwrap();
        // Earlier work may still end in the first window, on a busy machine.
        eventually(&format!("{engine}: only the heartbeat wakes"), || {
            let (mut woken, watched) = while_idle(daemon.pid());
            let beats = woken.remove("shade-load").unwrap_or(0);
            let due = watched.as_millis() / HEARTBEAT.as_millis() + 2;
            woken.is_empty() && (1..=due).contains(&u128::from(beats))
        });
    }
}
