//! Memory in a file without a name, for another process: a crash leaves nothing behind, and no
//! limit of /dev/shm applies.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The error on a system that cannot exclude writers.
const TOO_OLD: &str = "this system cannot keep trainers from writing to the daemon's memory (F_SEAL_FUTURE_WRITE): \
                       Linux 5.1 or newer is needed";

/// A file of `bytes` zeros, not allocated yet. Its size is not sealed: see [`seal`].
pub(crate) fn create(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    // The system would send SIGXFSZ, which ends a process that does not expect it.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| bytes > most) {
        return Err(Errno::FBIG.into());
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

/// A file that holds `bytes` and never changes.
///
/// # Errors
/// When there is no room for it, with the limit that forbids it.
pub fn holding(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = create(name, bytes.len() as u64).map_err(|error| lacking(error, None))?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    seal(&file, Writers::None)?;
    Ok(file.into())
}

/// Adds a likely reason to an error: the limit on this process and, if memory is short, `less`, the
/// option to lower.
#[must_use]
pub fn lacking(error: io::Error, less: Option<&str>) -> io::Error {
    let limit = |resource, name: &str, unit: &str| match getrlimit(resource).current {
        Some(most) => format!("; {name} is {most} {unit}"),
        None => String::new(),
    };
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOMEM) => {
            let less = less.map_or_else(String::new, |less| format!("; lower {less}"));
            limit(Resource::As, "RLIMIT_AS", "bytes (ulimit -v)") + &less
        }
        Some(Errno::FBIG) => limit(Resource::Fsize, "RLIMIT_FSIZE", "bytes (ulimit -f)"),
        Some(Errno::MFILE) => limit(Resource::Nofile, "RLIMIT_NOFILE", "files (ulimit -n)"),
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}{hint}"))
}

/// The processes that may write to a file from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// All that have the descriptor.
    All,
    /// Only those that have mapped it already.
    Mapped,
    /// No process.
    None,
}

/// Fixes the file's size for good, and its writers. Call it once the file is mapped: afterwards
/// [`Writers::Mapped`] allows no new writable mapping.
pub(crate) fn seal(fd: impl AsFd, writers: Writers) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = match writers {
        Writers::All => size,
        Writers::Mapped => size | SealFlags::FUTURE_WRITE,
        Writers::None => size | SealFlags::WRITE,
    };
    match fcntl_add_seals(fd, seals) {
        // The only one of these seals that an older system lacks.
        Err(Errno::INVAL) if writers == Writers::Mapped => {
            Err(io::Error::new(io::ErrorKind::Unsupported, TOO_OLD))
        }
        sealed => Ok(sealed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_limit_that_explains_it_and_no_other() {
        let told = |errno: Errno| lacking(errno.into(), Some("--cache")).to_string();
        // Every process has a limit of open files; of memory, tests have none as a rule.
        let open_files = told(Errno::MFILE);
        assert!(
            open_files.contains("; RLIMIT_NOFILE is ") && open_files.contains("ulimit -n"),
            "{open_files}"
        );
        assert!(!open_files.contains("--cache"), "{open_files}");
        let memory = told(Errno::NOMEM);
        assert!(memory.ends_with("; lower --cache"), "{memory}");
        let other = io::Error::new(io::ErrorKind::Unsupported, TOO_OLD);
        assert_eq!(lacking(other, Some("--cache")).to_string(), TOO_OLD);
    }

    #[test]
    fn a_file_longer_than_the_limit_is_an_error_not_a_signal() {
        let error = create("shade-test", u64::MAX).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
