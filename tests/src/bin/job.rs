//! One of `JOBS` for tests to kill: trains epoch after epoch, and says what it was given.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "part of a test: fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use shade_tests::{attach_when_free, checksums, job_named, train};

/// `shade-test-job DATASET NAME PACE_US`
fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let dataset = PathBuf::from(arguments.next().unwrap());
    let name = arguments.next().unwrap().into_string().unwrap();
    let pace = Duration::from_micros(arguments.next().unwrap().to_str().unwrap().parse().unwrap());
    let spec = job_named(&name);
    let session = attach_when_free(&dataset, &name, 0, spec.clone());
    for epoch in 0.. {
        println!("{}", checksums(epoch, &train(&session, &spec, (epoch, 0), pace).unwrap()));
    }
}
