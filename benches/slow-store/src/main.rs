//! Runs a command over a directory that answers as slowly as a distant file server.
#![expect(clippy::print_stderr, reason = "a program that reports to whoever runs it")]

mod attributes;
mod handles;
mod store;
mod turns;
mod wire;

use std::error::Error;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use fuser::{Config, MountOption};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::store::Store;
use crate::wire::{Operation, Wire};

/// How long what the command has left may stay in the mount. A daemon lingers for 3 s.
const LEFT_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// Shows SOURCE at MOUNTPOINT, read-only and with delayed operations, while COMMAND runs.
///
/// Without `--at-once` the link is slow, not the store: any number of operations wait at the same
/// time. Prints a JSON object with the command's run time and the number of operations of each
/// kind. Needs /dev/fuse and the right to mount. Under `unshare --mount` (root) or `unshare --user
/// --map-root-user --mount` the kernel removes the mount however the program ends.
#[derive(Debug, Parser)]
#[command(name = "shade-slow-store", version, max_term_width = 110)]
struct Args {
    /// The delay of one operation, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 2_000)]
    delay_us: u64,
    /// Delayed operations that are served at the same time. Others wait for their turn.
    ///
    /// With 2 ms and 8 the store serves 4,000 operations a second. Default: any number.
    #[arg(long, value_name = "N")]
    at_once: Option<NonZeroUsize>,
    /// Forget a file's contents whenever the file is opened, as where data is larger than memory.
    ///
    /// Default: they stay in the page cache. While a file is open its contents stay in any case.
    #[arg(long)]
    no_page_cache: bool,
    /// Show each name of a file (hard link) as a file of its own.
    ///
    /// The page cache then has its contents once for each name, so that a file with many names
    /// stands for as many files.
    #[arg(long)]
    links_apart: bool,
    /// Operations to delay. Others are answered at once.
    ///
    /// The default is all that a network file system sends. Opening a directory, closing and
    /// forgetting cost nothing there either.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_enum,
          default_values_t = Operation::value_variants().to_vec())]
    operations: Vec<Operation>,
    /// Write the JSON object to this file instead of standard error.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The directory to show.
    source: PathBuf,
    /// An empty directory to show it at.
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
    // Nobody reads the result any more: end the command, too.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let wire = Arc::new(Wire::new(Duration::from_micros(args.delay_us), args.at_once, &args.operations));
    let store = Store::open(&args.source, Arc::clone(&wire), args.no_page_cache, args.links_apart)?;
    let mounted = fuser::spawn_mount(store, &args.mountpoint, &options())
        .map_err(|error| format!("cannot mount at {}: {error}", args.mountpoint.display()))?;
    let outcome = time(&args.command);
    if is_unmounted_once_left(&args.mountpoint) {
        mounted.join()?;
    } else {
        mounted.umount_and_join()?;
    }
    let (code, seconds) = outcome?;
    let report = serde_json::json!({ "seconds": seconds, "operations": wire.counts() });
    match &args.out {
        Some(path) => std::fs::write(path, format!("{report}\n"))?,
        None => eprintln!("{report}"),
    }
    Ok(code)
}

/// Unmounts once nobody has a file open there: the command is over, and a daemon that it has
/// started may still be ending. False where this process may not unmount, as `fusermount` may, or
/// where somebody stays.
fn is_unmounted_once_left(mountpoint: &Path) -> bool {
    let begun = Instant::now();
    loop {
        match unmount(mountpoint, UnmountFlags::empty()) {
            Err(Errno::BUSY) if begun.elapsed() < LEFT_WITHIN => std::thread::sleep(LOOK),
            outcome => return outcome.is_ok(),
        }
    }
}

fn options() -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        // The kernel checks permissions by mode and owner, so they are no operation.
        MountOption::DefaultPermissions,
        MountOption::FSName("slow-store".to_owned()),
    ];
    // A few threads are enough, as none of them waits: the wire delays answers.
    options.n_threads = Some(2);
    options.clone_fd = true;
    options
}

/// Runs the command to its end. Returns its exit status and seconds.
fn time(command: &[OsString]) -> Result<(ExitCode, f64), Box<dyn Error>> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let runs = Arc::new(AtomicBool::new(true));
    end_with_us(&child, Arc::clone(&runs))?;
    let status = child.wait()?;
    runs.store(false, Ordering::Relaxed);
    let seconds = started.elapsed().as_secs_f64();
    let code =
        status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from);
    Ok((code, seconds))
}

/// SIGINT, SIGTERM and SIGHUP end the command while it `runs`, and not this program, which then
/// unmounts.
fn end_with_us(child: &Child, runs: Arc<AtomicBool>) -> Result<(), Box<dyn Error>> {
    let pid = Pid::from_child(child);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // Afterwards another process may have its number.
            if runs.load(Ordering::Relaxed) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    });
    Ok(())
}
