//! Takes the daemon's lines from the pipe and writes them into the file, with the samples' sizes
//! after the first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shade_dataset::Dataset;
use shade_formats::SampleId;
use shade_formats::index::Index;
use shade_formats::limits::TRACE_LINE_BYTES_MAX;
use shade_formats::trace::{Header, Line, Sizes};

use super::cli::Trace;
use super::error::TraceError;
use super::job::job_to_record;
use super::progress::RecordedCounts;
use crate::control::{Address, CallError, Observed, observe};
use crate::default_socket::default_socket;

/// Wanted size of the pipe, for lines that come while the disk is slow for a moment.
const PIPE_BYTES: usize = 1 << 20;
/// Most bytes of one read.
const PART_BYTES: usize = 1 << 16;
/// Samples whose sizes are in one line.
const SIZES_A_LINE: u32 = 8192;
/// How often the wait for lines checks whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// After Ctrl-C: how long the daemon may take to hand over its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

const _: () = assert!(SIZES_A_LINE as usize * 11 + 1024 <= TRACE_LINE_BYTES_MAX);

/// Records until the daemon ends, or Ctrl-C.
///
/// # Errors
/// There is no daemon to record, or the file cannot be written; it can be read up to there.
pub(super) fn record(args: &Trace, out: &Path) -> Result<(), TraceError> {
    let Dataset { folder, index } = Dataset::open(&args.dataset)?;
    let socket = args.socket.clone().or_else(default_socket);
    let address = socket.as_deref().map_or_else(|| Address::of_dataset(&folder), Address::given);
    let observed = job_to_record(args.job.as_deref(), &address)
        .and_then(|job| Ok((observe(&address, &folder, &index, &job)?, job)));
    let (mut observed, job) = observed.map_err(|error| match error {
        TraceError::Call(CallError::NoDaemon { address }) => {
            TraceError::NoDaemon { dataset: folder.clone(), address }
        }
        other => other,
    })?;
    // Less works too.
    let _ = rustix::pipe::fcntl_setpipe_size(&observed.trace, PIPE_BYTES);
    let stop = hang_up_on_signal(&observed)?;
    let file = File::create_new(out).map_err(|source| TraceError::Create { path: out.to_owned(), source })?;
    let out = Out { path: out.to_owned(), file, bytes: 0 };
    tracing::info!("recording daemon {} of {}, job {job}: Ctrl-C ends it", observed.pid, folder.display());
    Recorder { out, index: &index, has_header: false, rest: Vec::new(), counts: RecordedCounts::start() }
        .run(&mut observed.trace, &stop)
}

/// On Ctrl-C hangs up on the daemon, which then hands over its last lines and ends the trace.
fn hang_up_on_signal(observed: &Observed) -> io::Result<Arc<AtomicBool>> {
    let socket = observed.socket.try_clone()?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        asked.store(true, Ordering::Relaxed);
        // Fails only if the daemon is gone.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    })
    .map_err(io::Error::other)?;
    Ok(stop)
}

/// The file.
struct Out {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Out {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| TraceError::Write { path: self.path.clone(), source })
    }
}

/// A recording under way.
struct Recorder<'a> {
    out: Out,
    index: &'a Index,
    has_header: bool,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    counts: RecordedCounts,
}

impl Recorder<'_> {
    fn run(mut self, trace: &mut File, stop: &AtomicBool) -> Result<(), TraceError> {
        let mut part = vec![0; PART_BYTES];
        let mut stopped: Option<Instant> = None;
        loop {
            if stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > LAST_LINES
            {
                tracing::warn!("the daemon does not end the trace: it is left as it is");
                break;
            }
            match poll(&mut [PollFd::new(&trace.as_fd(), PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(io::Error::from)?,
            };
            let taken = trace.read(&mut part)?;
            if taken == 0 {
                break;
            }
            self.take(part.get(..taken).unwrap_or_default())?;
        }
        self.counts.finish(&self.out.path, self.out.bytes);
        Ok(())
    }

    /// Writes the lines that `part` completes, each whole.
    fn take(&mut self, part: &[u8]) -> Result<(), TraceError> {
        self.rest.extend_from_slice(part);
        let Some(last) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            if self.rest.len() > TRACE_LINE_BYTES_MAX {
                return Err(TraceError::Line("a line without end".to_owned()));
            }
            return Ok(());
        };
        let rest = self.rest.split_off(last + 1);
        let mut lines = std::mem::replace(&mut self.rest, rest);
        if !self.has_header {
            let first = lines.iter().position(|byte| *byte == b'\n').unwrap_or(last);
            let others = lines.split_off(first + 1);
            Header::decode(&lines).map_err(TraceError::Line)?;
            self.out.write(&lines)?;
            self.write_sizes()?;
            self.has_header = true;
            lines = others;
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.counts.count(&Line::decode(line).map_err(TraceError::Line)?);
        }
        self.out.write(&lines)?;
        self.counts.show(self.out.bytes);
        Ok(())
    }

    fn write_sizes(&mut self) -> Result<(), TraceError> {
        let samples = self.index.len();
        for from in (0..samples).step_by(SIZES_A_LINE as usize) {
            let stored = (from..samples.min(from.saturating_add(SIZES_A_LINE)))
                .map(|id| self.index.entry(SampleId(id)).map_or(0, |entry| entry.stored_len))
                .collect();
            self.out.write(&Line::Sizes(Sizes { from, stored }).encode())?;
        }
        Ok(())
    }
}
