//! The daemon is killed with SIGKILL: a waiting trainer gets an error that names it, and nothing is
//! left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use shade_client::{ClientError, Next};
use shade_tests::{Daemon, Packed, attach, copy, eventually, next, spec, take_epoch};

/// Much longer than it takes. A trainer that does not notice gets a timeout in place of the error.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of ours in a folder that everybody may write. A daemon makes no folders, and benches that
/// are tested at the same time do.
fn names_of_ours(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.to_lowercase().contains("shade")).collect()
}

/// Whether the thread `tid` of this process sleeps.
fn sleeps(tid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

#[test]
fn a_waiting_trainer_is_told_and_keeps_what_it_has() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let pid = daemon.pid();
    let [session, other] = [0, 1].map(|rank| attach(&packed.dataset, rank, spec(2, 2)));
    let mut held = Vec::new();
    for session in [&session, &other] {
        session.start_epoch(0, 0).unwrap();
    }
    while let Some(batch) = next(&session).unwrap() {
        held.push(batch);
    }
    while next(&other).unwrap().is_some() {}
    // The other rank does not start this epoch, so no batch of it can come.
    session.start_epoch(1, 0).unwrap();
    assert!(held.len() > 2, "some in the ring and some that are copies");
    let before: Vec<_> = held.iter().map(copy).collect();

    let told = std::thread::scope(|scope| {
        let (tell, tid) = std::sync::mpsc::channel();
        let session = &session;
        let waiting = scope.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            loop {
                match session.next(PATIENCE) {
                    Ok(Next::Batch(batch)) => drop(batch),
                    Ok(other) => panic!("{other:?} from a daemon that is gone"),
                    Err(error) => return error,
                }
            }
        });
        let tid = tid.recv().unwrap();
        eventually("the trainer waits", || sleeps(tid));
        daemon.kill();
        waiting.join().unwrap()
    });
    assert!(matches!(told, ClientError::DaemonGone { pid: named, .. } if named == pid), "{told:?}");
    assert!(told.to_string().contains(&pid.to_string()), "{told}");

    for (batch, before) in held.iter().zip(&before) {
        assert_eq!(copy(batch), *before, "a batch in hand stays readable");
    }
    let later = session.start_epoch(1, 0).or_else(|_| session.stats().map(drop));
    assert!(matches!(later, Err(ClientError::DaemonGone { .. })), "{later:?}");
}

#[test]
fn nothing_stays_behind_and_the_next_daemon_starts_at_once() {
    let packed = Packed::mixed(10);
    let shared = ["/dev/shm", "/tmp", "/var/tmp", "/run"];
    let before = shared.map(names_of_ours);
    for round in 0..2 {
        let daemon = Daemon::start(&packed.dataset, &[]);
        let session = attach(&packed.dataset, 0, spec(4, 1));
        let batches = take_epoch(&session, 0).unwrap();
        assert_eq!(batches.iter().map(|batch| batch.ids.len()).sum::<usize>(), 33, "round {round}");
        // Among the daemon's open files only the dataset has a name in the file system.
        for file in daemon.open_files() {
            let named = shared.iter().any(|folder| file.starts_with(folder));
            assert!(!named || file.starts_with(&packed.dataset), "{} is open", file.display());
        }
        assert_eq!(shared.map(names_of_ours), before, "while it runs");
        daemon.kill();
        assert_eq!(shared.map(names_of_ours), before, "after it was killed");
        drop(session);
    }
}

#[test]
fn a_socket_file_left_by_a_killed_daemon_is_taken_over() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("control.socket");
    let start = || Daemon::start(&packed.dataset, &[&"--socket", &socket]);
    start().kill();
    assert!(socket.exists(), "nobody was there to remove it");
    let daemon = start();
    let options = shade_client::Options { socket: Some(socket.clone()), ..shade_client::Options::default() };
    let connect =
        |dataset: &Path| shade_client::Session::connect(dataset, "default", 0, spec(4, 1), &options);
    let session = connect(&packed.dataset).unwrap();
    assert_eq!(session.daemon_pid(), daemon.pid());
}
