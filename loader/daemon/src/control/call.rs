//! The side of a command that asks a running daemon: finds its socket, checks whose it is, asks.

use std::fmt::{Display, Formatter};
use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use shade_formats::control::{
    PROTOCOL, REFUSE_BUSY, REFUSE_ENDING, REFUSE_PROTOCOL, REFUSE_REPLACED, REFUSE_STOPPED, Reply, Request,
    socket_name,
};
use shade_formats::limits::MESSAGE_BYTES_MAX;

use super::message::Resized;
use super::socket::{ask, peer_user, receive};

/// Longest wait for the daemon's answer, which takes it no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait where several daemons are asked, or one again and again. Less than Prometheus
/// waits.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// What to know where the message itself is refused.
const EARLIER: &str = "; a daemon of another version ends with its trainings, or by a signal";

/// Why a daemon did not answer as asked.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No process listens.
    #[error("no daemon listens at {address}")]
    NoDaemon { address: String },
    #[error("the daemon at {address} refuses: {text}{hint}")]
    Refused {
        address: String,
        text: String,
        hint: &'static str,
        /// It may accept a moment later.
        busy: bool,
    },
    /// Another user has the address.
    #[error("{address} is served by user {got}, not by user {expected}: nothing is asked there")]
    Foreign { address: String, got: u32, expected: u32 },
    /// The daemon takes the request and does not answer.
    #[error(
        "the daemon at {address} has not answered for {} s: it may still be reading its index; try again",
        patience.as_secs()
    )]
    Silent { address: String, patience: Duration },
    /// The answer is not one of a daemon of this version.
    #[error("what serves {address} does not answer as it should: {what}; use the same version of both")]
    Answer { address: String, what: String },
    #[error("cannot reach the daemon: {0}")]
    Io(#[from] io::Error),
}

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name without its `@`.
    Abstract(Vec<u8>),
    File(PathBuf),
}

impl Address {
    /// Where this user's daemon of the dataset in `folder` (canonical) listens by default.
    pub(crate) fn of_dataset(folder: &Path) -> Self {
        Self::Abstract(socket_name(rustix::process::geteuid().as_raw(), folder))
    }

    /// A socket as a command line has it: a path, or an abstract name after `@`.
    pub(crate) fn given(socket: &Path) -> Self {
        match socket.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => Self::Abstract(name.to_owned()),
            None => Self::File(socket.to_owned()),
        }
    }

    fn place(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name),
            Self::File(path) => SocketAddrUnix::new(path),
        }
    }
}

impl Display for Address {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Abstract(name) => write!(out, "@{}", String::from_utf8_lossy(name)),
            Self::File(path) => path.display().fmt(out),
        }
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) socket: OwnedFd,
    address: String,
    patience: Duration,
}

impl Call {
    /// Connects, unless another user listens there. Root may ask every daemon.
    pub(crate) fn connect(address: &Address) -> Result<Self, CallError> {
        Self::connect_with(address, ANSWER_TIMEOUT)
    }

    /// Connects, and waits for the connection and each answer no longer than this.
    pub(crate) fn connect_with(address: &Address, patience: Duration) -> Result<Self, CallError> {
        let place = address.place().map_err(io::Error::from)?;
        let address = address.to_string();
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).map_err(io::Error::from)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(patience)).map_err(io::Error::from)?;
        }
        match rustix::net::connect(&socket, &place) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Err(CallError::NoDaemon { address }),
            Err(Errno::AGAIN) => return Err(CallError::Silent { address, patience }),
            Err(error) => return Err(CallError::Io(error.into())),
        }
        // Any user may bind an abstract name.
        let (got, expected) = (peer_user(&socket)?, rustix::process::geteuid().as_raw());
        if got != expected && expected != 0 {
            return Err(CallError::Foreign { address, got, expected });
        }
        Ok(Self { socket, address, patience })
    }

    /// Asks with an opening message. A refusal is an error.
    pub(crate) fn ask(&self, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<Reply, CallError> {
        self.exchange(request, fd).map(|(reply, _)| reply)
    }

    /// The same, with the descriptor that comes with the answer.
    fn exchange(
        &self,
        request: &Request,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), CallError> {
        let address = self.address.clone();
        // A daemon that hangs up before it reads may have sent a reason.
        match ask(&self.socket, request, fd) {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => {}
            other => other?,
        }
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let answer = match receive(&self.socket, &mut buffer) {
            Ok(Some((bytes, fd))) => match Reply::other_protocol(bytes) {
                Some(protocol) => Err(format!("it speaks protocol {protocol}, this program {PROTOCOL}")),
                None => Reply::decode(bytes).map(|reply| (reply, fd)).map_err(|error| error.to_string()),
            },
            // It was ending.
            Ok(None) => return Err(CallError::NoDaemon { address }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(CallError::Silent { address, patience: self.patience });
            }
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok((Reply::Refuse { code: REFUSE_ENDING | REFUSE_STOPPED | REFUSE_REPLACED, .. }, _)) => {
                Err(CallError::NoDaemon { address })
            }
            Ok((Reply::Refuse { code, text }, _)) => {
                // Daemons of protocol 6 and earlier know no status.
                let hint = if code == REFUSE_PROTOCOL { EARLIER } else { "" };
                Err(CallError::Refused { address, text, hint, busy: code == REFUSE_BUSY })
            }
            Ok(answer) => Ok(answer),
            Err(what) => Err(CallError::Answer { address, what }),
        }
    }

    /// The daemon's status, as JSON.
    pub(crate) fn status(&self) -> Result<String, CallError> {
        match self.ask(&Request::Status { protocol: PROTOCOL }, None)? {
            Reply::Status { json, .. } => Ok(json),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends the daemon, or drains it.
    pub(crate) fn stop(&self, drain: bool) -> Result<(), CallError> {
        match self.ask(&Request::Stop { protocol: PROTOCOL, drain }, None)? {
            Reply::Stopping { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Has the daemon make room for this one. Its process id, and the socket at which it listens.
    pub(crate) fn replace(&self) -> Result<(u32, OwnedFd), CallError> {
        match self.exchange(&Request::Replace { protocol: PROTOCOL }, None)? {
            (Reply::Stopping { pid, .. }, Some(socket)) => Ok((pid, socket)),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// Gives the daemon's cache another size. Returns its capacity before and now.
    pub(crate) fn resize(&self, cache: &str) -> Result<Resized, CallError> {
        match self.ask(&Request::Resize { protocol: PROTOCOL, cache: cache.to_owned() }, None)? {
            Reply::Resized { before_bytes, cache_bytes, .. } => Ok(Resized { before_bytes, cache_bytes }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until the daemon has hung up. `false`: it has not within `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> io::Result<bool> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
        let mut buffer = [0; 16];
        match receive(self.socket.as_fd(), &mut buffer) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The error of an answer that belongs to another question.
    pub(crate) fn unexpected(&self, reply: &Reply) -> CallError {
        CallError::Answer { address: self.address.clone(), what: format!("it says {reply:?}") }
    }
}

/// Default of `--socket`: what SHADE_SOCKET names. Empty is as if it were not set.
///
/// Not by clap, which would see it beside a dataset or `--all` as a second target.
#[must_use]
pub fn default_socket() -> Option<PathBuf> {
    std::env::var_os("SHADE_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags};

    use super::*;

    /// A daemon that takes the connection, and what comes if `waits`, and ends without having read.
    fn ends_without_reading(listener: &OwnedFd, waits: bool, last_words: Option<&Reply>) {
        let taken = rustix::net::accept(listener).unwrap();
        if waits {
            let mut ready = [PollFd::new(&taken, PollFlags::IN)];
            rustix::event::poll(&mut ready, None).unwrap();
        }
        if let Some(reply) = last_words {
            super::super::socket::send(&taken, reply, &[]).unwrap();
        }
    }

    #[test]
    fn a_daemon_that_ends_before_it_reads_is_none() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("socket");
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        let address = Address::File(path);
        let busy = Reply::Refuse { code: REFUSE_BUSY, text: "later".to_owned() };
        for waits in [true, false] {
            for last_words in [None, Some(&busy)] {
                let call = Call::connect(&address).unwrap();
                let answer = std::thread::scope(|scope| {
                    let daemon = scope.spawn(|| ends_without_reading(&listener, waits, last_words));
                    if !waits {
                        daemon.join().unwrap();
                    }
                    call.status()
                });
                let is_expected = match last_words {
                    None => matches!(answer, Err(CallError::NoDaemon { .. })),
                    Some(_) => matches!(answer, Err(CallError::Refused { busy: true, .. })),
                };
                assert!(is_expected, "{answer:?}");
            }
        }
        // It was never taken.
        let call = Call::connect(&address).unwrap();
        drop(listener);
        assert!(matches!(call.status(), Err(CallError::NoDaemon { .. })));
    }

    #[test]
    fn a_socket_is_a_path_or_a_name() {
        let name = Address::given(Path::new("@shade-load/7/abc"));
        assert_eq!(name, Address::Abstract(b"shade-load/7/abc".to_vec()));
        assert_eq!(name.to_string(), "@shade-load/7/abc");
        let file = Address::given(Path::new("./@here"));
        assert_eq!((file.to_string().as_str(), &file), ("./@here", &Address::File("./@here".into())));
    }
}
