//! Runs inside a guest, on a real NFS mount: reads in every way, over slow and lossy links, while
//! the server stops, and while files change. Writes one JSON line per scenario to standard output.
//!
//! `shade-nfs-guest [SCENARIO...]`: all by default. `tests/nfs/guest.sh` makes the mount.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "part of a test: fails by panicking"
)]

mod changes;
mod faults;
mod reader;
mod speed;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::json;

use world::World;

/// A scenario panics when it fails, and otherwise returns what it measured.
type Scenario = fn(&World) -> String;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("bytes", speed::bytes),
    ("rpcs", speed::rpcs),
    ("workers", speed::workers),
    ("concurrency", speed::concurrency),
    ("loss", faults::loss),
    ("restart", faults::restart),
    ("truncate", changes::truncate),
    ("replace", changes::replace),
    ("unlink", changes::unlink),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let unknown = wanted.iter().find(|name| SCENARIOS.iter().all(|(known, _)| known != name));
    assert_eq!(unknown, None, "no such scenario");
    let world = World::create();
    for (name, scenario) in SCENARIOS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| scenario(&world)));
        let passed = result.is_ok();
        let said = result.unwrap_or_else(|panic| text_of(&*panic));
        let seconds = started.elapsed().as_secs_f64();
        println!("{}", json!({ "scenario": name, "passed": passed, "said": said, "seconds": seconds }));
    }
    println!("{}", json!({ "scenario": "end", "passed": true, "said": world.to_string(), "seconds": 0.0 }));
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
