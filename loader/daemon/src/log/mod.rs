//! The log: lines on standard error that never end the daemon and never make it wait.
//!
//! The reader of a standard error may be gone or asleep. So one thread writes (`writer`), to the
//! output that is open now (`outputs`): a line that cannot be written is dropped, and so are lines
//! that come while too many wait. Another thread writes the copy on standard output. Lines that may
//! be frequent, bad records above all, go through a [`Throttle`].

pub(crate) mod outputs;
mod throttle;
mod writer;

pub use outputs::LastWords;
pub use throttle::{LeftOut, Rate, Throttle};

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use shade_formats::printable::OneLine;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use writer::Lines;

/// The log. Dropping it waits a moment until all lines are written.
#[must_use]
pub struct Log(());

/// The two queues of the log's lines: for standard error, and for the copy.
static QUEUES: OnceLock<[Lines; 2]> = OnceLock::new();

/// Sets up the log of this process: levels from SHADE_LOG, `info` by default. Call it once.
/// `colours`: whether lines have them on a terminal.
///
/// # Errors
/// When no thread can be made.
pub fn start(colours: bool) -> io::Result<Log> {
    let lines = Lines::start("shade-log", writer::to_the_output_of_now(rustix::stdio::stderr()))?;
    let copies = Lines::start("shade-words", LastWords::write)?;
    let _ = QUEUES.set([lines.clone(), copies.clone()]);
    let filter = EnvFilter::try_from_env("SHADE_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.and(copies))
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
    Ok(Log(()))
}

/// Adds a line to the copy alone, after all lines so far.
pub fn copy(line: &str) {
    if let Some([_, mut copies]) = QUEUES.get().map(|queues| queues.each_ref()) {
        // Never fails.
        let _ = copies.write_all(line.as_bytes());
    }
}

/// Waits until all lines are written, but only for a moment: perhaps they are not read.
pub(crate) fn flush() {
    QUEUES.get().into_iter().flatten().for_each(Lines::flush);
}

impl Drop for Log {
    fn drop(&mut self) {
        flush();
    }
}
