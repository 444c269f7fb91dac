//! Binds the socket and gives each connection a session thread.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::Sender;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use shade_core::{Refusal, SessionId};
use shade_formats::control::{REFUSE_RESOURCES, Reply};

use super::admission::Admission;
use super::message::Message;
use super::session::{ServedDataset, run};
use super::socket::{peer_user, send};
use super::socket_file::SocketFile;

/// A bound control socket; a socket file is removed again when this is dropped.
pub(crate) struct Listener {
    socket: OwnedFd,
    /// The file and its lock, which end with the listener.
    _file: Option<SocketFile>,
    /// The address as text: the path, or `@name` for an abstract one.
    pub(crate) address: String,
}

impl Listener {
    /// Binds the abstract `name`. It exists only while the daemon lives, and two daemons cannot
    /// have it.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon serves this dataset.
    pub(crate) fn bind_abstract(name: &[u8]) -> io::Result<Self> {
        let socket = bind(&SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { socket, _file: None, address: format!("@{}", String::from_utf8_lossy(name)) })
    }

    /// Binds the socket file `path`, readable by its owner only. A file left by a dead daemon is
    /// replaced.
    ///
    /// # Errors
    /// `AddrInUse` when a living daemon listens there, or is about to; something else is there.
    pub(crate) fn bind_file(path: &Path) -> io::Result<Self> {
        let (file, socket) = SocketFile::claim(path, bind, connect)?;
        Ok(Self { socket, _file: Some(file), address: path.display().to_string() })
    }

    /// Accepts connections on a thread of its own, for as long as the process lives.
    pub(crate) fn listen(&self, served: ServedDataset, messages: Sender<Message>) -> io::Result<()> {
        let socket = self.socket.try_clone()?;
        let (served, admission) = (Arc::new(served), Arc::new(Admission::new()));
        std::thread::Builder::new().name("shade-listen".into()).spawn(move || {
            let mut next: SessionId = 1;
            loop {
                match rustix::net::accept_with(&socket, SocketFlags::CLOEXEC) {
                    Ok(connection) => {
                        begin(connection, next, &served, &messages, &admission);
                        next = next.wrapping_add(1);
                    }
                    // The client has left, or too many files are open: the next may succeed.
                    Err(error) if error != rustix::io::Errno::INVAL && error != rustix::io::Errno::BADF => {
                        admission.warn(|left_out| {
                            tracing::warn!("a connection was not accepted: {error}{left_out}");
                        });
                        std::thread::sleep(std::time::Duration::from_millis(10));
                    }
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }

    /// Refuses all connections so far with the reason; no more are accepted afterwards. Used
    /// instead of [`listen`](Self::listen).
    pub(crate) fn turn_away(&self, refusal: &Refusal) {
        // From here on the system refuses connections, so none comes between the last of these and
        // our end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
        // If that failed, an empty queue ends the loop.
        if rustix::io::ioctl_fionbio(&self.socket, true).is_err() {
            return;
        }
        let own = rustix::process::geteuid().as_raw();
        let Refusal { code, text } = refusal;
        let reply = Reply::Refuse { code: *code, text: text.clone() };
        while let Ok(connection) = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            if peer_user(&connection).is_ok_and(|user| user == own || user == 0) {
                // The peer may be gone already.
                let _ = send(&connection, &reply, &[]);
            }
        }
    }
}

/// Starts a connection's thread, or refuses the connection where there are too many.
fn begin(
    connection: OwnedFd,
    session: SessionId,
    served: &Arc<ServedDataset>,
    messages: &Sender<Message>,
    admission: &Arc<Admission>,
) {
    let socket = Arc::new(connection);
    let begun = admission.permits().and_then(|permits| {
        let (socket, served) = (Arc::clone(&socket), Arc::clone(served));
        let (messages, admission) = (messages.clone(), Arc::clone(admission));
        let thread = std::thread::Builder::new().name(format!("shade-session-{session}"));
        thread.spawn(move || run(socket, session, &served, &messages, &admission, permits))
    });
    if let Err(error) = begun {
        // The peer may be gone already.
        let text = format!("no room for another connection: {error}");
        let _ = send(&socket, &Reply::Refuse { code: REFUSE_RESOURCES, text }, &[]);
        admission
            .warn_of_stranger(|left_out| tracing::warn!("a connection was turned away: {error}{left_out}"));
    }
}

fn bind(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Succeeds where a living daemon accepts connections.
fn connect(address: &SocketAddrUnix) -> rustix::io::Result<()> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
    rustix::net::connect(&socket, address)
}
