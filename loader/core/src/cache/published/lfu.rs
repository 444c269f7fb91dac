//! The policy `lfu`: evicts the least frequently used and, of equals, the least recently touched.
//!
//! Every newcomer is admitted. A sample's frequency is 1 when it is admitted and grows by 1 with
//! every hit. It is forgotten at eviction: this is LFU "in the cache", which needs no memory of
//! what is not resident.

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Offer, Search};
use crate::cache::heap::{Heap, Key};
use crate::cache::residents::Residents;
use crate::importance::Importance;
use crate::number::to_u32;

/// The frequency above the number of the access that came last to the resident. No two residents
/// were touched by the same access.
fn key(frequency: u32, touched: u64) -> Key {
    Key::new(u128::from(frequency) << u64::BITS | u128::from(touched))
}

fn frequency(key: Key) -> u32 {
    // A key has 96 bits.
    to_u32(key.bits() >> u64::BITS)
}

/// The residents' places by frequency.
pub(crate) struct Lfu {
    heap: Heap,
    /// Number of admissions and hits so far: the time.
    accesses: u64,
}

impl Lfu {
    /// The order of an empty cache for samples `0..samples`.
    pub(crate) fn new(samples: u32) -> Self {
        Self { heap: Heap::for_places(samples as usize), accesses: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.accesses += 1;
        self.accesses
    }
}

impl Eviction for Lfu {
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        self.heap.victims(None, need, |place| residents.bytes(place), is_pinned, victims)
    }

    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        self.heap.victims(None, need, |place| residents.bytes(place), is_pinned, victims)
    }

    fn insert(&mut self, place: u32, _offer: &Offer<'_>) {
        let touched = self.tick();
        self.heap.insert(place, key(1, touched));
    }

    fn remove(&mut self, place: u32, _bytes: u64) {
        self.heap.remove(place);
    }

    fn hit<T>(&mut self, place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {
        let touched = self.tick();
        if let Some(before) = self.heap.key(place) {
            self.heap.rekey(place, key(frequency(before).saturating_add(1), touched));
        }
    }
}
