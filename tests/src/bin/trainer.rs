//! A trainer for tests to kill: it attaches to a running daemon, takes some batches and holds them
//! until its input ends.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "part of a test: fails by panicking")]

use std::io::Read;
use std::path::PathBuf;

use shade_client::{Options, Session};
use shade_tests::{attach, next, spec};

/// `shade-test-trainer DATASET RANK WORLD_SIZE BATCH_SIZE HELD [SOCKET]`
fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let dataset = PathBuf::from(arguments.next().unwrap());
    let mut number = || arguments.next().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    let (rank, world_size, batch_size, held) = (number(), number(), number(), number());
    let spec = spec(batch_size, world_size);
    let session = match arguments.next().map(PathBuf::from) {
        socket @ Some(_) => {
            let options = Options { socket, ..Options::default() };
            Session::connect(&dataset, "default", rank, spec, &options).unwrap()
        }
        None => attach(&dataset, rank, spec),
    };
    session.start_epoch(0, 0).unwrap();
    let batches: Vec<_> = (0..held).map(|_| next(&session).unwrap().unwrap()).collect();
    println!("holding {}", batches.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
