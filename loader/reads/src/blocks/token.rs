//! Ownership of blocks as a value: only the token's holder may access the memory.

/// Identifies one arena of this process; no two arenas ever have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaId(pub(super) u64);

/// Sole ownership of some blocks of one arena: the room of one record, in the order of its bytes.
///
/// Not `Clone`, and made by the arena and its [`FreeList`](super::FreeList) alone. Dropping it
/// instead of giving it back loses the blocks until the arena ends, which wastes memory but never
/// shares it.
#[derive(Debug)]
#[must_use = "blocks that are not given back to their free list are lost"]
pub struct Blocks {
    arena: ArenaId,
    block_bytes: u32,
    ids: BlockIds,
}

/// The blocks' numbers. Neighbours, such as a single block, need no memory for them.
#[derive(Debug)]
enum BlockIds {
    Neighbours(Run),
    Scattered(Box<[u32]>),
}

/// Blocks that lie side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The first one's position in the arena.
    first: u32,
    count: u32,
}

impl Blocks {
    /// Only the free list of `arena` may call this, with ids that it has just removed from itself,
    /// and `arena`, with ids that it has just made.
    pub(super) fn new(
        arena: ArenaId,
        block_bytes: u32,
        ids: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Self {
        let first = ids.clone().next().unwrap_or_default();
        let are_neighbours = ids.clone().zip(u64::from(first)..).all(|(id, next)| u64::from(id) == next);
        let ids = match u32::try_from(ids.len()) {
            Ok(count) if are_neighbours => BlockIds::Neighbours(Run { first, count }),
            _ => BlockIds::Scattered(ids.collect()),
        };
        Self { arena, block_bytes, ids }
    }

    /// The arena that these blocks belong to.
    pub(super) fn arena(&self) -> ArenaId {
        self.arena
    }

    /// The blocks' positions in the arena.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = u32> {
        let (Run { first, count }, scattered) = match &self.ids {
            BlockIds::Neighbours(run) => (*run, [].as_slice()),
            BlockIds::Scattered(ids) => (Run::default(), &**ids),
        };
        (0..count).map(move |at| first + at).chain(scattered.iter().copied())
    }

    /// The run that they form, if they are neighbours.
    pub(super) fn run(&self) -> Option<Run> {
        match self.ids {
            BlockIds::Neighbours(run) => Some(run),
            BlockIds::Scattered(_) => None,
        }
    }

    /// Bytes that fit: a whole number of blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let count = match &self.ids {
            BlockIds::Neighbours(run) => run.count as usize,
            BlockIds::Scattered(ids) => ids.len(),
        };
        count as u64 * u64::from(self.block_bytes)
    }

    /// Moves the blocks into a new token and leaves one that owns none: for memory that the kernel
    /// may still write to and that must never be used again.
    pub(crate) fn take(&mut self) -> Blocks {
        let ids = std::mem::replace(&mut self.ids, BlockIds::Neighbours(Run::default()));
        Self { arena: self.arena, block_bytes: self.block_bytes, ids }
    }

    /// Exchanges the blocks from number `limit` on for `others`, in their order, and returns them.
    /// There must be as many others.
    pub(super) fn exchange(&mut self, limit: u32, others: Blocks) -> Blocks {
        let mut ids: Vec<u32> = self.ids().collect();
        let mut out: Vec<u32> = others.ids().collect();
        for (id, other) in ids.iter_mut().filter(|id| **id >= limit).zip(&mut out) {
            std::mem::swap(id, other);
        }
        *self = Self::new(self.arena, self.block_bytes, ids.into_iter());
        Self::new(self.arena, self.block_bytes, out.into_iter())
    }

    /// Where the first `len` bytes lie in the arena, neighbouring blocks joined.
    pub(super) fn runs(&self, len: u32) -> Result<Runs<'_>, BlocksError> {
        match &self.ids {
            BlockIds::Neighbours(run) => run.runs(self.block_bytes, len),
            BlockIds::Scattered(ids) => Runs::new(Run::default(), ids, self.bytes(), self.block_bytes, len),
        }
    }
}

impl Run {
    /// Where the first `len` bytes of these blocks lie: in one stretch.
    pub(super) fn runs<'a>(self, block_bytes: u32, len: u32) -> Result<Runs<'a>, BlocksError> {
        Runs::new(self, &[], u64::from(self.count) * u64::from(block_bytes), block_bytes, len)
    }
}

/// A token that does not fit the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    /// The token belongs to another arena.
    #[error("the blocks belong to another arena")]
    Foreign,
    /// More bytes were asked for than the blocks hold.
    #[error("the blocks hold {bytes} bytes, {len} were asked for")]
    TooShort {
        /// Bytes that the blocks hold.
        bytes: u64,
        /// Bytes asked for.
        len: u32,
    },
}

/// Stretches of the arena, each `(offset, length)` in bytes.
///
/// Neighbouring blocks give one stretch: a fresh arena hands out long ones, so even a large record
/// in small blocks needs few iovecs.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    /// Before `ids`.
    run: Run,
    ids: &'a [u32],
    block_bytes: usize,
    left: usize,
}

impl<'a> Runs<'a> {
    fn new(run: Run, ids: &'a [u32], bytes: u64, block_bytes: u32, len: u32) -> Result<Self, BlocksError> {
        if u64::from(len) > bytes {
            return Err(BlocksError::TooShort { bytes, len });
        }
        Ok(Self { run, ids, block_bytes: block_bytes as usize, left: len as usize })
    }
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        if self.left == 0 {
            return None;
        }
        let mut run = std::mem::take(&mut self.run);
        if run.count == 0 {
            run.first = *self.ids.first()?;
            let neighbours = self.ids.iter().zip(u64::from(run.first)..);
            let joined = neighbours.take_while(|&(&id, next)| u64::from(id) == next).count();
            run.count = u32::try_from(joined).ok()?;
            self.ids = self.ids.get(joined..)?;
        }
        let Run { first, count } = run;
        let len = self.left.min(count as usize * self.block_bytes);
        self.left -= len;
        Some((first as usize * self.block_bytes, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(ids: &[u32], len: u32) -> Vec<(usize, usize)> {
        Blocks::new(ArenaId(0), 512, ids.iter().copied()).runs(len).unwrap().collect()
    }

    #[test]
    fn neighbours_are_joined_and_the_last_stretch_is_trimmed() {
        assert_eq!(runs(&[3, 4, 5, 9, 8], 5 * 512 - 1), [(1536, 1536), (4608, 512), (4096, 511)]);
        assert_eq!(runs(&[3, 4, 5], 700), [(1536, 700)]);
        assert_eq!(runs(&[3, 9], 512), [(1536, 512)]);
        assert_eq!(runs(&[3], 0), []);
        assert_eq!(runs(&[u32::MAX, 0], 1024), [(u32::MAX as usize * 512, 512), (0, 512)]);
    }

    #[test]
    fn more_than_the_blocks_hold_is_an_error() {
        let blocks = Blocks::new(ArenaId(0), 512, [0, 1].into_iter());
        assert_eq!(blocks.runs(1025).err(), Some(BlocksError::TooShort { bytes: 1024, len: 1025 }));
    }
}
