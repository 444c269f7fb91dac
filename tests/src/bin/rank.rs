//! One rank of a training on two nodes, for tests to kill: says what each batch was, and goes on
//! when it is told that all ranks have theirs, as after the all-reduce of a step. Ends with its
//! input.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "part of a test: fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use shade_client::{ClientError, Options, Session};
use shade_formats::control::REFUSE_BUSY;
use shade_tests::{checksums, copy, eventually, job_of_nodes, next};

/// `shade-test-rank DATASET SOCKET RANK EPOCH FIRST_BATCH`
fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let [dataset, socket] = [(); 2].map(|()| PathBuf::from(arguments.next().unwrap()));
    let mut number = || arguments.next().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    let (rank, mut epoch, mut first) = (number(), number(), number());
    let timeout = Duration::from_secs(60);
    // A test that kills the daemon starts the next one itself.
    let options = Options { socket: Some(socket), timeout, survive: false, ..Options::default() };
    let mut session = None;
    // Its killed forerunner may not be missed yet.
    eventually("the rank is free", || {
        match Session::connect(&dataset, "nodes", rank, job_of_nodes(2), &options) {
            Err(ClientError::Refused { code: REFUSE_BUSY, .. }) => false,
            attached => {
                session = Some(attached.unwrap());
                true
            }
        }
    });
    let session = session.unwrap();
    let mut line = String::new();
    loop {
        session.start_epoch(epoch, first).unwrap();
        while let Some(batch) = next(&session).unwrap() {
            let batch = copy(&batch);
            println!("{} {}", batch.number, checksums(epoch, std::slice::from_ref(&batch)));
            line.clear();
            if std::io::stdin().read_line(&mut line).unwrap() == 0 {
                return;
            }
        }
        (epoch, first) = (epoch + 1, 0);
    }
}
