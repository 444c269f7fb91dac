//! Where a container's seccomp filter denies io_uring the daemon reads with threads, delivers the same, and says why.

use std::process::Command;

use rustix::io::Errno;
use shade_tests::{Daemon, Packed, attach, program, spec, stats, take_epoch};

/// Docker's and containerd's profiles answer with the first, others and gVisor with the second.
const ANSWERS: [Errno; 2] = [Errno::PERM, Errno::NOSYS];

/// A command that becomes `shade-load` under the filter.
fn shade_load_denied(answer: Errno) -> Command {
    let mut command = Command::new(program("shade-test-deny-io-uring"));
    command.arg(answer.raw_os_error().to_string()).arg(program("shade-load"));
    command
}

#[test]
fn a_whole_epoch_comes_by_threads_and_log_and_stats_name_the_filter() {
    let packed = Packed::mixed(33);
    for answer in ANSWERS {
        let daemon = Daemon::start_by(shade_load_denied(answer), &packed.dataset, &[]);
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
        let serve = shade_load_denied(answer)
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
