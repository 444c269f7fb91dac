//! The conversation on the socket: requests, their answers, and unsolicited messages.
//!
//! Answers come in the order of the requests, one at a time. An answer that did not come in time
//! is waited for before anything else is asked: a later answer would be taken for it. `Failed`
//! may come at any moment and may answer a request or end the session. So it ends the wait that
//! it meets, and an answer that it overtook is dropped. `Interrupted` may also come at any moment
//! and is never an answer: it is kept for `next`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;
use shade_formats::FormatError;
use shade_formats::control::{PROTOCOL, REFUSE_REPLACED, REFUSE_STOPPED, Reply, Request};

use crate::ClientError;
use crate::fork::lock;
use crate::life::life_of;
use crate::memory_kills::MemoryKills;
use crate::wire::{Received, WireError, receive, receive_now, send, wait};

/// How long an answer may take. The daemon answers from memory; after a minute it is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long leaving may take. The daemon answers a goodbye at once unless it is in trouble.
const BYE_TIMEOUT: Duration = Duration::from_secs(1);

/// One session's socket. Sending needs no lock, as messages are atomic.
#[derive(Debug)]
pub(crate) struct Dialogue {
    socket: OwnedFd,
    daemon_pid: u32,
    /// As they were when the session began.
    memory_kills: MemoryKills,
    /// How it ended, kept so that the wait for it happens once.
    end: OnceLock<String>,
    /// The failure that the last message told. If the daemon hangs up after it, that is why,
    /// whichever thread was told.
    last_words: Mutex<Option<String>>,
    /// The code with which it has said that it was stopped, or is replaced.
    farewell: AtomicU16,
    hearing: Mutex<Hearing>,
    /// The base that it has given last, and nobody has taken.
    base: Mutex<Option<GivenBase>>,
}

/// A base that the daemon has given.
#[derive(Debug)]
pub(crate) struct GivenBase {
    pub(crate) epoch: u32,
    pub(crate) file: OwnedFd,
}

/// The receiving half. The thread that locks it takes the messages that come.
#[derive(Debug, Default)]
struct Hearing {
    /// An unsolicited failure, for `next` to report once the ring is empty.
    fault: Option<ClientError>,
    /// What has ended the epoch, for `next` to report at once if the rank has asked for another.
    interruption: Option<String>,
    /// Answers to come of requests that timed out.
    owed: u32,
    /// An answer may still come that a failure overtook.
    stray_allowed: bool,
}

impl Hearing {
    /// A message that answers nothing that is asked now. Gives it back if none is expected.
    fn take_late(&mut self, reply: Reply) -> Option<Reply> {
        match reply {
            Reply::Interrupted { text } => self.interruption = Some(text),
            // It hangs up now.
            Reply::Refuse { code: REFUSE_STOPPED | REFUSE_REPLACED, .. } => {}
            // A daemon that ends while it welcomes this rank refuses it after all.
            Reply::Failed { text } | Reply::Refuse { text, .. } => {
                self.stray_allowed |= self.owed > 0;
                self.owed = self.owed.saturating_sub(1);
                self.fault = Some(ClientError::Failed { text });
            }
            _ if self.owed > 0 => self.owed -= 1,
            _ if self.stray_allowed => self.stray_allowed = false,
            reply => return Some(reply),
        }
        None
    }
}

impl Dialogue {
    pub(crate) fn new(socket: OwnedFd, daemon_pid: u32) -> Self {
        let (end, last_words, hearing) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let (farewell, memory_kills) = (AtomicU16::new(0), MemoryKills::now(daemon_pid));
        let base = Mutex::default();
        Self { socket, daemon_pid, memory_kills, end, last_words, farewell, hearing, base }
    }

    /// For polling; readable when the daemon sent a message or hung up.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&self, what: &'static str, request: &Request) -> Result<(), ClientError> {
        self.say(what, request, None)
    }

    /// The same, with a file.
    pub(crate) fn tell_with(
        &self,
        what: &'static str,
        request: &Request,
        file: &OwnedFd,
    ) -> Result<(), ClientError> {
        self.say(what, request, Some(file.as_fd()))
    }

    fn say(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), ClientError> {
        let started = Instant::now();
        send(&self.socket, request, fd, SendFlags::empty()).map_err(|error| {
            let reason = self.try_hearing().and_then(|mut hearing| self.last_words(&mut hearing));
            reason.unwrap_or_else(|| self.unanswered(what, started, error))
        })
    }

    /// Why a daemon has hung up, if it said so. `next` is told as well.
    fn last_words(&self, hearing: &mut Hearing) -> Option<ClientError> {
        self.hear_all(hearing).err()?;
        hearing.fault.as_ref().map(|fault| ClientError::Failed { text: fault_text(fault) })
    }

    /// Receives a message by `deadline`, and remembers a failure that it tells. Bases are no
    /// answers, and are kept.
    fn receive(&self, deadline: Instant) -> Result<Received, WireError> {
        loop {
            let received = receive(&self.socket, deadline)?;
            if let Some(received) = self.keep_base(received)? {
                self.note(&received.0);
                return Ok(received);
            }
        }
    }

    /// Keeps a base. Gives any other message back.
    fn keep_base(&self, (reply, mut fds): Received) -> Result<Option<Received>, WireError> {
        let Reply::Base { epoch, .. } = reply else { return Ok(Some((reply, fds))) };
        match (fds.pop(), fds.pop()) {
            (Some(file), None) => *lock(&self.base) = Some(GivenBase { epoch, file }),
            _ => return Err(FormatError::new("control message", 0, "a Base", "one with its file").into()),
        }
        Ok(None)
    }

    /// The base that the daemon has given last, once.
    pub(crate) fn take_base(&self) -> Option<GivenBase> {
        lock(&self.base).take()
    }

    /// Takes the messages that have arrived, also where another thread waits for an answer: it
    /// takes them then, and this waits for that.
    ///
    /// # Errors
    /// The daemon is gone.
    pub(crate) fn listen_all(&self) -> Result<(), ClientError> {
        loop {
            if let Some(mut hearing) = self.try_hearing() {
                return self.hear_all(&mut hearing);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            let _ = wait(&mut fds, Duration::ZERO);
            let [socket] = fds;
            if socket.revents().is_empty() {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    fn note(&self, reply: &Reply) {
        if let Reply::Refuse { code: code @ (REFUSE_STOPPED | REFUSE_REPLACED), .. } = *reply {
            self.farewell.store(code, Ordering::Relaxed);
        }
        *lock(&self.last_words) = match reply {
            Reply::Failed { text } | Reply::Refuse { text, .. } | Reply::Interrupted { text } => {
                Some(text.clone())
            }
            _ => None,
        };
    }

    /// Offers this process's standard error for the daemon's log, which is no worse without it.
    pub(crate) fn offer_stderr(&self) {
        let stderr = rustix::stdio::stderr();
        let _ = send(&self.socket, &Request::Log, Some(stderr), SendFlags::DONTWAIT);
    }

    /// Says goodbye and waits until the daemon hangs up: then the rank is free for the next
    /// session. A daemon too busy to answer notices when we hang up.
    pub(crate) fn bye(&self) {
        if send(&self.socket, &Request::Bye, None, SendFlags::DONTWAIT).is_ok() {
            let deadline = Instant::now() + BYE_TIMEOUT;
            // Late answers may come first.
            while receive(&self.socket, deadline).is_ok() {}
        }
    }

    /// Sends a request and waits for its answer, which `accept` recognizes; it returns any other
    /// reply. A loaded state clears an earlier failure.
    pub(crate) fn ask<T>(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Reply>,
    ) -> Result<T, ClientError> {
        let mut hearing = lock(&self.hearing);
        // Earlier messages are not the answer. If the daemon is gone, they may say why.
        if let Err(gone) = self.hear_all(&mut hearing) {
            return Err(self.last_words(&mut hearing).unwrap_or(gone));
        }
        let started = Instant::now();
        while hearing.owed > 0 {
            let late = self.receive(started + REPLY_TIMEOUT);
            let (reply, _) = late.map_err(|error| self.unanswered(what, started, error))?;
            hearing.take_late(reply);
        }
        send(&self.socket, request, fd.map(AsFd::as_fd), SendFlags::empty()).map_err(|error| {
            self.last_words(&mut hearing).unwrap_or_else(|| self.unanswered(what, started, error))
        })?;
        loop {
            match self.receive(started + REPLY_TIMEOUT) {
                // It hangs up now.
                Ok((Reply::Refuse { code: REFUSE_STOPPED | REFUSE_REPLACED, .. }, _)) => {}
                // A daemon that ends while it welcomes this rank refuses it after all.
                Ok((Reply::Failed { text } | Reply::Refuse { text, .. }, _)) => {
                    hearing.stray_allowed = true;
                    return Err(ClientError::Failed { text });
                }
                Ok((Reply::Interrupted { text }, _)) => hearing.interruption = Some(text),
                Ok(received) => match accept(received) {
                    Ok(answer) => {
                        if matches!(request, Request::LoadState { .. }) {
                            (hearing.fault, hearing.interruption) = (None, None);
                        }
                        return Ok(answer);
                    }
                    Err(_) if hearing.stray_allowed => hearing.stray_allowed = false,
                    Err(reply) => {
                        return Err(unexpected(reply_name(&reply), format_args!("the answer to {what}")));
                    }
                },
                Err(error) => {
                    hearing.owed += 1;
                    return Err(self.unanswered(what, started, error));
                }
            }
        }
    }

    /// Receives unsolicited messages and keeps a failure for [`Dialogue::fault`].
    ///
    /// # Errors
    /// The daemon is gone; every later call says so again.
    pub(crate) fn listen(&self) -> Result<(), ClientError> {
        match self.try_hearing() {
            Some(mut hearing) => self.hear_all(&mut hearing),
            None => {
                // Another thread waits for an answer and takes the messages. Leave it the
                // processor.
                std::thread::yield_now();
                Ok(())
            }
        }
    }

    /// Whether [`Dialogue::fault`] has a failure that the daemon has told.
    pub(crate) fn has_failed(&self) -> bool {
        self.try_hearing().is_some_and(|hearing| matches!(hearing.fault, Some(ClientError::Failed { .. })))
    }

    /// Fails with an unsolicited failure, once.
    pub(crate) fn fault(&self) -> Result<(), ClientError> {
        self.try_hearing().and_then(|mut hearing| hearing.fault.take()).map_or(Ok(()), Err)
    }

    /// Fails with what has ended the epoch, once.
    pub(crate) fn interruption(&self) -> Result<(), ClientError> {
        let text = self.try_hearing().and_then(|mut hearing| hearing.interruption.take());
        text.map_or(Ok(()), |text| Err(ClientError::Failed { text }))
    }

    /// Whether the daemon has said that it was stopped.
    pub(crate) fn was_stopped(&self) -> bool {
        self.farewell.load(Ordering::Relaxed) == REFUSE_STOPPED
    }

    /// Whether it has said that another one takes its place.
    pub(crate) fn was_replaced(&self) -> bool {
        self.farewell.load(Ordering::Relaxed) == REFUSE_REPLACED
    }

    /// Whether the daemon hangs up within `most`.
    pub(crate) fn hangs_up_within(&self, most: Duration) -> bool {
        hangs_up_within(&self.socket, most)
    }

    /// The error of a daemon that has hung up.
    pub(crate) fn gone(&self) -> ClientError {
        ClientError::DaemonGone { pid: self.daemon_pid, end: self.end() }
    }

    fn try_hearing(&self) -> Option<MutexGuard<'_, Hearing>> {
        match self.hearing.try_lock() {
            Ok(hearing) => Some(hearing),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes every message that has arrived. Fails only when the daemon is gone.
    fn hear_all(&self, hearing: &mut Hearing) -> Result<(), ClientError> {
        loop {
            hearing.fault = match receive_now(&self.socket) {
                Ok(received) => match self.keep_base(received) {
                    Ok(None) => continue,
                    Ok(Some((reply, _))) => match self.note_and_take(hearing, reply) {
                        Some(reply) => Some(unexpected(reply_name(&reply), "nothing, as nothing was asked")),
                        None => continue,
                    },
                    Err(error) => Some(self.broken("listening to the daemon", error)),
                },
                Err(WireError::TimedOut) => return Ok(()),
                Err(error @ (WireError::Format(_) | WireError::Protocol(_))) => {
                    Some(self.broken("listening to the daemon", error))
                }
                Err(error) => return Err(self.broken("listening to the daemon", error)),
            };
        }
    }

    fn unanswered(&self, what: &'static str, started: Instant, error: WireError) -> ClientError {
        match error {
            WireError::TimedOut => {
                ClientError::Timeout { pid: self.daemon_pid, request: what, waited: started.elapsed() }
            }
            error => self.broken(what, error),
        }
    }

    fn note_and_take(&self, hearing: &mut Hearing, reply: Reply) -> Option<Reply> {
        self.note(&reply);
        hearing.take_late(reply)
    }

    /// How the daemon ended, as far as this process knows.
    fn end(&self) -> String {
        let end = || {
            let end = life_of(self.daemon_pid).map_or_else(
                || {
                    "another process has started it; its log went to the rank that was attached longest"
                        .into()
                },
                |life| life.end(),
            );
            let kill =
                || self.memory_kills.since().map_or_else(|| end.clone(), |kill| format!("{kill}; {end}"));
            match &*lock(&self.last_words) {
                Some(words) => format!("it said: {words}; {end}"),
                None => kill(),
            }
        };
        self.end.get_or_init(end).clone()
    }

    fn broken(&self, what: &'static str, error: WireError) -> ClientError {
        match error {
            WireError::Format(error) => error.into(),
            WireError::System(source) => ClientError::System { what, source },
            // A second welcome, of another version.
            WireError::Protocol(protocol) => {
                unexpected(format_args!("protocol {protocol}"), format_args!("protocol {PROTOCOL}"))
            }
            WireError::HangUp | WireError::TimedOut | WireError::Interrupted => self.gone(),
        }
    }
}

/// Whether the other end of this socket hangs up within `most`.
pub(crate) fn hangs_up_within(socket: &OwnedFd, most: Duration) -> bool {
    let started = Instant::now();
    loop {
        let left = most.saturating_sub(started.elapsed());
        // A hang-up is always told, and nothing else is asked for: it is no message.
        let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
        let polled = wait(&mut fds, left);
        let [found] = fds;
        if found.revents().intersects(PollFlags::HUP | PollFlags::RDHUP) {
            return true;
        }
        if left.is_zero() || !matches!(polled, Ok(()) | Err(WireError::Interrupted)) {
            return false;
        }
    }
}

/// A failure's text, without the words that [`ClientError::Failed`] puts before it again.
fn fault_text(fault: &ClientError) -> String {
    match fault {
        ClientError::Failed { text } => text.clone(),
        fault => fault.with_causes(),
    }
}

/// The error of a message that the protocol does not allow.
pub(crate) fn unexpected(got: impl std::fmt::Display, expected: impl std::fmt::Display) -> ClientError {
    FormatError::new("control message", 0, got, expected).into()
}

/// A reply's name in error texts.
pub(crate) fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Welcome { .. } => "Welcome",
        Reply::Refuse { .. } => "Refuse",
        Reply::Stats { .. } => "Stats",
        Reply::State { .. } => "State",
        Reply::StateLoaded { .. } => "StateLoaded",
        Reply::Failed { .. } => "Failed",
        Reply::Interrupted { .. } => "Interrupted",
        Reply::Observing { .. } => "Observing",
        Reply::Status { .. } => "Status",
        Reply::Stopping { .. } => "Stopping",
        Reply::Resized { .. } => "Resized",
        Reply::Held { .. } => "Held",
        Reply::Taken => "Taken",
        Reply::Base { .. } => "Base",
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    const SAVE: Request = Request::SaveState { epoch: 1, batch: 200 };

    fn dialogue() -> (Dialogue, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, daemons) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        // No process has this id: Linux's are below 2^22.
        (Dialogue::new(ours, 1 << 30), daemons)
    }

    fn say(daemon: &OwnedFd, reply: &Reply) {
        rustix::net::send(daemon, &reply.encode(), SendFlags::empty()).unwrap();
    }

    fn is_asked(daemon: &OwnedFd) -> bool {
        poll(&mut [PollFd::new(daemon, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
    }

    /// Whether a message waits for the dialogue.
    fn is_unheard(dialogue: &Dialogue) -> bool {
        poll(&mut [PollFd::new(dialogue.socket(), PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
    }

    fn state(dialogue: &Dialogue) -> Result<u64, ClientError> {
        dialogue.ask("save_state", &SAVE, None, |(reply, _)| match reply {
            Reply::State { bytes } => Ok(bytes),
            other => Err(other),
        })
    }

    #[test]
    fn an_answer_that_comes_late_is_not_taken_for_the_next() {
        for late in [Reply::State { bytes: 100 }, Reply::Failed { text: "no such batch".into() }] {
            let (dialogue, daemon) = dialogue();
            // Two requests have timed out.
            lock(&dialogue.hearing).owed = 2;
            say(&daemon, &late);
            std::thread::scope(|scope| {
                let answer = scope.spawn(|| state(&dialogue));
                // The first late answer is taken, the second has not come.
                while is_unheard(&dialogue) {
                    std::thread::yield_now();
                }
                assert!(!is_asked(&daemon), "an answer is owed yet");
                say(&daemon, &late);
                recv(&daemon, &mut [0; 64][..], RecvFlags::empty()).unwrap();
                say(&daemon, &Reply::State { bytes: 200 });
                assert_eq!(answer.join().unwrap().unwrap(), 200);
            });
            // What failed late is told by `next`.
            assert_eq!(dialogue.fault().is_err(), matches!(late, Reply::Failed { .. }));
        }
    }

    #[test]
    fn a_daemon_that_ends_says_why_in_place_of_an_answer() {
        let (dialogue, daemon) = dialogue();
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| state(&dialogue));
            recv(&daemon, &mut [0; 64][..], RecvFlags::empty()).unwrap();
            say(&daemon, &Reply::Refuse { code: 0, text: "it was stopped".into() });
            let error = answer.join().unwrap().unwrap_err();
            assert!(matches!(&error, ClientError::Failed { text } if text == "it was stopped"), "{error}");
        });
    }
}
