//! Runs a command over a directory in which every answer takes as long as one from a file server far away.
#![expect(clippy::print_stderr, reason = "a program that reports to whoever runs it")]

mod attributes;
mod handles;
mod store;
mod wire;

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use fuser::{Config, MountOption};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::store::Store;
use crate::wire::{Operation, Wire};

/// Shows SOURCE at MOUNTPOINT, read-only, with every operation delayed, for as long as COMMAND runs.
///
/// Any number of operations wait at the same time: what is slow is the way, not the store. Prints, as one JSON object,
/// how long the command ran and how many operations of each kind it sent. Needs /dev/fuse and the right to mount; run
/// it by `unshare --mount` (root) or `unshare --user --map-root-user --mount`, and the kernel takes the mount away
/// however it ends.
#[derive(Debug, Parser)]
#[command(name = "shade-slow-store", version, max_term_width = 110)]
struct Args {
    /// The delay of one operation, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 2_000)]
    delay_us: u64,
    /// Which operations are delayed; the others are answered at once.
    ///
    /// The default is all that a network file system has to send. Opening a directory, closing and forgetting cost
    /// nothing there either.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_enum,
          default_values_t = Operation::value_variants().to_vec())]
    operations: Vec<Operation>,
    /// Write the JSON object to this file instead of standard error.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The directory to show.
    source: PathBuf,
    /// An empty directory, where it is shown.
    mountpoint: PathBuf,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    // Who waits for the figures is gone: end the command, too.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let wire = Arc::new(Wire::new(Duration::from_micros(args.delay_us), &args.operations));
    let store = Store::open(&args.source, Arc::clone(&wire))?;
    let mounted = fuser::spawn_mount(store, &args.mountpoint, &options())
        .map_err(|error| format!("cannot mount at {}: {error}", args.mountpoint.display()))?;
    let outcome = time(&args.command);
    mounted.umount_and_join()?;
    let (code, seconds) = outcome?;
    let report = serde_json::json!({ "seconds": seconds, "operations": wire.counts() });
    match &args.out {
        Some(path) => std::fs::write(path, format!("{report}\n"))?,
        None => eprintln!("{report}"),
    }
    Ok(code)
}

fn options() -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        // The kernel judges by mode and owner: asking for permission is not an operation.
        MountOption::DefaultPermissions,
        MountOption::FSName("slow-store".to_owned()),
    ];
    // As many threads as a small machine has cores: none of them waits, that is the wire's affair.
    options.n_threads = Some(2);
    options.clone_fd = true;
    options
}

/// Runs the command to its end and tells how it went and how many seconds it took.
fn time(command: &[OsString]) -> Result<(ExitCode, f64), Box<dyn Error>> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    end_with_us(&child)?;
    let status = child.wait()?;
    let seconds = started.elapsed().as_secs_f64();
    let code =
        status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from);
    Ok((code, seconds))
}

/// On SIGINT, SIGTERM and SIGHUP the command is ended and not we: then there is still someone to unmount.
fn end_with_us(child: &Child) -> Result<(), Box<dyn Error>> {
    let pid = Pid::from_child(child);
    ctrlc::set_handler(move || {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    })?;
    Ok(())
}
