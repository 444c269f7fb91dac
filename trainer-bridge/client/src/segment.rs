//! Maps what the daemon hands over, once it is known that the mapping cannot fault.
//!
//! A file that shrinks under a mapping turns the next access into a SIGBUS, so the size must be right and sealed first.
#![expect(unsafe_code, reason = "a mapping becomes a region; each block has its proof")]

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use shade_formats::ring::{Access, Mapping, Pages, Region};

use crate::ClientError;

/// A segment of the daemon's, mapped.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Arc<Mapping>,
    region: Region,
}

impl Segment {
    /// Maps `fd`, which must be a memfd of exactly `bytes` whose size is sealed.
    pub(crate) fn map(
        name: &'static str,
        fd: &OwnedFd,
        bytes: u64,
        access: Access,
        pages: Pages,
    ) -> Result<Self, ClientError> {
        check_size_is_fixed(name, fd, bytes)?;
        let mapping = Mapping::new(fd, bytes, access, pages).map_err(|source| ClientError::NoRoom {
            segment: name,
            bytes,
            source,
        })?;
        let mapping = Arc::new(mapping);
        let (start, len, keep) = (mapping.start(), mapping.len(), Arc::clone(&mapping));
        let region = match access {
            // SAFETY: `mapping` maps `len` readable bytes at `start` until it is dropped, which the region does last. Its size
            // is sealed, so no access faults. No reference into it is ever made.
            Access::ReadOnly => unsafe { Region::from_raw_read_only(start, len, keep) },
            // SAFETY: as above, and the bytes are writable. The daemon writes a range only before it publishes it, or its
            // record's place, and after we released that (RING.md), so in between it is ours alone.
            Access::ReadWrite | Access::CopyOnWrite => unsafe { Region::from_raw(start, len, keep) },
        };
        Ok(Self { mapping, region })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Unmaps the pages of a range, at most as far as the segment goes, until they are looked at again. Where a page became this
    /// process's own when it was written to, it shows the daemon's bytes again.
    pub(crate) fn forget(&self, range: &Range<u64>) {
        let end = range.end.min(self.region.len());
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(end)) else { return };
        // It cannot fail within the segment, but in memory that the trainer has locked.
        let _ = self.mapping.forget(start, end.saturating_sub(start));
    }

    /// Makes the pages of these bytes this process's own, as they are: nobody else changes them from now on. Of a segment that is
    /// copied on write. `false`: there is no memory for that.
    pub(crate) fn make_own(&self, at: u64, len: u64) -> bool {
        if len == 0 {
            return true;
        }
        let (Ok(start), Ok(bytes)) = (usize::try_from(at), usize::try_from(len)) else { return false };
        match self.mapping.populate(start, bytes) {
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
