//! The memory below an arena: a range of addresses that is reserved once, of which the beginning
//! has memory.
//!
//! The range is as long as the arena may become. So the arena grows and shrinks in place: no block
//! moves, and neighbours stay neighbours. The rest of the range may not be touched (`PROT_NONE`).
//! It takes no memory, even where the system counts what is promised (`vm.overcommit_memory` 2).
#![expect(unsafe_code, reason = "maps and unmaps memory to which other code has pointers")]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags, madvise, mlock_with, mmap_anonymous, mprotect,
    munmap,
};

/// A multiple of every size of small pages: 4, 16 and 64 KiB.
const UNIT_BYTES: usize = 64 << 10;

/// Addresses of one mapping, private and anonymous.
#[derive(Debug)]
pub(super) struct Mapping {
    pages: *mut c_void,
    /// Bytes of all pages.
    len: usize,
    /// Bytes before the memory, which begins at a multiple of `create`'s alignment.
    skipped: usize,
}

// SAFETY: the pointer is an address of a mapping that belongs to this value alone, and no thread
// has a claim to it.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference the pointer is only read. Pages are given and taken back by
// system calls, which any thread may make at any time.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves addresses for `bytes` of memory that begins at a multiple of `align_bytes`.
    ///
    /// # Errors
    ///
    /// What the system says, as where `ulimit -v` is lower.
    pub(super) fn reserve(bytes: usize, align_bytes: usize) -> io::Result<Self> {
        let len = bytes
            .checked_next_multiple_of(UNIT_BYTES)
            .and_then(|bytes| bytes.checked_add(align_bytes))
            .ok_or_else(|| io::Error::from(rustix::io::Errno::OVERFLOW))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without an address of ours the kernel takes free ones, so nothing is replaced.
        let pages = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::empty(), flags) }?;
        let address = pages.addr();
        Ok(Self { pages, len, skipped: address.next_multiple_of(align_bytes) - address })
    }

    /// The first byte of the memory.
    pub(super) fn start(&self) -> *mut u8 {
        self.at(0).cast()
    }

    /// Bytes of memory that there may be.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.len - self.skipped
    }

    /// Gives these bytes memory, zeroed, in huge pages where the system gives them on demand. Pages
    /// are allocated on first use. Returns whether they are locked from then on: never swapped out.
    ///
    /// # Errors
    ///
    /// What the system says to that much memory. The range then has none.
    pub(super) fn add(&self, bytes: Range<usize>) -> io::Result<bool> {
        let Range { start, end } = self.units(bytes)?;
        let (at, len) = (self.at(start), end - start);
        // SAFETY: `units` proves that the range lies in this mapping. It becomes accessible where
        // it was not, and nothing that was there changes.
        unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        // Kernels without huge pages refuse the first; small pages work, only slower. Without the
        // cache a core dump fits on the disk.
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontDump] {
            let _ = self.advise(advice, start..end);
        }
        // SAFETY: as above; locking changes no byte and no access right.
        Ok(unsafe { mlock_with(at, len, MlockFlags::ONFAULT) }.is_ok())
    }

    /// Gives the memory of these bytes back to the system, whole units of them.
    ///
    /// # Safety
    ///
    /// Nobody may use them any more, until they are [added](Self::add) again.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) unsafe fn remove(&self, bytes: Range<usize>) -> io::Result<()> {
        let Range { start, end } = self.units(bytes)?;
        if start == end {
            return Ok(());
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: `units` proves that the range lies in this mapping, so nothing else is replaced,
        // and the caller promises that nobody uses it. It is reserved again, as in `reserve`.
        unsafe { mmap_anonymous(self.at(start), end - start, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    /// Finds memory for bytes that were added, in small pages if `is_small`, else in huge ones if
    /// the system has them. They begin with a page. Pages that have memory stay as they are.
    ///
    /// # Errors
    ///
    /// When memory is short, or Linux is older than 5.14.
    pub(super) fn populate(&self, bytes: Range<usize>, is_small: bool) -> io::Result<()> {
        if is_small {
            // Kernels without huge pages refuse it; all pages are small there.
            let _ = self.advise(Advice::LinuxNoHugepage, bytes.clone());
        }
        self.advise(Advice::LinuxPopulateWrite, bytes)
    }

    /// Only for advice that changes no byte.
    fn advise(&self, advice: Advice, bytes: Range<usize>) -> io::Result<()> {
        let Range { start, end } = self.inside(bytes)?;
        // SAFETY: `inside` proves that the range lies in this mapping, and no advice given here
        // changes a byte of it.
        Ok(unsafe { madvise(self.at(start), end - start, advice) }?)
    }

    /// The range, if it lies in the memory.
    fn inside(&self, bytes: Range<usize>) -> io::Result<Range<usize>> {
        let fits = bytes.start <= bytes.end && bytes.end <= self.reserved_bytes();
        fits.then_some(bytes).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// The range of units whose begin is in `bytes`, if it lies in the memory: units that begin
    /// before belong to the bytes before.
    fn units(&self, bytes: Range<usize>) -> io::Result<Range<usize>> {
        let up = |at: usize| at.checked_next_multiple_of(UNIT_BYTES).unwrap_or(usize::MAX);
        self.inside(up(bytes.start)..up(bytes.end))
    }

    fn at(&self, offset: usize) -> *mut c_void {
        self.pages.wrapping_byte_add(self.skipped + offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is this value's, and code with a pointer into it borrows it.
        let unmapped = unsafe { munmap(self.pages, self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the range that are resident, by the system's own account.
    fn resident(mapping: &Mapping) -> usize {
        crate::blocks::resident_bytes(
            mapping.start().addr()..mapping.start().addr() + mapping.reserved_bytes(),
        )
    }

    #[test]
    fn memory_comes_and_goes_and_comes_back_as_zeros() {
        let mapping = Mapping::reserve(10 * UNIT_BYTES + 1, 2 << 20).unwrap();
        assert_eq!(mapping.start().addr() % (2 << 20), 0);
        assert!(mapping.reserved_bytes() >= 11 * UNIT_BYTES);
        assert_eq!(resident(&mapping), 0);
        // A unit belongs to the range in which it begins.
        for (bytes, units) in [(0..5, 1), (5..UNIT_BYTES, 1), (UNIT_BYTES..3 * UNIT_BYTES - 1, 3)] {
            mapping.add(bytes.clone()).unwrap();
            mapping.populate(0..bytes.end, true).unwrap();
            assert!((bytes.end..=units * UNIT_BYTES).contains(&resident(&mapping)));
        }
        let byte = mapping.start().wrapping_add(2 * UNIT_BYTES);
        // SAFETY: the byte has memory, and nobody else knows of it.
        unsafe { byte.write(7) };
        // SAFETY: nobody uses these bytes.
        unsafe { mapping.remove(UNIT_BYTES..3 * UNIT_BYTES) }.unwrap();
        assert!(resident(&mapping) <= UNIT_BYTES);
        mapping.add(UNIT_BYTES..3 * UNIT_BYTES).unwrap();
        // SAFETY: the byte has memory again, and nobody else knows of it.
        assert_eq!(unsafe { byte.read() }, 0);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let mapping = Mapping::reserve(UNIT_BYTES, UNIT_BYTES).unwrap();
        let beyond = mapping.reserved_bytes() + 1;
        assert_eq!(mapping.add(0..beyond).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(mapping.populate(0..beyond, false).is_err());
        assert!(Mapping::reserve(usize::MAX, 1).is_err());
    }
}
