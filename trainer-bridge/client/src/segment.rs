//! Maps what the daemon hands over, once it is known that the mapping cannot fault.
//!
//! A file that shrinks under a mapping turns the next access into a SIGBUS, so the size must be right and sealed first.
#![expect(unsafe_code, reason = "a mapping becomes a region; each block has its proof")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use shade_formats::ring::Region;

use crate::ClientError;

/// How a segment is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// Maps `fd`, which must be a memfd of exactly `bytes` whose size is sealed.
pub(crate) fn map(
    segment: &'static str,
    fd: &OwnedFd,
    bytes: u64,
    access: Access,
) -> Result<Region, ClientError> {
    check_size_is_fixed(segment, fd, bytes)?;
    let refused =
        |got: String, expected: &str| ClientError::Segment { segment, got, expected: expected.to_owned() };
    let len =
        usize::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes"), "what fits into memory"))?;
    let mut options = MmapOptions::new();
    options.len(len);
    let mapping = match access {
        Access::ReadOnly => options.map_raw_read_only(fd),
        Access::ReadWrite => options.map_raw(fd),
    }
    .map_err(|error| refused(error.to_string(), "a mapping"))?;
    // Where the daemon got huge pages, we map them as such.
    let _ = mapping.advise(Advice::HugePage);
    let start = NonNull::new(mapping.as_mut_ptr())
        .ok_or_else(|| refused("a null address".to_owned(), "a mapping"))?;
    Ok(match access {
        // SAFETY: `mapping` maps `len` readable bytes at `start` until it is dropped, which the region does last. Its size
        // is sealed, so no access faults. No reference into it is ever made.
        Access::ReadOnly => unsafe { Region::from_raw_read_only(start, len, mapping) },
        // SAFETY: as above, and the bytes are writable. The daemon writes a range only before it publishes it or after we
        // released it (RING.md), so in between it is ours alone.
        Access::ReadWrite => unsafe { Region::from_raw(start, len, mapping) },
    })
}

/// The memory of the daemon's records, mapped so that a page becomes this process's own when it is written to.
#[derive(Debug)]
pub(crate) struct Records {
    mapping: Arc<MmapRaw>,
    region: Region,
}

impl Records {
    /// Maps `fd`, as [`map`] does.
    pub(crate) fn map(fd: &OwnedFd, bytes: u64) -> Result<Self, ClientError> {
        let segment = "the records segment";
        check_size_is_fixed(segment, fd, bytes)?;
        let refused = |got: String| ClientError::Segment { segment, got, expected: "a mapping".to_owned() };
        let len = usize::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes")))?;
        let mut options = MmapOptions::new();
        // Hardly any page is ever written to.
        options.len(len).no_reserve_swap();
        // SAFETY: the size is sealed, so that no access faults. What is mapped changes while the daemon writes to it, but no
        // reference into it is ever made: the mapping is handed to a region at once.
        let mapping = unsafe { options.map_copy(fd) }.map_err(|error| refused(error.to_string()))?;
        let mapping = Arc::new(MmapRaw::from(mapping));
        let _ = mapping.advise(Advice::HugePage);
        let start = NonNull::new(mapping.as_mut_ptr()).ok_or_else(|| refused("a null address".to_owned()))?;
        // SAFETY: as in `map`. Bytes that are lent to us are read until we give their batch back, and the daemon overwrites none
        // of them in between (RING.md).
        let region = unsafe { Region::from_raw(start, len, Arc::clone(&mapping)) };
        Ok(Self { mapping, region })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// What this process wrote to the pages of these bytes is gone: they show the daemon's again.
    pub(crate) fn renew(&self, at: u64, len: u64) {
        let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(len)) else { return };
        // SAFETY: the pages lie in the mapping (it is an error else) and stay mapped and readable. Nobody has a reference into
        // it, and who gives a batch back does not look at its records any more.
        let _ = unsafe { self.mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, at, len) };
    }

    /// Makes the pages of these bytes this process's own, as they are: nobody else changes them from now on. `false`: there is
    /// no memory for that.
    pub(crate) fn make_own(&self, at: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        let (Ok(start), Ok(bytes)) = (usize::try_from(at), usize::try_from(len)) else { return false };
        match self.mapping.advise_range(Advice::PopulateWrite, start, bytes) {
            // Linux before 5.14 cannot. A byte of each page is written as it is.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                let pages = (at..at + len).step_by(rustix::param::page_size()).chain([at + len - 1]);
                pages.into_iter().all(|at| {
                    let mut byte = [0];
                    self.region.read(at, &mut byte).and_then(|()| self.region.write(at, &byte)).is_ok()
                })
            }
            populated => populated.is_ok(),
        }
    }
}

/// Refuses a file that is not `bytes` long, or need not stay so.
pub(crate) fn check_size_is_fixed(
    segment: &'static str,
    fd: impl AsFd,
    bytes: u64,
) -> Result<(), ClientError> {
    let refused = |got: String, expected: String| ClientError::Segment { segment, got, expected };
    // Seals first: the size is looked at when it can no longer change.
    let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    match fcntl_get_seals(&fd) {
        Ok(seals) if seals.contains(fixed) => {}
        Ok(seals) => return Err(refused(format!("seals {seals:?}"), format!("seals {fixed:?}"))),
        Err(error) => return Err(refused(format!("no memfd ({error})"), "a sealed memfd".to_owned())),
    }
    let status = fstat(&fd).map_err(ClientError::system("looking at a segment"))?;
    if u64::try_from(status.st_size) != Ok(bytes) {
        return Err(refused(format!("{} bytes", status.st_size), format!("{bytes} bytes")));
    }
    Ok(())
}
