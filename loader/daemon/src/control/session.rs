//! One connection's thread: handshake, then a rank's requests and doorbells, an observer's silence,
//! or one question, until the connection ends.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shade_core::{Attach, Refusal, SessionId};
use shade_dataset::{Content, Dataset};
use shade_formats::control::{
    PROTOCOL, REFUSE_BUSY, REFUSE_DATASET, REFUSE_ENDING, REFUSE_PERMISSION, REFUSE_PROTOCOL,
    REFUSE_RESOURCES, REFUSE_SPEC, Reply, Request,
};
use shade_formats::ids::ContentId;
use shade_formats::limits::{
    MESSAGE_BYTES_MAX, base_bytes_max, redo_bytes_max, seats_bytes_max, state_bytes_max,
};
use shade_images::caught;
use shade_job::{JobSpec, PlanSpec, Sampler, Settings, SpecError, Tables};
use shade_shm::{Doorbell, Heard, RingSegments, memfd};

use super::admission::{Admission, Permits};
use super::heritage::Heritage;
use super::message::{Asked, Message, Resized, Welcomed};
use super::socket::{peer_process, peer_user, receive, send};
use crate::log::outputs;

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
    /// Whether another user has caused it.
    fn is_of_stranger(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == REFUSE_PERMISSION)
    }

    /// The answer to a client that is not welcomed yet.
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

/// Tells the daemon that a session is gone when it is dropped, also by a panic.
struct Leaving<'a> {
    session: SessionId,
    messages: &'a Sender<Message>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // Fails only when the daemon has stopped.
        let _ = self.messages.send(Message::Gone(self.session));
    }
}

/// Serves one connection until it ends. The daemon is told in any case that the session is gone.
pub(super) fn run(
    socket: Arc<OwnedFd>,
    session: SessionId,
    heritage: &Heritage,
    served: &ServedDataset,
    messages: &Sender<Message>,
    admission: &Admission,
    mut permits: Permits,
) {
    let leaving = Leaving { session, messages };
    let process = peer_process(&socket);
    let stderr = RefCell::default();
    let connection = Connection { socket, session, heritage, served, process, messages, stderr };
    let ended =
        caught(|| connection.serve(&mut permits)).unwrap_or_else(|text| Err(SessionError::Defect(text)));
    let socket = &connection.socket;
    if let Err(error) = ended {
        let say = |left_out| tracing::warn!("session {session}: {error}{left_out}");
        if error.is_of_stranger() {
            admission.warn_of_stranger(say);
        } else {
            admission.warn(say);
        }
        let Refusal { code, text } = error.into_refusal();
        // The peer may be gone already.
        let _ = send(socket, &Reply::Refuse { code, text }, &[]);
    }
    // Before the hang-up, so that a client that sees it and attaches again finds its rank free.
    drop(leaving);
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    if connection.stderr.borrow().is_some() {
        // What was said while the rank was there is for its reader, such as an epoch's end.
        crate::log::flush();
    }
}

/// What a connection begins with.
enum Opening {
    Rank(Box<Attach>, Asked),
    /// With its job, and the write end of a pipe.
    Observer(String, OwnedFd),
    Status,
    /// How much of this many strata is cached.
    Held(u32),
    Stop {
        drain: bool,
    },
    /// Another daemon takes this one's place.
    Replace,
    /// As `--cache` takes it.
    Resize(String),
}

/// One connection.
struct Connection<'a> {
    socket: Arc<OwnedFd>,
    session: SessionId,
    heritage: &'a Heritage,
    served: &'a ServedDataset,
    /// The peer's process; `None` where only the socket tells that it is gone.
    process: Option<OwnedFd>,
    messages: &'a Sender<Message>,
    /// Closed last: that may take as long as its file system likes.
    stderr: RefCell<Option<outputs::Offer>>,
}

impl Connection<'_> {
    fn tell(&self, message: Message) -> Result<(), SessionError> {
        self.messages.send(message).map_err(|_| SessionError::Stopping)
    }

    /// Sends the daemon a message with a way for its answer, and waits for that.
    fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Result<T, SessionError> {
        let (answer_in, answer) = crossbeam_channel::bounded(1);
        self.tell(message(answer_in))?;
        answer.recv().map_err(|_| SessionError::Stopping)
    }

    /// What to poll: the socket, then the process.
    fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let socket = PollFd::new(self.socket.as_ref(), PollFlags::IN);
        std::iter::once(socket).chain(self.process.iter().map(|process| PollFd::new(process, PollFlags::IN)))
    }

    fn serve(&self, permits: &mut Permits) -> Result<(), SessionError> {
        let session = self.session;
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (attach, asked) = match self.hello(&mut buffer)? {
            Some(Opening::Rank(attach, asked)) => (attach, asked),
            Some(Opening::Observer(job, pipe)) => return self.observe(job, pipe, permits),
            Some(Opening::Status) => return self.status(),
            Some(Opening::Held(strata)) => return self.held(strata),
            Some(Opening::Stop { drain }) => return self.stop(drain, permits),
            Some(Opening::Replace) => return self.replace(permits),
            Some(Opening::Resize(cache)) => return self.resize(cache),
            None => return Ok(()),
        };
        let positions = attach.spec.positions(self.served.samples);
        let doorbell = self.welcome(attach, asked)?;
        permits.greeting = None;
        let ended = caught(|| self.converse(positions, &doorbell, &mut buffer))
            .unwrap_or_else(|text| Err(SessionError::Defect(text)));
        if let Err(error) = ended {
            tracing::warn!("session {session}: {error}");
            // The trainer may still be there.
            let _ = send(&self.socket, &Reply::Failed { text: error.to_string() }, &[]);
        }
        Ok(())
    }

    /// Asks the daemon about a rank that said hello, and hands its ring over.
    fn welcome(&self, attach: Box<Attach>, asked: Asked) -> Result<Arc<Doorbell>, SessionError> {
        let session = self.session;
        let socket = Arc::clone(&self.socket);
        let answer = self.ask(|verdict| Message::Hello { attach, asked, socket, verdict })?;
        let Welcomed { accepted, terms } = answer.map_err(SessionError::Refused)?;

        let segments = RingSegments::create(accepted.payload)
            .map_err(|source| SessionError::Ring { bytes: accepted.payload.bytes, source })?;
        let &ServedDataset { samples, classes, content_id, .. } = self.served;
        let welcome = Reply::Welcome {
            protocol: PROTOCOL,
            pid: std::process::id(),
            samples,
            classes,
            content_id,
            batches_per_epoch: accepted.batches_per_epoch,
            payload_bytes: accepted.payload.bytes,
            job: terms.job,
            settings: terms.settings,
        };
        send(&self.socket, &welcome, &segments.welcome_fds())?;
        let ring = segments.into_end();
        let doorbell = Arc::clone(&ring.doorbell);
        self.tell(Message::Mapped { session, ring: Box::new(ring) })?;
        Ok(doorbell)
    }

    /// Passes on the requests and releases of a client whose job's epochs have this many positions.
    fn converse(&self, positions: u32, doorbell: &Doorbell, buffer: &mut [u8]) -> Result<(), SessionError> {
        let (session, samples) = (self.session, self.served.samples);
        let read = |fd, what, most| read_within(fd, what, samples, positions, most);
        // A client that has closed its end never rings.
        let mut may_ring = true;
        loop {
            let mut fds = Vec::from_iter(may_ring.then(|| PollFd::new(doorbell, PollFlags::IN)));
            fds.extend(self.fds());
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let mut happened = fds.iter().map(|fd| !fd.revents().is_empty());
            let on_doorbell = may_ring && happened.next() == Some(true);
            let on_socket = happened.next() == Some(true);
            let has_died = happened.next() == Some(true);
            if has_died && !on_socket {
                return Ok(());
            }
            if on_doorbell {
                may_ring = doorbell.answer()? == Heard::Peer;
                self.tell(Message::Rung(session))?;
            }
            if on_socket {
                let Some((bytes, fd)) = receive(&self.socket, buffer)? else { return Ok(()) };
                let request = Request::decode(bytes)?;
                let state = match (&request, fd) {
                    (Request::Bye, _) => return Ok(()),
                    (Request::Log, Some(stderr)) => {
                        self.offer_for_log(stderr);
                        continue;
                    }
                    (Request::LoadState { .. }, Some(fd)) => {
                        read(fd, "saved state", state_bytes_max(samples, positions))?
                    }
                    (Request::TakeScores, Some(fd)) => {
                        read(fd, "node's scores", state_bytes_max(samples, positions))?
                    }
                    (Request::TakeBase { .. }, Some(fd)) => {
                        read(fd, "base of an epoch", base_bytes_max(samples, positions))?
                    }
                    (Request::TakeRedo, Some(fd)) => {
                        read(fd, "redo record", redo_bytes_max(samples, positions))?
                    }
                    (Request::Seat, Some(fd)) => read(fd, "list of seats", seats_bytes_max(samples))?,
                    _ => Vec::new(),
                };
                self.tell(Message::Request { session, request: Box::new(request), state })?;
            }
        }
    }

    /// Lets the log of a private daemon go to the rank's standard error.
    fn offer_for_log(&self, stderr: OwnedFd) {
        let mut offer = self.stderr.borrow_mut();
        // The one before first: there is one for each session.
        drop(offer.take());
        if self.served.is_private {
            *offer = Some(outputs::offer(self.session, stderr));
        }
    }

    /// Hands the pipe to the daemon and waits until the observer leaves or the daemon hangs up.
    fn observe(&self, job: String, pipe: OwnedFd, permits: &mut Permits) -> Result<(), SessionError> {
        let (session, socket) = (self.session, Arc::clone(&self.socket));
        let answer = self.ask(|verdict| Message::Observe { session, job, socket, pipe, verdict })?;
        answer.map_err(SessionError::Refused)?;
        permits.greeting = None;
        let &ServedDataset { samples, content_id, .. } = self.served;
        let pid = std::process::id();
        send(&self.socket, &Reply::Observing { protocol: PROTOCOL, pid, samples, content_id }, &[])?;
        self.wait_for_goodbye()
    }

    /// Sends the daemon's status.
    fn status(&self) -> Result<(), SessionError> {
        let json = self.ask(Message::Status)?;
        Ok(send(&self.socket, &Reply::Status { protocol: PROTOCOL, json }, &[])?)
    }

    /// Sends how much of which strata is cached.
    fn held(&self, strata: u32) -> Result<(), SessionError> {
        let (strata, held) = match self.ask(|answer| Message::Held { strata, answer })? {
            Ok(held) => held,
            Err(text) => return refuse(REFUSE_SPEC, text),
        };
        let file = memfd::holding("shade-held", &held)?;
        let reply = Reply::Held { protocol: PROTOCOL, strata, bytes: held.len() as u64 };
        Ok(send(&self.socket, &reply, &[file.as_fd()])?)
    }

    /// Ends the daemon, or drains it. The connection lasts until the client leaves or the process
    /// has ended, so that the client sees that end.
    fn stop(&self, drain: bool, permits: &mut Permits) -> Result<(), SessionError> {
        if drain {
            self.ask(Message::Drain)?;
        }
        // Before the end is allowed: the process may be gone before a later answer is sent.
        let sent = send(&self.socket, &Reply::Stopping { protocol: PROTOCOL, pid: std::process::id() }, &[]);
        permits.greeting = None;
        self.tell(Message::Stop { drain })?;
        sent?;
        self.wait_for_goodbye()
    }

    /// Makes room for another daemon, if all jobs go on there. That one gets the socket at which
    /// this one listens: connections wait there meanwhile.
    fn replace(&self, permits: &mut Permits) -> Result<(), SessionError> {
        if let Err(text) = self.ask(Message::MayBeReplaced)? {
            return refuse(REFUSE_BUSY, text);
        }
        // Before the end is allowed, as in `stop`. One that has gone meanwhile has not got the
        // socket: nobody would listen there.
        let stopping = Reply::Stopping { protocol: PROTOCOL, pid: std::process::id() };
        let sent = send(&self.socket, &stopping, &[self.heritage.give()]);
        if sent.is_err() {
            self.heritage.keep();
        }
        sent?;
        permits.greeting = None;
        self.tell(Message::Replace)?;
        self.wait_for_goodbye()
    }

    /// Has the cache resized.
    fn resize(&self, cache: String) -> Result<(), SessionError> {
        match self.ask(|answer| Message::Resize { cache, answer })? {
            Ok(Resized { before_bytes, cache_bytes }) => {
                let reply = Reply::Resized { protocol: PROTOCOL, before_bytes, cache_bytes };
                Ok(send(&self.socket, &reply, &[])?)
            }
            Err(text) => refuse(REFUSE_RESOURCES, text),
        }
    }

    /// Waits until the client leaves, or says anything.
    fn wait_for_goodbye(&self) -> Result<(), SessionError> {
        let mut fds: Vec<_> = self.fds().collect();
        while let Err(error) = poll(&mut fds, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Waits for the hello and checks its sender. `None`: the peer left without a word, as one does
    /// that only tests whether a daemon answers.
    fn hello(&self, buffer: &mut [u8]) -> Result<Option<Opening>, SessionError> {
        let Self { socket, session, served, .. } = self;
        let (user, own) = (peer_user(socket)?, rustix::process::geteuid().as_raw());
        if user != own && user != 0 {
            return refuse(REFUSE_PERMISSION, format!("this daemon serves user {own} only, not user {user}"));
        }
        let timeout = Timespec { tv_sec: HELLO_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        if poll(&mut [PollFd::new(socket.as_ref(), PollFlags::IN)], Some(&timeout))? == 0 {
            return refuse(REFUSE_PROTOCOL, "no hello within 10 s".into());
        }
        let Some((bytes, fd)) = receive(socket, buffer)? else { return Ok(None) };
        // First: the rest of another version's message cannot be read here.
        if let Some(protocol) = Request::other_protocol(bytes) {
            return refuse(REFUSE_PROTOCOL, served.other_version(protocol));
        }
        match Request::decode(bytes)? {
            Request::Hello { dataset, .. } | Request::Observe { dataset, .. } if dataset != served.folder => {
                refuse(REFUSE_DATASET, format!("this daemon serves {}, not {dataset}", served.folder))
            }
            Request::Hello {
                samples,
                content_id,
                job,
                or_free_name,
                rank,
                survives,
                settings,
                document,
                ..
            } => {
                // The core judges its values.
                let spec = JobSpec::from_text(&document);
                let spec = spec.or_else(|error| refuse(REFUSE_SPEC, error.to_string()))?;
                let settings = Settings::from_text(&settings);
                let settings = settings.or_else(|error| refuse(REFUSE_SPEC, error.to_string()))?;
                // Tables for another content may have another length, and the daemon refuses them
                // for that content.
                let has_tables = spec.plan.sampler == Sampler::Weighted || spec.plan.subset_digest != 0;
                let is_served = served.goes_on_in(content_id);
                let tables = match fd.filter(|_| has_tables && is_served) {
                    Some(fd) => read_tables(fd, &spec.plan, served.samples)?,
                    None => Tables::default(),
                };
                let attach = Attach { session: *session, job, rank, spec, tables, survives };
                let asked = Asked { samples, content_id, is_served, settings, or_free_name };
                Ok(Some(Opening::Rank(Box::new(attach), asked)))
            }
            // A recorder writes down the sizes of all samples that its index has.
            Request::Observe { samples, content_id, .. } if content_id != served.content_id => {
                refuse(REFUSE_DATASET, served.other_content(samples, content_id))
            }
            Request::Held { samples, content_id, .. } if !served.goes_on_in(content_id) => {
                refuse(REFUSE_DATASET, served.other_content(samples, content_id))
            }
            Request::Observe { job, .. } => match fd.filter(is_pipe) {
                Some(pipe) => Ok(Some(Opening::Observer(job, pipe))),
                None => refuse(REFUSE_PROTOCOL, "the write end of a pipe must come with an observe".into()),
            },
            Request::Status { .. } => Ok(Some(Opening::Status)),
            Request::Held { strata, .. } => Ok(Some(Opening::Held(strata))),
            Request::Stop { drain, .. } => Ok(Some(Opening::Stop { drain })),
            Request::Replace { .. } => Ok(Some(Opening::Replace)),
            Request::Resize { cache, .. } => Ok(Some(Opening::Resize(cache))),
            _ => refuse(REFUSE_PROTOCOL, "the first message must be a hello".into()),
        }
    }
}

fn is_pipe(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo)
}

/// Reads a client's file of at most `most` bytes.
fn read_within(
    fd: OwnedFd,
    what: &str,
    samples: u32,
    positions: u32,
    most: u64,
) -> Result<Vec<u8>, SessionError> {
    let file = std::fs::File::from(fd);
    let len = file.metadata()?.len();
    if len > most {
        let text = format!(
            "a {what} of {len} bytes is too large: {samples} samples and epochs of {positions} need at most {most}"
        );
        return refuse(REFUSE_RESOURCES, text);
    }
    read_exact(&file, len)
}

/// Reads the tables of a job from a client's file.
fn read_tables(fd: OwnedFd, plan: &PlanSpec, samples: u32) -> Result<Tables, SessionError> {
    let unfit = |error: SpecError| {
        let text = error.to_string();
        SessionError::Refused(Refusal { code: REFUSE_SPEC, text })
    };
    let file = std::fs::File::from(fd);
    let len = file.metadata()?.len();
    Tables::check_len(plan, len, samples).map_err(unfit)?;
    Tables::from_bytes(plan, &read_exact(&file, len)?, samples).map_err(unfit)
}

/// The first `len` bytes of a client's file. It is not mapped, as the client may shrink it.
fn read_exact(file: &std::fs::File, len: u64) -> Result<Vec<u8>, SessionError> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The dataset that a daemon serves, and where. Every client is told of it and checked against it.
#[derive(Clone, Debug)]
pub(crate) struct ServedDataset {
    /// Canonical path of the dataset.
    pub(crate) folder: String,
    /// The socket's address.
    pub(crate) address: String,
    pub(crate) samples: u32,
    pub(crate) classes: u32,
    pub(crate) content_id: u128,
    /// The log goes to the ranks' standard errors, as no user started the daemon by hand.
    pub(crate) is_private: bool,
}

impl ServedDataset {
    /// The answer to a client of another protocol.
    pub(super) fn other_version(&self, protocol: u32) -> String {
        let program = std::env::current_exe();
        let program = program.map_or_else(|error| error.to_string(), |path| path.display().to_string());
        format!(
            "the daemon speaks protocol {PROTOCOL}, the client {protocol}: use the same version of both; the daemon is \
             process {}, started from {program}",
            std::process::id()
        )
    }

    /// Whether a client may attach whose dataset's index now has the content `content_id`: the one
    /// that is served, perhaps with more at its end, as `shade-pack append` adds it. Such a client
    /// gets what is served. Reads the whole index unless the contents are equal.
    pub(super) fn goes_on_in(&self, content_id: u128) -> bool {
        let served = Content { samples: self.samples, classes: self.classes, id: ContentId(self.content_id) };
        let same = || Dataset::open_same(PathBuf::from(&self.folder), served);
        content_id == self.content_id || same().is_ok_and(|now| now.index.content_id().0 == content_id)
    }

    /// The answer to a client whose dataset's index now has another content. The caller adds what
    /// to do.
    pub(crate) fn other_content(&self, samples: u32, content_id: u128) -> String {
        format!(
            "the dataset at {} has changed: its index now says {samples} samples, content id {}; this daemon (process {}) \
             serves {} samples, content id {}",
            self.folder,
            ContentId(content_id),
            std::process::id(),
            self.samples,
            ContentId(self.content_id)
        )
    }
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
