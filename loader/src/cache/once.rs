//! Quiver's order of eviction: residents that the epoch has used give way, those that it has not are safe.
//!
//! Where every sample is used once an epoch, one that was used has its next use in another epoch, and one that was not is
//! a hit to come. So all that is resident when an epoch begins is hit in it, which is the most there can be.

use super::eviction::oldest_unpinned;
use super::queues::Queues;

/// Residents that wait for their use in this epoch, and those that had it.
const WAITING: usize = 0;
const USED: usize = 1;

/// Places by whether their samples were used in this epoch, each queue from the least to the most recently used.
pub(super) struct Once(Queues<2>);

impl Once {
    /// An empty order, with room for places below `places`.
    pub(super) fn for_places(places: usize) -> Self {
        Self(Queues::for_places(places))
    }

    /// All wait for their use again.
    pub(super) fn begin_epoch(&mut self) {
        self.0.append(WAITING, USED);
    }

    /// A newcomer, which comes for its use.
    pub(super) fn insert(&mut self, place: u32) {
        self.0.insert(USED, place);
    }

    pub(super) fn hit(&mut self, place: u32) {
        self.0.renew(USED, place);
    }

    pub(super) fn remove(&mut self, place: u32) {
        self.0.remove(place);
    }

    /// Whether the place is in the order.
    pub(super) fn contains(&self, place: u32) -> bool {
        self.0.queue_of(place).is_some()
    }

    /// Collects the places used longest ago in this epoch until they make `missing` bytes; false if they do not.
    pub(super) fn victims(
        &self,
        missing: u64,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        oldest_unpinned(self.0.oldest_first(USED), missing, bytes, is_pinned, victims)
    }
}
