//! The daemon on real NFS: two kernels boot as throw-away guests with NFS server and client, and
//! reader and daemon run in them (`nfs/README.md`). Where no guest can boot the test says why and
//! passes.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use shade_tests::{left_out, program};

/// What a guest must have run, in this order.
const SCENARIOS: [&str; 9] =
    ["bytes", "rpcs", "workers", "concurrency", "loss", "restart", "truncate", "replace", "unlink"];
/// `run.sh`'s exit status where no guest can boot.
const NOT_HERE: i32 = 77;
/// Lines of the guest's console that a failure shows.
const CONSOLE_LINES: usize = 40;

/// One guest at a time: each has a minute of work for both cores.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn on_linux_6_1_with_nfs_4_2() {
    run("uml", "4.2");
}

#[test]
fn on_linux_6_1_with_nfs_3() {
    run("uml", "3");
}

#[test]
fn on_linux_6_12_with_nfs_4_2() {
    run("qemu", "4.2");
}

/// How a guest ended.
struct Ended {
    status: ExitStatus,
    /// The scenarios that it ran, in order, and whether each passed.
    ran: Vec<(String, bool)>,
    console: String,
}

/// Boots a guest and checks that it ran every scenario and that all passed.
fn run(engine: &str, version: &str) {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("nfs {engine} {version}");
    let mut guest = boot(&name, engine, version);
    if guest.status.code() == Some(NOT_HERE) {
        return left_out(&guest.console);
    }
    if guest.ran.is_empty() {
        // A kernel may fail to boot on an emulated machine. That is no result of the test.
        say(&format!(
            "{name}: it ended before it ran anything; booting once more. {}",
            end_of(&name, &guest)
        ));
        guest = boot(&name, engine, version);
    }
    let wanted: Vec<_> = SCENARIOS.into_iter().chain(["end"]).map(|name| (name.to_owned(), true)).collect();
    assert!(guest.ran == wanted, "{:?}; {}; {}", guest.ran, guest.status, end_of(&name, &guest));
}

/// Runs all scenarios in a guest, and reports each as soon as it ends.
fn boot(name: &str, engine: &str, version: &str) -> Ended {
    let started = Instant::now();
    let mut guest = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("nfs/run.sh"))
        .args([engine, version])
        .arg(program("shade-nfs-guest"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (output, mut errors) = (guest.stdout.take().unwrap(), guest.stderr.take().unwrap());
    let console = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        errors.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap()
    });
    let mut ran = Vec::new();
    for line in BufReader::new(output).lines() {
        let result: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let passed = result["passed"] == true;
        let (scenario, said) = (result["scenario"].as_str().unwrap(), result["said"].as_str().unwrap());
        let (verdict, seconds) = (if passed { "ok" } else { "FAILED" }, result["seconds"].as_f64().unwrap());
        say(&format!("{name}: {scenario} {verdict}, {seconds:.1} s: {said}"));
        ran.push((scenario.to_owned(), passed));
    }
    let (status, console) = (guest.wait().unwrap(), console.join().unwrap());
    if status.code() != Some(NOT_HERE) {
        say(&format!("{name}: took {:.0} s", started.elapsed().as_secs_f64()));
    }
    Ended { status, ran, console }
}

/// Writes past the test harness, which keeps the output of passing tests to itself.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The console's last lines. All of it is kept in a file.
fn end_of(name: &str, guest: &Ended) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(' ', "-") + ".console");
    std::fs::write(&file, &guest.console).unwrap();
    let lines: Vec<&str> = guest.console.lines().collect();
    let last = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
    format!("the guest's console, all of it in {}:\n{last}", file.display())
}
