//! The batches that a trainer keeps in the ring, and whether one more may stay there.
//!
//! A trainer may keep any number of batches for any time, and the daemon must still have room to go
//! on. So a batch is delivered as a copy if keeping it in the ring would break one of these limits:
//! - Kept batches take at most half of the ring's bytes, so that the daemon works ahead in the
//!   other half, and at most half of its release marks. Two may always stay: a loop's variable has
//!   the last batch until it gets the next one.
//! - They leave a gap for the next block, of the length in the ring's header. Then the daemon can
//!   publish once more even if nothing is released.

use shade_formats::FormatError;
use shade_formats::ring::{DESCRIPTORS, Descriptor, PayloadAllocator, PayloadSize};

/// This number may be kept in the ring, whatever their length, if they leave the gap.
const BATCHES_MIN: usize = 2;
/// Most batches that may be kept in the ring.
const BATCHES_MAX: usize = DESCRIPTORS / 2;

/// A trainer's share of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRing {
    /// Batches kept in the ring.
    pub batches: usize,
    /// Whether more could be kept in a larger ring.
    pub is_short_of_bytes: bool,
    /// Length of the ring's payload in bytes.
    pub ring_bytes: u64,
}

/// The batches that the trainer keeps in the ring.
#[derive(Debug)]
pub(crate) struct Held {
    /// The daemon's allocator as if only these were live.
    blocks: PayloadAllocator,
    gap_bytes: u64,
}

impl Held {
    /// No batches, in a ring of this size.
    pub(crate) fn new(payload: PayloadSize) -> Result<Self, FormatError> {
        Ok(Self { blocks: PayloadAllocator::new(payload.bytes)?, gap_bytes: payload.gap_bytes })
    }

    /// Counts one more batch, if it may stay in the ring.
    pub(crate) fn hold(&mut self, batch: &Descriptor) -> bool {
        self.blocks.hold(batch.offset, batch.len);
        let count = self.blocks.live();
        let half = self.blocks.live_bytes() <= self.blocks.bytes() / 2 && count <= BATCHES_MAX;
        let stays = (half || count <= BATCHES_MIN) && self.blocks.has_room(self.gap_bytes);
        if !stays {
            self.blocks.free(batch.offset);
        }
        stays
    }

    /// No longer counts a batch.
    pub(crate) fn forget(&mut self, batch: &Descriptor) {
        self.blocks.free(batch.offset);
    }

    /// The present state.
    pub(crate) fn in_ring(&self) -> InRing {
        let batches = self.blocks.live();
        InRing { batches, is_short_of_bytes: batches < BATCHES_MAX, ring_bytes: self.blocks.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    fn block(offset_pages: u64, pages: u64) -> Descriptor {
        Descriptor { offset: offset_pages * PAGE, len: pages * PAGE, ..Descriptor::default() }
    }

    fn held(pages: u64, longest_pages: u64) -> Held {
        Held::new(PayloadSize { bytes: pages * PAGE, gap_bytes: longest_pages * PAGE }).unwrap()
    }

    #[test]
    fn half_of_the_ring_may_be_kept_and_again_once_something_is_given_back() {
        let mut held = held(8, 1);
        assert!((0..4).all(|page| held.hold(&block(page, 1))));
        assert!(!held.hold(&block(4, 1)));
        assert_eq!(held.in_ring(), InRing { batches: 4, is_short_of_bytes: true, ring_bytes: 8 * PAGE });
        held.forget(&block(1, 1));
        assert!(held.hold(&block(5, 1)));
        assert!(!held.hold(&block(6, 1)));
    }

    #[test]
    fn two_of_the_smallest_ring_may_be_kept_where_they_leave_a_gap() {
        let mut whole = held(3, 1);
        assert!(whole.hold(&block(0, 1)) && whole.hold(&block(1, 1)));
        assert!(!whole.hold(&block(2, 1)));
        let mut split = held(30, 10);
        assert!(split.hold(&block(5, 10)));
        assert!(!split.hold(&block(15, 10)), "5 pages are free at the start and 5 at the end");
        assert!(split.hold(&block(15, 5)), "10 are free at the end");
    }

    #[test]
    fn half_of_the_marks_may_be_kept() {
        let mut held = held(1 << 20, 1);
        assert!((0..32).all(|page| held.hold(&block(page, 1))));
        assert!(!held.hold(&block(32, 1)));
        assert!(!held.in_ring().is_short_of_bytes);
    }

    /// What a trainer does with each batch: gives back the one it has kept for longest, or not.
    fn lengths_and_releases() -> impl Strategy<Value = Vec<(u64, bool)>> {
        prop::collection::vec((1..=5_u64, any::<bool>()), 1..300)
    }

    proptest! {
        #[test]
        fn the_daemon_finds_room_for_the_next_batch_whatever_is_kept(
            pages in 15..60_u64, trainer in lengths_and_releases(),
        ) {
            let mut daemon = PayloadAllocator::new(pages * PAGE).unwrap();
            let mut held = held(pages, 5);
            let mut kept = std::collections::VecDeque::new();
            for (len, gives_back) in trainer {
                let offset = daemon.reserve(len * PAGE);
                prop_assert!(offset.is_some(), "no room for {} pages beside {:?}", len, held);
                let batch = Descriptor { offset: offset.unwrap(), ..block(0, len) };
                if held.hold(&batch) {
                    kept.push_back(batch);
                } else {
                    prop_assert!(daemon.free(batch.offset));
                }
                if gives_back && let Some(batch) = kept.pop_front() {
                    held.forget(&batch);
                    prop_assert!(daemon.free(batch.offset));
                }
                prop_assert_eq!(held.in_ring().batches, kept.len());
            }
        }
    }
}
