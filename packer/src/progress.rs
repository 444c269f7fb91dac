//! How far a long command is, on standard error: a bar on a terminal, a line every few seconds
//! elsewhere, or JSON.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::report::{human_bytes, megabytes_per_second};

/// Time between two lines in a log: long enough not to fill it, short enough to show that something
/// moves.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time between two lines for a program.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Not at all.
    Quiet,
    /// As a bar that is redrawn: for terminals.
    Bar,
    /// As lines: for logs.
    Lines,
    /// As JSON objects, one a line: for programs.
    Json,
}

/// Counts records and bytes from many threads.
#[derive(Debug)]
pub struct CommandProgress {
    what: &'static str,
    /// 0 while it is not known.
    records_total: u64,
    bytes_total: u64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// Bytes that an earlier run has done. They do not count for the rate.
    skipped: AtomicU64,
    start: Instant,
    display: Display,
}

#[derive(Debug)]
enum Display {
    Quiet,
    Bar(ProgressBar),
    Lines { last: Mutex<Instant>, every: Duration, json: bool },
}

/// One line for a program.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProgressLine {
    /// What is done, a verb such as "packing".
    progress: &'static str,
    /// Records that are done.
    records: u64,
    /// Records in all; 0 while that is not known.
    records_total: u64,
    /// Bytes that are done.
    bytes: u64,
    /// Bytes in all; 0 while that is not known.
    bytes_total: u64,
    /// Time since its beginning.
    seconds: f64,
}

impl CommandProgress {
    /// Starts to count towards these totals, 0 for unknown ones. `what` is a verb such as
    /// "packing".
    #[must_use]
    pub fn start(shown: Shown, what: &'static str, records_total: u64, bytes_total: u64) -> Self {
        let start = Instant::now();
        let lines = |every, json| Display::Lines { last: Mutex::new(start), every, json };
        let display = match shown {
            Shown::Quiet => Display::Quiet,
            Shown::Bar => Display::Bar(bar(what, records_total, bytes_total)),
            Shown::Lines => lines(LINE_EVERY, false),
            Shown::Json => lines(JSON_EVERY, true),
        };
        let [records, bytes, skipped] = [const { AtomicU64::new(0) }; 3];
        Self { what, records_total, bytes_total, records, bytes, skipped, start, display }
    }

    /// Counts finished records and bytes.
    pub(crate) fn add(&self, records: u64, bytes: u64) {
        let records = self.records.fetch_add(records, Ordering::Relaxed) + records;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match &self.display {
            Display::Quiet => {}
            Display::Bar(bar) if self.bytes_total > 0 => bar.set_position(bytes),
            Display::Bar(bar) => {
                bar.set_position(records);
                if bytes > 0 {
                    bar.set_message(format!(", {}", human_bytes(bytes)));
                }
            }
            Display::Lines { last, every, json } => {
                // A thread that does not get the lock leaves the line to the one that has it.
                if let Ok(mut last) = last.try_lock()
                    && last.elapsed() >= *every
                {
                    *last = Instant::now();
                    self.line(records, bytes, *json);
                }
            }
        }
    }

    /// Counts what an earlier run has finished.
    pub(crate) fn skip(&self, records: u64, bytes: u64) {
        self.skipped.fetch_add(bytes, Ordering::Relaxed);
        self.add(records, bytes);
    }

    /// Bytes that this run has done, without those of an earlier one.
    pub(crate) fn bytes_of_this_run(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes.saturating_sub(self.skipped.load(Ordering::Relaxed))
    }

    /// Everything is done: removes the bar, or writes the last line.
    pub(crate) fn finish(&self) {
        match &self.display {
            Display::Quiet => {}
            Display::Bar(bar) => bar.finish_and_clear(),
            Display::Lines { json, .. } => {
                self.line(self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed), *json);
            }
        }
    }

    fn line(&self, records: u64, bytes: u64, json: bool) {
        let seconds = self.start.elapsed().as_secs_f64();
        let (what, records_total, bytes_total) = (self.what, self.records_total, self.bytes_total);
        let text = if json {
            let line = ProgressLine { progress: what, records, records_total, bytes, bytes_total, seconds };
            // Plain numbers always serialise.
            serde_json::to_string(&line).unwrap_or_default()
        } else if records_total == 0 && bytes > 0 {
            let rate = megabytes_per_second(self.bytes_of_this_run(), seconds);
            format!("{what}: {records} records, {}, {rate:.1} MB/s", human_bytes(bytes))
        } else if records_total == 0 {
            format!("{what}: {records} found in {seconds:.1} s")
        } else if bytes_total == 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = records as f64 / seconds.max(1e-9);
            format!("{what}: {records} of {records_total} files in {seconds:.1} s, {rate:.0} files/s")
        } else {
            let rate = megabytes_per_second(self.bytes_of_this_run(), seconds);
            let (done, total) = (human_bytes(bytes), human_bytes(bytes_total));
            format!("{what}: {records} of {records_total} records, {done} of {total}, {rate:.1} MB/s")
        };
        // A closed standard error must not end the command.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

impl Drop for CommandProgress {
    /// A command that fails leaves no half-drawn bar behind.
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, records_total: u64, bytes_total: u64) -> ProgressBar {
    let (total, template) = if records_total == 0 {
        (None, "{spinner} {prefix}: {pos} found in {elapsed}{msg}")
    } else if bytes_total == 0 {
        // What is read of each file is little.
        (Some(records_total), "{prefix} {wide_bar} {pos} of {len} files {elapsed} {per_sec} eta {eta}")
    } else {
        let of_bytes =
            "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} eta {eta}";
        (Some(bytes_total), of_bytes)
    };
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    // The template only decides about the looks.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(what)
}
