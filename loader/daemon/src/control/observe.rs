//! The recorder's side: asks a running daemon for a trace and takes it out of a pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use shade_formats::control::{PROTOCOL, Reply, Request};
use shade_formats::index::Index;

use super::call::{Address, Call, CallError};

/// How long a busy daemon is asked again: it may not have seen yet that its recorder was killed.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// A recording under way.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The session lasts as long as this is not shut down.
    pub(crate) socket: OwnedFd,
    /// Where the daemon writes the trace; it ends with the session, or the daemon.
    pub(crate) trace: File,
    /// The daemon's process.
    pub(crate) pid: u32,
}

/// Asks the daemon at `address` for a trace of `job`. It serves the dataset in `folder`
/// (canonical), which has this `index` now.
pub(crate) fn observe(
    address: &Address,
    folder: &Path,
    index: &Index,
    job: &str,
) -> Result<Observed, CallError> {
    let request = Request::Observe {
        protocol: PROTOCOL,
        samples: index.len(),
        content_id: index.content_id().0,
        dataset: folder.display().to_string(),
        job: job.to_owned(),
    };
    let started = Instant::now();
    loop {
        match observe_once(address, &request) {
            Err(CallError::Refused { busy: true, .. }) if started.elapsed() < BUSY_PATIENCE => {
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

fn observe_once(address: &Address, request: &Request) -> Result<Observed, CallError> {
    let call = Call::connect(address)?;
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let answer = call.ask(request, Some(theirs.as_fd()));
    // The daemon then has the only write end, so the trace ends with it.
    drop(theirs);
    match answer? {
        Reply::Observing { pid, .. } => Ok(Observed { socket: call.socket, trace: File::from(ours), pid }),
        other => Err(call.unexpected(&other)),
    }
}
