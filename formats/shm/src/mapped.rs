//! Maps the daemon's segments, once it is known that the mapping cannot fault.
//!
//! A file that shrinks under a mapping turns the next access into a SIGBUS, so its size must be
//! right and sealed.
#![expect(unsafe_code, reason = "a mapping becomes a region; each block has its proof")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;

use crate::Region;

/// How a segment is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    ReadOnly,
    /// For reading and writing.
    ReadWrite,
}

/// A segment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// It is not a file of this size, or its size may change.
    #[error("{segment} from the daemon: got {got}, expected {expected}")]
    Unfit {
        /// Which segment.
        segment: &'static str,
        /// What it is.
        got: String,
        /// What it must be.
        expected: String,
    },
    /// There is no room for it in this process.
    #[error("cannot map {segment} of {bytes} bytes: {source}; is there a limit (`ulimit -v`)?")]
    NoRoom {
        /// Which segment.
        segment: &'static str,
        /// Its length in bytes.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be examined.
    #[error("looking at a segment: {0}")]
    System(#[source] io::Error),
}

/// Maps `fd`, which must be a memfd of exactly `bytes` whose size is sealed.
///
/// # Errors
/// When it is another file, or there is no room to map it.
pub fn map_segment(
    segment: &'static str,
    fd: &OwnedFd,
    bytes: u64,
    access: Access,
) -> Result<Region, SegmentError> {
    check_size_is_fixed(segment, fd, bytes)?;
    let no_room = |source: io::Error| SegmentError::NoRoom { segment, bytes, source };
    let len = usize::try_from(bytes).map_err(|_| no_room(Errno::OVERFLOW.into()))?;
    let mut options = MmapOptions::new();
    options.len(len);
    let mapping = match access {
        Access::ReadOnly => options.map_raw_read_only(fd),
        Access::ReadWrite => options.map_raw(fd),
    }
    .map_err(no_room)?;
    // Maps the daemon's huge pages as such, if it has any.
    let _ = mapping.advise(Advice::HugePage);
    let start = NonNull::new(mapping.as_mut_ptr()).ok_or_else(|| no_room(Errno::FAULT.into()))?;
    Ok(match access {
        // SAFETY: `mapping` maps `len` readable bytes at `start` until it is dropped, which the
        // region does last. Its size is sealed, so no access faults. No reference into it is ever
        // made.
        Access::ReadOnly => unsafe { Region::from_raw_read_only(start, len, mapping) },
        // SAFETY: as above, and the bytes are writable. The daemon writes a range only before it
        // publishes it and after this process released it (RING.md), so in between it belongs to
        // this process.
        Access::ReadWrite => unsafe { Region::from_raw(start, len, mapping) },
    })
}

/// Refuses a file that is not `bytes` long, or whose size may change.
///
/// # Errors
/// When it is one, or cannot be examined.
pub fn check_size_is_fixed(segment: &'static str, fd: impl AsFd, bytes: u64) -> Result<(), SegmentError> {
    let refused = |got: String, expected: String| SegmentError::Unfit { segment, got, expected };
    // Seals first: the size is looked at when it can no longer change.
    let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    match fcntl_get_seals(&fd) {
        Ok(seals) if seals.contains(fixed) => {}
        Ok(seals) => return Err(refused(format!("seals {seals:?}"), format!("seals {fixed:?}"))),
        Err(error) => return Err(refused(format!("no memfd ({error})"), "a sealed memfd".to_owned())),
    }
    let status = fstat(&fd).map_err(|error| SegmentError::System(error.into()))?;
    if u64::try_from(status.st_size) != Ok(bytes) {
        return Err(refused(format!("{} bytes", status.st_size), format!("{bytes} bytes")));
    }
    Ok(())
}
