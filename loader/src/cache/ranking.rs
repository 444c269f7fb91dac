//! The order of eviction of policies that rank residents by what is known of their samples at any time: a heap that is made
//! when victims are first asked for.
//!
//! A cache with room for all never asks. There, keeping the order took a fifth of all time with images of 3 KB, and two thirds of
//! what an epoch begins with. Any other asks once it is full, and all residents are put in order then.

use shade_formats::SampleId;

use super::heap::{Heap, Key};
use super::residents::Residents;

/// The places of all residents, by keys. Whoever changes what a resident's key is made of tells it.
pub(super) struct Ranking {
    /// `None` until victims are asked for.
    heap: Option<Heap>,
    /// How many there can be.
    places: usize,
}

/// Who has to leave, and for whom.
pub(super) struct Wanted<N> {
    /// Key of the newcomer, which displaces those below it; `None` if it displaces any.
    pub(super) newcomer: Option<Key>,
    /// Bytes to be freed.
    pub(super) missing: u64,
    /// Places that must stay.
    pub(super) is_pinned: N,
}

impl Ranking {
    /// An empty order, with room for places below `places`.
    pub(super) fn for_places(places: usize) -> Self {
        Self { heap: None, places }
    }

    /// A resident more.
    pub(super) fn insert(&mut self, place: u32, key: impl FnOnce() -> Key) {
        if let Some(heap) = &mut self.heap {
            heap.insert(place, key());
        }
    }

    /// A resident less.
    pub(super) fn remove(&mut self, place: u32) {
        if let Some(heap) = &mut self.heap {
            heap.remove(place);
        }
    }

    /// The resident's key may have changed.
    pub(super) fn rekey(&mut self, place: u32, key: impl FnOnce() -> Key) {
        if let Some(heap) = &mut self.heap {
            heap.rekey(place, key());
        }
    }

    /// As [`Heap::victims`], of `residents` with the keys that `key` gives.
    pub(super) fn victims<T>(
        &mut self,
        residents: &Residents<T>,
        key: impl Fn(SampleId) -> Key,
        wanted: Wanted<impl Fn(u32) -> bool>,
        victims: &mut Vec<u32>,
    ) -> bool {
        let Wanted { newcomer, missing, is_pinned } = wanted;
        if missing == 0 {
            return true;
        }
        let places = self.places;
        let heap = self.heap.get_or_insert_with(|| {
            let mut heap = Heap::for_places(places);
            residents.iter().for_each(|(place, id)| heap.insert(place, key(id)));
            heap
        });
        heap.victims(newcomer, missing, |place| residents.bytes(place), is_pinned, victims)
    }
}
