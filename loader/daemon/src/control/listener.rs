//! Binds the socket and gives each connection a session thread.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use shade_core::{Refusal, SessionId};
use shade_formats::control::{REFUSE_RESOURCES, Reply};

use super::admission::Admission;
use super::heritage::Heritage;
use super::message::Message;
use super::session::{ServedDataset, run};
use super::socket::{peer_user, send};
use super::socket_file::SocketFile;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Pause between two looks whether the daemon before has let go of its file.
const LOOK: Duration = Duration::from_millis(5);

/// A bound control socket; a socket file is removed again when this is dropped.
pub(crate) struct Listener {
    heritage: Arc<Heritage>,
    /// The file and its lock, which end with the listener.
    file: Option<SocketFile>,
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
        Ok(Self::of(socket, None, format!("@{}", String::from_utf8_lossy(name))))
    }

    /// Binds the socket file `path`, readable by its owner only. A file left by a dead daemon is
    /// replaced.
    ///
    /// # Errors
    /// `AddrInUse` when a living daemon listens there, or is about to; something else is there.
    pub(crate) fn bind_file(path: &Path) -> io::Result<Self> {
        let (file, socket) = SocketFile::claim(path, bind, connect)?;
        Ok(Self::of(socket, Some(file), path.display().to_string()))
    }

    /// Goes on with the socket at `address` of a daemon that ends. If it is a file, at `path`, that
    /// daemon is given time to let go of it until `deadline`.
    ///
    /// # Errors
    /// It does not, or what it gave is no such socket.
    pub(crate) fn inherit(
        socket: OwnedFd,
        path: Option<&Path>,
        address: String,
        deadline: Instant,
    ) -> io::Result<Self> {
        // Once more, so that clients are told this process's id.
        rustix::net::listen(&socket, BACKLOG)?;
        let file = loop {
            match path.map(SocketFile::inherit).transpose() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                taken => break taken?,
            }
        };
        Ok(Self::of(socket, file, address))
    }

    fn of(socket: OwnedFd, file: Option<SocketFile>, address: String) -> Self {
        Self { heritage: Arc::new(Heritage::of(socket)), file, address }
    }

    /// Accepts connections on a thread of its own, for as long as the process lives.
    pub(crate) fn listen(&self, served: ServedDataset, messages: Sender<Message>) -> io::Result<()> {
        // A daemon without a descriptor for this has none for sessions, and does not start.
        let socket = self.heritage.socket().try_clone()?;
        let heritage = Arc::clone(&self.heritage);
        let (served, admission) = (Arc::new(served), Arc::new(Admission::new()));
        std::thread::Builder::new().name("shade-listen".into()).spawn(move || {
            let mut next: SessionId = 1;
            loop {
                match rustix::net::accept_with(&socket, SocketFlags::CLOEXEC) {
                    Ok(connection) => {
                        begin(connection, next, &heritage, &served, &messages, &admission);
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
        let socket = self.heritage.socket();
        let _ = rustix::net::shutdown(socket, Shutdown::Read);
        // If that failed, an empty queue ends the loop.
        if rustix::io::ioctl_fionbio(socket, true).is_err() {
            return;
        }
        let own = rustix::process::geteuid().as_raw();
        let Refusal { code, text } = refusal;
        let reply = Reply::Refuse { code: *code, text: text.clone() };
        while let Ok(connection) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            if peer_user(&connection).is_ok_and(|user| user == own || user == 0) {
                // The peer may be gone already.
                let _ = send(&connection, &reply, &[]);
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &mut self.file
            && self.heritage.is_given()
        {
            file.leave();
        }
    }
}

/// Starts a connection's thread, or refuses the connection where there are too many.
fn begin(
    connection: OwnedFd,
    session: SessionId,
    heritage: &Arc<Heritage>,
    served: &Arc<ServedDataset>,
    messages: &Sender<Message>,
    admission: &Arc<Admission>,
) {
    let socket = Arc::new(connection);
    let begun = admission.permits().and_then(|permits| {
        let (socket, served) = (Arc::clone(&socket), Arc::clone(served));
        let (messages, admission) = (messages.clone(), Arc::clone(admission));
        let heritage = Arc::clone(heritage);
        let thread = std::thread::Builder::new().name(format!("shade-session-{session}"));
        thread.spawn(move || run(socket, session, &heritage, &served, &messages, &admission, permits))
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
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Succeeds where a living daemon accepts connections.
fn connect(address: &SocketAddrUnix) -> rustix::io::Result<()> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None)?;
    rustix::net::connect(&socket, address)
}
