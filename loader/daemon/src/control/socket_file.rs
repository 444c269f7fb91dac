//! A socket in the file system: one daemon has it, and a dead daemon's file is replaced.
//!
//! All ranks may start a daemon at the same moment. To find that no process answers at a file, to
//! remove it and to bind it again are three steps. So one daemon at a time takes them: the one that
//! holds a lock on `PATH.lock`, for its life.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use shade_dataset::regular;

/// A socket file that is ours. Dropped, it is removed, and so is its lock.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another daemon's file at the same path must not be removed.
    identity: (u64, u64),
    lock_path: PathBuf,
    /// Held until the file is removed: fields are dropped after `drop` has run.
    lock: File,
    /// Another daemon goes on with the file.
    is_left: bool,
}

impl SocketFile {
    /// Takes `path` and binds it by `bind`; `connect` tries whether a process listens there.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon has it; anything else is there than a socket file where
    /// nobody listens.
    pub(super) fn claim(
        path: &Path,
        bind: impl Fn(&SocketAddrUnix) -> io::Result<OwnedFd>,
        connect: impl Fn(&SocketAddrUnix) -> rustix::io::Result<()>,
    ) -> io::Result<(Self, OwnedFd)> {
        let address = SocketAddrUnix::new(path)?;
        let lock_path = lock_path(path);
        let lock = lock(&lock_path)?;
        let socket = match bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path, connect(&address)).and_then(|()| bind(&address))
            }
            bound => bound,
        };
        let socket = socket.inspect_err(|_| drop(std::fs::remove_file(&lock_path)))?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        let identity = identity(path)?;
        Ok((Self { path: path.to_owned(), identity, lock_path, lock, is_left: false }, socket))
    }

    /// Takes over `path` from a daemon that ends and has [left](Self::leave) it.
    ///
    /// # Errors
    /// `AddrInUse` while that daemon, or another one, has its lock; or it is not there.
    pub(super) fn inherit(path: &Path) -> io::Result<Self> {
        let lock_path = lock_path(path);
        let lock = lock(&lock_path)?;
        Ok(Self { path: path.to_owned(), identity: identity(path)?, lock_path, lock, is_left: false })
    }

    /// The file stays when this is dropped: another daemon goes on with it.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // Best effort: the next daemon replaces what stays behind.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
        let own = self.lock.metadata().map(|found| (found.dev(), found.ino()));
        if matches!((own, identity(&self.lock_path)), (Ok(own), Ok(there)) if own == there) {
            let _ = std::fs::remove_file(&self.lock_path);
        }
    }
}

/// Removes the socket file that a dead daemon has left, and nothing else that has its name. Only
/// the lock's holder does it. `connected`: what came of trying to connect.
fn remove_stale(path: &Path, connected: rustix::io::Result<()>) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there and is no socket: it stays"));
    }
    match connected {
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(Errno::PROTOTYPE) => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "another program than shade-load listens there"))
        }
        Err(error) => Err(error.into()),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Whether the lock is ours. Some file systems have no locks; a socket works there too.
fn is_locked(answer: rustix::io::Result<()>) -> io::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(io::ErrorKind::AddrInUse.into()),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks the file at `path`, and checks afterwards that it is still there: its last owner may have
/// removed the one that was opened.
fn lock(path: &Path) -> io::Result<File> {
    let lock = try_lock(path);
    lock.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => error,
        kind => io::Error::new(kind, format!("its lock {}: {error}", path.display())),
    })
}

fn try_lock(path: &Path) -> io::Result<File> {
    loop {
        let file = regular::open_or_create(path, Mode::RUSR | Mode::WUSR)?;
        if !is_locked(flock(&file, FlockOperation::NonBlockingLockExclusive))? {
            let path = path.display();
            tracing::warn!(
                "{path} cannot be locked here: two daemons that start at once may both find a stale socket"
            );
        }
        let locked = file.metadata()?;
        // A daemon's is empty.
        if locked.len() > 0 {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is no lock of a daemon's: it stays",
            ));
        }
        if identity(path).is_ok_and(|found| found == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_no_obstacle_and_any_other_error_is_one() {
        assert!(is_locked(Ok(())).unwrap());
        for none in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            assert!(!is_locked(Err(none)).unwrap(), "{none}");
        }
        assert_eq!(is_locked(Err(Errno::WOULDBLOCK)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        is_locked(Err(Errno::IO)).unwrap_err();
    }

    #[test]
    fn a_lock_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nowhere").join("control.socket.lock");
        let error = lock(&path).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
