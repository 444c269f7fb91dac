//! SIGTERM and SIGINT stop the daemon: exit code 0, its socket file gone, its trainers told.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shade_client::{ClientError, Next, Options, Session};
use shade_tests::{Daemon, Packed, eventually, next, spec};

/// "Within seconds". The daemon waits at most 2 s for reads in flight.
const PROMISED: Duration = Duration::from_secs(10);

#[test]
fn it_stops_with_0_and_removes_its_socket_file() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("control.socket");
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&packed.dataset, &[&"--socket", &socket]);
        assert!(socket.exists());
        let asked = Instant::now();
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0), "{signal:?}: {}", daemon.log());
        assert!(asked.elapsed() < PROMISED, "{signal:?} took {:?}", asked.elapsed());
        assert!(!socket.exists(), "{signal:?}");
    }
}

#[test]
fn in_the_middle_of_an_epoch_with_reads_in_flight_too() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    // The store answers after a minute: reads are in flight, and the trainer waits for them.
    let args: [&dyn AsRef<OsStr>; 4] = [&"--socket", &socket, &"--store", &"latency=1min"];
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&packed.dataset, &args);
        let options = Options { socket: Some(socket.clone()), ..Options::default() };
        let session = Session::connect(&packed.dataset, "default", 0, spec(8, 1), &options).unwrap();
        session.start_epoch(0, 0).unwrap();
        eventually("reads are in flight", || {
            shade_tests::stats(&session)["reads_submitted"].as_u64().is_some_and(|reads| reads > 0)
        });
        assert!(matches!(session.next(Duration::ZERO).unwrap(), Next::Pending));
        let asked = Instant::now();
        daemon.signal(signal);
        let told = next(&session).map(drop).unwrap_err();
        assert!(matches!(told, ClientError::DaemonGone { .. }), "{told:?}");
        assert_eq!(daemon.wait().code(), Some(0), "{signal:?}: {}", daemon.log());
        assert!(asked.elapsed() < PROMISED, "{signal:?} took {:?}", asked.elapsed());
        assert!(!socket.exists(), "{signal:?}");
    }
}
