//! Jobs are killed with SIGKILL two hundred times, at any moment of their lives, while others
//! train. Each of the others is given what it would be given alone, and nothing is left of the
//! dead.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use shade_tests::{
    Daemon, JOBS, JobProcess, Packed, assert_undisturbed, attach_to, eventually, noise, sorted_ids, spec,
    stats, take_epoch,
};

const KILLS: usize = 200;
/// Kills after which a daemon has all that it ever needs: descriptors of shards, memory of threads.
const FIRST_KILLS: usize = 20;
/// What a batch of the trainers computes.
const PACE: Duration = Duration::from_millis(1);
/// What the allocator may keep more of after two hundred sessions than after twenty. Each has
/// a ring of 16 MiB.
const SPARE_KIB: u64 = 8 << 10;

/// What each process was given, by its job.
type Given = Vec<(&'static str, Vec<String>)>;

/// Four jobs train. Each kill comes up to 130 ms after the last one, often soon: then it may hit
/// a job that is attaching.
fn kill_jobs(packed: &Packed, kills: usize, seed: u64) -> Given {
    let start = |name| JobProcess::start(&packed.dataset, name, PACE);
    let mut jobs: Vec<_> = JOBS.into_iter().map(|name| (name, start(name))).collect();
    let mut given = Given::new();
    for dice in noise(seed, 2 * kills).chunks_exact(2) {
        std::thread::sleep(Duration::from_micros(2 * u64::from(dice[0]).pow(2)));
        // The last one of the list was started last.
        let at = if dice[1] < 80 { jobs.len() - 1 } else { usize::from(dice[1]) % jobs.len() };
        let (name, victim) = jobs.remove(at);
        given.push((name, victim.kill()));
        jobs.push((name, start(name)));
    }
    for (name, job) in jobs {
        let before = job.epochs().len();
        eventually("the last ones train on", || job.epochs().len() > before + 1);
        given.push((name, job.kill()));
    }
    given
}

/// Whether a daemon has what it had before its first session: as many `resources` of sessions, none
/// of their threads, no ring.
fn is_without_sessions(daemon: &Daemon, resources: usize) -> bool {
    !daemon.has_session_threads() && daemon.session_resources() <= resources && daemon.kib("RssShmem:") == 0
}

fn files(daemon: &Daemon) -> Vec<PathBuf> {
    let mut files = daemon.open_files();
    files.sort();
    files
}

#[test]
fn the_others_are_given_what_they_would_be_alone_and_nothing_is_left_behind() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let resources = daemon.session_resources();
    let mut given = kill_jobs(&packed, FIRST_KILLS, 1);
    eventually("nothing of the first ones is left", || is_without_sessions(&daemon, resources));
    let (files_before, before_kib) = (files(&daemon), daemon.kib("RssAnon:"));

    given.extend(kill_jobs(&packed, KILLS, 2));
    eventually("nothing is left", || is_without_sessions(&daemon, resources));
    assert_eq!(files(&daemon), files_before);
    let now_kib = daemon.kib("RssAnon:");
    assert!(now_kib <= before_kib + SPARE_KIB, "memory: {before_kib} KiB before, {now_kib} KiB now");
    assert_nothing_in_flight(&packed);

    let epochs: usize = given.iter().map(|(_, lines)| lines.len()).sum();
    assert!(epochs > KILLS, "only {epochs} epochs were ended between the kills");
    assert_undisturbed(&packed, &given);
}

/// All jobs have gone except the one that asks, with their reads and the records that they held.
fn assert_nothing_in_flight(packed: &Packed) {
    let session = attach_to(&packed.dataset, "last", 0, spec(8, 1)).unwrap();
    assert_eq!(stats(&session)["jobs"].as_array().unwrap().len(), 1);
    eventually("no read is in flight and no record held", || {
        let told = stats(&session);
        told["reads_submitted"] == 0 && told["arena_used_bytes"] == told["cache_used_bytes"]
    });
    assert!(sorted_ids(&take_epoch(&session, 0).unwrap()).into_iter().eq(0..102));
}
