//! `shade-load resize` and `Session::resize_cache`: a running daemon's cache grows and shrinks
//! while trainings take every row, right. A successor of that daemon has the size, too.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use shade_client::{ClientError, Launch, Options, Session, Settings};
use shade_formats::control::socket_name;
use shade_tests::{
    Daemon, Packed, Taken, attach_to, copy, eventually, next, program, sorted_ids, spec, spec_by_epochs,
    stats, take_epoch, take_rest,
};

/// Bytes of a block, for records of 200 KB.
const BLOCK_BYTES: u64 = 8192;

/// Exit code, standard output and standard error of `shade-load resize`.
fn resize(size: &str, packed: &Packed) -> (Option<i32>, String, String) {
    let args: [&OsStr; 3] = ["resize".as_ref(), size.as_ref(), packed.dataset.as_os_str()];
    let output = Command::new(program("shade-load")).args(args).output().unwrap();
    let [out, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), out, errors)
}

/// Each row is its sample's file and label; the batches are a whole epoch.
fn check(packed: &Packed, batches: &[Taken]) {
    assert!(sorted_ids(batches).into_iter().eq(0..u32::try_from(packed.len()).unwrap()));
    for batch in batches {
        for ((&id, &label), record) in batch.ids.iter().zip(&batch.labels).zip(&batch.records) {
            let source = &packed.sources[id as usize];
            assert!(label == source.label && *record == source.bytes, "sample {id}");
        }
    }
}

/// Hits of an epoch that is checked.
fn hits_of(packed: &Packed, session: &Session, epoch: u32) -> u32 {
    let batches = take_epoch(session, epoch).unwrap();
    check(packed, &batches);
    batches.iter().map(|batch| batch.hits).sum()
}

/// Bytes of the daemon that are resident and no file's.
fn resident_bytes(daemon: &Daemon) -> u64 {
    status_bytes(daemon.pid(), "RssAnon:")
}

/// Bytes of data that the process may write to.
fn data_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmData:")
}

fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix("kB")).unwrap();
    line.trim().parse::<u64>().unwrap() * 1024
}

/// Bytes that all records take in the cache.
fn dataset_bytes(packed: &Packed) -> u64 {
    packed.sources.iter().map(|source| (source.bytes.len() as u64).next_multiple_of(BLOCK_BYTES)).sum()
}

fn figure(stats: &Value, name: &str) -> u64 {
    stats[name].as_u64().unwrap()
}

#[test]
fn without_a_size_it_holds_the_whole_dataset_and_a_fifth_for_a_presets_paper() {
    // 200 KB each.
    let packed = Packed::pngs(11, 256);
    let status = |daemon: &Daemon| {
        let session = attach_to(&packed.dataset, "job", 0, spec(4, 1)).unwrap();
        (figure(&stats(&session), "cache_bytes"), daemon.log())
    };
    let (bytes, log) = status(&Daemon::start(&packed.dataset, &[]));
    assert_eq!(bytes, dataset_bytes(&packed));
    assert!(
        log.contains(&format!("({} samples): cache ", packed.len()))
            && log.contains(" (all of the dataset); reads: "),
        "{log}"
    );
    let (bytes, log) = status(&Daemon::start(&packed.dataset, &[&"--preset", &"coordl"]));
    assert_eq!(bytes, dataset_bytes(&packed) / 5);
    assert!(log.contains(" (20.0 % of the dataset); reads: "), "{log}");
    let (bytes, _) = status(&Daemon::start(&packed.dataset, &[&"--preset", &"coordl", &"--cache", &"auto"]));
    assert_eq!(bytes, dataset_bytes(&packed));
    // Only a daemon that starts is left the choice.
    let (code, _, errors) = resize("auto", &packed);
    assert!(code == Some(2) && errors.contains("expected a share of the dataset"), "{errors}");
}

#[test]
fn a_cache_grows_and_shrinks_under_a_training() {
    // 200 KB each.
    let packed = Packed::pngs(33, 256);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%"]);
    let session = attach_to(&packed.dataset, "training", 0, spec_by_epochs(8)).unwrap();
    hits_of(&packed, &session, 0);
    let few = hits_of(&packed, &session, 1);
    assert!((5..=15).contains(&few), "{few}");

    // In mid-epoch.
    session.start_epoch(2, 0).unwrap();
    let mut taken: Vec<Taken> = (0..4).map(|_| copy(&next(&session).unwrap().unwrap())).collect();
    let (code, out, errors) = resize("100%", &packed);
    assert_eq!(code, Some(0), "{errors}");
    let told = format!("process {}, which serves {}, has a cache of", daemon.pid(), packed.dataset.display());
    assert!(out.starts_with(&told) && out.contains(" now, ") && out.ends_with(" before\n"), "{out}");
    taken.extend(take_rest(&session).unwrap());
    check(&packed, &taken);
    // An epoch's first batches are filled ahead of it, when not all is there yet.
    for epoch in 3..5 {
        hits_of(&packed, &session, epoch);
    }
    assert_eq!(hits_of(&packed, &session, 5), 102, "the whole dataset is there");
    let of_whole = dataset_bytes(&packed);
    assert_eq!(figure(&stats(&session), "cache_bytes"), of_whole);
    assert_eq!(figure(&stats(&session), "cache_used_bytes"), of_whole);
    let whole = resident_bytes(&daemon);

    // And back, by the training itself.
    session.start_epoch(6, 0).unwrap();
    let mut taken: Vec<Taken> = (0..4).map(|_| copy(&next(&session).unwrap().unwrap())).collect();
    let now_bytes = session.resize_cache("10%").unwrap();
    assert_eq!(now_bytes, of_whole / 10);
    assert_eq!(figure(&stats(&session), "cache_bytes"), now_bytes);
    // Records leave as soon as the rows that need them are filled.
    eventually("the limit holds", || figure(&stats(&session), "cache_used_bytes") <= now_bytes);
    taken.extend(take_rest(&session).unwrap());
    check(&packed, &taken);
    // Memory for reads is found ahead, too.
    let returned = (of_whole - now_bytes) * 8 / 10;
    eventually("its memory is the system's", || resident_bytes(&daemon) + returned < whole);
    hits_of(&packed, &session, 7);
    let few = hits_of(&packed, &session, 8);
    assert!((5..=15).contains(&few), "{few}");
    eventually("the log tells both", || daemon.log().matches(" before, as its user asked").count() == 2);
}

#[test]
fn sizes_change_all_the_time_and_every_row_is_right() {
    // Small records: several lie in a page of memory.
    let packed = Packed::mixed(150);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"50%"]);
    let session = attach_to(&packed.dataset, "training", 0, spec(4, 1)).unwrap();
    for epoch in 0..6 {
        session.start_epoch(epoch, 0).unwrap();
        let mut taken = Vec::new();
        while let Some(batch) = next(&session).unwrap() {
            if batch.descriptor().batch % 5 == 0 {
                let percent = (batch.descriptor().batch * 37 + epoch * 11) % 101;
                session.resize_cache(&format!("{percent}%")).unwrap();
            }
            taken.push(copy(&batch));
        }
        check(&packed, &taken);
        // What fills the next epoch's first batches stays until they are filled.
        eventually("the limit holds", || {
            let now = stats(&session);
            figure(&now, "cache_used_bytes") <= figure(&now, "cache_bytes")
        });
        let now = stats(&session);
        let total = &now["total"];
        let gone = figure(total, "admitted") - figure(total, "evicted");
        assert_eq!(gone, figure(&now, "resident"), "{now}");
    }
    session.resize_cache("0").unwrap();
    eventually("the cache is empty", || {
        let now = stats(&session);
        (figure(&now, "cache_bytes"), figure(&now, "resident")) == (0, 0)
    });
    assert!(daemon.log().lines().all(|line| !line.contains("WARN")), "{}", daemon.log());
}

#[test]
fn later_loaders_and_status_tell_the_new_size() {
    let packed = Packed::mixed(33);
    let _daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%"]);
    assert_eq!(resize("40%", &packed).0, Some(0));
    let session = attach_to(&packed.dataset, "late", 0, spec_by_epochs(8)).unwrap();
    assert_eq!(session.settings()["cache"], "40%");
    let address = [b"@", &*socket_name(rustix::process::geteuid().as_raw(), &packed.dataset)].concat();
    let args = ["status", "--json", "--socket", std::str::from_utf8(&address).unwrap()];
    let output = Command::new(program("shade-load")).args(args).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let now_bytes = &stats(&session)["cache_bytes"];
    assert_eq!((&told[0]["settings"]["cache"], &told[0]["cache_bytes"]), (&"40%".into(), now_bytes));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let packed = Packed::pngs(33, 256);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%"]);
    let session = attach_to(&packed.dataset, "training", 0, spec_by_epochs(8)).unwrap();
    hits_of(&packed, &session, 0);
    let before = stats(&session)["cache_bytes"].clone();
    for text in ["many", "120%", "-1"] {
        let (code, _, errors) = resize(text, &packed);
        assert!(code == Some(2), "{text}: {errors}");
    }
    match session.resize_cache("120%") {
        Err(ClientError::Failed { text }) => assert!(text.contains("a share of the dataset"), "{text}"),
        other => panic!("not refused: {other:?}"),
    }
    // As much data as it has, and a little: no memory can be had for more.
    let limit = Some(data_bytes(daemon.pid()) + (8 << 20));
    let process = Pid::from_raw(daemon.pid().cast_signed());
    prlimit(process, Resource::Data, Rlimit { current: limit, maximum: limit }).unwrap();
    let (code, _, errors) = resize("100%", &packed);
    assert!(code == Some(1) && errors.contains("no more memory for the cache"), "{errors}");
    assert_eq!(stats(&session)["cache_bytes"], before);
    let few = hits_of(&packed, &session, 1);
    assert!((5..=15).contains(&few), "{few}");
    assert_eq!(resize("5%", &packed).0, Some(0), "a smaller one needs none");
}

#[test]
fn a_job_among_others_may_only_if_it_started_the_daemon() {
    let packed = Packed::mixed(33);
    // The shell is its parent, so no trainer is. It ends with its last rank.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; true"]).arg(program("shade-load"));
    let mut foreign = Daemon::start_by(shell, &packed.dataset, &[&"--private", &"--linger", &"0s"]);
    let a = attach_to(&packed.dataset, "a", 0, spec_by_epochs(8)).unwrap();
    let b = attach_to(&packed.dataset, "b", 0, spec_by_epochs(8)).unwrap();
    let refused = a.resize_cache("50%").unwrap_err().to_string();
    let command = format!("use shade-load resize SIZE {}", packed.dataset.display());
    for part in ["jobs a, b", "none of them has started its daemon", &command] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(resize("30%", &packed).0, Some(0), "the user may");
    drop(b);
    eventually("it has the cache alone", || a.resize_cache("50%").is_ok());
    drop(a);
    foreign.wait();

    // This process is the parent, so all jobs of this process may.
    let _own = Daemon::start(&packed.dataset, &[]);
    let jobs = ["a", "b"].map(|job| attach_to(&packed.dataset, job, 0, spec_by_epochs(8)).unwrap());
    jobs.iter().for_each(|job| assert!(job.resize_cache("50%").is_ok()));
}

/// A rank that starts daemons by this program, with a cache of 10 %.
fn survivor(packed: &Packed, job: &str, binary: Option<&Path>) -> Session {
    let settings = Settings::from_text(r#"{"linger": 0.2, "cache": "10%"}"#).unwrap();
    let launch = binary.map(|binary| Launch::new(binary.to_owned(), &packed.dataset, None, &settings));
    let options = Options { launch, settings, timeout: Duration::from_secs(60), ..Options::default() };
    Session::connect(&packed.dataset, job, 0, spec_by_epochs(8), &options).unwrap()
}

/// Kills the daemon of these ranks, and waits until each has found the next one. Bytes of its
/// cache, and what the ranks were warned of.
fn killed(sessions: &[&Session]) -> (u64, Vec<String>) {
    let before: Vec<u32> = sessions.iter().map(|session| session.successors()).collect();
    let pid = Pid::from_raw(sessions[0].daemon_pid().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("all have found the next one", || {
        sessions.iter().zip(&before).all(|(session, before)| session.successors() > *before)
    });
    let bytes: Vec<u64> = sessions.iter().map(|session| figure(&stats(session), "cache_bytes")).collect();
    assert!(bytes.iter().all(|of_one| *of_one == bytes[0]), "{bytes:?}");
    let told = sessions.iter().flat_map(|session| std::iter::from_fn(|| session.take_warning()));
    (bytes[0], told.collect())
}

/// The same, where each rank is warned of the death alone.
fn size_after_a_kill(sessions: &[&Session]) -> u64 {
    let (bytes, told) = killed(sessions);
    assert_eq!(told.len(), sessions.len(), "{told:?}");
    bytes
}

#[test]
fn a_successor_has_the_size_whoever_has_given_it() {
    let packed = Packed::mixed(33);
    let launched = program("shade-load");
    let first = survivor(&packed, "first", Some(&launched));
    let began = figure(&stats(&first), "cache_bytes");
    assert_eq!(size_after_a_kill(&[&first]), began);
    // By the rank itself.
    let by_rank = first.resize_cache("30%").unwrap();
    assert_eq!(size_after_a_kill(&[&first]), by_rank);
    // By a command, also for a rank that comes later and may not resize the cache itself.
    assert_eq!(resize("60%", &packed).0, Some(0));
    let by_command = figure(&stats(&first), "cache_bytes");
    assert!(began < by_rank && by_rank < by_command);
    let late = survivor(&packed, "late", Some(&launched));
    assert_eq!(size_after_a_kill(&[&first, &late]), by_command);
    // By another rank: what was before is forgotten.
    assert_eq!(resize("0", &packed).0, Some(0));
    assert_eq!(size_after_a_kill(&[&first, &late]), 0);
    // One that nobody has resized again.
    assert_eq!(size_after_a_kill(&[&first, &late]), 0);
    // Who has a daemon replaced says what cache the next one has.
    let _next = Daemon::start(&packed.dataset, &[&"--replace", &"--cache", &"10%"]);
    eventually("the rank is there", || late.successors() == 4);
    assert_eq!(figure(&stats(&late), "cache_bytes"), began);
}

#[test]
fn a_daemon_that_somebody_else_starts_again_has_the_size_though_no_job_may_resize_it() {
    let packed = Packed::mixed(33);
    // The shell is its parent, so no trainer is. It ends with its last rank.
    let by_shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" \"$@\"; true"]).arg(program("shade-load"));
        let args: [&dyn AsRef<OsStr>; 5] = [&"--private", &"--linger", &"0s", &"--cache", &"10%"];
        Daemon::start_by(shell, &packed.dataset, &args)
    };
    let mut daemon = by_shell();
    let sessions = ["a", "b"].map(|job| survivor(&packed, job, None));
    assert!(sessions[0].resize_cache("50%").is_err());
    assert_eq!(resize("60%", &packed).0, Some(0));
    let bytes = figure(&stats(&sessions[0]), "cache_bytes");
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            daemon.wait();
            by_shell()
        });
        assert_eq!(size_after_a_kill(&sessions.each_ref()), bytes);
        next.join().unwrap()
    });
}

#[test]
fn a_size_for_which_a_successor_has_no_memory_is_told_and_the_training_goes_on() {
    let packed = Packed::pngs(33, 256);
    let (script, limit): (PathBuf, PathBuf) = (packed.beside("daemon.sh"), packed.beside("limit"));
    let (limit_path, program) = (limit.display(), program("shade-load"));
    let text = format!(
        "#!/bin/sh\n[ ! -e {limit_path} ] || ulimit -d $(cat {limit_path})\nexec {} \"$@\"\n",
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let session = survivor(&packed, "job", Some(&script));
    let began = figure(&stats(&session), "cache_bytes");
    // As much data as it has, and a little.
    std::fs::write(&limit, (data_bytes(session.daemon_pid()) / 1024 + (8 << 10)).to_string()).unwrap();
    let wanted = session.resize_cache("100%").unwrap();
    let (bytes, told) = killed(&[&session]);
    assert_eq!(bytes, began);
    let complaint = format!("does not have the size of {wanted} bytes again: ");
    assert!(told.len() == 2 && told[1].contains(&complaint), "{told:?}");
    assert!(told[1].contains("no more memory for the cache"), "{told:?}");
    hits_of(&packed, &session, 0);
}
