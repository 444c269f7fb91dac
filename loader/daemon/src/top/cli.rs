//! The arguments and errors of `shade-load top`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shade_job::parse_time;

use crate::ask::AskError;

/// Help below the options.
const HELP: &str = "\
The first line names the job that waits most, what it waits for, and what to do about it. Below it are
your daemons on this machine, their jobs, and each rank's ring: finished batches, and those being
filled. All rates are those between two looks. q ends it.

A trainer waits for
  storage  records that are read, or wait for their turn
  workers  rows that are copied or decoded
  plan     the daemon's main thread, which draws an epoch or opens batches
  ranks    other ranks, which have not begun the epoch

\"ring full\" is the opposite: all batches are ready, and the trainer is what takes the time.

Exit codes: 0 ended by its user (also if no daemon runs), 1 a daemon does not answer, or there is no
terminal, 2 usage.";

/// `shade-load top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Top {
    /// Look twice, print the figures once, and end: for scripts, and where there is no terminal.
    #[arg(long)]
    pub once: bool,

    /// With --once: a JSON list with an object for each daemon; docs/why-it-waits.md describes it.
    #[arg(long, requires = "once")]
    pub json: bool,

    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub interval: Duration,

    /// Watch the daemon at this socket file, or at this abstract name (@shade-load/...), instead of
    /// all of yours. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Why daemons cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// A daemon does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Standard output is no terminal.
    #[error("standard output is no terminal: give --once, or --once --json")]
    NoTerminal,
    /// The terminal cannot be used, or the answer not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TopError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
