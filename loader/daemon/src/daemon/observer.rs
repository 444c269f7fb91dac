//! The observer: takes the lines of a trace from the core and writes them into its pipe, on a
//! thread of its own.
//!
//! The daemon never waits for it. Lines that do not fit into the queue are dropped, and the next
//! one that fits says how many.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, bounded};
use shade_core::SessionId;
use shade_formats::trace::{Header, Line, Lost};

/// Lines that may wait for the writer: seconds of a quick training, some MB of ordinary batches,
/// 270 MB of the largest.
const LINES_MAX: usize = 1024;

/// A recorder of a trace.
pub(super) struct Observer {
    pub(super) session: SessionId,
    lines: Sender<(u64, Box<Line>)>,
    /// Lines given so far, dropped ones included.
    given: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl Observer {
    /// Begins to write into `pipe`, with `header` first. When writing fails, `socket` is shut down,
    /// so that the session ends.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn start(
        session: SessionId,
        socket: Arc<OwnedFd>,
        pipe: OwnedFd,
        header: &Header,
    ) -> io::Result<Self> {
        let (lines, queue) = bounded(LINES_MAX);
        let (ended_in, ended) = bounded::<()>(0);
        let given = Arc::new(AtomicU64::new(0));
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header { began_unix_s: began.as_secs(), ..header.clone() };
        let given_in_all = Arc::clone(&given);
        std::thread::Builder::new().name("shade-trace".into()).spawn(move || {
            let mut pipe = File::from(pipe);
            let written =
                pipe.write_all(&header.encode()).and_then(|()| write_lines(&mut pipe, &queue, &given_in_all));
            if let Err(error) = written {
                tracing::info!("the recorder of a trace has stopped taking it: {error}");
            }
            // The pipe first: a recorder that sees the session end finds the whole trace in it.
            drop(pipe);
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
            drop(ended_in);
        })?;
        Ok(Self { session, lines, given, ended })
    }

    /// Queues a line, or drops it if too many wait.
    pub(super) fn take(&self, line: Box<Line>) {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let _ = self.lines.try_send((number, line));
    }

    /// Takes no more lines. What comes back is closed once those that it took are written.
    pub(super) fn end(self) -> Receiver<()> {
        self.ended
    }
}

/// Writes lines until the queue is closed.
fn write_lines(
    pipe: &mut impl Write,
    lines: &Receiver<(u64, Box<Line>)>,
    given: &AtomicU64,
) -> io::Result<()> {
    let mut next = 0;
    let mut skip_to = |pipe: &mut dyn Write, number: u64| {
        let lost = Lost { lines: number - std::mem::replace(&mut next, number) };
        next += 1;
        if lost.lines > 0 { pipe.write_all(&Line::Lost(lost).encode()) } else { Ok(()) }
    };
    for (number, line) in lines {
        skip_to(pipe, number)?;
        pipe.write_all(&line.encode())?;
    }
    skip_to(pipe, given.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shade_formats::trace::{Release, VERSION};

    use super::*;

    fn line(rank: u32) -> Box<Line> {
        Box::new(Line::Release(Release { at_us: 0, rank, before_seq: 0 }))
    }

    #[test]
    fn what_was_dropped_is_counted_where_it_is_missing() {
        let (lines, queue) = bounded(8);
        for number in [0, 1, 4, 5] {
            lines.send((number, line(u32::try_from(number).unwrap()))).unwrap();
        }
        drop(lines);
        let mut text = Vec::new();
        write_lines(&mut text, &queue, &AtomicU64::new(7)).unwrap();
        let read: Vec<Line> =
            text.split_inclusive(|b| *b == b'\n').map(|l| Line::decode(l).unwrap()).collect();
        let lost = |lines| Line::Lost(Lost { lines });
        assert_eq!(read, [*line(0), *line(1), lost(2), *line(4), *line(5), lost(1)]);
    }

    #[test]
    fn nobody_waits_for_a_pipe_that_is_full() {
        let (reader, writer) = io::pipe().unwrap();
        let (socket, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let header = Header {
            shade_trace: VERSION,
            shade_load: String::new(),
            dataset: String::new(),
            content_id: String::new(),
            samples: 0,
            job: String::new(),
            policy: String::new(),
            lookahead: None,
            cache_bytes: 0,
            block_bytes: 1,
            engine: String::new(),
            workers: 0,
            fields: "none".to_owned(),
            began_unix_s: 0,
        };
        let socket = Arc::new(OwnedFd::from(socket));
        let observer = Observer::start(1, socket, writer.into(), &header).unwrap();
        const LINES: u32 = 20_000;
        (0..LINES).for_each(|rank| observer.take(line(rank)));
        let reading = std::thread::spawn(move || io::read_to_string(reader).unwrap());
        let _ = observer.end().recv_timeout(Duration::from_secs(60));
        let text = reading.join().unwrap();
        let mut accounted = 0;
        for line in text.lines().skip(1) {
            accounted += match Line::decode(line.as_bytes()).unwrap() {
                Line::Lost(lost) => lost.lines,
                _ => 1,
            };
        }
        assert_eq!(accounted, u64::from(LINES));
        assert!(text.contains("\"lost\""), "a pipe has not room for all");
        // The session is over.
        assert_eq!(std::io::Read::read(&mut &peer, &mut [0; 1]).unwrap(), 0);
    }
}
