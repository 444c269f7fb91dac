//! Containers have PID namespaces of their own: a daemon and its trainers meet at a socket file all the same, and a trainer that is
//! killed is noticed. Where the system gives no such namespace the tests say so and pass.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use shade_client::{Options, Session};
use shade_tests::{Daemon, Packed, eventually, left_out, program, spec, take_rest};

/// A command that runs what it is given as the first process of a PID namespace; it is killed with the command.
fn namespace() -> Option<Command> {
    let ways: [&[&str]; 2] = [&[], &["--user", "--map-current-user"]];
    let command = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    let works = |way: &&&[&str]| {
        command(way).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let found = ways.iter().find(works).map(|way| command(way));
    if found.is_none() {
        left_out("no PID namespace can be had here");
    }
    found
}

fn daemon_in_namespace(packed: &Packed, socket: &Path) -> Option<Daemon> {
    let mut command = namespace()?;
    command.arg(program("shade-load"));
    Some(Daemon::start_by(command, &packed.dataset, &[&"--socket", &socket, &"--cache", &"100%"]))
}

/// A trainer in a namespace of its own, which holds batches until it is killed.
struct Trainer(Child);

impl Trainer {
    fn start(packed: &Packed, socket: &Path, rank: u32, world_size: u32) -> Self {
        let mut command = namespace().unwrap();
        command.arg(program("shade-test-trainer")).arg(&packed.dataset);
        command.args([rank, world_size, 4, 2].map(|number| number.to_string())).arg(socket);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn holds_batches(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "holding 2\n");
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn connect(packed: &Packed, socket: &Path, rank: u32, world_size: u32) -> Session {
    let options = Options { socket: Some(socket.to_owned()), ..Options::default() };
    let mut session = None;
    eventually("the rank is free", || {
        session = Session::connect(&packed.dataset, "default", rank, spec(4, world_size), &options).ok();
        session.is_some()
    });
    session.unwrap()
}

fn a_whole_epoch_comes(session: &Session) {
    session.start_epoch(0, 0).unwrap();
    let mut ids: Vec<u32> = take_rest(session).unwrap().into_iter().flat_map(|batch| batch.ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..102));
}

#[test]
fn the_daemon_in_one_and_the_trainer_outside() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    let Some(daemon) = daemon_in_namespace(&packed, &socket) else { return };
    a_whole_epoch_comes(&connect(&packed, &socket, 0, 1));
    drop(daemon);
}

#[test]
fn the_trainer_in_one_and_the_daemon_outside() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    if namespace().is_none() {
        return;
    }
    let daemon = Daemon::start(&packed.dataset, &[&"--socket", &socket]);
    let idle = daemon.session_resources();
    let mut trainer = Trainer::start(&packed, &socket, 0, 1);
    trainer.holds_batches();
    trainer.kill();
    eventually("its death is noticed", || daemon.session_resources() == idle);
    a_whole_epoch_comes(&connect(&packed, &socket, 0, 1));
}

#[test]
fn two_ranks_and_the_daemon_in_one_each() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    let Some(daemon) = daemon_in_namespace(&packed, &socket) else { return };
    let mut ranks = [Trainer::start(&packed, &socket, 0, 2), Trainer::start(&packed, &socket, 1, 2)];
    for rank in &mut ranks {
        rank.holds_batches();
    }
    for rank in ranks {
        rank.kill();
    }
    a_whole_epoch_comes(&connect(&packed, &socket, 0, 1));
    drop(daemon);
}
