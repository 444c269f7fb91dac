//! An error caused by a resource limit of the daemon's process names that limit.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use shade_client::{ClientError, JobSpec, Options, Session};
use shade_tests::{Daemon, Packed, attach, eventually, program, spec, stats};

/// The log of a daemon under `ulimit` after a rank asked for a ring that does not fit.
fn said_of_a_ring(limit: &str, ring_bytes: u64) -> String {
    let packed = Packed::mixed(3);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\"")).arg(program("shade-load"));
    let mut daemon = Daemon::start_by(command, &packed.dataset, &[]);
    // The rank is not attached, whatever the error is.
    let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
    let job = JobSpec { ring_bytes, ..spec(4, 1) };
    Session::connect(&packed.dataset, "default", 0, job, &options).unwrap_err();
    eventually("the daemon says why", || daemon.log().contains(&format!("{ring_bytes} bytes")));
    assert!(daemon.is_alive());
    daemon.log()
}

#[test]
fn of_the_length_of_files() {
    let said = said_of_a_ring("-f 2048", 64 << 20);
    assert!(said.contains("RLIMIT_FSIZE is 1048576 bytes (ulimit -f)"), "{said}");
    assert!(
        !said.contains("no memory") && !said.contains("lower Daemon(ring"),
        "memory is not what is short: {said}"
    );
}

#[test]
fn of_the_length_of_a_saved_state() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, spec(4, 1));
    let process = Pid::from_raw(daemon.pid().cast_signed());
    let limit = Rlimit { current: Some(8), maximum: Some(8) };
    prlimit(process, Resource::Fsize, limit).unwrap();
    match session.save_state(0, 0) {
        Err(ClientError::Failed { text }) => assert!(text.contains("RLIMIT_FSIZE is 8 bytes"), "{text}"),
        other => panic!("{other:?}"),
    }
    // Session and daemon go on.
    assert!(stats(&session).is_object());
    assert!(daemon.is_alive());
}

#[test]
fn of_the_address_space() {
    let said = said_of_a_ring("-v 1048576", 1 << 30);
    assert!(said.contains("RLIMIT_AS is 1073741824 bytes (ulimit -v)"), "{said}");
}
