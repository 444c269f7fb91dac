//! Where a container's seccomp filter denies io_uring, the daemon reads with threads, delivers the
//! same, and says why.

use std::process::Command;

use rustix::io::Errno;
use shade_client::ClientError;
use shade_tests::{Daemon, Packed, attach, program, spec, stats, take_epoch};

/// Docker's and containerd's profiles answer with the first; gVisor and others with the second.
const ANSWERS: [Errno; 2] = [Errno::PERM, Errno::NOSYS];

/// A command that becomes `shade-load` under the filter.
fn shade_load_denied(calls: &str, answer: Errno) -> Command {
    let mut command = Command::new(program("shade-test-deny-io-uring"));
    command.arg(calls).arg(answer.raw_os_error().to_string()).arg(program("shade-load"));
    command
}

#[test]
fn a_whole_epoch_comes_by_threads_and_log_and_stats_name_the_filter() {
    let packed = Packed::mixed(33);
    for answer in ANSWERS {
        let daemon = Daemon::start_by(shade_load_denied("all", answer), &packed.dataset, &[]);
        let session = attach(&packed.dataset, 0, spec(8, 1));
        let mut ids = Vec::new();
        for batch in take_epoch(&session, 0).unwrap() {
            for (&id, record) in batch.ids.iter().zip(&batch.records) {
                assert!(*record == packed.sources[id as usize].bytes, "{answer:?}: sample {id}");
                ids.push(id);
            }
        }
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..102), "{answer:?}");
        let engine = stats(&session)["engine"].as_str().unwrap().to_owned();
        assert!(engine.starts_with("threads") && engine.contains("seccomp"), "{answer:?}: {engine}");
        assert!(daemon.log().contains(&engine), "{answer:?}: the log says the same: {}", daemon.log());
    }
}

#[test]
fn io_uring_that_is_demanded_is_1_with_the_reason() {
    let packed = Packed::mixed(3);
    for answer in ANSWERS {
        let serve = shade_load_denied("all", answer)
            .arg("serve")
            .arg(&packed.dataset)
            .args(["--engine", "uring"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&serve.stderr);
        assert_eq!(serve.status.code(), Some(1), "{answer:?}: {text}");
        assert!(text.contains("io_uring cannot be used: "), "{answer:?}: {text}");
        assert!(text.contains("seccomp") && text.contains("io_uring_setup"), "{answer:?}: {text}");
    }
}

#[test]
fn io_uring_that_fails_later_ends_the_daemon_with_the_reason() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start_by(shade_load_denied("busy", Errno::PERM), &packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, spec(8, 1));
    if stats(&session)["engine"].as_str().unwrap().starts_with("threads") {
        return;
    }
    let error = take_epoch(&session, 0).map(|batches| batches.len()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Failed { .. }), "{text}");
    assert!(text.contains("no more records can be read: io_uring_enter: "), "{text}");
    assert_eq!(daemon.wait().code(), Some(1), "{}", daemon.log());
}
