//! How far a long command is, on standard error: a bar on a terminal, a line every few seconds elsewhere.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::{human_bytes, megabytes_per_second};

/// Between two lines in a log: seldom enough not to fill it, often enough to see that something moves.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Not at all.
    Quiet,
    /// As a bar that is redrawn: for terminals.
    Bar,
    /// As lines: for logs.
    Lines,
}

/// Counts records and bytes from many threads.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    records_total: u64,
    bytes_total: u64,
    records: AtomicU64,
    bytes: AtomicU64,
    start: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Quiet,
    Bar(ProgressBar),
    Lines { last: Mutex<Instant> },
}

impl Progress {
    /// Starts to count towards these totals. `what` is a verb such as "packing".
    #[must_use]
    pub fn start(shown: Shown, what: &'static str, records_total: u64, bytes_total: u64) -> Self {
        let start = Instant::now();
        let display = match shown {
            Shown::Quiet => Display::Quiet,
            Shown::Bar => Display::Bar(bar(what, bytes_total)),
            Shown::Lines => Display::Lines { last: Mutex::new(start) },
        };
        let (records, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { what, records_total, bytes_total, records, bytes, start, display }
    }

    /// These many more are done.
    pub fn add(&self, records: u64, bytes: u64) {
        let records = self.records.fetch_add(records, Ordering::Relaxed) + records;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match &self.display {
            Display::Quiet => {}
            Display::Bar(bar) => bar.set_position(bytes),
            Display::Lines { last } => {
                // Whoever cannot have the lock leaves the line to the one who has it.
                if let Ok(mut last) = last.try_lock()
                    && last.elapsed() >= LINE_EVERY
                {
                    *last = Instant::now();
                    self.line(records, bytes);
                }
            }
        }
    }

    /// Everything is done: removes the bar, or writes the last line.
    pub fn finish(&self) {
        match &self.display {
            Display::Quiet => {}
            Display::Bar(bar) => bar.finish_and_clear(),
            Display::Lines { .. } => {
                self.line(self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
            }
        }
    }

    fn line(&self, records: u64, bytes: u64) {
        let rate = megabytes_per_second(bytes, self.start.elapsed().as_secs_f64());
        let (done, total) = (human_bytes(bytes), human_bytes(self.bytes_total));
        let (what, records_total) = (self.what, self.records_total);
        to_stderr(format_args!(
            "{what}: {records} of {records_total} records, {done} of {total}, {rate:.1} MB/s"
        ));
    }
}

impl Drop for Progress {
    /// A command that fails leaves no half-drawn bar behind.
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

/// Says what is going on before totals are known.
pub fn note(shown: Shown, text: fmt::Arguments<'_>) {
    if shown != Shown::Quiet {
        to_stderr(text);
    }
}

fn bar(what: &'static str, bytes_total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes_total), ProgressDrawTarget::stderr());
    let template =
        "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} eta {eta}";
    // A template that does not parse would cost the looks, not the run.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(what)
}

/// Progress is a courtesy: a closed standard error must not end the command.
fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
