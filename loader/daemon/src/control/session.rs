//! One connection's thread: handshake, then a rank's requests and doorbells, or an observer's silence, until the connection
//! ends, however it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shade_core::{Attach, Refusal, SessionId};
use shade_formats::control::{
    PROTOCOL, REFUSE_BUSY, REFUSE_DATASET, REFUSE_ENDING, REFUSE_PERMISSION, REFUSE_PROTOCOL,
    REFUSE_RESOURCES, Reply, Request,
};
use shade_formats::limits::{MESSAGE_BYTES_MAX, state_bytes_max};
use shade_shm::{Doorbell, RingSegments};

use super::admission::{Admission, Places};
use super::identity::Identity;
use super::message::{Asked, Message, Welcomed};
use super::peer;
use super::socket::{receive, send};
use crate::panics::caught;

/// How long a connection may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("no ring of {bytes} bytes: {source}")]
    Ring { bytes: u64, source: io::Error },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Errno(#[from] rustix::io::Errno),
    #[error("{0}")]
    Format(#[from] shade_formats::FormatError),
    #[error("refused: {}", .0.text)]
    Refused(Refusal),
    #[error("the daemon is stopping")]
    Stopping,
    #[error("a defect of the daemon: its session's thread panicked: {0}")]
    Defect(String),
}

impl SessionError {
    /// What a client is answered that has not been welcomed yet.
    fn into_refusal(self) -> Refusal {
        let text = self.to_string();
        let code = match self {
            Self::Refused(refusal) => return refusal,
            Self::Format(_) => REFUSE_PROTOCOL,
            Self::Stopping => REFUSE_ENDING,
            Self::Ring { .. } | Self::Io(_) | Self::Errno(_) | Self::Defect(_) => REFUSE_RESOURCES,
        };
        Refusal { code, text }
    }
}

fn refuse<T>(code: u16, text: String) -> Result<T, SessionError> {
    Err(SessionError::Refused(Refusal { code, text }))
}

/// Tells the daemon, when it is dropped, that a session is gone: whatever happens to the session's
/// thread.
struct Leaving<'a> {
    session: SessionId,
    messages: &'a Sender<Message>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // The daemon has stopped if nobody listens; then there is nothing to tell.
        let _ = self.messages.send(Message::Gone(self.session));
    }
}

/// Serves one connection until it ends; whatever happens, the daemon is told that the session is
/// gone.
pub(super) fn run(
    socket: Arc<OwnedFd>,
    session: SessionId,
    identity: &Identity,
    messages: &Sender<Message>,
    admission: &Admission,
    mut places: Places,
) {
    let leaving = Leaving { session, messages };
    // Of a process that cannot be seen from here, only the socket tells.
    let process = peer::process(&socket);
    let served = caught(|| serve(&socket, session, identity, process.as_ref(), messages, &mut places))
        .unwrap_or_else(|text| Err(SessionError::Defect(text)));
    if let Err(error) = served {
        admission.warn(|left_out| tracing::warn!("session {session}: {error}{left_out}"));
        let Refusal { code, text } = error.into_refusal();
        // The peer may be gone already; then nobody needs the answer.
        let _ = send(&socket, &Reply::Refuse { code, text }, &[]);
    }
    // Before hanging up: who sees that its session has ended may attach again at once, and finds its place free.
    drop(leaving);
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
}

fn serve(
    socket: &Arc<OwnedFd>,
    session: SessionId,
    identity: &Identity,
    process: Option<&OwnedFd>,
    messages: &Sender<Message>,
    places: &mut Places,
) -> Result<(), SessionError> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let (attach, asked) = match hello(socket, session, identity, &mut buffer)? {
        Some(Opening::Rank(attach, asked)) => (attach, asked),
        Some(Opening::Observer(pipe)) => {
            return observe(socket, session, identity, pipe, process, messages, places);
        }
        None => return Ok(()),
    };
    let doorbell = welcome(socket, attach, asked, identity, messages)?;
    places.greeting = None;
    let samples = identity.samples;
    let ended = caught(|| converse(socket, session, &doorbell, process, samples, &mut buffer, messages))
        .unwrap_or_else(|text| Err(SessionError::Defect(text)));
    if let Err(error) = ended {
        tracing::warn!("session {session}: {error}");
        // A trainer that is still there is told why.
        let _ = send(socket, &Reply::Failed { text: error.to_string() }, &[]);
    }
    Ok(())
}

/// Asks the daemon about a rank that said hello, and hands its ring over.
fn welcome(
    socket: &Arc<OwnedFd>,
    attach: Attach,
    asked: Asked,
    identity: &Identity,
    messages: &Sender<Message>,
) -> Result<Doorbell, SessionError> {
    let session = attach.session;
    let (verdict, answer) = crossbeam_channel::bounded(1);
    let message = Message::Hello { attach: Box::new(attach), asked, socket: Arc::clone(socket), verdict };
    messages.send(message).map_err(|_| SessionError::Stopping)?;
    let answer = answer.recv().map_err(|_| SessionError::Stopping)?;
    let Welcomed { accepted, settings } = answer.map_err(SessionError::Refused)?;

    let segments = RingSegments::create(accepted.payload)
        .map_err(|source| SessionError::Ring { bytes: accepted.payload.bytes, source })?;
    let welcome = Reply::Welcome {
        protocol: PROTOCOL,
        pid: std::process::id(),
        samples: identity.samples,
        classes: identity.classes,
        content_id: identity.content_id,
        batches_per_epoch: accepted.batches_per_epoch,
        payload_bytes: accepted.payload.bytes,
        settings,
    };
    send(socket, &welcome, &segments.welcome_fds())?;
    let (ring, doorbell) = segments.into_ends();
    messages.send(Message::Mapped { session, ring: Box::new(ring) }).map_err(|_| SessionError::Stopping)?;
    Ok(doorbell)
}

/// Passes on what the client asks for and releases.
fn converse(
    socket: &Arc<OwnedFd>,
    session: SessionId,
    doorbell: &Doorbell,
    process: Option<&OwnedFd>,
    samples: u32,
    buffer: &mut [u8],
    messages: &Sender<Message>,
) -> Result<(), SessionError> {
    loop {
        let mut fds = vec![PollFd::new(socket.as_ref(), PollFlags::IN), PollFd::new(doorbell, PollFlags::IN)];
        fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let mut happened = fds.iter().map(|fd| !fd.revents().is_empty());
        let (on_socket, on_doorbell) = (happened.next() == Some(true), happened.next() == Some(true));
        let has_died = happened.next() == Some(true);
        if has_died && !on_socket {
            return Ok(());
        }
        if on_doorbell {
            doorbell.answer()?;
            messages.send(Message::Released(session)).map_err(|_| SessionError::Stopping)?;
        }
        if on_socket {
            let Some((bytes, fd)) = receive(socket, buffer)? else { return Ok(()) };
            let request = Request::decode(bytes)?;
            if request == Request::Bye {
                return Ok(());
            }
            let state = match (&request, fd) {
                (Request::LoadState, Some(fd)) => read_state(fd, samples)?,
                _ => Vec::new(),
            };
            messages
                .send(Message::Request { session, request: Box::new(request), state })
                .map_err(|_| SessionError::Stopping)?;
        }
    }
}

/// Hands the pipe to the daemon and waits until the observer leaves, or the daemon hangs up on it.
fn observe(
    socket: &Arc<OwnedFd>,
    session: SessionId,
    identity: &Identity,
    pipe: OwnedFd,
    process: Option<&OwnedFd>,
    messages: &Sender<Message>,
    places: &mut Places,
) -> Result<(), SessionError> {
    let (verdict, answer) = crossbeam_channel::bounded(1);
    let message = Message::Observe { session, socket: Arc::clone(socket), pipe, verdict };
    messages.send(message).map_err(|_| SessionError::Stopping)?;
    answer.recv().map_err(|_| SessionError::Stopping)?.map_err(SessionError::Refused)?;
    places.greeting = None;
    let &Identity { samples, content_id, .. } = identity;
    let pid = std::process::id();
    send(socket, &Reply::Observing { protocol: PROTOCOL, pid, samples, content_id }, &[])?;
    let mut fds = vec![PollFd::new(socket.as_ref(), PollFlags::IN)];
    fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    // Whatever it says, it says goodbye.
    while let Err(error) = poll(&mut fds, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(())
}

/// What a connection begins with.
enum Opening {
    Rank(Attach, Asked),
    /// With the write end of a pipe.
    Observer(OwnedFd),
}

/// Waits for the hello and checks who says it. `None`: the peer left without a word, as one does who only looks
/// whether a daemon answers.
fn hello(
    socket: &Arc<OwnedFd>,
    session: SessionId,
    identity: &Identity,
    buffer: &mut [u8],
) -> Result<Option<Opening>, SessionError> {
    let (user, own) = (peer::user(socket)?, rustix::process::geteuid().as_raw());
    if user != own && user != 0 {
        return refuse(REFUSE_PERMISSION, format!("this daemon serves user {own} only, not user {user}"));
    }
    let timeout = Timespec { tv_sec: HELLO_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    if poll(&mut [PollFd::new(socket.as_ref(), PollFlags::IN)], Some(&timeout))? == 0 {
        return refuse(REFUSE_PROTOCOL, "no hello within 10 s".into());
    }
    let Some((bytes, fd)) = receive(socket, buffer)? else { return Ok(None) };
    // Before all else: whatever another version has behind it cannot be read here.
    if let Some(protocol) = Request::other_protocol(bytes) {
        return refuse(REFUSE_PROTOCOL, identity.other_version(protocol));
    }
    match Request::decode(bytes)? {
        Request::Hello { dataset, .. } | Request::Observe { dataset, .. } if dataset != identity.dataset => {
            refuse(REFUSE_DATASET, format!("this daemon serves {}, not {dataset}", identity.dataset))
        }
        Request::Hello { job, .. } | Request::Observe { job, .. } if job != identity.job => {
            refuse(REFUSE_BUSY, format!("this daemon serves job {:?}, not {job:?}", identity.job))
        }
        Request::Hello { samples, content_id, rank, settings, spec, .. } => {
            let asked = Asked { samples, content_id, settings };
            Ok(Some(Opening::Rank(Attach { session, rank, spec }, asked)))
        }
        Request::Observe { samples, content_id, .. } if content_id != identity.content_id => {
            refuse(REFUSE_DATASET, identity.other_content(samples, content_id))
        }
        Request::Observe { .. } => match fd.filter(is_pipe) {
            Some(pipe) => Ok(Some(Opening::Observer(pipe))),
            None => refuse(REFUSE_PROTOCOL, "the write end of a pipe must come with an observe".into()),
        },
        _ => refuse(REFUSE_PROTOCOL, "the first message must be a hello".into()),
    }
}

fn is_pipe(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo)
}

/// Reads a saved state out of the file a client sent. Read, not mapped: the client may shrink it at any time.
fn read_state(fd: OwnedFd, samples: u32) -> Result<Vec<u8>, SessionError> {
    let file = std::fs::File::from(fd);
    let (len, most) = (file.metadata()?.len(), state_bytes_max(samples));
    if len > most {
        let text =
            format!("a saved state of {len} bytes is too large: {samples} samples take at most {most}");
        return refuse(REFUSE_RESOURCES, text);
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_panics_tells_that_it_is_gone() {
        let (messages, told) = crossbeam_channel::unbounded();
        let panicked = caught(|| {
            let leaving = Leaving { session: 7, messages: &messages };
            if leaving.session == 7 {
                panic!("in the middle of it");
            }
        });
        panicked.unwrap_err();
        assert!(matches!(told.recv(), Ok(Message::Gone(7))));
        drop(messages);
        assert!(told.recv().is_err(), "once each");
    }
}
