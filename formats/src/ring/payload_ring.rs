//! The payload's allocator: contiguous blocks, reclaimed in the order they were taken. Pure numbers; only the daemon has it.
//!
//! Positions grow for ever; `position % bytes` is the offset. A block that would cross the end starts at 0 instead,
//! and the bytes left over at the end come back with the block before them.

use std::collections::VecDeque;

use super::layout::check_payload_bytes;
use crate::FormatError;
use crate::limits::PAYLOAD_ALIGN_BYTES;

/// Which bytes of one payload segment are live.
#[derive(Debug)]
pub struct PayloadRing {
    bytes: u64,
    /// Position after the youngest block. 2^64 is out of reach: six years at 100 GB/s, and an empty ring starts again at 0.
    head: u64,
    /// Start positions of the live blocks, oldest first. All from the first of them to the head is taken.
    starts: VecDeque<u64>,
}

impl PayloadRing {
    /// An empty ring over `bytes` of payload.
    ///
    /// # Errors
    /// When `bytes` is no possible payload length.
    pub fn new(bytes: u64) -> Result<Self, FormatError> {
        check_payload_bytes(bytes)?;
        Ok(Self { bytes, head: 0, starts: VecDeque::new() })
    }

    /// Refuses a block length that no amount of waiting would find room for. Ask when setting up, with the largest block.
    ///
    /// # Errors
    /// When `len` is over the payload's length.
    pub fn check_fits(&self, len: u64) -> Result<(), FormatError> {
        if len > self.bytes {
            return Err(FormatError::new(
                "ring payload length",
                0,
                format_args!("{} bytes", self.bytes),
                format_args!("at least {len}, the length of one batch"),
            ));
        }
        Ok(())
    }

    /// Takes `len` bytes in one piece and returns their offset, or `None` while there is no room.
    ///
    /// The offset is a multiple of [`PAYLOAD_ALIGN_BYTES`]; a length of 0 takes one such unit, so that every
    /// reservation has an offset of its own.
    pub fn reserve(&mut self, len: u64) -> Option<u64> {
        let len = len.max(1).checked_next_multiple_of(PAYLOAD_ALIGN_BYTES)?;
        if self.starts.is_empty() {
            // Nothing is live, so the whole payload is one free piece again.
            self.head = 0;
        }
        let offset = self.head % self.bytes;
        let gap = if len <= self.bytes - offset { 0 } else { self.bytes - offset };
        let start = self.head.checked_add(gap)?;
        let end = start.checked_add(len)?;
        let tail = self.starts.front().copied().unwrap_or(start);
        if end - tail > self.bytes {
            return None;
        }
        self.head = end;
        self.starts.push_back(start);
        Some(start % self.bytes)
    }

    /// Gives back the oldest block; false when none is live.
    pub fn free_oldest(&mut self) -> bool {
        self.starts.pop_front().is_some()
    }

    /// Blocks reserved and not given back.
    #[must_use]
    pub fn live(&self) -> usize {
        self.starts.len()
    }

    /// Length of the payload, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = PAYLOAD_ALIGN_BYTES;

    #[test]
    fn a_block_never_crosses_the_end() {
        let mut ring = PayloadRing::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(PAGE), Some(0));
        assert_eq!(ring.reserve(2 * PAGE), Some(PAGE));
        assert_eq!(ring.reserve(2 * PAGE), None, "one page at the end and none at the start");
        assert!(ring.free_oldest());
        assert_eq!(ring.reserve(2 * PAGE), None, "one page at either end");
        assert!(ring.free_oldest());
        assert_eq!(ring.reserve(2 * PAGE), Some(0));
    }

    #[test]
    fn an_empty_ring_has_room_for_a_block_as_long_as_itself() {
        let mut ring = PayloadRing::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(PAGE), Some(0));
        assert!(ring.free_oldest());
        assert_eq!(ring.reserve(4 * PAGE), Some(0));
        assert!(ring.check_fits(4 * PAGE).is_ok());
        assert!(ring.check_fits(4 * PAGE + 1).is_err());
    }

    #[test]
    fn hostile_lengths_are_no_room_and_no_overflow() {
        let mut ring = PayloadRing::new(4 * PAGE).unwrap();
        assert_eq!(ring.reserve(u64::MAX), None);
        assert_eq!(ring.reserve(u64::MAX - PAGE), None);
        assert_eq!(ring.reserve(0), Some(0));
        assert_eq!(ring.reserve(0), Some(PAGE));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Reserve(u64),
        FreeOldest,
    }

    /// The obvious ring: a list of live ranges. It places a block after the youngest, else at 0, if nothing live is hit.
    #[derive(Default)]
    struct Model {
        live: VecDeque<(u64, u64)>,
    }

    impl Model {
        fn reserve(&mut self, bytes: u64, len: u64) -> Option<u64> {
            let len = len.max(1).next_multiple_of(PAGE);
            let after = self.live.back().map_or(0, |(offset, len)| offset + len);
            let offset = if after + len <= bytes { after } else { 0 };
            let free = self.live.iter().all(|(at, live)| at + live <= offset || offset + len <= *at);
            (free && offset + len <= bytes && !self.overtakes(offset)).then(|| {
                self.live.push_back((offset, len));
                offset
            })
        }

        /// In-order reclaim: after a wrap, nothing may be placed behind the oldest block's back.
        fn overtakes(&self, offset: u64) -> bool {
            match (self.live.front(), self.live.back()) {
                (Some((oldest, _)), Some((youngest, _))) => offset == 0 && youngest < oldest,
                _ => false,
            }
        }
    }

    fn op(pages: u64) -> impl Strategy<Value = Op> {
        prop_oneof![(0..=pages * PAGE + 1).prop_map(Op::Reserve), Just(Op::FreeOldest)]
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_model(
            (pages, ops) in (1_u64..12).prop_flat_map(|n| (Just(n), prop::collection::vec(op(n), 1..200))),
        ) {
            let bytes = pages * PAGE;
            let mut ring = PayloadRing::new(bytes).unwrap();
            let mut model = Model::default();
            for op in ops {
                match op {
                    Op::Reserve(len) => prop_assert_eq!(ring.reserve(len), model.reserve(bytes, len), "{} bytes", len),
                    Op::FreeOldest => prop_assert_eq!(ring.free_oldest(), model.live.pop_front().is_some()),
                }
                prop_assert_eq!(ring.live(), model.live.len());
            }
        }
    }
}
