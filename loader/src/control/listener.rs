//! Binds the socket and gives each connection a session thread.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::Sender;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use shade_formats::control::{REFUSE_RESOURCES, Reply};

use super::identity::Identity;
use super::message::Message;
use super::session::run;
use super::socket::send;
use crate::core::SessionId;

/// A bound control socket; a socket file is removed again when this is dropped.
pub struct Listener {
    socket: OwnedFd,
    file: Option<PathBuf>,
    /// The address for people: the path, or `@name` for an abstract one.
    pub address: String,
}

impl Listener {
    /// Binds the abstract `name`, which exists only while the daemon lives, so that nothing is left behind and two
    /// daemons cannot hold it.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon serves this dataset and job.
    pub fn bind_abstract(name: &[u8]) -> io::Result<Self> {
        let socket = bind(&SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { socket, file: None, address: format!("@{}", String::from_utf8_lossy(name)) })
    }

    /// Binds the socket file `path`, readable by its owner only. A file left by a dead daemon is replaced.
    ///
    /// # Errors
    /// `AddrInUse` when a living daemon listens there.
    pub fn bind_file(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = match bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !answers(&address) => {
                std::fs::remove_file(path)?;
                bind(&address)?
            }
            other => other?,
        };
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(Self { socket, file: Some(path.to_owned()), address: path.display().to_string() })
    }

    /// Accepts connections on a thread of its own, for as long as the process lives.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn listen(&self, identity: Identity, messages: Sender<Message>) -> io::Result<()> {
        let socket = self.socket.try_clone()?;
        std::thread::Builder::new().name("shade-listen".into()).spawn(move || {
            let mut next: SessionId = 1;
            loop {
                match rustix::net::accept_with(&socket, SocketFlags::CLOEXEC) {
                    Ok(connection) => {
                        let (identity, messages, session) = (identity.clone(), messages.clone(), next);
                        next = next.wrapping_add(1);
                        let connection = Arc::new(connection);
                        let its = Arc::clone(&connection);
                        let spawned = std::thread::Builder::new()
                            .name(format!("shade-session-{session}"))
                            .spawn(move || run(its, session, &identity, &messages));
                        if let Err(error) = spawned {
                            let text = format!("the daemon can make no thread for a session: {error}");
                            tracing::warn!("a connection was dropped: {text}");
                            // Whoever hangs up already needs no answer.
                            let _ = send(&connection, &Reply::Refuse { code: REFUSE_RESOURCES, text }, &[]);
                        }
                    }
                    // A client that left in between, or too many open files: the next one may fare better.
                    Err(error) if error != rustix::io::Errno::INVAL && error != rustix::io::Errno::BADF => {
                        tracing::warn!("a connection was not accepted: {error}");
                        std::thread::sleep(std::time::Duration::from_millis(10));
                    }
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // Best effort: a stale file is replaced by the next daemon anyway.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Does a living daemon accept connections there?
fn answers(address: &SocketAddrUnix) -> bool {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .is_ok_and(|socket| rustix::net::connect(&socket, address).is_ok())
}
