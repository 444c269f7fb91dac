//! SIGTERM and SIGINT stop the daemon: exit code 0, its socket file gone, its trainers told.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::process::Signal;
use shade_client::{ClientError, Next, Options, Session};
use shade_tests::{Daemon, Packed, eventually, next, program, spec};

#[test]
fn it_stops_with_0_and_removes_its_socket_file() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("control.socket");
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&packed.dataset, &[&"--socket", &socket]);
        assert!(socket.exists());
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0), "{signal:?}: {}", daemon.log());
        assert!(!socket.exists(), "{signal:?}");
    }
}

#[test]
fn in_the_middle_of_an_epoch_with_reads_in_flight_too() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    // The store answers after ten minutes: reads are in flight, and the trainer waits for them. A
    // daemon that waits for them as well is killed by its own thread for signals, and has no exit
    // code.
    let args: [&dyn AsRef<OsStr>; 4] = [&"--socket", &socket, &"--store", &"latency=10min"];
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&packed.dataset, &args);
        let options = Options { socket: Some(socket.clone()), ..Options::default() };
        let session = Session::connect(&packed.dataset, "default", 0, spec(8, 1), &options).unwrap();
        session.start_epoch(0, 0).unwrap();
        eventually("reads are in flight", || {
            shade_tests::stats(&session)["reads_submitted"].as_u64().is_some_and(|reads| reads > 0)
        });
        assert!(matches!(session.next(Duration::ZERO).unwrap(), Next::Pending));
        daemon.signal(signal);
        let told = next(&session).map(drop).unwrap_err();
        assert!(matches!(told, ClientError::DaemonGone { .. }), "{told:?}");
        assert_eq!(daemon.wait().code(), Some(0), "{signal:?}: {}", daemon.log());
        assert!(!socket.exists(), "{signal:?}");
    }
}

#[test]
fn one_that_nohup_has_started_outlives_its_terminal() {
    let packed = Packed::mixed(33);
    let mut command = Command::new("nohup");
    command.arg(program("shade-load"));
    let mut daemon = Daemon::start_by(command, &packed.dataset, &[]);
    let session = Session::connect(&packed.dataset, "default", 0, spec(8, 1), &Options::default()).unwrap();
    daemon.signal(Signal::HUP);
    for epoch in 0..4 {
        session.start_epoch(epoch, 0).unwrap();
        while next(&session).unwrap().is_some() {}
    }
    assert!(daemon.is_alive(), "{}", daemon.log());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

/// Stops the main thread and no other, as a defect does, or a file system that does not answer.
fn stop_main(daemon: &Daemon) {
    let main = Pid::from_raw(daemon.pid().cast_signed());
    ptrace::seize(main, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(main).unwrap();
    waitpid(main, None).unwrap();
}

#[test]
fn one_whose_main_thread_does_not_move_is_killed_by_itself() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    stop_main(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().signal(), Some(9), "{}", daemon.log());
    assert!(daemon.log().contains("is killed: 10 s after a signal"), "{}", daemon.log());
}

#[test]
fn and_at_once_where_the_user_asks_again() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    stop_main(&daemon);
    daemon.signal(Signal::INT);
    let tasks = format!("/proc/{}/task", daemon.pid());
    let is_heard = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "shade-end")
    };
    eventually("the first signal is heard", || {
        std::fs::read_dir(&tasks).unwrap().any(|task| is_heard(task.unwrap()))
    });
    // Less would be taken for a copy of the first signal.
    std::thread::sleep(Duration::from_millis(1500));
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().signal(), Some(9), "{}", daemon.log());
    assert!(daemon.log().contains("is killed: a second signal"), "{}", daemon.log());
}

#[test]
fn a_second_signal_does_not_cut_an_orderly_end_short() {
    let packed = Packed::mixed(33);
    // Reads are in flight for a minute, so the end takes 2 s.
    let mut daemon = Daemon::start(&packed.dataset, &[&"--store", &"latency=10min"]);
    let session = shade_tests::attach(&packed.dataset, 0, spec(8, 1));
    session.start_epoch(0, 0).unwrap();
    eventually("reads are in flight", || {
        shade_tests::stats(&session)["reads_submitted"].as_u64().is_some_and(|reads| reads > 0)
    });
    daemon.signal(Signal::INT);
    // It tells its end once that has begun.
    assert!(next(&session).is_err());
    std::thread::sleep(Duration::from_millis(1200));
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}
