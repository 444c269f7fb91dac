//! Memory in a file without a name, to be handed to another process: nothing is left behind by a crash, and no limit of
//! /dev/shm applies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A file of `bytes` zeros, of which nothing is allocated yet. Its size is not sealed: see [`seal`].
pub(crate) fn create(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    // The system would send SIGXFSZ, which ends a process that does not expect it.
    if let Some(most) = getrlimit(Resource::Fsize).current.filter(|most| bytes > *most) {
        let text = format!("{bytes} bytes are more than RLIMIT_FSIZE allows ({most} bytes; ulimit -f)");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know NOEXEC_SEAL.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        made => made?,
    };
    ftruncate(&fd, bytes)?;
    Ok(fd)
}

/// The error of memory that is not to be had, with the limit on this process that may be why.
pub(crate) fn lacking(what: &str, error: &io::Error) -> io::Error {
    let limit = match getrlimit(Resource::As).current {
        Some(most) if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => {
            format!("; RLIMIT_AS is {most} bytes (ulimit -v)")
        }
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("{what} cannot be had: {error}{limit}"))
}
/// What a system is told that cannot do without writers.
const TOO_OLD: &str = "this system cannot keep trainers from writing to the daemon's memory (F_SEAL_FUTURE_WRITE): Linux 5.1 \
                       or newer is needed";

/// Who may write to a file from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Whoever has the descriptor.
    All,
    /// Only who has mapped it already.
    Mapped,
}

/// Fixes the file's size for good, and who writes to it. To be called when it is mapped: sealing may end what
/// [`Writers::Mapped`] allows.
pub(crate) fn seal(fd: impl AsFd, writers: Writers) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = match writers {
        Writers::All => size,
        Writers::Mapped => size | SealFlags::FUTURE_WRITE,
    };
    match fcntl_add_seals(fd, seals) {
        // The only seal that a system with the others may not know.
        Err(Errno::INVAL) if writers == Writers::Mapped => {
            Err(io::Error::new(io::ErrorKind::Unsupported, TOO_OLD))
        }
        sealed => Ok(sealed?),
    }
}
