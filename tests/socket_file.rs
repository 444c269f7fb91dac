//! `--socket PATH`: one of many daemons at a path serves, also where a dead one left its file, and
//! removes its own at its end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shade_client::{Launch, Options, Session, Settings};
use shade_tests::{Daemon, Packed, program, spec};

/// Daemons started at once, as by the trainers of a machine.
const DAEMONS: usize = 6;
/// Without the lock a round failed eight times in a hundred.
const ROUNDS: usize = 8;

/// A daemon started as a trainer does, and what it said.
struct Started {
    child: Child,
    said: Value,
}

fn start_all(dataset: &Path, socket: &Path) -> Vec<Started> {
    let children: Vec<Child> = (0..DAEMONS)
        .map(|_| {
            let mut command = Command::new(program("shade-load"));
            command.arg("serve").arg(dataset).args(["--private", "--socket"]).arg(socket);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let hear = |mut child: Child| {
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        // The first word is that it starts; the next one is what became of that.
        let mut said = said.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let said = said.find(|word| word.get("starting").is_none()).unwrap();
        Started { said, child }
    };
    children.into_iter().map(hear).collect()
}

#[test]
fn of_many_at_a_stale_file_one_wins_and_the_others_say_so() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("control.socket");
    for round in 0..ROUNDS {
        // A killed daemon leaves such a file, where nobody listens.
        drop(UnixListener::bind(&socket).unwrap());
        let all = start_all(&packed.dataset, &socket);
        let is_ready = |started: &&Started| started.said.get("ready").is_some();
        let ready: Vec<_> = all.iter().filter(is_ready).map(|started| started.child.id()).collect();
        let said: Vec<_> = all.iter().map(|started| started.said.to_string()).collect();
        assert_eq!(ready.len(), 1, "round {round}: {said:?}");
        let losers = said.iter().filter(|text| text.contains("address in use")).count();
        assert_eq!(losers, DAEMONS - 1, "round {round}: {said:?}");
        // The losers have not removed the winner's file.
        let options = Options { socket: Some(socket.clone()), ..Options::default() };
        let session = Session::connect(&packed.dataset, "default", 0, spec(4, 1), &options).unwrap();
        assert_eq!(vec![session.daemon_pid()], ready);
        drop(session);
        for Started { mut child, said } in all {
            if said.get("ready").is_some() {
                kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            }
            child.wait().unwrap();
        }
        assert!(!socket.exists(), "round {round}");
        assert!(!packed.beside("control.socket.lock").exists(), "round {round}");
    }
}

#[test]
fn another_daemon_s_file_is_not_removed() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("control.socket");
    let mut first = Daemon::start(&packed.dataset, &[&"--socket", &socket]);
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(0));
    assert!(socket.exists(), "it belongs to somebody else now");
    drop(other);
}

/// The failure of a daemon that shall listen at `socket`.
fn failure(dataset: &Path, socket: &Path) -> String {
    let mut command = Command::new(program("shade-load"));
    let output = command.arg("serve").arg(dataset).arg("--socket").arg(socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn nothing_is_removed_that_no_daemon_has_left() {
    let packed = Packed::mixed(3);
    let [file, link, foreign] = ["results.json", "link", "foreign.socket"].map(|name| packed.beside(name));
    fs::write(&file, "{}").unwrap();
    symlink(&file, &link).unwrap();
    let other = UnixListener::bind(&foreign).unwrap();
    for (socket, reason) in [(&file, "no socket"), (&link, "no socket"), (&foreign, "another program")] {
        let text = failure(&packed.dataset, socket);
        assert!(text.contains(reason) && text.contains(&socket.display().to_string()), "{text}");
        assert!(fs::symlink_metadata(socket).is_ok(), "{} was removed", socket.display());
    }
    assert_eq!(fs::read(&file).unwrap(), b"{}");
    drop(other);
    // What has the name of its lock.
    let lock = packed.beside("Cargo.lock");
    fs::write(&lock, "version = 4").unwrap();
    let text = failure(&packed.dataset, &packed.beside("Cargo"));
    assert!(text.contains("Cargo.lock") && text.contains("no lock"), "{text}");
    assert_eq!(fs::read(&lock).unwrap(), b"version = 4");
    // A trainer is told as much, and at once.
    let launch = Launch::new(program("shade-load"), &packed.dataset, Some(&file), &Settings::default());
    let options = Options { socket: Some(file.clone()), launch: Some(launch), ..Options::default() };
    let error = Session::connect(&packed.dataset, "default", 0, spec(4, 1), &options).unwrap_err();
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"{}");
}
