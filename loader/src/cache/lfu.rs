//! LFU's order of eviction: the least frequently used first, and of these the least recently touched.
//!
//! A sample's frequency is 1 when it is admitted and grows by 1 with every hit. It is forgotten at eviction: this is
//! LFU "in the cache", which needs no memory of what is not resident.

use super::heap::Heap;

/// The smallest is evicted first. No two residents were touched at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    frequency: u32,
    /// Number of the access that came last to it.
    touched: u64,
}

/// The residents' places by frequency.
#[derive(Default)]
pub(super) struct Lfu {
    heap: Heap<Key>,
    /// Admissions and hits so far: the time.
    accesses: u64,
}

impl Lfu {
    /// A new place, used once.
    pub(super) fn insert(&mut self, place: u32) {
        let touched = self.tick();
        self.heap.insert(place, Key { frequency: 1, touched });
    }

    /// One use more.
    pub(super) fn hit(&mut self, place: u32) {
        let touched = self.tick();
        if let Some(Key { frequency, .. }) = self.heap.key(place) {
            self.heap.rekey(place, Key { frequency: frequency.saturating_add(1), touched });
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
