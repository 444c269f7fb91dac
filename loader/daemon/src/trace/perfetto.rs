//! A recording as a Chrome trace (JSON), which ui.perfetto.dev and chrome://tracing show.
//!
//! Each rank is a process with its batches in lanes. A batch goes from its opening to its release,
//! and has parts: read, fill, in the ring. Counters beside them are finished batches, and the share
//! of the time that the rank waited, by cause. The daemon is a process with reads, rate and cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};
use shade_formats::trace::{Header, Line, Snapshot};
use shade_simulate::RecordedLines;

use super::cli::TraceError;
use super::lanes::{LaneBatch, Lanes};
use crate::monitor::{RankFigures, figures, recorded_status};
use crate::status::DaemonStatus;

/// The daemon's process there; rank r has r + 1.
const DAEMON: u64 = 0;

/// Writes the trace of `run` into a file that must not exist yet.
///
/// # Errors
/// The recording cannot be read, or the file not be written.
pub(super) fn perfetto(run: &Path, out: &Path) -> Result<(), TraceError> {
    let mut lines = RecordedLines::open(run)?;
    let file = File::create_new(out).map_err(|source| TraceError::Create { path: out.to_owned(), source })?;
    let unwritable = |source| TraceError::Write { path: out.to_owned(), source };
    let header = lines.header().clone();
    let mut events = Events::begin(BufWriter::new(file), &header).map_err(unwritable)?;
    while let Some(line) = lines.next_line()? {
        events.take(&line, &header).map_err(unwritable)?;
    }
    events.end().map_err(unwritable)?;
    tracing::info!("{} is for ui.perfetto.dev", out.display());
    Ok(())
}

/// Events being written.
struct Events<W> {
    out: W,
    is_first: bool,
    ranks: BTreeMap<u32, Lanes>,
    /// Ranks and lanes that have their names.
    named: BTreeSet<(u64, usize)>,
    /// The snapshot before.
    before: Option<DaemonStatus>,
    now_us: u64,
}

impl<W: Write> Events<W> {
    fn begin(mut out: W, header: &Header) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        let ranks = BTreeMap::new();
        let mut events = Self { out, is_first: true, ranks, named: BTreeSet::new(), before: None, now_us: 0 };
        let name = format!("shade-load: job {} of {}", header.job, header.dataset);
        events.name(DAEMON, "process_name", 0, &name)?;
        Ok(events)
    }

    fn take(&mut self, line: &Line, header: &Header) -> io::Result<()> {
        match line {
            Line::Sizes(_) => Ok(()),
            Line::Job(job) => {
                self.now_us = job.at_us;
                self.before = None;
                self.release_all()
            }
            Line::Open(open) => {
                self.now_us = open.at_us;
                let ended = self.ranks.entry(open.rank).or_default().open(open);
                ended.map_or(Ok(()), |batch| self.batch(open.rank, &batch))
            }
            Line::Done(done) => {
                self.now_us = done.at_us;
                self.ranks.entry(done.rank).or_default().done(done);
                Ok(())
            }
            Line::Release(release) => {
                self.now_us = release.at_us;
                let released = self.ranks.entry(release.rank).or_default().release(Some(release.before_seq));
                released.iter().try_for_each(|batch| self.batch(release.rank, batch))
            }
            Line::Report(report) => {
                self.now_us = report.at_us;
                Ok(())
            }
            Line::Snapshot(snapshot) => {
                self.now_us = snapshot.at_us;
                self.snapshot(snapshot, recorded_status(header, snapshot))
            }
            Line::Lost(lost) => {
                let name = format!("{} lines are missing", lost.lines);
                self.write(&json!({
                    "ph": "i", "s": "g", "name": name, "pid": DAEMON, "tid": 0, "ts": self.now_us
                }))
            }
        }
    }

    fn end(mut self) -> io::Result<()> {
        self.release_all()?;
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }

    fn release_all(&mut self) -> io::Result<()> {
        for (rank, mut lanes) in std::mem::take(&mut self.ranks) {
            lanes.release(None).iter().try_for_each(|batch| self.batch(rank, batch))?;
        }
        Ok(())
    }

    /// A batch that ends now, and its parts.
    fn batch(&mut self, rank: u32, batch: &LaneBatch) -> io::Result<()> {
        let pid = process_of(rank);
        let lane = batch.lane;
        if self.named.insert((pid, lane)) {
            if lane == 0 {
                self.name(pid, "process_name", lane, &format!("rank {rank}"))?;
            }
            self.name(pid, "thread_name", lane, &format!("batches {lane}"))?;
        }
        let (opened, ended) = (batch.opened_us, self.now_us.max(batch.opened_us));
        let name = format!("epoch {} batch {}", batch.epoch, batch.batch);
        let args = json!({ "rows": batch.rows, "misses": batch.misses });
        self.slice(pid, lane, &name, opened, ended, args)?;
        // A batch may end before it is published: its rank has left.
        let (read, published) = batch.done_us.unwrap_or((ended, ended));
        let read = read.clamp(opened, ended);
        let published = published.clamp(read, ended);
        for (name, from, to) in
            [("read", opened, read), ("fill", read, published), ("in the ring", published, ended)]
        {
            if to > from {
                self.slice(pid, lane, name, from, to, json!({}))?;
            }
        }
        Ok(())
    }

    /// Counters. A share is that of the time since the snapshot before, so it stands there.
    fn snapshot(&mut self, snapshot: &Snapshot, now: DaemonStatus) -> io::Result<()> {
        let at_us = snapshot.at_us;
        self.counter(DAEMON, "reads submitted", at_us, json!({ "reads": snapshot.reads_submitted }))?;
        self.counter(DAEMON, "cache, MB", at_us, json!({ "used": snapshot.cache_used_bytes as f64 / 1e6 }))?;
        for rank in &snapshot.by_rank {
            let batches = json!({ "ready": rank.in_ring, "open": rank.open });
            self.counter(process_of(rank.rank), "batches", at_us, batches)?;
        }
        let Some(before) = self.before.replace(now.clone()) else { return Ok(()) };
        let since_us = before.uptime_ns / 1000;
        for job in figures(&[before], &[now]).into_iter().flat_map(|daemon| daemon.jobs) {
            self.counter(DAEMON, "read, MB/s", since_us, json!({ "read": job.read_mb_per_s }))?;
            for RankFigures { rank, waits, .. } in job.by_rank {
                let shares = waits.in_order().map(|(cause, share)| (cause.to_owned(), json!(100.0 * share)));
                let shares = Value::Object(shares.into_iter().collect());
                self.counter(process_of(rank), "waits, %", since_us, shares)?;
            }
        }
        Ok(())
    }

    fn counter(&mut self, pid: u64, name: &str, at_us: u64, args: Value) -> io::Result<()> {
        self.write(&json!({ "ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at_us, "args": args }))
    }

    fn slice(
        &mut self,
        pid: u64,
        lane: usize,
        name: &str,
        from_us: u64,
        to_us: u64,
        args: Value,
    ) -> io::Result<()> {
        let time_us = to_us - from_us;
        self.write(&json!({
            "ph": "X", "cat": "batch", "name": name, "pid": pid, "tid": lane, "ts": from_us, "dur": time_us, "args": args
        }))
    }

    fn name(&mut self, pid: u64, kind: &str, lane: usize, name: &str) -> io::Result<()> {
        self.write(&json!({ "ph": "M", "name": kind, "pid": pid, "tid": lane, "args": { "name": name } }))
    }

    fn write(&mut self, event: &Value) -> io::Result<()> {
        let between: &[u8] = if std::mem::take(&mut self.is_first) { b"" } else { b",\n" };
        self.out.write_all(between)?;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }
}

fn process_of(rank: u32) -> u64 {
    u64::from(rank) + 1
}
