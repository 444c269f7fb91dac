//! The policies that keep residents in a queue and evict the oldest: `lru` and `fifo`.
//!
//! Every newcomer is admitted. With `lru` a hit moves the resident to the end of the queue, with
//! `fifo` it moves nothing.

use shade_formats::SampleId;

use super::eviction::{Eviction, Offer, Search};
use super::queues::Queues;
use super::residents::Residents;
use crate::importance::Importance;

/// The places of all residents, from the oldest to the newest.
pub(super) struct Queue<const HITS_COUNT: bool>(Queues<1>);

/// Evicts the least recently used.
pub(super) type Lru = Queue<true>;
/// Evicts what was admitted first.
pub(super) type Fifo = Queue<false>;

impl<const HITS_COUNT: bool> Queue<HITS_COUNT> {
    /// The queue of an empty cache for samples `0..samples`.
    pub(super) fn new(samples: u32) -> Self {
        Self(Queues::for_places(samples as usize))
    }
}

impl<const HITS_COUNT: bool> Eviction for Queue<HITS_COUNT> {
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        self.0.oldest_unpinned(0, need, |place| residents.bytes(place), is_pinned, victims)
    }

    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        self.0.oldest_unpinned(0, need, |place| residents.bytes(place), is_pinned, victims)
    }

    fn insert(&mut self, place: u32, _offer: &Offer<'_>) {
        self.0.insert(0, place);
    }

    fn remove(&mut self, place: u32, _bytes: u64) {
        self.0.remove(place);
    }

    fn hit<T>(&mut self, place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {
        if HITS_COUNT {
            self.0.renew(0, place);
        }
    }
}
