//! LFU's order of eviction: the least frequently used first, and of these the least recently touched.
//!
//! A sample's frequency is 1 when it is admitted and grows by 1 with every hit. It is forgotten at eviction: this is
//! LFU "in the cache", which needs no memory of what is not resident.

use super::heap::{Heap, Key};

/// Number of the access that came last to a resident, below its frequency. No two were touched at the same time.
fn key(frequency: u32, touched: u64) -> Key {
    Key::new(u128::from(frequency) << u64::BITS | u128::from(touched))
}

fn frequency(key: Key) -> u32 {
    // A key has 96 bits.
    u32::try_from(key.bits() >> u64::BITS).unwrap_or(u32::MAX)
}

/// The residents' places by frequency.
pub(super) struct Lfu {
    heap: Heap,
    /// Admissions and hits so far: the time.
    accesses: u64,
}

impl Lfu {
    /// An empty order, with room for places below `places`.
    pub(super) fn for_places(places: usize) -> Self {
        Self { heap: Heap::for_places(places), accesses: 0 }
    }

    /// A new place, used once.
    pub(super) fn insert(&mut self, place: u32) {
        let touched = self.tick();
        self.heap.insert(place, key(1, touched));
    }

    /// One use more.
    pub(super) fn hit(&mut self, place: u32) {
        let touched = self.tick();
        if let Some(before) = self.heap.key(place) {
            self.heap.rekey(place, key(frequency(before).saturating_add(1), touched));
        }
    }

    /// Takes a place out, and forgets how often it was used.
    pub(super) fn remove(&mut self, place: u32) {
        self.heap.remove(place);
    }

    /// As [`Heap::victims`], for a newcomer that may displace any.
    pub(super) fn victims(
        &mut self,
        missing: u64,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        self.heap.victims(None, missing, bytes, is_pinned, victims)
    }

    fn tick(&mut self) -> u64 {
        self.accesses += 1;
        self.accesses
    }
}
