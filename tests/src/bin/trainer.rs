//! A trainer for tests to kill: attaches to a running daemon, takes some batches and holds them until its input ends.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "part of a test: fails by panicking")]

use std::io::Read;
use std::path::PathBuf;

use shade_tests::{attach, next, spec};

/// `shade-test-trainer DATASET RANK WORLD_SIZE BATCH_SIZE HELD`
fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let dataset = PathBuf::from(arguments.next().unwrap());
    let numbers: Vec<u32> = arguments.map(|text| text.to_str().unwrap().parse().unwrap()).collect();
    let [rank, world_size, batch_size, held] = numbers.try_into().unwrap();

    let session = attach(&dataset, rank, spec(batch_size, world_size));
    session.start_epoch(0, 0).unwrap();
    let batches: Vec<_> = (0..held).map(|_| next(&session).unwrap().unwrap()).collect();
    println!("holding {}", batches.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
