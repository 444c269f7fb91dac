//! The recorder's side: asks a running daemon for a trace and takes it out of a pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use shade_formats::control::{PROTOCOL, REFUSE_BUSY, Reply, Request, socket_name};
use shade_formats::index::Index;
use shade_formats::limits::MESSAGE_BYTES_MAX;

use super::peer;
use super::socket::{ask, receive};

/// Longest wait for the daemon's answer, which takes it no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// No process listens.
    #[error(
        "no daemon serves {} (job {job}) at {address}: start the training first; give --job for a job with a name, \
         --socket for a socket file", dataset.display()
    )]
    NoDaemon { dataset: PathBuf, job: String, address: String },
    #[error("the daemon at {address} refuses: {text}")]
    Refused {
        address: String,
        text: String,
        /// Another recorder is attached.
        busy: bool,
    },
    /// Another user has the address.
    #[error("{address} is served by user {got}, not by user {expected}: nothing is taken from there")]
    Foreign { address: String, got: u32, expected: u32 },
    /// The daemon takes the request and does not answer.
    #[error(
        "the daemon at {address} has not answered for {} s: it may still be reading its index; try again",
        ANSWER_TIMEOUT.as_secs()
    )]
    Silent { address: String },
    /// The answer is not one of a daemon of this version.
    #[error("what serves {address} does not answer as it should: {what}; use the same version of both")]
    Answer { address: String, what: String },
    #[error("cannot reach the daemon: {0}")]
    Io(#[from] io::Error),
}

/// Asks the daemon of the dataset in `folder` (canonical), which has this `index` now, and `job`
/// for a trace; it listens at `socket`, or at the name that belongs to dataset and job.
pub(crate) fn observe(
    folder: &Path,
    index: &Index,
    job: &str,
    socket: Option<&Path>,
) -> Result<Observed, ObserveError> {
    let started = Instant::now();
    loop {
        match observe_once(folder, index, job, socket) {
            Err(ObserveError::Refused { busy: true, .. }) if started.elapsed() < BUSY_PATIENCE => {
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

fn observe_once(
    folder: &Path,
    index: &Index,
    job: &str,
    path: Option<&Path>,
) -> Result<Observed, ObserveError> {
    let (place, address) = match path {
        Some(path) => (SocketAddrUnix::new(path), path.display().to_string()),
        None => {
            let name = socket_name(rustix::process::geteuid().as_raw(), folder, job);
            (SocketAddrUnix::new_abstract_name(&name), format!("@{}", String::from_utf8_lossy(&name)))
        }
    };
    let place = place.map_err(io::Error::from)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(ANSWER_TIMEOUT)).map_err(io::Error::from)?;
    }
    match rustix::net::connect(&socket, &place) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED | Errno::NOENT) => {
            return Err(ObserveError::NoDaemon { dataset: folder.to_owned(), job: job.to_owned(), address });
        }
        Err(error) => return Err(ObserveError::Io(error.into())),
    }
    // Any user may bind an abstract name.
    let got = peer::user(&socket)?;
    let expected = rustix::process::geteuid().as_raw();
    if got != expected {
        return Err(ObserveError::Foreign { address, got, expected });
    }
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let request = Request::Observe {
        protocol: PROTOCOL,
        samples: index.len(),
        content_id: index.content_id().0,
        dataset: folder.display().to_string(),
        job: job.to_owned(),
    };
    ask(&socket, &request, theirs.as_fd())?;
    // The daemon then has the only write end, so the trace ends with it.
    drop(theirs);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let answer = match receive(&socket, &mut buffer) {
        Ok(Some((bytes, _))) => match Reply::other_protocol(bytes) {
            Some(protocol) => Err(format!("it speaks protocol {protocol}, this program {PROTOCOL}")),
            None => Reply::decode(bytes).map_err(|error| error.to_string()),
        },
        Ok(None) => Err("it hangs up".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(ObserveError::Silent { address });
        }
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(Reply::Observing { pid, .. }) => Ok(Observed { socket, trace: File::from(ours), pid }),
        Ok(Reply::Refuse { code, text }) => {
            Err(ObserveError::Refused { address, text, busy: code == REFUSE_BUSY })
        }
        Ok(other) => Err(ObserveError::Answer { address, what: format!("it says {other:?}") }),
        Err(what) => Err(ObserveError::Answer { address, what }),
    }
}
