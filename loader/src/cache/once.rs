//! Quiver's order of eviction: residents that the epoch has used give way, those that it has not are safe.
//!
//! Where every sample is used once an epoch, one that was used has its next use in another epoch, and one that was not is
//! a hit to come. So all that is resident when an epoch begins is hit in it, which is the most there can be.

use super::eviction::oldest_unpinned;
use super::list::List;

/// Places by whether their samples were used in this epoch, each list from the least to the most recently used.
pub(super) struct Once {
    waiting: List,
    used: List,
}

impl Default for Once {
    fn default() -> Self {
        Self { waiting: List::new(), used: List::new() }
    }
}

impl Once {
    /// All wait for their use again.
    pub(super) fn begin_epoch(&mut self) {
        let used: Vec<u32> = self.used.oldest_first().collect();
        for place in used {
            self.used.remove(place);
            self.waiting.insert(place);
        }
    }

    /// A newcomer, which comes for its use.
    pub(super) fn insert(&mut self, place: u32) {
        self.used.insert(place);
    }

    pub(super) fn hit(&mut self, place: u32) {
        self.remove(place);
        self.used.insert(place);
    }

    pub(super) fn remove(&mut self, place: u32) {
        let list = if self.waiting.contains(place) { &mut self.waiting } else { &mut self.used };
        list.remove(place);
    }

    /// Whether the place is in the order.
    pub(super) fn contains(&self, place: u32) -> bool {
        self.waiting.contains(place) || self.used.contains(place)
    }

    /// Collects the places used longest ago in this epoch until they make `missing` bytes; false if they do not.
    pub(super) fn victims(
        &self,
        missing: u64,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        oldest_unpinned(&self.used, missing, bytes, is_pinned, victims)
    }
}
