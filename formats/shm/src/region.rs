//! A bounds-checked view of memory that another process may write at any moment.
//!
//! No reference to the mapped bytes is ever formed. Bytes are copied through raw pointers into or
//! out of private memory, so that a checked value cannot change afterwards; the ring's indices are
//! atomics.
//!
//! The copies rely on two facts. `u8` has no invalid value, so a racing process causes at worst a
//! torn copy, which the later checks (CRC, ranges) survive. And the compiler may assume nothing
//! about memory behind a raw pointer of unknown origin beyond the one copy. Inside this process
//! nothing races: the ring gives each range one owner at a time, and ownership passes by a release
//! store and an acquire load of an index.
#![expect(unsafe_code, reason = "shared memory has no safe view; each block has its proof")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use shade_formats::FormatError;
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;
use shade_formats::ring::COLUMN_ALIGN_BYTES;

/// Mapped memory shared with another process. Clones share the mapping, which lives until the last
/// is dropped.
#[derive(Clone)]
pub struct Region {
    memory: Arc<SharedBytes>,
}

struct SharedBytes {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    _keep_alive: Box<dyn Any + Send + Sync>,
}

// SAFETY: `start` is only an address; what keeps it valid is Send, and no access depends on the
// thread it is made from.
unsafe impl Send for SharedBytes {}
// SAFETY: access through `&SharedBytes` is by copies and atomics, never by references; see the head
// of this file for races.
unsafe impl Sync for SharedBytes {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.memory.writable { "read-write" } else { "read-only" };
        write!(f, "Region({} bytes, {kind})", self.memory.len)
    }
}

impl Region {
    /// A view of the `len` bytes at `start`, mapped for reading and writing.
    ///
    /// # Safety
    /// The bytes must be mapped readable and writable, and stay so until `keep_alive` is dropped.
    /// Nothing in this process may have a Rust reference to them. It may access them only through
    /// clones of this region, or under the ring's ownership rules (one owner of a range at a time).
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, keep_alive: impl Any + Send + Sync) -> Self {
        Self {
            memory: Arc::new(SharedBytes { start, len, writable: true, _keep_alive: Box::new(keep_alive) }),
        }
    }

    /// A view of the `len` bytes at `start`, mapped for reading only: every write through it is
    /// refused.
    ///
    /// # Safety
    /// The same as for [`Region::from_raw`], but the bytes need only be readable.
    pub unsafe fn from_raw_read_only(
        start: NonNull<u8>,
        len: usize,
        keep_alive: impl Any + Send + Sync,
    ) -> Self {
        Self {
            memory: Arc::new(SharedBytes { start, len, writable: false, _keep_alive: Box::new(keep_alive) }),
        }
    }

    /// `len` zeroed bytes on the heap, aligned like a mapping, for tests.
    #[must_use]
    pub fn heap(len: u64) -> Self {
        let heap = HeapBytes::new(len, PAYLOAD_ALIGN_BYTES, HeapContent::Zeroes)
            .unwrap_or_else(|| handle_alloc_error(Layout::new::<u64>()));
        let (start, len) = (heap.start, heap.layout.size());
        // SAFETY: `heap` owns the allocation of `len` bytes at `start`, frees it only when dropped,
        // and hands out no reference to it.
        unsafe { Self::from_raw(start, len, heap) }
    }

    /// A copy of the `len` bytes at `offset` in this process's own memory, aligned to
    /// [`COLUMN_ALIGN_BYTES`]. `None` if there is no memory for it.
    ///
    /// # Errors
    /// When the range leaves the region.
    pub fn copy_out(&self, offset: u64, len: u64) -> Result<Option<Self>, FormatError> {
        let from = self.range(offset, len)?;
        let count = self.to_usize(offset, len)?;
        let Some(heap) = HeapBytes::new(len, COLUMN_ALIGN_BYTES, HeapContent::Arbitrary) else {
            return Ok(None);
        };
        let start = heap.start;
        // SAFETY: `from` starts `count` mapped readable bytes; `start` starts as many or more, just
        // allocated and so elsewhere.
        unsafe { ptr::copy_nonoverlapping(from, start.as_ptr(), count) };
        // SAFETY: as in `heap`; the first `count` bytes are written.
        Ok(Some(unsafe { Self::from_raw(start, count, heap) }))
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len as u64
    }

    /// Whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Address of the first byte. Its user is responsible for bounds and lifetime: keep a clone of
    /// the region.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// When the range leaves the region, or the region is read-only.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FormatError> {
        let to = self.writable_range(offset, bytes.len() as u64)?;
        // SAFETY: `to` has room for `bytes.len()` mapped writable bytes; `bytes` is a reference and
        // so lies elsewhere, as none is ever formed into a region.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies the bytes at `offset` into `into`.
    ///
    /// # Errors
    /// When the range leaves the region.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), FormatError> {
        let from = self.range(offset, into.len() as u64)?;
        // SAFETY: `from` starts `into.len()` mapped readable bytes; `into` is an exclusive
        // reference and so lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Moves `len` bytes from offset `from` to offset `to`; the ranges may overlap.
    ///
    /// # Errors
    /// When a range leaves the region, or the region is read-only.
    pub fn copy_within(&self, from: u64, to: u64, len: u64) -> Result<(), FormatError> {
        let source = self.range(from, len)?;
        let target = self.writable_range(to, len)?;
        let count = self.to_usize(to, len)?;
        // SAFETY: both ranges are `count` mapped bytes, the second writable; `ptr::copy` allows
        // them to overlap.
        unsafe { ptr::copy(source, target, count) };
        Ok(())
    }

    /// Loads the `u64` at `offset` with acquire ordering.
    ///
    /// # Errors
    /// When the offset is not a multiple of 8 or leaves the region.
    pub fn load_u64(&self, offset: u64) -> Result<u64, FormatError> {
        let at = self.aligned::<u64>(offset, false)?;
        // SAFETY: `at` is aligned and mapped while `self` lives; every access to an index, by
        // either process, is atomic.
        let word = unsafe { AtomicU64::from_ptr(at) };
        // SharedBytes mapped read-only allows relaxed loads only (`std::sync::atomic`, "Atomic
        // accesses to read-only memory"); relaxed load and fence together order as an acquire load
        // does.
        let value = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Ok(u64::from_le(value))
    }

    /// Stores a `u64` at `offset` with release ordering.
    ///
    /// # Errors
    /// When the offset is not a multiple of 8 or leaves the region, or the region is read-only.
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), FormatError> {
        let at = self.aligned::<u64>(offset, true)?;
        // SAFETY: as in `load_u64`, and the memory is writable.
        let word = unsafe { AtomicU64::from_ptr(at) };
        word.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    /// The address of `offset`, where `len` bytes are within the region.
    fn range(&self, offset: u64, len: u64) -> Result<*mut u8, FormatError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => {}
            _ => return Err(self.out_of_range(offset, len)),
        }
        // In bounds, as just checked. `wrapping_add`, since the address is only computed here.
        Ok(self.memory.start.as_ptr().wrapping_add(self.to_usize(offset, offset)?))
    }

    fn writable_range(&self, offset: u64, len: u64) -> Result<*mut u8, FormatError> {
        if !self.memory.writable {
            return Err(FormatError::new("shared memory", offset, "a write", "a region mapped for writing"));
        }
        self.range(offset, len)
    }

    fn aligned<T>(&self, offset: u64, write: bool) -> Result<*mut T, FormatError> {
        let bytes = size_of::<T>() as u64;
        let at =
            if write { self.writable_range(offset, bytes)? } else { self.range(offset, bytes)? }.cast::<T>();
        if !at.is_aligned() {
            let expected = format_args!("alignment {bytes}");
            return Err(FormatError::new("shared memory", offset, "an odd address", expected));
        }
        Ok(at)
    }

    fn to_usize(&self, offset: u64, value: u64) -> Result<usize, FormatError> {
        usize::try_from(value).map_err(|_| self.out_of_range(offset, value))
    }

    fn out_of_range(&self, offset: u64, len: u64) -> FormatError {
        FormatError::new(
            "shared memory",
            offset,
            format_args!("an access of {len} bytes"),
            format_args!("a range within {} bytes", self.len()),
        )
    }
}

/// The content of fresh heap memory.
#[derive(Clone, Copy)]
enum HeapContent {
    Zeroes,
    /// Not to be read before it is written.
    Arbitrary,
}

/// Heap memory that no reference points into.
struct HeapBytes {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation is owned by this value alone and the global allocator frees from any
// thread.
unsafe impl Send for HeapBytes {}
// SAFETY: there is no access through `&HeapBytes`.
unsafe impl Sync for HeapBytes {}

impl HeapBytes {
    /// `None` when there is no memory for it.
    fn new(len: u64, align: u64, content: HeapContent) -> Option<Self> {
        // At least one word: the allocator takes no zero size.
        let (len, align) = (usize::try_from(len.max(8)).ok()?, usize::try_from(align).ok()?);
        let layout = Layout::from_size_align(len, align).ok()?;
        let start = match content {
            // SAFETY: the layout's size is not zero.
            HeapContent::Zeroes => unsafe { alloc_zeroed(layout) },
            // SAFETY: as above.
            HeapContent::Arbitrary => unsafe { alloc(layout) },
        };
        Some(Self { start: NonNull::new(start)?, layout })
    }
}

impl Drop for HeapBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` by the same allocator with the same layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_read_and_moved() {
        let region = Region::heap(4096);
        region.write(4090, b"sample").unwrap();
        region.copy_within(4090, 4088, 6).unwrap();
        let mut got = [0; 8];
        region.read(4088, &mut got).unwrap();
        assert_eq!(&got, b"samplele");
    }

    #[test]
    fn every_access_outside_is_an_error() {
        let region = Region::heap(4096);
        for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 1), (u64::MAX - 3, 8), (0, 4097)] {
            let mut bytes = vec![0; len];
            assert!(region.read(offset, &mut bytes).is_err(), "read {offset} {len}");
            assert!(region.write(offset, &bytes).is_err(), "write {offset} {len}");
            assert!(region.copy_within(0, offset, len as u64).is_err(), "copy to {offset} {len}");
            assert!(region.copy_within(offset, 0, len as u64).is_err(), "copy from {offset} {len}");
            assert!(region.copy_out(offset, len as u64).is_err(), "copy out {offset} {len}");
        }
        assert!(region.load_u64(4089).is_err());
        assert!(region.load_u64(4).is_err(), "unaligned");
        assert!(region.store_u64(4, 1).is_err(), "unaligned");
        assert!(region.write(4096, b"").is_ok(), "an empty range at the end is in range");
    }

    #[test]
    fn a_copy_is_aligned_and_nobody_elses() {
        let region = Region::heap(8192);
        region.write(4096, b"sample").unwrap();
        let copy = region.copy_out(4096, 6).unwrap().unwrap();
        region.write(4096, b"record").unwrap();
        let mut got = [0; 6];
        copy.read(0, &mut got).unwrap();
        assert_eq!(&got, b"sample");
        assert_eq!((copy.len(), copy.as_ptr().addr() % 64), (6, 0));
        assert!(copy.write(6, b"x").is_err());
        assert!(region.copy_out(0, 0).unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_read_only_region_refuses_writes() {
        let memory = Region::heap(4096);
        memory.store_u64(8, 7).unwrap();
        let start = NonNull::new(memory.as_ptr()).unwrap();
        // SAFETY: the memory is kept alive by the clone of its region and accessed by copies and
        // atomics only.
        let view = unsafe { Region::from_raw_read_only(start, 4096, memory.clone()) };
        assert_eq!(view.load_u64(8).unwrap(), 7);
        assert!(view.write(0, b"x").is_err());
        assert!(view.store_u64(8, 1).is_err());
        assert!(view.copy_within(0, 8, 8).is_err());
    }

    #[test]
    fn the_mapping_lives_as_long_as_its_last_clone() {
        let kept = Arc::new(());
        let heap = Region::heap(4096);
        // SAFETY: the memory is kept alive by the region beside it.
        let region = unsafe {
            Region::from_raw(NonNull::new(heap.as_ptr()).unwrap(), 4096, (heap, Arc::clone(&kept)))
        };
        let clone = region.clone();
        drop(region);
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(clone);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
