//! The payload's allocator: contiguous blocks, given back in any order. Pure numbers. The daemon's
//! allocator decides; the client has one for the blocks that its trainer keeps, to see whether they
//! leave room.
//!
//! A block goes after the youngest, as in a ring; if it does not fit there, at the start or after
//! another live block. So a block that a trainer keeps costs only its own room.

use std::collections::VecDeque;

use super::layout::check_payload_bytes;
use crate::FormatError;
use crate::limits::PAYLOAD_ALIGN_BYTES;

/// The live blocks of one payload segment.
#[derive(Clone, Debug)]
pub struct PayloadAllocator {
    bytes: u64,
    /// Offset and length of the live blocks, in the order in which they were taken: at most one for
    /// each descriptor.
    live: VecDeque<(u64, u64)>,
}

impl PayloadAllocator {
    /// An empty ring over `bytes` of payload.
    ///
    /// # Errors
    /// When `bytes` is no possible payload length.
    pub fn new(bytes: u64) -> Result<Self, FormatError> {
        check_payload_bytes(bytes)?;
        Ok(Self { bytes, live: VecDeque::new() })
    }

    /// Takes `len` bytes in one piece and returns their offset, or `None` while there is no room.
    ///
    /// The offset is a multiple of [`PAYLOAD_ALIGN_BYTES`]; a length of 0 takes one such unit, so
    /// that every reservation has an offset of its own.
    pub fn reserve(&mut self, len: u64) -> Option<u64> {
        let (offset, len) = self.place(len)?;
        self.live.push_back((offset, len));
        Some(offset)
    }

    /// Whether [`PayloadAllocator::reserve`] would find room for `len` bytes.
    #[must_use]
    pub fn has_room(&self, len: u64) -> bool {
        self.place(len).is_some()
    }

    /// Takes a block that another allocator has reserved: `len` bytes at `offset`, within the
    /// payload.
    pub fn hold(&mut self, offset: u64, len: u64) {
        self.live.push_back((offset, whole_units(len).unwrap_or(len)));
    }

    /// Where a block of `len` bytes would go, and the bytes that it would take.
    fn place(&self, len: u64) -> Option<(u64, u64)> {
        let len = whole_units(len)?;
        let after = |&(offset, len): &(u64, u64)| offset.saturating_add(len);
        let youngest = self.live.back().map(after);
        let mut places = youngest.into_iter().chain([0]).chain(self.live.iter().map(after));
        Some((places.find(|&offset| self.is_free(offset, len))?, len))
    }

    /// Gives back the block at `offset`; false when none is live there.
    pub fn free(&mut self, offset: u64) -> bool {
        let at = self.live.iter().position(|&(live, _)| live == offset);
        at.is_some_and(|at| self.live.remove(at).is_some())
    }

    fn is_free(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.bytes) else { return false };
        self.live.iter().all(|&(live, live_len)| live.saturating_add(live_len) <= offset || end <= live)
    }

    /// Blocks reserved and not given back.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Bytes of those blocks.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live.iter().map(|&(_, len)| len).sum()
    }

    /// Length of the payload, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes that a block of `len` bytes takes: whole units of [`PAYLOAD_ALIGN_BYTES`], at least one.
fn whole_units(len: u64) -> Option<u64> {
    len.max(1).checked_next_multiple_of(PAYLOAD_ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = PAYLOAD_ALIGN_BYTES;

    #[test]
    fn a_block_never_crosses_the_end() {
        let mut ring = PayloadAllocator::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(PAGE), Some(0));
        assert_eq!(ring.reserve(2 * PAGE), Some(PAGE));
        assert_eq!(ring.reserve(2 * PAGE), None, "one page at the end and none at the start");
        assert!(ring.free(0));
        assert_eq!(ring.reserve(2 * PAGE), None, "one page at either end");
        assert!(ring.free(PAGE));
        assert_eq!(ring.reserve(2 * PAGE), Some(0));
    }

    #[test]
    fn an_empty_ring_has_room_for_a_block_as_long_as_itself() {
        let mut ring = PayloadAllocator::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(PAGE), Some(0));
        assert!(ring.free(0));
        assert_eq!(ring.reserve(4 * PAGE), Some(0));
        assert_eq!(ring.reserve(PAGE), None);
    }

    #[test]
    fn a_block_in_hand_leaves_room_for_the_largest_in_three_times_its_length() {
        let largest = 5 * PAGE;
        for held_len in 1..=5 {
            let mut ring = PayloadAllocator::new(3 * largest).unwrap();
            for before in 0..20 {
                let first = ring.reserve((before % 5 + 1) * PAGE).unwrap();
                let held = ring.reserve(held_len * PAGE).unwrap();
                assert!(ring.free(first));
                let next = ring.reserve(largest).unwrap_or_else(|| panic!("{held_len} pages held at {held}"));
                assert!(ring.free(next) && ring.free(held));
            }
        }
    }

    #[test]
    fn what_is_not_live_cannot_be_given_back() {
        let mut ring = PayloadAllocator::new(4 * PAGE).unwrap();
        assert!(!ring.free(0));
        assert_eq!(ring.reserve(2 * PAGE), Some(0));
        assert!(!ring.free(PAGE), "inside a block, not its start");
        assert!(ring.free(0) && !ring.free(0));
    }

    #[test]
    fn hostile_lengths_are_no_room_and_no_overflow() {
        let mut ring = PayloadAllocator::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(u64::MAX), None);
        assert_eq!(ring.reserve(u64::MAX - PAGE), None);
        assert_eq!(ring.reserve(0), Some(0));
        assert_eq!(ring.reserve(0), Some(PAGE));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Reserve(u64),
        /// Gives back one of the live blocks.
        Free(usize),
    }

    /// The obvious allocator: a map of pages, each with the block it belongs to.
    struct Model {
        pages: Vec<Option<u64>>,
    }

    impl Model {
        fn has_gap(&self, pages: usize) -> bool {
            pages <= self.pages.len() && self.pages.windows(pages).any(|gap| gap.iter().all(Option::is_none))
        }

        fn take(&mut self, offset: u64, pages: usize) -> bool {
            let start = usize::try_from(offset / PAGE).unwrap();
            let taken = self.pages.get_mut(start..start + pages).expect("inside the payload");
            let was_free = taken.iter().all(Option::is_none);
            taken.fill(Some(offset));
            was_free
        }

        fn free(&mut self, offset: u64) {
            self.pages.iter_mut().filter(|page| **page == Some(offset)).for_each(|page| *page = None);
        }
    }

    fn op(pages: u64) -> impl Strategy<Value = Op> {
        prop_oneof![(0..=pages * PAGE + 1).prop_map(Op::Reserve), any::<usize>().prop_map(Op::Free)]
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_every_gap_is_found(
            (pages, ops) in (1_u64..12).prop_flat_map(|n| (Just(n), prop::collection::vec(op(n), 1..200))),
        ) {
            let mut ring = PayloadAllocator::new(pages * PAGE).unwrap();
            let mut model = Model { pages: vec![None; usize::try_from(pages).unwrap()] };
            let mut live = Vec::new();
            for op in ops {
                match op {
                    Op::Reserve(len) => {
                        let taken = usize::try_from(len.max(1).div_ceil(PAGE)).unwrap();
                        // A gap begins at 0 or where a live block ends, so trying those finds every
                        // one.
                        let has_room = ring.has_room(len);
                        let found = ring.reserve(len);
                        prop_assert_eq!(found.is_some(), model.has_gap(taken), "{} bytes", len);
                        prop_assert_eq!(has_room, found.is_some(), "{} bytes", len);
                        if let Some(offset) = found {
                            prop_assert!(model.take(offset, taken), "{} is taken", offset);
                            live.push(offset);
                        }
                    }
                    Op::Free(_) if live.is_empty() => prop_assert!(!ring.free(0)),
                    Op::Free(at) => {
                        let offset = live.swap_remove(at % live.len());
                        prop_assert!(ring.free(offset));
                        model.free(offset);
                    }
                }
                prop_assert_eq!(ring.live(), live.len());
                let taken = model.pages.iter().flatten().count() as u64;
                prop_assert_eq!(ring.live_bytes(), taken * PAGE);
            }
        }

        #[test]
        fn who_holds_some_of_the_blocks_knows_what_room_they_leave(
            lens in prop::collection::vec(1..=3 * PAGE, 1..12), held: u16, len in 1..=12 * PAGE,
        ) {
            let [mut theirs, mut ours] = [(); 2].map(|()| PayloadAllocator::new(12 * PAGE).unwrap());
            let blocks: Vec<_> = lens.iter().filter_map(|&len| Some((theirs.reserve(len)?, len))).collect();
            for (bit, &(offset, len)) in blocks.iter().enumerate() {
                if held >> bit & 1 == 1 {
                    ours.hold(offset, len);
                } else {
                    prop_assert!(theirs.free(offset));
                }
            }
            prop_assert_eq!(ours.has_room(len), theirs.reserve(len).is_some());
        }
    }
}
