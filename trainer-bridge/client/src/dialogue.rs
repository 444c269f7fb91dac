//! The conversation on the socket: requests, their answers, and unsolicited messages.
//!
//! Answers come in the order of the requests, one at a time. `Failed` may come at any moment and
//! may answer a request or end the session. So it ends the wait that it meets, and an answer that
//! it overtook is dropped. `Interrupted` may also come at any moment and is never an answer: it is
//! kept for `next`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use shade_formats::FormatError;
use shade_formats::control::{PROTOCOL, Reply, Request};

use crate::ClientError;
use crate::life::life_of;
use crate::lock::lock;
use crate::wire::{Received, WireError, receive, receive_now, send};

/// How long an answer may take. The daemon answers from memory; after a minute it is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long leaving may take. The daemon answers a goodbye at once unless it is in trouble.
const BYE_TIMEOUT: Duration = Duration::from_secs(1);

/// One session's socket. Sending needs no lock, as messages are atomic.
#[derive(Debug)]
pub(crate) struct Dialogue {
    socket: OwnedFd,
    daemon_pid: u32,
    /// How it ended, kept so that the wait for it happens once.
    end: OnceLock<String>,
    hearing: Mutex<Hearing>,
}

/// The receiving half. The thread that locks it takes the messages that come.
#[derive(Debug, Default)]
struct Hearing {
    /// An unsolicited failure, for `next` to report once the ring is empty.
    fault: Option<ClientError>,
    /// A late answer may still come: its request timed out, or a failure overtook it.
    stray_allowed: bool,
}

impl Dialogue {
    pub(crate) fn new(socket: OwnedFd, daemon_pid: u32) -> Self {
        Self { socket, daemon_pid, end: OnceLock::new(), hearing: Mutex::new(Hearing::default()) }
    }

    /// For polling; readable when the daemon sent a message or hung up.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&self, what: &'static str, request: &Request) -> Result<(), ClientError> {
        let started = Instant::now();
        send(&self.socket, request, None, SendFlags::empty()).map_err(|error| {
            // A daemon that has hung up may have said why.
            let reason = self.try_hearing().and_then(|mut hearing| {
                self.hear_all(&mut hearing).err()?;
                hearing.fault.take()
            });
            reason.unwrap_or_else(|| self.unanswered(what, started, error))
        })
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
        self.hear_all(&mut hearing).map_err(|gone| hearing.fault.take().unwrap_or(gone))?;
        let started = Instant::now();
        send(&self.socket, request, fd.map(AsFd::as_fd), SendFlags::empty())
            .map_err(|error| self.unanswered(what, started, error))?;
        loop {
            match receive(&self.socket, started + REPLY_TIMEOUT) {
                Ok((Reply::Failed { text }, _)) => {
                    hearing.stray_allowed = true;
                    return Err(ClientError::Failed { text });
                }
                Ok((Reply::Interrupted { text }, _)) => hearing.fault = Some(ClientError::Failed { text }),
                Ok(received) => match accept(received) {
                    Ok(answer) => {
                        if matches!(request, Request::LoadState { .. }) {
                            hearing.fault = None;
                        }
                        return Ok(answer);
                    }
                    Err(_) if hearing.stray_allowed => hearing.stray_allowed = false,
                    Err(reply) => {
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

    /// Fails with an unsolicited failure, once.
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

    /// Takes every message that has arrived. Fails only when the daemon is gone.
    fn hear_all(&self, hearing: &mut Hearing) -> Result<(), ClientError> {
        loop {
            hearing.fault = match receive_now(&self.socket) {
                // A daemon that ends while it welcomes this rank refuses it after all.
                Ok((
                    Reply::Failed { text } | Reply::Interrupted { text } | Reply::Refuse { text, .. },
                    _,
                )) => Some(ClientError::Failed { text }),
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

    /// How the daemon ended, as far as this process knows.
    fn end(&self) -> String {
        let end = || match life_of(self.daemon_pid) {
            Some(life) => life.end(),
            None => "another process has started it; its log went to the rank that was attached longest"
                .to_owned(),
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
            WireError::HangUp | WireError::TimedOut | WireError::Interrupted => {
                ClientError::DaemonGone { pid: self.daemon_pid, end: self.end() }
            }
        }
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
    }
}
