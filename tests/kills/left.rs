//! What daemons and their clients leave behind: processes, memory, sockets, descriptors, threads
//! and files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::killer::processes;

/// How long daemons may take to end. One that was started for a rank that has left since waits for
/// its first rank for 30 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is there now, by name: of this process and of daemons with one of these words in their
/// command lines, and files below `root` and in shared memory.
pub(crate) fn look(root: &Path, words: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for word in words {
        found.extend(processes(word).into_iter().map(|pid| format!("process {pid}")));
    }
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = fds.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string()));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        let kind = name.split(':').next().unwrap_or_default().to_owned();
        if name.contains("shade-") {
            found.insert(format!("descriptor of {name}"));
        } else if kind == "socket" || kind == "pipe" || kind.contains("pidfd") {
            // Their numbers are others each time: counted.
            *counts.entry(kind).or_default() += 1;
        }
    }
    for (kind, count) in counts {
        found.extend((0..count).map(|number| format!("descriptor {number} of a {kind}")));
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    found.extend(maps.lines().filter(|line| line.contains("memfd:shade")).map(|line| format!("map {line}")));
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    found.extend(threads.filter(|name| name.starts_with("shade-")).map(|name| format!("thread {name}")));
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let root_s = root.display().to_string();
    let ours = |name: &&str| name.contains(&root_s) || words.iter().any(|word| name.contains(word));
    found.extend(
        sockets
            .lines()
            .filter_map(|line| line.split_whitespace().nth(7))
            .filter(ours)
            .map(|name| format!("socket {name}")),
    );
    let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let shared = shared.map(|entry| entry.path().display().to_string());
    found.extend(
        shared.filter(|name| name.to_lowercase().contains("shade")).map(|name| format!("file {name}")),
    );
    files(root, &mut found);
    found
}

fn files(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // The source has as many as there are samples.
        if is_folder && entry.file_name() != "images" {
            files(&entry.path(), found);
        } else if !is_folder {
            found.insert(format!("file {}", entry.path().display()));
        }
    }
}

/// What is there and was not before, once it gets no less.
pub(crate) fn left(before: &BTreeSet<String>, look: impl Fn() -> BTreeSet<String>) -> Vec<String> {
    let started = Instant::now();
    loop {
        let left: Vec<String> = look().difference(before).cloned().collect();
        if left.is_empty() || started.elapsed() > PATIENCE {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
