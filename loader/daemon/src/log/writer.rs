//! Writes the log's lines on a thread for each reader, which alone waits for it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

use super::outputs;

/// Lines that may wait for the writer: a burst of bad records, and a few hundred KB.
const LINES_MAX: usize = 1024;
/// How long the process's end waits for lines that are not read.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval at which a wait for a reader looks whether the output is still the one to write to.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Bytes that a pipe with any room takes at once.
const PIPE_BUF: usize = 4096;

/// An entry of the writer's queue.
enum LogEntry {
    Line(Vec<u8>),
    /// Dropping this tells that all entries before it are written.
    Flush(#[expect(dead_code, reason = "its drop is what is waited for")] Sender<()>),
}

/// The writer's queue. Writing to it never fails and never waits.
#[derive(Clone)]
pub(super) struct Lines {
    queue: Sender<LogEntry>,
    /// Dropped lines that the writer has not told of yet.
    dropped: Arc<AtomicU64>,
}

impl Lines {
    /// Starts the thread, which gives each line to `write`.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn start(thread: &str, write: impl Fn(&[u8]) + Send + 'static) -> io::Result<Self> {
        let (queue, entries) = bounded(LINES_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let told = Arc::clone(&dropped);
        let thread = std::thread::Builder::new().name(thread.to_owned());
        thread.spawn(move || write_entries(&write, &entries, &told))?;
        Ok(Self { queue, dropped })
    }

    /// Waits until all lines are written, but only for a moment: perhaps they are not read.
    pub(super) fn flush(&self) {
        let until = Instant::now() + PATIENCE;
        let (flush, flushed) = bounded(0);
        if self.queue.send_deadline(LogEntry::Flush(flush), until).is_ok() {
            let _ = flushed.recv_deadline(until);
        }
    }
}

impl io::Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(LogEntry::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Writes the entries, and how many lines were dropped about there.
fn write_entries(write: &impl Fn(&[u8]), entries: &Receiver<LogEntry>, dropped: &AtomicU64) {
    for entry in entries {
        let missing = dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let text =
                format!("({missing} lines of the log are missing about here: nobody read it in time)\n");
            write(text.as_bytes());
        }
        if let LogEntry::Line(line) = entry {
            write(&line);
        }
    }
}

/// Writes lines to the output of now, which is `own` while no rank has offered another one.
pub(super) fn to_the_output_of_now(own: impl AsFd) -> impl Fn(&[u8]) {
    move |line| write_line(&own, line)
}

/// Writes a line to the output of now, or to the next one if that is broken or goes meanwhile.
fn write_line(own: &impl AsFd, line: &[u8]) {
    while let Some(stderr) = outputs::current() {
        let is_current = || outputs::current().is_some_and(|now| Arc::ptr_eq(&now, &stderr));
        match write_all(&stderr, line, is_current) {
            Ok(()) => return,
            Err(_) => outputs::drop_broken(&stderr),
        }
    }
    let _ = write_all(own, line, || outputs::current().is_none());
}

/// Writes all bytes. Waits while a terminal or pipe is full, as long as `goes_on`.
fn write_all(out: &impl AsFd, mut bytes: &[u8], goes_on: impl Fn() -> bool) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        // A write of this length does not wait once there is room: the pipe may be blocking, and
        // the other end of it is another program's, so that this cannot be changed.
        let part = bytes.get(..PIPE_BUF).unwrap_or(bytes);
        match wait_for_room(out, &goes_on).and_then(|()| rustix::io::write(out, part)) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until `out` takes bytes. Fails when `goes_on` ends.
fn wait_for_room(out: &impl AsFd, goes_on: impl Fn() -> bool) -> rustix::io::Result<()> {
    while poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&LOOK))? == 0 {
        if !goes_on() {
            return Err(Errno::CANCELED);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// More than a pipe and the queue have room for.
    const MANY: u64 = 20_000;
    const LINE: &[u8] =
        b"a line of the log, as long as many are: sample 17 (a/b.jpg) in shard 3 at byte 512\n";

    fn say_many(mut lines: &Lines) {
        (0..MANY).for_each(|_| lines.write_all(LINE).unwrap());
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_waited_for_by_the_thread_alone_and_what_is_missing_is_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let lines = Lines::start("log", to_the_output_of_now(writer)).unwrap();
        say_many(&lines);
        // Returns although nothing moves.
        lines.flush();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        // The end of it is told with the next line that comes through.
        let mut handle = &lines;
        while !lines.queue.is_empty() {
            std::thread::yield_now();
        }
        handle.write_all(LINE).unwrap();
        lines.flush();
        drop(lines);
        let text = reading.join().unwrap();
        let count = |line: &str| match line.strip_prefix('(') {
            Some(rest) => rest.split_once(' ').unwrap().0.parse::<u64>().unwrap(),
            None => 1,
        };
        assert_eq!(text.lines().map(count).sum::<u64>(), MANY + 1);
        assert!(text.contains(" lines of the log are missing about here"));
    }

    #[test]
    fn of_lines_that_all_come_through_none_is_said_to_be_missing() {
        const THREADS: usize = 4;
        for _ in 0..50 {
            let mut file = tempfile::tempfile().unwrap();
            let lines = Lines::start("log", to_the_output_of_now(file.try_clone().unwrap())).unwrap();
            // No more in all than may wait.
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..LINES_MAX / THREADS).for_each(|_| (&lines).write_all(LINE).unwrap()));
                }
            });
            lines.flush();
            drop(lines);
            std::io::Seek::rewind(&mut file).unwrap();
            let mut text = Vec::new();
            file.read_to_end(&mut text).unwrap();
            assert!(text == LINE.repeat(LINES_MAX), "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn a_reader_that_is_gone_costs_lines_only() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let lines = Lines::start("log", to_the_output_of_now(writer)).unwrap();
        say_many(&lines);
        lines.flush();
        assert!(lines.queue.is_empty(), "the thread goes on taking");
    }
}
