//! The policy `static`, CoorDL's MinIO (Mohan et al., VLDB 2021): a newcomer that finds room stays
//! for good, any other is refused. If the cache is made smaller those leave that came last.

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Need, Offer, Search};
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// There is no order: no newcomer displaces a resident.
#[derive(Default)]
pub(crate) struct Static {
    /// From this place on none is occupied that a search could find.
    searched_from: Option<u32>,
}

impl Eviction for Static {
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        search.need.bytes == 0
    }

    /// The highest places came last, except where a newcomer has a place that became free.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        let Search { need: Need { mut bytes, most }, residents, is_pinned, victims } = search;
        let end = self.searched_from.take().unwrap_or(u32::MAX).min(residents.places());
        let mut is_any_pinned = false;
        for place in (0..end).rev().filter(|&place| residents.value(place).is_some()) {
            if bytes == 0 || victims.len() == most {
                break;
            }
            if is_pinned(place) {
                is_any_pinned = true;
                continue;
            }
            victims.push(place);
            bytes = bytes.saturating_sub(residents.bytes(place));
        }
        // The next search goes on here, unless it has to look at one that was pinned.
        self.searched_from = victims.last().copied().filter(|_| !is_any_pinned);
        bytes == 0
    }

    fn insert(&mut self, _place: u32, _offer: &Offer<'_>) {
        self.searched_from = None;
    }

    fn remove(&mut self, _place: u32, _bytes: u64) {}

    fn hit<T>(&mut self, _place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {}
}
