//! The log: lines on standard error that never end the daemon and never make it wait.
//!
//! The reader of a standard error may be gone or asleep. So one thread writes (`writer`), to the
//! output that is open now (`outputs`): a line that cannot be written is dropped, and so are lines
//! that come while too many wait. Lines that may be frequent, bad records above all, go through a
//! [`Throttle`].

pub(crate) mod outputs;
mod throttle;
mod writer;

pub use throttle::{LeftOut, Throttle};

use std::io::{self, IsTerminal};

use shade_formats::printable::OneLine;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use writer::Lines;

use crate::last_words::LastWords;

/// The log. Dropping it waits a moment until all lines are written.
#[must_use]
pub struct Log(Lines);

/// Sets up the log of this process: levels from SHADE_LOG, `info` by default. Call it once.
/// `colours`: whether lines have them on a terminal.
///
/// # Errors
/// When no thread can be made.
pub fn start(colours: bool) -> io::Result<Log> {
    let lines = Lines::start(rustix::stdio::stderr())?;
    let filter = EnvFilter::try_from_env("SHADE_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.clone().and(|| LastWords))
        .with_ansi(colours && io::stderr().is_terminal())
        .with_target(false)
        // Names of files and peers are in lines: none may end one, or command a terminal.
        .fmt_fields(debug_fn(|out, field, value| match field.name() {
            "message" => write!(out, "{}", OneLine(format_args!("{value:?}"))),
            name => write!(out, "{name}={}", OneLine(format_args!("{value:?}"))),
        }))
        // Otherwise a line that fails is told with `eprintln!`, which panics if standard error is
        // closed.
        .log_internal_errors(false)
        .init();
    Ok(Log(lines))
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}
