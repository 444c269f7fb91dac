//! Finds the programs under test and running processes, and waits for conditions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for something that must happen. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The program `name` of this workspace, from the target folder of the test.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    path.unwrap_or_else(|| {
        panic!("{name} was not built beside {}: run `cargo build --workspace --bins` first", test.display())
    })
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not hold within a minute. `what` names it.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "still not so after {PATIENCE:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `look` sees what is expected.
///
/// # Panics
/// When it does not within a minute, with what it saw last. `what` names it.
pub fn settles<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, look: impl Fn() -> T) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE && look() != *expected {
        std::thread::sleep(PAUSE);
    }
    assert_eq!(look(), *expected, "still not so after {PATIENCE:?}: {what}");
}

/// Whether a process has ended, and so have all its threads: until then its files and sockets are
/// open.
#[must_use]
pub fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have anything: the state, and 17 words on the number of threads.
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let (state, threads) = (words.next(), words.nth(16).and_then(|word| word.parse::<u32>().ok()));
    state.is_none() || (state == Some("Z") && threads.unwrap_or(0) <= 1)
}

/// Children of this process, including those not reaped yet.
///
/// # Panics
/// Where /proc is not Linux'.
#[must_use]
pub fn processes_of(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent_of(pid) == Some(parent))
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name, in brackets, may contain anything. State and parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
