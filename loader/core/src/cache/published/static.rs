//! The policy `static`, CoorDL's MinIO (Mohan et al., VLDB 2021): a newcomer that finds room stays
//! for good, any other is refused.

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Offer, Search};
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// There is no order: no resident is evicted.
pub(crate) struct Static;

impl Eviction for Static {
    fn victims<T, P: Fn(u32) -> bool>(&mut self, _offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        search.missing == 0
    }

    fn insert(&mut self, _place: u32, _offer: &Offer<'_>) {}

    fn remove(&mut self, _place: u32, _bytes: u64) {}

    fn hit<T>(&mut self, _place: u32, _id: SampleId, _importance: &Importance, _residents: &Residents<T>) {}
}
