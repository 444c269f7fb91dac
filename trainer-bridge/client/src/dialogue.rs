//! The conversation on the socket: requests, their answers, and what the daemon says unasked.
//!
//! Answers come in the order of the requests, one at a time. `Failed` may come at any moment, and does not say whether it
//! answers a request or ends the session; so it ends whichever wait it meets, and an answer that it overtook is dropped.
//! `Interrupted` may come at any moment, too, and is never an answer: it is kept for `next`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use shade_formats::FormatError;
use shade_formats::control::{PROTOCOL, Reply, Request};

use crate::ClientError;
use crate::life::{Life, life_of};
use crate::wire::{Received, WireError, receive, receive_now, send, send_now};

/// How long an answer may take. The daemon answers from memory; a minute is a daemon that is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long leaving may take. The daemon answers a goodbye at once unless something is very wrong.
const BYE_TIMEOUT: Duration = Duration::from_secs(1);

/// One session's socket. Sending needs no lock, as the kernel passes on whole messages.
#[derive(Debug)]
pub(crate) struct Dialogue {
    socket: OwnedFd,
    daemon_pid: u32,
    /// Its life, where this process has started it.
    life: Option<Arc<Life>>,
    /// How it ended, once that has been asked for: to wait for it once is enough.
    end: OnceLock<String>,
    hearing: Mutex<Hearing>,
}

/// The receiving half. Whoever holds its lock takes what comes.
#[derive(Debug, Default)]
struct Hearing {
    /// What came unasked and went wrong, for `next` to report once the ring is empty.
    fault: Option<ClientError>,
    /// An answer may still come that nobody waits for: its request timed out, or was overtaken by a failure.
    stray_allowed: bool,
}

impl Dialogue {
    pub(crate) fn new(socket: OwnedFd, daemon_pid: u32) -> Self {
        let life = life_of(daemon_pid);
        Self { socket, daemon_pid, life, end: OnceLock::new(), hearing: Mutex::new(Hearing::default()) }
    }

    /// For polling; readable when the daemon said something or hung up.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Sends what is not answered.
    pub(crate) fn tell(&self, what: &'static str, request: &Request) -> Result<(), ClientError> {
        let started = Instant::now();
        send(&self.socket, request, None).map_err(|error| self.unanswered(what, started, error))
    }

    /// Says goodbye and waits until the daemon hangs up: then the rank's place is free, and whoever asks for it next gets
    /// it. A daemon that is too busy for that hears of it from our hanging up.
    pub(crate) fn bye(&self) {
        if send_now(&self.socket, &Request::Bye).is_ok() {
            let deadline = Instant::now() + BYE_TIMEOUT;
            // Answers may be on their way that nobody waits for.
            while receive(&self.socket, deadline).is_ok() {}
        }
    }

    /// Sends a request and waits for its answer, which `accept` recognises; it hands back what it does not.
    pub(crate) fn ask<T>(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Received>,
    ) -> Result<T, ClientError> {
        self.ask_hearing(&mut lock(&self.hearing), what, request, fd, accept)
    }

    /// The same for a request that begins anew: once it is answered, what was wrong before is over.
    pub(crate) fn ask_anew<T>(
        &self,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Received>,
    ) -> Result<T, ClientError> {
        let mut hearing = lock(&self.hearing);
        let answer = self.ask_hearing(&mut hearing, what, request, fd, accept)?;
        hearing.fault = None;
        Ok(answer)
    }

    fn ask_hearing<T>(
        &self,
        hearing: &mut Hearing,
        what: &'static str,
        request: &Request,
        fd: Option<&OwnedFd>,
        accept: impl Fn(Received) -> Result<T, Received>,
    ) -> Result<T, ClientError> {
        // What came before the request is not its answer.
        self.hear_all(hearing)?;
        let started = Instant::now();
        send(&self.socket, request, fd.map(AsFd::as_fd))
            .map_err(|error| self.unanswered(what, started, error))?;
        loop {
            match receive(&self.socket, started + REPLY_TIMEOUT) {
                Ok((Reply::Failed { text }, _)) => {
                    hearing.stray_allowed = true;
                    return Err(ClientError::Failed { text });
                }
                Ok((Reply::Interrupted { text }, _)) => hearing.fault = Some(ClientError::Failed { text }),
                Ok(received) => match accept(received) {
                    Ok(answer) => return Ok(answer),
                    Err(_) if hearing.stray_allowed => hearing.stray_allowed = false,
                    Err((reply, _)) => {
                        return Err(unexpected(reply_name(&reply), format_args!("the answer to {what}")));
                    }
                },
                Err(error) => {
                    hearing.stray_allowed = true;
                    return Err(self.unanswered(what, started, error));
                }
            }
        }
    }

    /// Hears what came unasked, to be kept for [`Dialogue::fault`].
    ///
    /// # Errors
    /// When the daemon is gone; that can be heard again and again.
    pub(crate) fn listen(&self) -> Result<(), ClientError> {
        match self.try_hearing() {
            Some(mut hearing) => self.hear_all(&mut hearing),
            None => {
                // Another thread waits for an answer and takes what comes. Leave it the processor.
                std::thread::yield_now();
                Ok(())
            }
        }
    }

    /// Fails with what was heard unasked, once.
    pub(crate) fn fault(&self) -> Result<(), ClientError> {
        self.try_hearing().and_then(|mut hearing| hearing.fault.take()).map_or(Ok(()), Err)
    }

    fn try_hearing(&self) -> Option<MutexGuard<'_, Hearing>> {
        match self.hearing.try_lock() {
            Ok(hearing) => Some(hearing),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes every message that has come and that nobody waits for. Fails only when the daemon is gone.
    fn hear_all(&self, hearing: &mut Hearing) -> Result<(), ClientError> {
        loop {
            hearing.fault = match receive_now(&self.socket) {
                Ok((Reply::Failed { text } | Reply::Interrupted { text }, _)) => {
                    Some(ClientError::Failed { text })
                }
                Ok(_) if hearing.stray_allowed => {
                    hearing.stray_allowed = false;
                    continue;
                }
                Ok((reply, _)) => Some(unexpected(reply_name(&reply), "nothing, as nothing was asked")),
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

    /// How the daemon ended, as far as this process can know.
    fn end(&self) -> String {
        let end = || match &self.life {
            Some(life) => life.end(),
            None => "another process has started it, whose error output has its log".to_owned(),
        };
        self.end.get_or_init(end).clone()
    }

    fn broken(&self, what: &'static str, error: WireError) -> ClientError {
        match error {
            WireError::Format(error) => error.into(),
            WireError::System(source) => ClientError::System { what, source },
            // A second welcome, and another version's at that.
            WireError::Protocol(protocol) => {
                unexpected(format_args!("protocol {protocol}"), format_args!("protocol {PROTOCOL}"))
            }
            WireError::HangUp | WireError::TimedOut | WireError::Interrupted => {
                ClientError::DaemonGone { pid: self.daemon_pid, end: self.end() }
            }
        }
    }
}

/// Locks; no code under this crate's locks panics half-way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon says something else than its part.
pub(crate) fn unexpected(got: impl std::fmt::Display, expected: impl std::fmt::Display) -> ClientError {
    FormatError::new("control message", 0, got, expected).into()
}

/// What a reply is called in messages.
pub(crate) fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Welcome { .. } => "Welcome",
        Reply::Refuse { .. } => "Refuse",
        Reply::Stats { .. } => "Stats",
        Reply::State { .. } => "State",
        Reply::StateLoaded => "StateLoaded",
        Reply::Failed { .. } => "Failed",
        Reply::Interrupted { .. } => "Interrupted",
        Reply::Observing { .. } => "Observing",
    }
}
