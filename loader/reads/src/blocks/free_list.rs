//! The free blocks of the arena: a stack of block numbers. Pure bookkeeping, O(1) a block.

use super::token::{ArenaId, Blocks};

/// The unowned blocks of one arena. There is exactly one list per arena and it cannot be cloned.
///
/// Blocks up to a limit are handed out. When the limit is lowered, those beyond it that have an
/// owner come back one by one. For each of those that have not, a block below the limit is kept, so
/// that its bytes can move there.
#[derive(Debug)]
pub struct FreeList {
    arena: ArenaId,
    block_bytes: u32,
    /// Number of blocks that are handed out, from number 0 on.
    limit: u32,
    /// Numbers below the limit.
    free: Vec<u32>,
    /// For each block from the limit on, whether it has an owner.
    beyond: Vec<bool>,
    /// Number of those that have one.
    owned_beyond: usize,
}

impl FreeList {
    /// The list of a fresh arena. Only [`Arena::create`](super::Arena::create) calls this, once per
    /// arena: a second list would hand the same blocks out again.
    pub(super) fn new(arena: ArenaId, block_bytes: u32, blocks: u32) -> Self {
        // The top of the stack is block 0, so a fresh arena is filled from its start, in
        // neighbouring blocks.
        let free = (0..blocks).rev().collect();
        Self { arena, block_bytes, limit: blocks, free, beyond: Vec::new(), owned_beyond: 0 }
    }

    /// Takes room for `bytes`, rounded up to whole blocks, at least one. `None` when too few are
    /// free; nothing is taken then.
    #[must_use]
    pub fn take(&mut self, bytes: u64) -> Option<Blocks> {
        self.take_leaving(bytes, self.owned_beyond)
    }

    /// Takes as many blocks as lie beyond the limit of `blocks`, to move their bytes. `None` if
    /// that is none, or there are too few.
    pub(super) fn take_instead(&mut self, blocks: &Blocks) -> Option<Blocks> {
        let count = blocks.ids().filter(|&id| id >= self.limit).count();
        let bytes = count as u64 * u64::from(self.block_bytes);
        (count > 0).then(|| self.take_leaving(bytes, 0)).flatten()
    }

    /// Number of the first block that is not handed out.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes room for `bytes` if `left` blocks stay.
    fn take_leaving(&mut self, bytes: u64, left: usize) -> Option<Blocks> {
        let count = usize::try_from(bytes.div_ceil(u64::from(self.block_bytes)).max(1)).ok()?;
        let rest = self.free.len().checked_sub(count).filter(|rest| *rest >= left)?;
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
        if self.beyond.is_empty() {
            return self.free.extend(blocks.ids().rev());
        }
        for id in blocks.ids().rev() {
            match id.checked_sub(self.limit).and_then(|at| self.beyond.get_mut(at as usize)) {
                Some(is_owned) => {
                    *is_owned = false;
                    self.owned_beyond -= 1;
                }
                None => self.free.push(id),
            }
        }
    }

    /// Takes new blocks in, which [`Arena::grow`](super::Arena::grow) made. They lie beyond the
    /// limit.
    ///
    /// # Panics
    ///
    /// When they belong to another arena or do not follow the last block: a mistake in this
    /// program.
    pub fn add(&mut self, blocks: Blocks) {
        let ends_at = u64::from(self.limit) + self.beyond.len() as u64;
        let first = blocks.ids().next().map_or(ends_at, u64::from);
        assert!(blocks.arena() == self.arena && first == ends_at, "blocks that do not follow the last one");
        self.beyond.extend(blocks.ids().map(|_| false));
    }

    /// Changes the limit to `bytes` of blocks, as far as there are that many.
    pub fn set_limit(&mut self, bytes: u64) {
        let most = u64::from(self.limit) + self.beyond.len() as u64;
        let limit = (bytes / u64::from(self.block_bytes)).min(most);
        // Block numbers are u32.
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if limit < self.limit {
            let mut beyond = vec![true; (self.limit - limit) as usize];
            self.free.retain(|&id| match id.checked_sub(limit) {
                Some(at) => {
                    beyond.get_mut(at as usize).into_iter().for_each(|is_owned| *is_owned = false);
                    false
                }
                None => true,
            });
            beyond.append(&mut self.beyond);
            self.beyond = beyond;
        } else {
            let within = self.beyond.drain(..(limit - self.limit) as usize);
            let free = (self.limit..).zip(within).filter(|(_, is_owned)| !is_owned);
            let from = self.free.len();
            self.free.extend(free.map(|(id, _)| id));
            self.free.get_mut(from..).into_iter().for_each(<[u32]>::reverse);
        }
        self.limit = limit;
        self.owned_beyond = self.beyond.iter().filter(|is_owned| **is_owned).count();
    }

    /// Takes the last blocks beyond the limit out for good, some of `bytes_max` bytes at most, once
    /// none of those beyond has an owner: for [`Arena::shrink`](super::Arena::shrink).
    #[must_use]
    pub fn cut(&mut self, bytes_max: u64) -> Option<Blocks> {
        if self.owned_beyond > 0 || self.beyond.is_empty() {
            return None;
        }
        let most = usize::try_from(bytes_max / u64::from(self.block_bytes)).unwrap_or(usize::MAX).max(1);
        let left = self.beyond.len().saturating_sub(most);
        // There are no more blocks than u32 counts.
        let number = |at: usize| self.limit.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
        let last = Blocks::new(self.arena, self.block_bytes, number(left)..number(self.beyond.len()));
        self.beyond.truncate(left);
        Some(last)
    }

    /// Bytes in free blocks.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free.len().saturating_sub(self.owned_beyond) as u64 * u64::from(self.block_bytes)
    }

    /// Bytes in all blocks that are handed out.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.limit) * u64::from(self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BLOCK_BYTES: u32 = 4096;
    const BLOCKS: u32 = 64;
    const BLOCKS_MAX: u32 = 100;

    #[derive(Clone, Debug)]
    enum Op {
        Take(u64),
        Give(usize),
        /// To this number of blocks, which the arena makes if they are not there.
        Limit(u32),
        /// What lies beyond is given back to the arena, this many blocks, if that is possible.
        Cut(u32),
        /// A record moves out of blocks beyond the limit.
        Move(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0u64..40_000).prop_map(Op::Take),
            4 => any::<usize>().prop_map(Op::Give),
            1 => (0..=BLOCKS_MAX).prop_map(Op::Limit),
            1 => (1..=BLOCKS_MAX).prop_map(Op::Cut),
            2 => any::<usize>().prop_map(Op::Move),
        ]
    }

    /// The arena's part: which blocks exist.
    fn make(existing: &mut u32, to: u32) -> Option<Blocks> {
        let first = *existing;
        *existing = to.max(first);
        (first < to).then(|| Blocks::new(ArenaId(7), BLOCK_BYTES, first..to))
    }

    proptest! {
        #[test]
        fn no_block_has_two_owners_and_none_is_lost(ops in prop::collection::vec(op(), 1..200)) {
            let mut list = FreeList::new(ArenaId(7), BLOCK_BYTES, BLOCKS);
            let (mut limit, mut existing) = (BLOCKS, BLOCKS);
            let mut held: Vec<Blocks> = Vec::new();
            for op in ops {
                let free = list.free_bytes();
                match op {
                    Op::Take(bytes) => match list.take(bytes) {
                        Some(blocks) => {
                            prop_assert!(blocks.bytes() >= bytes);
                            prop_assert!(blocks.bytes() < bytes.max(1) + u64::from(BLOCK_BYTES));
                            prop_assert_eq!(list.free_bytes(), free - blocks.bytes());
                            prop_assert!(blocks.ids().all(|id| id < limit));
                            held.push(blocks);
                        }
                        None => {
                            prop_assert!(bytes > free || free == 0, "{bytes} bytes refused though {free} are free");
                            prop_assert_eq!(list.free_bytes(), free);
                        }
                    },
                    Op::Give(which) if !held.is_empty() => list.give(held.swap_remove(which % held.len())),
                    Op::Move(which) if !held.is_empty() => {
                        let which = which % held.len();
                        let bytes = held[which].bytes();
                        if let Some(instead) = list.take_instead(&held[which]) {
                            let moved = held[which].exchange(limit, instead);
                            prop_assert!(moved.ids().all(|id| id >= limit));
                            prop_assert!(held[which].ids().all(|id| id < limit));
                            prop_assert_eq!(held[which].bytes(), bytes);
                            list.give(moved);
                        }
                    }
                    Op::Give(_) | Op::Move(_) => {}
                    Op::Limit(blocks) => {
                        make(&mut existing, blocks).into_iter().for_each(|new| list.add(new));
                        list.set_limit(u64::from(blocks) * u64::from(BLOCK_BYTES) + 5);
                        limit = blocks;
                    }
                    Op::Cut(most) => {
                        let owned_beyond = held.iter().flat_map(Blocks::ids).any(|id| id >= limit);
                        let cut = list.cut(u64::from(most) * u64::from(BLOCK_BYTES));
                        let cut: Option<Vec<u32>> = cut.map(|blocks| blocks.ids().collect());
                        let from = existing.saturating_sub(most).max(limit);
                        let expected = (!owned_beyond && limit < existing).then(|| (from..existing).collect());
                        prop_assert_eq!(&cut, &expected);
                        if cut.is_some() {
                            existing = from;
                        }
                    }
                }
                let owned: Vec<u32> = held.iter().flat_map(Blocks::ids).collect();
                let distinct: BTreeSet<u32> = owned.iter().copied().collect();
                prop_assert_eq!(distinct.len(), owned.len(), "a block has two owners");
                prop_assert!(distinct.iter().all(|&id| id < existing));
                let (owned, limit) = (owned.len() as u64, u64::from(limit));
                prop_assert_eq!(list.total_bytes(), limit * u64::from(BLOCK_BYTES));
                prop_assert_eq!(list.free_bytes(), limit.saturating_sub(owned) * u64::from(BLOCK_BYTES));
            }
            held.drain(..).for_each(|blocks| list.give(blocks));
            prop_assert_eq!(list.free_bytes(), list.total_bytes());
            if limit > 0 {
                let everything = list.take(list.total_bytes()).map(|blocks| blocks.ids().collect());
                prop_assert_eq!(everything, Some((0..limit).collect::<BTreeSet<u32>>()));
            }
            let beyond = list.cut(u64::MAX).map(|blocks| blocks.ids().collect::<Vec<_>>());
            prop_assert_eq!(beyond, (limit < existing).then(|| (limit..existing).collect()));
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
