//! Terminals. On standard output what strangers named is spelled out where a terminal would obey
//! it. On standard error a line shows how far a command is.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shade_formats::printable::Lines;

/// An output that passes text on, its control characters spelled out except line ends and tabs.
/// JSON stays the same JSON.
#[derive(Debug)]
pub struct Terminal<W>(pub W);

impl<W: Write> Write for Terminal<W> {
    /// Takes whole characters: what `write!` gives.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        write!(self.0, "{}", Lines(String::from_utf8_lossy(text)))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Interval at which the line is drawn.
const TICK: Duration = Duration::from_millis(250);

/// A spinner with a message, hidden where standard error is no terminal.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::default_spinner());
    bar.set_message(message);
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_command_no_terminal() {
        let mut out = Terminal(Vec::new());
        let dataset = "a\u{1b}[2J\u{9b}\u{202e}";
        writeln!(out, "process {}, which serves {dataset}", 7).unwrap();
        assert_eq!(out.0, b"process 7, which serves a\\u001b[2J\\u009b\\u202e\n");
    }
}
