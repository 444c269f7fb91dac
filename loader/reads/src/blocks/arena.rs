//! The arena's memory: in one place, locked where allowed, divided into blocks.
//!
//! It is private and anonymous: a crash leaves nothing behind, and most systems give huge pages on
//! demand to such memory, and never to shared memory. A read past the page cache has to pin its
//! pages: with small ones that was a quarter of the CPU time of a 110 KB read. Pages are allocated
//! on first use, so an arena of any size starts at once; [`Prefault`](super::Prefault) uses them a
//! little ahead of the reads. `MLOCK_ONFAULT` then keeps each page in memory.
#![expect(
    unsafe_code,
    reason = "tokens prove exclusive ownership of memory that the compiler cannot see into"
)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use shade_core::BLOCK_UNIT_BYTES;
use shade_formats::checksum::crc32c_append;

use super::free_list::FreeList;
use super::frontier::{CHUNK_BYTES, Frontier, Pages};
use super::mapping::Mapping;
use super::record::Lent;
use super::token::{ArenaId, Blocks, BlocksError, Runs};

/// The mapping starts on a page, so no block can promise more than this.
const PAGE_BYTES: u32 = 4096;

/// The memory of all records: `bytes() / block_bytes()` blocks. Shared by every thread that touches
/// records.
#[derive(Debug)]
pub struct Arena {
    id: ArenaId,
    memory: Mapping,
    block_bytes: u32,
    /// Number of blocks. Locked while some come or go.
    blocks: Mutex<u32>,
    locked: bool,
    frontier: Frontier,
}

impl Arena {
    /// Makes an arena of as many whole blocks as fit into `bytes`, zeroed, and its one free list.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when `block_bytes` is no multiple of 512, `bytes` holds no block or more than
    /// 2³² of them; otherwise what the system says to a mapping of that size.
    pub fn create(bytes: u64, block_bytes: u32) -> io::Result<(Arena, FreeList)> {
        Self::create_up_to(bytes, bytes, block_bytes)
    }

    /// As [`create`](Self::create), an arena that can grow to `most_bytes` if the system has that
    /// many addresses.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_up_to(bytes: u64, most_bytes: u64, block_bytes: u32) -> io::Result<(Arena, FreeList)> {
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
        let reserve = |bytes| Mapping::reserve(usize::try_from(bytes).unwrap_or(usize::MAX), CHUNK_BYTES);
        let memory = reserve(most_bytes.max(bytes)).or_else(|_| reserve(bytes))?;
        let locked = memory.add(0..byte_of(blocks, block_bytes))?;
        let (id, frontier) = (ArenaId::next(), Frontier::default());
        let arena = Arena { id, memory, block_bytes, blocks: Mutex::new(blocks), locked, frontier };
        Ok((arena, FreeList::new(id, block_bytes, blocks)))
    }

    /// Adds blocks until they have `bytes`, and returns the new ones, for the arena's
    /// [`FreeList`]. No thread of [`Prefault`](super::Prefault) may be there.
    ///
    /// # Errors
    ///
    /// When that is more than the arena can have, or what the system says to that much memory. The
    /// arena is then as before.
    pub fn grow(&self, bytes: u64) -> io::Result<Blocks> {
        let mut blocks = self.lock();
        let before = *blocks;
        let after = u32::try_from(bytes / u64::from(self.block_bytes))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?
            .max(before);
        self.memory.add(byte_of(before, self.block_bytes)..byte_of(after, self.block_bytes))?;
        *blocks = after;
        Ok(Blocks::new(self.id, self.block_bytes, before..after))
    }

    /// Gives the memory of the last blocks back to the system, which [`FreeList::cut`] has taken
    /// out. No thread of [`Prefault`](super::Prefault) may be there.
    ///
    /// # Errors
    ///
    /// They are not this arena's last, or what the system says. Then they come back.
    pub fn shrink(&self, last: Blocks) -> Result<(), (Blocks, io::Error)> {
        let mut blocks = self.lock();
        let first = last.ids().next().unwrap_or(*blocks);
        if last.arena() != self.id || !last.ids().eq(first..*blocks) {
            return Err((last, io::Error::other("these are not the last blocks of the arena")));
        }
        let bytes = byte_of(first, self.block_bytes)..byte_of(*blocks, self.block_bytes);
        // SAFETY: the token owns these blocks alone (see `at`) and ends here, and the arena has no
        // block with such a number until `grow` has added the memory again. So there is no slice of
        // these bytes, and no engine writes to them. The unit in which they begin keeps its memory
        // (`Mapping::remove`), and so do the blocks before.
        if let Err(error) = unsafe { self.memory.remove(bytes) } {
            return Err((last, error));
        }
        *blocks = first;
        Ok(())
    }

    /// Size of a block in bytes, a multiple of 512.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Bytes in all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        byte_of(*self.lock(), self.block_bytes) as u64
    }

    /// Whether the memory was locked at first, so that used pages are never swapped out. Needs
    /// `CAP_IPC_LOCK` or a sufficient `RLIMIT_MEMLOCK`.
    #[must_use]
    pub fn locked(&self) -> bool {
        self.locked
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

    /// The first `len` bytes of a record that is lent, in order, as few slices as neighbouring
    /// blocks allow.
    ///
    /// # Errors
    ///
    /// The same as [`slices`](Self::slices).
    pub fn slices_of<'a>(
        &'a self,
        lent: &'a Lent,
        len: u32,
    ) -> Result<impl Iterator<Item = &'a [u8]>, BlocksError> {
        Ok(self.shared(lent.runs(self.id, self.block_bytes, len)?))
    }

    /// The bytes of `runs`, which are those of a token of this arena that is shared during 'a: by a
    /// borrow of itself, or by a borrow of a [`Lent`]. That one keeps its `Arc` of the record
    /// during 'a, so no other holder can take the token out of the record or change it.
    fn shared<'a>(&'a self, runs: Runs<'a>) -> impl Iterator<Item = &'a [u8]> {
        runs.map(|(offset, len)| {
            let start = self.at(offset);
            // SAFETY: `at` proves that the stretch lies in the mapping, which `&'a self` keeps; its
            // bytes are initialised (fresh memory reads as zero) and u8 has no alignment. They are
            // not written to during 'a: only the token owns these blocks (see `at`), and writing
            // takes `&mut Blocks`, which excludes a shared token.
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
            // SAFETY: in the mapping and initialised, as in `slices`. Unique during 'a: the token
            // owns these blocks alone (see `at`), it is borrowed mutably, and `runs` yields each of
            // its blocks once, as a token holds no block twice.
            unsafe { std::slice::from_raw_parts_mut(start, len) }
        }))
    }

    /// CRC32C of the first `len` bytes in `blocks`.
    ///
    /// # Errors
    ///
    /// The same as [`slices`](Self::slices).
    pub fn crc32c(&self, blocks: &Blocks, len: u32) -> Result<u32, BlocksError> {
        Ok(self.slices(blocks, len)?.fold(0, crc32c_append))
    }

    /// Bytes that have no memory yet, as far as is known: those behind the used and the prefaulted
    /// ones.
    #[must_use]
    pub fn unfound_bytes(&self) -> u64 {
        let found = self.frontier.found_chunks().saturating_mul(CHUNK_BYTES);
        self.bytes().saturating_sub(found as u64)
    }

    /// How far the arena is in use.
    pub(super) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Chunks of [`find_memory`](Self::find_memory); the last one may be shorter.
    pub(super) fn chunks(&self) -> usize {
        byte_of(*self.lock(), self.block_bytes).div_ceil(CHUNK_BYTES)
    }

    /// Addresses of the memory.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.memory.start().addr();
        start..start + self.memory.reserved_bytes()
    }

    /// Makes a chunk resident, in pages of this kind if possible. Resident pages stay as they are.
    ///
    /// # Errors
    ///
    /// When memory is short, or Linux is older than 5.14.
    pub(super) fn find_memory(&self, chunk: usize, pages: Pages) -> io::Result<()> {
        let end = byte_of(*self.lock(), self.block_bytes);
        let at = chunk.saturating_mul(CHUNK_BYTES).min(end);
        self.memory.populate(at..at.saturating_add(CHUNK_BYTES).min(end), pages == Pages::Small)
    }

    /// Where `blocks` lie, after a check that they belong to this arena.
    fn runs<'a>(&self, blocks: &'a Blocks, len: u32) -> Result<Runs<'a>, BlocksError> {
        if blocks.arena() != self.id {
            return Err(BlocksError::Foreign);
        }
        blocks.runs(len)
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        // No holder of this lock leaves anything half-done.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of byte `offset` of a stretch that `runs` gave.
    ///
    /// What makes tokens exclusive: ids are unique per arena, so a token with ours was made by our
    /// free list or by `grow`. `create` makes that list alone, with each id in `0..blocks` once;
    /// `take` and `cut` move ids from the list into a token, `give` and `add` move them back and
    /// consume the token; `exchange` swaps them between two; neither list nor token can be cloned.
    /// `grow` makes each id above those that exist once, and one that `shrink` has consumed exists
    /// no more. So a block has one owner, and has memory as long as it has one.
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.memory.reserved_bytes(), "block outside its arena");
        // SAFETY: a stretch consists of whole ids of blocks, at most cut short, so it ends at or
        // before `blocks * block_bytes`, for which `add` has checked that it lies in the mapping; a
        // mapping never exceeds isize::MAX bytes.
        unsafe { self.memory.start().add(offset) }
    }
}

/// The byte at which a block begins. A number too large for this machine fits into no mapping.
fn byte_of(block: u32, block_bytes: u32) -> usize {
    usize::try_from(u64::from(block) * u64::from(block_bytes)).unwrap_or(usize::MAX)
}

impl ArenaId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
    fn an_arena_grows_and_shrinks_and_its_blocks_keep_their_bytes() {
        let (arena, mut list) = Arena::create_up_to(4 << 20, 16 << 20, 2560).unwrap();
        let mut first = list.take(10_000).unwrap();
        write(&arena, &mut first, &[7; 10_000]);
        assert!(list.take(4 << 20).is_none());
        list.add(arena.grow(16 << 20).unwrap());
        assert!(list.take(4 << 20).is_none(), "not before the limit is raised");
        list.set_limit(arena.bytes());
        assert_eq!(list.total_bytes(), (16 << 20) / 2560 * 2560);
        let mut large = list.take(12 << 20).unwrap();
        assert_eq!(read(&arena, &large, 12 << 20), vec![0; 12 << 20]);
        write(&arena, &mut large, &[9; 12 << 20]);
        assert_eq!(read(&arena, &first, 10_000), [7; 10_000]);
        list.set_limit(2 << 20);
        assert!(list.cut(u64::MAX).is_none() && list.take(1).is_none());
        list.give(large);
        arena.shrink(list.cut(u64::MAX).unwrap()).unwrap();
        assert_eq!((arena.bytes(), read(&arena, &first, 10_000)), ((2 << 20) / 2560 * 2560, vec![7; 10_000]));
        // What is not at the end, or another arena's, is not given back.
        assert!(arena.shrink(list.take(1).unwrap()).is_err());
        let (_other, mut others) = Arena::create(4 << 20, 2560).unwrap();
        others.set_limit(0);
        assert!(arena.shrink(others.cut(u64::MAX).unwrap()).is_err());
        assert_eq!(arena.grow(1 << 62).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        // New memory is zeroed.
        list.add(arena.grow(16 << 20).unwrap());
        list.set_limit(16 << 20);
        let large = list.take(12 << 20).unwrap();
        assert_eq!(read(&arena, &large, 12 << 20), vec![0; 12 << 20]);
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
