//! The policy `static`, CoorDL's MinIO (Mohan et al., VLDB 2021): a newcomer that finds room stays
//! for good, any other is refused. If the cache is made smaller those leave that came last.

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Offer, Search};
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// There is no order: no newcomer displaces a resident.
pub(crate) struct Static;

impl Eviction for Static {
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        search.missing == 0
    }

    /// The highest places came last, except where a newcomer has a place that became free.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        let Search { mut missing, residents, is_pinned, victims } = search;
        let places: Vec<u32> = residents.iter().map(|(place, _)| place).collect();
        for place in places.into_iter().rev().filter(|&place| !is_pinned(place)) {
            if missing == 0 {
                return true;
            }
            victims.push(place);
            missing = missing.saturating_sub(residents.bytes(place));
        }
        missing == 0
    }

    fn insert(&mut self, _place: u32, _offer: &Offer<'_>) {}

    fn remove(&mut self, _place: u32, _bytes: u64) {}

    fn hit<T>(&mut self, _place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {}
}
