//! `serve` tells a service manager when it is ready, by the socket that `NOTIFY_SOCKET` names. A
//! private daemon is no service: it inherits the variable of the training that started it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use shade_tests::{Daemon, Packed, eventually, program};

/// A service manager's socket, and what its services find in `NOTIFY_SOCKET`.
fn manager(packed: &Packed, is_abstract: bool) -> (UnixDatagram, String) {
    let path = packed.beside("manager.socket").display().to_string();
    let (address, name) = if is_abstract {
        (SocketAddr::from_abstract_name(&path).unwrap(), format!("@{path}"))
    } else {
        (SocketAddr::from_pathname(&path).unwrap(), path)
    };
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, name)
}

/// What has come to the socket, if anything.
fn heard(socket: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 64];
    let count = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8(bytes.get(..count)?.to_vec()).unwrap())
}

#[test]
fn a_daemon_by_hand_tells_that_it_is_ready() {
    for is_abstract in [false, true] {
        let packed = Packed::mixed(3);
        let (socket, name) = manager(&packed, is_abstract);
        let mut command = Command::new(program("shade-load"));
        command.env("NOTIFY_SOCKET", name);
        let _daemon = Daemon::start_by(command, &packed.dataset, &[]);
        eventually("the manager hears of it", || heard(&socket).is_some_and(|text| text == "READY=1"));
    }
}

#[test]
fn it_serves_without_a_manager_that_hears() {
    let packed = Packed::mixed(3);
    let mut command = Command::new(program("shade-load"));
    command.env("NOTIFY_SOCKET", packed.beside("nobody"));
    let mut daemon = Daemon::start_by(command, &packed.dataset, &[]);
    eventually("it says so", || daemon.log().contains("nobody hears there"));
    assert!(daemon.is_alive());
}

#[test]
fn a_private_one_tells_its_trainer_alone() {
    let packed = Packed::mixed(3);
    let (socket, name) = manager(&packed, false);
    let mut command = Command::new(program("shade-load"));
    command.env("NOTIFY_SOCKET", name).arg("serve").arg(&packed.dataset).arg("--private");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"ready\":true")), "it starts");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(heard(&socket), None);
}
