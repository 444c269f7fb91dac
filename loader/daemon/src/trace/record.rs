//! The command: chooses the job, takes the daemon's lines from the pipe and writes them into the
//! file, with the samples' sizes after the first. Makes that recording, or one that is given, a
//! Chrome trace if that is asked for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shade_core::{Samples, WholeSamples};
use shade_dataset::{Dataset, on_stop_signal};
use shade_formats::SampleId;
use shade_formats::index::Index;
use shade_formats::limits::TRACE_LINE_BYTES_MAX;
use shade_formats::trace::{Header, Line, Sizes};
use shade_simulate::RecordedLines;

use super::cli::{Trace, TraceError};
use super::perfetto::perfetto;
use super::progress::RecordedCounts;
use crate::ask::AskError;
use crate::control::{Address, Call, CallError, Observed, default_socket, observe};
use crate::status::DaemonStatus;

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
/// The first training on a dataset has this name, unless it has another.
const FIRST_JOB: &str = "default";

const _: () = assert!(SIZES_A_LINE as usize * 11 + 1024 <= TRACE_LINE_BYTES_MAX);

/// Records until the daemon ends, or Ctrl-C. Nothing is recorded of a file that is a recording.
///
/// # Errors
/// There is no daemon to record, or a file cannot be written; it can be read up to there.
pub fn trace(args: &Trace) -> Result<(), TraceError> {
    let is_recording = args.dataset.is_file() && RecordedLines::is_recording(&args.dataset)?;
    let run = match (&args.out, is_recording) {
        (Some(_), true) => return Err(TraceError::Recorded),
        (None, true) => &args.dataset,
        (Some(out), false) => {
            record(args, out)?;
            out
        }
        (None, false) => return Err(TraceError::NoOut),
    };
    args.perfetto.as_ref().map_or(Ok(()), |out| perfetto(run, out))
}

/// Records until the daemon ends, or Ctrl-C.
///
/// # Errors
/// There is no daemon to record, or the file cannot be written; it can be read up to there.
fn record(args: &Trace, out: &Path) -> Result<(), TraceError> {
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
    on_stop_signal(move || {
        asked.store(true, Ordering::Relaxed);
        // Fails only if the daemon is gone.
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    })?;
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
    index: &'a Arc<Index>,
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
            let header = Header::decode(&lines).map_err(TraceError::Line)?;
            self.out.write(&lines)?;
            let fields = header.fields.parse().map_err(TraceError::Line)?;
            self.write_sizes(&WholeSamples::new(Arc::clone(self.index), &fields))?;
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

    fn write_sizes(&mut self, whole: &WholeSamples) -> Result<(), TraceError> {
        let samples = whole.len();
        for from in (0..samples).step_by(SIZES_A_LINE as usize) {
            let stored = (from..samples.min(from.saturating_add(SIZES_A_LINE)))
                .map(|id| whole.entry(SampleId(id)).map_or(0, |entry| entry.stored_len))
                .collect();
            self.out.write(&Line::Sizes(Sizes { from, stored }).encode())?;
        }
        Ok(())
    }
}

/// The job `given`, or the only one that trains, or the first that will.
fn job_to_record(given: Option<&str>, address: &Address) -> Result<String, TraceError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    choose(&DaemonStatus::parse(&Call::connect(address)?.status()?).map_err(AskError::Status)?)
}

fn choose(daemon: &DaemonStatus) -> Result<String, TraceError> {
    let mut candidates: Vec<_> = daemon.jobs.iter().filter(|job| job.admit).collect();
    if candidates.is_empty() {
        candidates = daemon.jobs.iter().collect();
    }
    match candidates[..] {
        [] => Ok(FIRST_JOB.to_owned()),
        [only] => Ok(only.name.clone()),
        _ => {
            let names = daemon.jobs.iter().map(|job| job.name.clone()).collect();
            Err(TraceError::SeveralJobs { names })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_training_is_recorded_and_several_are_named() {
        let chosen = |jobs: &[(&str, bool)]| {
            let job = |(name, admit): &(&str, bool)| {
                format!(
                    r#"{{"name":"{name}","ranks":1,"world_size":1,"ranks_here":1,"admit":{admit},"epoch":null,"accesses":0,"hit_ratio":0.0}}"#
                )
            };
            let jobs: Vec<_> = jobs.iter().map(job).collect();
            let json = format!(
                r#"{{"pid":7,"dataset":"/d","cache_bytes":2,"cache_used_bytes":1,"draining":false,"jobs":[{}]}}"#,
                jobs.join(",")
            );
            choose(&DaemonStatus::parse(&json).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&[]), Ok("default".to_owned()));
        assert_eq!(chosen(&[("a.eval", false)]), Ok("a.eval".to_owned()));
        assert_eq!(chosen(&[("a.eval", false), ("b", true)]), Ok("b".to_owned()));
        let error = chosen(&[("a", true), ("b.eval", false), ("c", true)]).unwrap_err();
        assert!(error.contains("--job: a, b.eval, c"), "{error}");
    }
}
