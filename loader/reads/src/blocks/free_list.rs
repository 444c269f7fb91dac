//! The free blocks of the arena: a stack of block numbers. Pure bookkeeping, O(1) a block.

use super::token::{ArenaId, Blocks};

/// The unowned blocks of one arena. There is exactly one list per arena and it cannot be cloned.
#[derive(Debug)]
pub struct FreeList {
    arena: ArenaId,
    block_bytes: u32,
    blocks: u32,
    free: Vec<u32>,
}

impl FreeList {
    /// The list of a fresh arena. Only [`Arena::create`](super::Arena::create) calls this, once per
    /// arena: a second list would hand the same blocks out again.
    pub(super) fn new(arena: ArenaId, block_bytes: u32, blocks: u32) -> Self {
        // The top of the stack is block 0, so a fresh arena is filled from its start, in
        // neighbouring blocks.
        Self { arena, block_bytes, blocks, free: (0..blocks).rev().collect() }
    }

    /// Takes room for `bytes`, rounded up to whole blocks, at least one. `None` when too few are
    /// free; nothing is taken then.
    #[must_use]
    pub fn take(&mut self, bytes: u64) -> Option<Blocks> {
        let count = usize::try_from(bytes.div_ceil(u64::from(self.block_bytes)).max(1)).ok()?;
        let rest = self.free.len().checked_sub(count)?;
        let blocks = Blocks::new(self.arena, self.block_bytes, self.free.get(rest..)?.iter().rev().copied());
        self.free.truncate(rest);
        Some(blocks)
    }

    /// Takes blocks back, which frees them for the next [`take`](Self::take).
    ///
    /// # Panics
    ///
    /// When the blocks belong to another arena: a mistake in this program, never in its input.
    pub fn give(&mut self, blocks: Blocks) {
        assert!(blocks.arena() == self.arena, "blocks given back to the free list of another arena");
        self.free.extend(blocks.ids().rev());
    }

    /// Bytes in free blocks.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free.len() as u64 * u64::from(self.block_bytes)
    }

    /// Bytes in all blocks, free or owned.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BLOCK_BYTES: u32 = 4096;
    const BLOCKS: u32 = 64;

    #[derive(Clone, Debug)]
    enum Op {
        Take(u64),
        Give(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![(0u64..40_000).prop_map(Op::Take), any::<usize>().prop_map(Op::Give)]
    }

    proptest! {
        #[test]
        fn no_block_has_two_owners_and_none_is_lost(ops in prop::collection::vec(op(), 1..200)) {
            let mut list = FreeList::new(ArenaId(7), BLOCK_BYTES, BLOCKS);
            let mut held: Vec<Blocks> = Vec::new();
            for op in ops {
                let free = list.free_bytes();
                match op {
                    Op::Take(bytes) => match list.take(bytes) {
                        Some(blocks) => {
                            prop_assert!(blocks.bytes() >= bytes);
                            prop_assert!(blocks.bytes() < bytes.max(1) + u64::from(BLOCK_BYTES));
                            prop_assert_eq!(list.free_bytes(), free - blocks.bytes());
                            held.push(blocks);
                        }
                        None => {
                            prop_assert!(bytes > free, "{} bytes refused though {} are free", bytes, free);
                            prop_assert_eq!(list.free_bytes(), free);
                        }
                    },
                    Op::Give(_) if held.is_empty() => {}
                    Op::Give(which) => list.give(held.swap_remove(which % held.len())),
                }
                let owned: Vec<u32> = held.iter().flat_map(Blocks::ids).collect();
                let distinct: BTreeSet<u32> = owned.iter().copied().collect();
                prop_assert_eq!(distinct.len(), owned.len(), "a block has two owners");
                prop_assert!(distinct.iter().all(|&id| id < BLOCKS));
                let all = list.free_bytes() + owned.len() as u64 * u64::from(BLOCK_BYTES);
                prop_assert_eq!(all, list.total_bytes());
            }
            held.drain(..).for_each(|blocks| list.give(blocks));
            prop_assert_eq!(list.free_bytes(), list.total_bytes());
            let everything = list.take(list.total_bytes()).map(|blocks| blocks.ids().collect());
            prop_assert_eq!(everything, Some((0..BLOCKS).collect::<BTreeSet<u32>>()));
        }
    }

    #[test]
    fn a_fresh_list_hands_out_neighbours_and_reuses_the_last_given() {
        let mut list = FreeList::new(ArenaId(0), 512, 8);
        let first = list.take(1500).unwrap();
        assert!(first.ids().eq([0, 1, 2]));
        assert!(list.take(1).unwrap().ids().eq([3]));
        list.give(first);
        assert!(list.take(1024).unwrap().ids().eq([0, 1]));
    }

    #[test]
    fn an_empty_record_still_owns_a_block() {
        assert_eq!(FreeList::new(ArenaId(0), 512, 8).take(0).unwrap().bytes(), 512);
    }

    #[test]
    fn the_charge_is_what_the_free_list_takes() {
        let (_arena, mut list) = super::super::Arena::create(64 * 2560, 2560).unwrap();
        for len in [0, 1, 2559, 2560, 2561, 9999] {
            let blocks = list.take(u64::from(len)).unwrap();
            assert_eq!(blocks.bytes(), shade_core::charged_bytes(len, 2560), "{len} bytes");
            list.give(blocks);
        }
    }

    #[test]
    #[should_panic(expected = "another arena")]
    fn blocks_of_another_arena_are_refused() {
        let foreign = FreeList::new(ArenaId(1), 512, 8).take(1).unwrap();
        FreeList::new(ArenaId(2), 512, 8).give(foreign);
    }
}
