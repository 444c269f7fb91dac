//! Moves records out of blocks that go back to the system.

use std::sync::Arc;

use super::arena::Arena;
use super::free_list::FreeList;
use super::record::Record;
use super::token::{Blocks, BlocksError};

impl Arena {
    /// Moves the bytes of a record that lie beyond the list's limit below it. Returns false if none
    /// do, if the record has another holder, or if too few blocks are free.
    ///
    /// # Panics
    ///
    /// When list or record are another arena's: a mistake in this program.
    pub fn move_record(&self, list: &mut FreeList, record: &mut Arc<Record>) -> bool {
        let Some(blocks) = Arc::get_mut(record).map(Record::blocks_mut) else { return false };
        let Some(instead) = list.take_instead(blocks) else { return false };
        let limit = list.limit();
        let is_moved: Vec<bool> = blocks.ids().map(|id| id >= limit).collect();
        let left = blocks.exchange(limit, instead);
        let copied = self.copy_into(blocks, &is_moved, &left);
        assert_eq!(copied, Ok(()), "the record's blocks and the list's are of one arena");
        list.give(left);
        true
    }

    /// Copies the bytes of `from` into the blocks of `to` for which `is_moved` holds.
    fn copy_into(&self, to: &mut Blocks, is_moved: &[bool], from: &Blocks) -> Result<(), BlocksError> {
        let block_bytes = self.block_bytes() as usize;
        let whole = |blocks: &Blocks| u32::try_from(blocks.bytes()).unwrap_or(u32::MAX);
        let (to_bytes, from_bytes) = (whole(to), whole(from));
        let from = self.slices(from, from_bytes)?.flat_map(|slice| slice.chunks_exact(block_bytes));
        let to = self.slices_mut(to, to_bytes)?.flat_map(|slice| slice.chunks_exact_mut(block_bytes));
        let moved = to.zip(is_moved).filter(|(_, is_moved)| **is_moved);
        moved.zip(from).for_each(|((to, _), from)| to.copy_from_slice(from));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lent;
    use super::*;

    fn read(arena: &Arena, record: &Record, len: u32) -> Vec<u8> {
        arena.slices(record.blocks(), len).unwrap().flatten().copied().collect()
    }

    #[test]
    fn records_keep_their_bytes_wherever_they_move() {
        let (arena, mut list) = Arena::create(64 * 512, 512).unwrap();
        // Blocks in an order of their own, so that records are scattered.
        let mut singles: Vec<Blocks> = (0..64).map(|_| list.take(1).unwrap()).collect();
        singles.sort_by_key(|blocks| blocks.ids().next().map(|id| id * 37 % 64));
        singles.into_iter().for_each(|blocks| list.give(blocks));
        let mut records: Vec<(Arc<Record>, Vec<u8>)> = Vec::new();
        for (len, seed) in [(512, 1), (3000, 2), (1, 3), (5 * 512, 4), (4096, 5), (513, 6)] {
            let mut blocks = list.take(u64::from(len)).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at: u32| (at * 7 + seed).to_le_bytes()[0]).collect();
            let mut rest = &bytes[..];
            for slice in arena.slices_mut(&mut blocks, len).unwrap() {
                let (now, later) = rest.split_at(slice.len());
                slice.copy_from_slice(now);
                rest = later;
            }
            records.push((Arc::new(Record::new(blocks, seed == 2)), bytes));
        }
        let owned: u64 = records.iter().map(|(record, _)| record.blocks().bytes()).sum();
        list.set_limit(owned + 2 * 512);
        let lent = Lent::new(Arc::clone(&records[1].0));
        let is_beyond = |record: &Record, list: &FreeList| record.blocks().ids().any(|id| id >= list.limit());
        assert!(records.iter().any(|(record, _)| is_beyond(record, &list)));
        for (at, (record, _)) in records.iter_mut().enumerate() {
            let moves = is_beyond(record, &list) && at != 1;
            assert_eq!(arena.move_record(&mut list, record), moves, "record {at}");
        }
        assert!(list.cut(u64::MAX).is_none(), "one is lent, and lies beyond: {:?}", records[1].0.blocks());
        drop(lent);
        assert!(arena.move_record(&mut list, &mut records[1].0));
        for (record, bytes) in &records {
            assert_eq!(&read(&arena, record, u32::try_from(bytes.len()).unwrap()), bytes);
            assert!(!is_beyond(record, &list));
        }
        assert!(records[1].0.is_checked() && !records[0].0.is_checked());
        assert_eq!(list.free_bytes(), 2 * 512);
        let blocks = list.cut(u64::MAX).expect("all have moved");
        arena.shrink(blocks).unwrap();
        assert_eq!(arena.bytes(), owned + 2 * 512);
    }
}
