//! One line on a terminal's standard error that says how far the probe is, and that goes away again.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two looks of the line.
const EVERY: Duration = Duration::from_millis(100);
/// Back to the line's start, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";

/// The line. Nothing is written where nobody watches.
pub(super) struct Progress {
    watched: bool,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { watched: std::io::stderr().is_terminal(), shown: None }
    }

    /// Shows what `line` says, unless it has just been shown.
    pub(super) fn show(&mut self, line: impl FnOnce() -> String) {
        if self.watched && self.shown.is_none_or(|shown| shown.elapsed() >= EVERY) {
            self.shown = Some(Instant::now());
            // Who cannot be told is not waited for.
            let _ = write!(std::io::stderr(), "{CLEAR}{}", line());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "{CLEAR}");
        }
    }
}
