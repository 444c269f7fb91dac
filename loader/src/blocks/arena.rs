//! The arena's memory: mapped once, locked where allowed, cut into blocks.
//!
//! It comes in huge pages where they are to be had: a read that bypasses the page cache has to pin its pages, which is one step
//! for a huge page and was a quarter of a 110 KB read's CPU time with small ones. As a rule it is private and anonymous. Where
//! all records stay in memory it may be a memfd, from which trainers read records in place; of shared memory systems give huge
//! pages to next to nobody, so each is asked for by itself. Either way pages come into being on first use, so an arena of any
//! size starts at once, and [`Prefault`](super::Prefault) uses them a little ahead of the reads. `MLOCK_ONFAULT` keeps each one
//! in memory from then on. Nothing is left behind after a crash.
#![expect(
    unsafe_code,
    reason = "tokens prove exclusive ownership of memory that the compiler cannot see into"
)]

use super::FreeList;
use super::block_size::BLOCK_UNIT_BYTES;
use super::lent::Lent;
use super::prefault::{CHUNK_BYTES, Frontier};
use super::token::{ArenaId, Blocks, BlocksError, Runs};
use crate::memfd::{self, Writers};
use rustix::mm::{MlockFlags, mlock_with};
use shade_formats::ring::{Access, Mapping, Pages};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The mapping starts on a page, so no block can promise more than this.
const PAGE_BYTES: u32 = 4096;

/// The memory of all records: `bytes() / block_bytes()` blocks. Shared by every thread that touches records.
#[derive(Debug)]
pub struct Arena {
    id: ArenaId,
    memory: Mapping,
    block_bytes: u32,
    locked: bool,
    /// The file that the memory is, if other processes may map it.
    file: Option<Arc<OwnedFd>>,
    frontier: Frontier,
}

impl Arena {
    /// Makes an arena of as many whole blocks as fit into `bytes`, zeroed, and its one free list.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when `block_bytes` is no multiple of 512, `bytes` holds no block or more than 2³² of
    /// them; otherwise what the system says to a mapping of that size.
    pub fn create(bytes: u64, block_bytes: u32) -> io::Result<(Arena, FreeList)> {
        Self::map_with(bytes, block_bytes, |bytes| Ok((Mapping::anonymous(bytes)?, None)))
    }

    /// As [`create`](Self::create), in memory that other processes may map, though not write to: see
    /// [`file`](Self::file).
    ///
    /// # Errors
    ///
    /// As of `create`.
    pub fn create_shared(bytes: u64, block_bytes: u32) -> io::Result<(Arena, FreeList)> {
        Self::map_with(bytes, block_bytes, |bytes| {
            let file = memfd::create("shade-records", bytes)?;
            let memory = Mapping::new(&file, bytes, Access::ReadWrite, Pages::Huge)?;
            memfd::seal(&file, Writers::Mapped)?;
            Ok((memory, Some(Arc::new(file))))
        })
    }

    fn map_with(
        bytes: u64,
        block_bytes: u32,
        map: impl FnOnce(u64) -> io::Result<(Mapping, Option<Arc<OwnedFd>>)>,
    ) -> io::Result<(Arena, FreeList)> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if block_bytes == 0 || !block_bytes.is_multiple_of(BLOCK_UNIT_BYTES) {
            return Err(invalid(format!(
                "block size of {block_bytes} bytes is no multiple of {BLOCK_UNIT_BYTES}"
            )));
        }
        let blocks = u32::try_from(bytes / u64::from(block_bytes))
            .map_err(|_| invalid(format!("{bytes} bytes are too many blocks of {block_bytes} bytes")))?;
        if blocks == 0 {
            return Err(invalid(format!("{bytes} bytes hold no block of {block_bytes} bytes")));
        }
        let bytes = u64::from(blocks) * u64::from(block_bytes);
        let (memory, file) = map(bytes)?;
        // A core dump without the cache is one that fits on the disk.
        memory.leave_out_of_dumps();
        let locked = lock(&memory);
        let id = ArenaId::next();
        let arena = Arena { id, memory, block_bytes, locked, file, frontier: Frontier::default() };
        Ok((arena, FreeList::new(id, block_bytes, blocks)))
    }

    /// Size of a block in bytes, a multiple of 512.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Bytes in all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Whether the memory is locked: never swapped out once used. Needs `CAP_IPC_LOCK` or a sufficient
    /// `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn locked(&self) -> bool {
        self.locked
    }

    /// The file that the memory is, of [`bytes`](Self::bytes), if other processes may map it.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<OwnedFd>> {
        self.file.as_ref()
    }

    /// The power of two, 512 to 4096 bytes, that every block's address is a multiple of.
    #[must_use]
    pub fn align_bytes(&self) -> u32 {
        PAGE_BYTES.min(1 << self.block_bytes.trailing_zeros())
    }

    /// The first `len` bytes in `blocks`, in order, as few slices as neighbouring blocks allow.
    ///
    /// # Errors
    ///
    /// When the blocks belong to another arena or hold less than `len` bytes.
    pub fn slices<'a>(
        &'a self,
        blocks: &'a Blocks,
        len: u32,
    ) -> Result<impl Iterator<Item = &'a [u8]>, BlocksError> {
        Ok(self.shared(self.runs(blocks, len)?))
    }

    /// The first `len` bytes of a record that is lent, in order, as few slices as neighbouring blocks allow.
    ///
    /// # Errors
    ///
    /// As of [`slices`](Self::slices).
    pub fn slices_of<'a>(
        &'a self,
        lent: &'a Lent,
        len: u32,
    ) -> Result<impl Iterator<Item = &'a [u8]>, BlocksError> {
        Ok(self.shared(lent.runs(self.id, self.block_bytes, len)?))
    }

    /// The bytes of `runs`, which are those of a token of ours that is shared during 'a: by a borrow of itself, or by one of
    /// a [`Lent`], whose record nobody can take the token out of nor change, since it has two holders or is borrowed.
    fn shared<'a>(&'a self, runs: Runs<'a>) -> impl Iterator<Item = &'a [u8]> {
        runs.map(|(offset, len)| {
            let start = self.at(offset);
            // SAFETY: `at` proves that the stretch lies in the mapping, which `&'a self` keeps; its bytes are
            // initialised (fresh memory reads as zero) and u8 has no alignment. Nobody writes to them during 'a:
            // the token owns these blocks alone (see `at`), and writing takes `&mut Blocks`, which its being shared
            // excludes.
            unsafe { std::slice::from_raw_parts(start, len) }
        })
    }

    /// The first `len` bytes in `blocks`, in order, to be written.
    ///
    /// # Errors
    ///
    /// When the blocks belong to another arena or hold less than `len` bytes.
    pub fn slices_mut<'a>(
        &'a self,
        blocks: &'a mut Blocks,
        len: u32,
    ) -> Result<impl Iterator<Item = &'a mut [u8]>, BlocksError> {
        Ok(self.runs(blocks, len)?.map(|(offset, len)| {
            self.frontier.reach(offset + len);
            let start = self.at(offset);
            // SAFETY: in the mapping and initialised, as in `slices`. Unique during 'a: the token owns these
            // blocks alone (see `at`), it is borrowed mutably, and `runs` yields each of its blocks once, as
            // a token holds no block twice.
            unsafe { std::slice::from_raw_parts_mut(start, len) }
        }))
    }

    /// Bytes that have no memory yet, as far as is known: those behind what is in use and what
    /// memory was found for.
    #[must_use]
    pub fn unfound_bytes(&self) -> u64 {
        let found = self.frontier.found_chunks().saturating_mul(CHUNK_BYTES);
        self.memory.len().saturating_sub(found) as u64
    }

    /// How far the arena is in use.
    pub(super) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Chunks that [`find_memory`](Self::find_memory) finds memory for; the last one may be shorter.
    pub(super) fn chunks(&self) -> usize {
        self.memory.len().div_ceil(CHUNK_BYTES)
    }

    /// Where the memory is.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.memory.start().addr().get();
        start..start + self.memory.len()
    }

    /// Makes a chunk resident, in such pages if they are to be had. What is there already stays as it is.
    ///
    /// # Errors
    ///
    /// When memory is short, or Linux is older than 5.14.
    pub(super) fn find_memory(&self, chunk: usize, pages: Pages) -> io::Result<()> {
        let at = chunk.saturating_mul(CHUNK_BYTES);
        let len = CHUNK_BYTES.min(self.memory.len().saturating_sub(at));
        match (&self.file, pages) {
            // The system may have none for a file. Small ones serve as well, only slower.
            (Some(_), Pages::Huge) if len == CHUNK_BYTES && self.memory.make_huge(at, len).is_ok() => {
                return Ok(());
            }
            // Refused by kernels without huge pages, where all are small.
            (None, Pages::Small) => drop(self.memory.keep_small(at, len)),
            _ => {}
        }
        self.memory.populate(at, len)
    }

    /// Where `blocks` lie, once they are known to be ours.
    fn runs<'a>(&self, blocks: &'a Blocks, len: u32) -> Result<Runs<'a>, BlocksError> {
        if blocks.arena() != self.id {
            return Err(BlocksError::Foreign);
        }
        blocks.runs(len)
    }

    /// Address of byte `offset` of a stretch that `runs` gave.
    ///
    /// What makes tokens exclusive: ids are unique per arena, so a token with ours was made by our free list.
    /// `create` makes that list alone, with each id in `0..blocks` once; `take` moves ids from the list into
    /// a token, `give` moves them back and consumes the token; neither list nor token can be cloned. So a
    /// block has one owner.
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.memory.len(), "block outside its arena");
        // SAFETY: a stretch consists of whole ids below `blocks`, at most cut short, so it ends at or before
        // `blocks * block_bytes`, the mapping's length; a mapping never exceeds isize::MAX bytes.
        unsafe { self.memory.start().as_ptr().add(offset) }
    }
}

impl ArenaId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Locks each page from its first use on; false where that is not allowed.
fn lock(memory: &Mapping) -> bool {
    // SAFETY: the range is exactly one live mapping of ours; locking it changes no byte and no access right.
    unsafe { mlock_with(memory.start().as_ptr().cast(), memory.len(), MlockFlags::ONFAULT) }.is_ok()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate, ftruncate};

    use super::super::Record;
    use super::*;
    use proptest::prelude::*;

    fn write(arena: &Arena, blocks: &mut Blocks, bytes: &[u8]) {
        let mut rest = bytes;
        for slice in arena.slices_mut(blocks, u32::try_from(bytes.len()).unwrap()).unwrap() {
            let (now, later) = rest.split_at(slice.len());
            slice.copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty());
    }

    fn read(arena: &Arena, blocks: &Blocks, len: usize) -> Vec<u8> {
        arena.slices(blocks, u32::try_from(len).unwrap()).unwrap().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn records_do_not_disturb_each_other(
            ops in prop::collection::vec((0usize..5000, any::<u8>(), any::<prop::sample::Index>()), 1..60)
        ) {
            let (arena, mut list) = Arena::create(64 * 1024, 1536).unwrap();
            let mut held: Vec<(Blocks, Vec<u8>)> = Vec::new();
            for (len, fill, victim) in ops {
                let record: Vec<u8> = (0..=250).cycle().take(len).map(|i: u8| fill.wrapping_add(i)).collect();
                let mut blocks = loop {
                    match list.take(len as u64) {
                        Some(blocks) => break blocks,
                        None => list.give(held.swap_remove(victim.index(held.len())).0),
                    }
                };
                write(&arena, &mut blocks, &record);
                held.push((blocks, record));
                for (blocks, record) in &held {
                    prop_assert_eq!(&read(&arena, blocks, record.len()), record);
                }
            }
        }
    }

    #[test]
    fn the_arena_is_whole_zeroed_blocks() {
        let (arena, list) = Arena::create(10_000, 1024).unwrap();
        assert_eq!((arena.bytes(), list.free_bytes(), list.total_bytes()), (9216, 9216, 9216));
        assert_eq!((arena.block_bytes(), arena.align_bytes()), (1024, 1024));
        let mut list = list;
        let blocks = list.take(9216).unwrap();
        assert_eq!(read(&arena, &blocks, 9216), vec![0; 9216]);
        assert_eq!(Arena::create(1 << 20, 16384).unwrap().0.align_bytes(), 4096);
        assert_eq!(Arena::create(1 << 20, 2560).unwrap().0.align_bytes(), 512);
    }

    #[test]
    fn a_shared_arena_is_read_by_others_in_place_and_written_by_nobody_else() {
        let (arena, mut list) = Arena::create_shared(5 * 4096, 4096).unwrap();
        assert!(Arena::create(4096, 4096).unwrap().0.file().is_none());
        let fd = arena.file().unwrap();
        let before = list.take(1).unwrap();
        let mut blocks = list.take(5000).unwrap();
        write(&arena, &mut blocks, &[7; 5000]);
        let record = Record::new(blocks, false);
        assert_eq!(record.place(), None, "nobody has checked it");
        record.set_checked();
        assert_eq!(record.place(), Some(4096));
        let mut seen = [0; 5001];
        rustix::io::pread(fd, &mut seen, 4096).unwrap();
        assert_eq!((&seen[..5000], seen[5000]), (&[7; 5000][..], 0));

        assert!(Mapping::new(fd, 4096, Access::ReadWrite, Pages::Small).is_err(), "a writable mapping");
        assert!(rustix::io::pwrite(fd, b"x", 0).is_err());
        assert!(fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).is_err());
        assert!(ftruncate(fd, 0).is_err());

        list.give(before);
        let scattered = Record::new(list.take(2 * 4096 + 1).unwrap(), true);
        assert_eq!(scattered.place(), None, "blocks 0, 3 and 4");
    }

    #[test]
    fn blocks_of_another_arena_give_no_slices() {
        let (arena, _list) = Arena::create(4096, 512).unwrap();
        let (_other, mut other_list) = Arena::create(4096, 512).unwrap();
        let mut foreign = other_list.take(10).unwrap();
        assert_eq!(arena.slices(&foreign, 10).err(), Some(BlocksError::Foreign));
        assert_eq!(arena.slices_mut(&mut foreign, 10).err(), Some(BlocksError::Foreign));
    }

    #[test]
    fn a_lent_record_has_the_bytes_of_its_blocks_side_by_side_or_not() {
        let (arena, mut list) = Arena::create(8192, 512).unwrap();
        let (other, _) = Arena::create(8192, 512).unwrap();
        let singles: Vec<Blocks> = (0..8).map(|_| list.take(1).unwrap()).collect();
        let (odd, even): (Vec<_>, Vec<_>) = singles.into_iter().zip(0..8).partition(|(_, at)| at % 2 == 1);
        odd.into_iter().for_each(|(blocks, _)| list.give(blocks));
        let mut kept = Vec::new();
        for len in [2048, 1000] {
            let mut blocks = list.take(u64::from(len)).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[0] ^ 0x5a).collect();
            write(&arena, &mut blocks, &bytes);
            let lent = Lent::new(Arc::new(Record::new(blocks, false)));
            let pieces: Vec<&[u8]> = arena.slices_of(&lent, len).unwrap().collect();
            assert_eq!(pieces.len(), if len == 2048 { 4 } else { 1 });
            assert_eq!(pieces.concat(), bytes);
            assert_eq!(other.slices_of(&lent, 1).err(), Some(BlocksError::Foreign));
            let too_short = BlocksError::TooShort { bytes: u64::from(len.next_multiple_of(512)), len: 4096 };
            assert_eq!(arena.slices_of(&lent, 4096).err(), Some(too_short));
            assert!(!lent.is_checked());
            lent.record().set_checked();
            assert!(lent.is_checked());
            list.give(Arc::into_inner(lent.into_record()).unwrap().into_blocks());
            // Kept from the next one, whose blocks are then neighbours.
            kept.push(list.take(2048).unwrap());
        }
        kept.into_iter().for_each(|blocks| list.give(blocks));
        even.into_iter().for_each(|(blocks, _)| list.give(blocks));
    }

    #[test]
    fn asking_for_more_than_the_blocks_hold_is_an_error() {
        let (arena, mut list) = Arena::create(4096, 512).unwrap();
        let blocks = list.take(513).unwrap();
        assert_eq!(arena.slices(&blocks, 1024).unwrap().map(<[u8]>::len).sum::<usize>(), 1024);
        assert_eq!(arena.slices(&blocks, 1025).err(), Some(BlocksError::TooShort { bytes: 1024, len: 1025 }));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (bytes, block_bytes) in [(1 << 20, 0), (1 << 20, 1000), (511, 512), (0, 512), (1 << 50, 512)] {
            let error = Arena::create(bytes, block_bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes} / {block_bytes}");
        }
    }

    #[test]
    fn the_arena_is_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Arena>();
        shared::<Blocks>();
    }
}
