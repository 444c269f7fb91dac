//! Memory, of files and of nobody, mapped at addresses that suit the pages it is wanted in.
//!
//! A huge page of a file is mapped as one only where address and place in the file leave the same rest: then one fault and one
//! entry of the TLB do for 2 MiB. Where they do not, each fault maps the 64 KiB around it, and no more becomes resident.
#![expect(unsafe_code, reason = "mappings are made of addresses; each block has its proof")]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Of x86-64, and of 64-bit Arm with small pages of 4 KiB. On machines with others, all pages are small.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Off by this much from where huge pages would fit. A whole page on any machine.
const ASTRAY_BYTES: usize = 64 << 10;

// Of linux/mman.h; not of every C library's headers.
const MADV_POPULATE_WRITE: c_int = 23;
const MADV_DONTNEED_LOCKED: c_int = 24;
const MADV_COLLAPSE: c_int = 25;

/// What may be done with mapped memory, and who sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    ReadOnly,
    /// What is written is seen by all who map the file.
    ReadWrite,
    /// What is written is seen by this process alone: the page becomes its own.
    CopyOnWrite,
}

/// The pages that a mapping is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge where the file has them, else small.
    Huge,
    /// Small whatever the file has.
    Small,
}

/// Bytes that are mapped until this is dropped. No reference to them is ever made here.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    _reserved: Reserved,
}

// SAFETY: the addresses are valid in every thread, and no method looks at the memory behind them.
unsafe impl Send for Mapping {}
// SAFETY: as above; the system serialises what is done to mappings.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`, at least one. To look at bytes that the file does not have is a SIGBUS.
    ///
    /// # Errors
    /// What the system says: too little address space, a file that may not be mapped so.
    pub fn new(file: impl AsFd, len: u64, access: Access, pages: Pages) -> io::Result<Self> {
        let (protection, flags) = match access {
            Access::ReadOnly => (ProtFlags::READ, MapFlags::SHARED),
            Access::ReadWrite => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            // Hardly any page is ever written to.
            Access::CopyOnWrite => {
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE)
            }
        };
        Self::place(len, pages, |place, len| {
            // SAFETY: `place` has it that these addresses are free.
            Ok(unsafe { mmap(place, len, protection, flags | MapFlags::FIXED, file, 0) }?)
        })
    }

    /// Maps `len` zeros, at least one, of this process alone: in huge pages where the system gives them to who asks. They take
    /// memory from when they are first written to.
    ///
    /// # Errors
    /// What the system says: too little address space.
    pub fn anonymous(len: u64) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        Self::place(len, Pages::Huge, |place, len| {
            // SAFETY: `place` has it that these addresses are free.
            Ok(unsafe { mmap_anonymous(place, len, ProtFlags::READ | ProtFlags::WRITE, flags) }?)
        })
    }

    /// Has `map` put `len` bytes at an address that suits the pages: one in room of ours that nothing else is in.
    fn place(
        len: u64,
        pages: Pages,
        map: impl FnOnce(*mut c_void, usize) -> io::Result<*mut c_void>,
    ) -> io::Result<Self> {
        let too_long = || io::Error::from(Errno::OVERFLOW);
        let len = usize::try_from(len).map_err(|_| too_long())?;
        let room = len.checked_add(HUGE_PAGE_BYTES + ASTRAY_BYTES).ok_or_else(too_long)?;
        let reserved = Reserved::new(room)?;
        let fits = reserved.start.addr().get().next_multiple_of(HUGE_PAGE_BYTES);
        let address = if pages == Pages::Huge { fits } else { fits + ASTRAY_BYTES };
        let start = map(reserved.start.as_ptr().with_addr(address), len)?;
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let mapping = Self { start, len, _reserved: reserved };
        if pages == Pages::Huge {
            // Refused by kernels without huge pages; small ones serve as well, only slower.
            let _ = mapping.advise(0, len, libc::MADV_HUGEPAGE);
        }
        Ok(mapping)
    }

    /// Where the bytes begin: at a page.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the bytes out of core dumps.
    pub fn leave_out_of_dumps(&self) {
        let _ = self.advise(0, self.len, libc::MADV_DONTDUMP);
    }

    /// Gives the file memory for a range of a [`ReadWrite`](Access::ReadWrite) mapping, in huge pages if they fit, whatever
    /// the system's setting for shared memory is. What is there stays.
    ///
    /// # Errors
    /// When the system has no huge page to give, or cannot do this (Linux before 6.1). Some may have been given.
    pub fn make_huge(&self, at: usize, len: usize) -> io::Result<()> {
        for page in (at..at.saturating_add(len)).step_by(HUGE_PAGE_BYTES) {
            // Where no small page is mapped, none is looked for that could be made part of a huge one.
            self.populate(page, 1)?;
        }
        self.advise(at, len, MADV_COLLAPSE)
    }

    /// Has a range of an [`anonymous`](Self::anonymous) mapping come in small pages. What is there stays as it is.
    ///
    /// # Errors
    /// When the range is not in the mapping, or the system has no huge pages.
    pub fn keep_small(&self, at: usize, len: usize) -> io::Result<()> {
        self.advise(at, len, libc::MADV_NOHUGEPAGE)
    }

    /// Makes the pages of a range resident and writable: of a [`ReadWrite`](Access::ReadWrite) mapping, so that the file has
    /// memory for them; of a [`CopyOnWrite`](Access::CopyOnWrite) one, so that they are this process's own, as they are now.
    ///
    /// # Errors
    /// When memory is short; `InvalidInput` by Linux before 5.14, which cannot.
    pub fn populate(&self, at: usize, len: usize) -> io::Result<()> {
        self.advise(at, len, MADV_POPULATE_WRITE)
    }

    /// Makes the pages of a range no longer resident in this process: they show the file's bytes when they are looked at
    /// again. What was written to pages of a [`CopyOnWrite`](Access::CopyOnWrite) mapping is gone.
    ///
    /// # Errors
    /// When the range is not in the mapping; when it is locked in memory, on Linux before 5.18.
    pub fn forget(&self, at: usize, len: usize) -> io::Result<()> {
        match self.advise(at, len, libc::MADV_DONTNEED) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.advise(at, len, MADV_DONTNEED_LOCKED)
            }
            forgotten => forgotten,
        }
    }

    fn advise(&self, at: usize, len: usize, advice: c_int) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::NOMEM.into());
        }
        // The system wants whole pages.
        let before = at % rustix::param::page_size();
        let start = self.start.as_ptr().wrapping_add(at - before);
        // SAFETY: the range lies in the mapping, which begins at a page. What its bytes are may change, but their number and
        // the right to look at them stay, and nobody has a reference to them.
        match unsafe { libc::madvise(start.cast(), before + len, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Addresses that nothing else is put at, until this is dropped; nor what was put there since.
#[derive(Debug)]
struct Reserved {
    start: NonNull<c_void>,
    len: usize,
}

impl Reserved {
    fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system picks addresses that are free.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        Ok(Self { start: NonNull::new(start).ok_or(Errno::FAULT)?, len })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: these addresses are ours, and who looked at what was mapped there is gone.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn file(len: u64) -> std::os::fd::OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len).unwrap();
        file
    }

    fn write(mapping: &Mapping, at: usize, byte: u8) {
        assert!(at < mapping.len());
        // SAFETY: within the mapping, which is writable in all tests that call this.
        unsafe { mapping.start().as_ptr().wrapping_add(at).write_volatile(byte) }
    }

    fn read(mapping: &Mapping, at: usize) -> u8 {
        assert!(at < mapping.len());
        // SAFETY: within the mapping.
        unsafe { mapping.start().as_ptr().wrapping_add(at).read_volatile() }
    }

    /// KiB of the mapping that are resident in this process, and how many of them in huge pages.
    fn resident(mapping: &Mapping) -> (u64, u64) {
        let address = format!("{:x}-", mapping.start().addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let map = maps.lines().skip_while(|line| !line.starts_with(&address)).skip(1);
        let value = |name: &str| {
            let line = map.clone().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (value("Rss:"), value("ShmemPmdMapped:") + value("FilePmdMapped:"))
    }

    #[test]
    fn who_sees_what_is_written() {
        let file = file(3 << 20);
        let map = |access, pages| Mapping::new(&file, 3 << 20, access, pages).unwrap();
        for pages in [Pages::Huge, Pages::Small] {
            let (all, own) = (map(Access::ReadWrite, pages), map(Access::CopyOnWrite, pages));
            let seen = map(Access::ReadOnly, pages);
            write(&all, 5, 1);
            write(&own, 5, 2);
            write(&own, 100_000, 2);
            assert_eq!((read(&seen, 5), read(&all, 5), read(&own, 5)), (1, 1, 2));
            own.forget(5, 1).unwrap();
            assert_eq!((read(&own, 5), read(&own, 100_000)), (1, 2));
            own.populate(5, 1).unwrap();
            write(&all, 5, 3);
            assert_eq!((read(&own, 5), read(&seen, 5)), (1, 3));
        }
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let file = file(8192);
        let mapping = Mapping::new(&file, 8192, Access::CopyOnWrite, Pages::Small).unwrap();
        for (at, len) in [(8192, 1), (0, 8193), (usize::MAX, 2)] {
            assert!(mapping.forget(at, len).is_err());
            assert!(mapping.populate(at, len).is_err());
            assert!(mapping.make_huge(at, len).is_err());
        }
    }

    #[test]
    fn the_pages_are_as_large_as_asked_for() {
        const LEN: u64 = 4 << 20;
        let file = file(LEN);
        let map = |access, pages| Mapping::new(&file, LEN, access, pages).unwrap();
        let all = map(Access::ReadWrite, Pages::Huge);
        if let Err(error) = all.make_huge(0, 4 << 20) {
            eprintln!("SKIPPED: no huge pages to be had: {error}");
            return;
        }
        assert_eq!(resident(&all), (4096, 4096));
        let (huge, small) = (map(Access::CopyOnWrite, Pages::Huge), map(Access::CopyOnWrite, Pages::Small));
        assert_eq!((resident(&huge), resident(&small)), ((0, 0), (0, 0)));
        assert_eq!((read(&huge, 70_000), read(&small, 70_000)), (0, 0));
        assert_eq!(resident(&huge), (2048, 2048));
        let (kib, in_huge) = resident(&small);
        assert!(kib <= 64 && in_huge == 0, "{kib} KiB, {in_huge} in huge pages");
        huge.forget(0, 4 << 20).unwrap();
        assert_eq!(resident(&huge), (0, 0));
    }
}
