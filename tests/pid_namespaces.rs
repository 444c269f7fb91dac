//! Containers have PID namespaces of their own: daemon and trainers meet at a socket file, and the
//! death of a trainer is noticed. Where the system gives no such namespace the tests say so and
//! pass.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Stdio};

use shade_client::{Options, Session};
use shade_tests::{
    Daemon, Packed, TrainerProcess, eventually, left_out, program, sorted_ids, spec, take_rest,
};

/// A command that runs its arguments as the first process of a PID namespace, which is killed with
/// the command.
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

fn trainer_in_namespace(packed: &Packed, socket: &Path, rank: u32, world_size: u32) -> TrainerProcess {
    let mut command = namespace().unwrap();
    command.arg(program("shade-test-trainer"));
    TrainerProcess::start_by(command, &packed.dataset, [rank, world_size, 4, 2], Some(socket))
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
    assert!(sorted_ids(&take_rest(session).unwrap()).into_iter().eq(0..102));
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
    let mut trainer = trainer_in_namespace(&packed, &socket, 0, 1);
    trainer.holds_batches();
    trainer.kill();
    eventually("its death is noticed", || daemon.session_resources() <= idle);
    a_whole_epoch_comes(&connect(&packed, &socket, 0, 1));
}

#[test]
fn two_ranks_and_the_daemon_in_one_each() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    let Some(daemon) = daemon_in_namespace(&packed, &socket) else { return };
    let mut ranks =
        [trainer_in_namespace(&packed, &socket, 0, 2), trainer_in_namespace(&packed, &socket, 1, 2)];
    for rank in &mut ranks {
        rank.holds_batches();
    }
    for rank in ranks {
        rank.kill();
    }
    a_whole_epoch_comes(&connect(&packed, &socket, 0, 1));
    drop(daemon);
}
