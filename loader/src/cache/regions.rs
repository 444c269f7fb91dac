//! iCACHE's two regions: nine tenths of the bytes for samples of high importance, one tenth for the others.
//!
//! In the high region a newcomer displaces residents of strictly lower score, or is refused. In the low region it displaces
//! what the epoch has used already, as in Quiver's [`Once`]. Which samples are of high importance is said at each epoch's
//! start; a resident stays in its region until it leaves.

use shade_formats::SampleId;

use super::heap::Heap;
use super::once::Once;
use super::worth;
use crate::importance::Importance;

/// The low region has one in so many bytes, as in iCACHE's code.
const LOW_PART: u64 = 10;

/// Places by region, with each region's limit.
pub(super) struct Regions {
    /// By sample.
    is_high: Vec<bool>,
    high: Heap,
    high_free_bytes: u64,
    high_bytes: u64,
    low: Once,
    low_free_bytes: u64,
    low_bytes: u64,
}

impl Regions {
    pub(super) fn new(capacity_bytes: u64, samples: u32) -> Self {
        let low_bytes = capacity_bytes / LOW_PART;
        let high_bytes = capacity_bytes - low_bytes;
        Self {
            // Before the first epoch nothing is known to be of low importance.
            is_high: vec![true; samples as usize],
            high: Heap::for_places(samples as usize),
            high_free_bytes: high_bytes,
            high_bytes,
            low: Once::for_places(samples as usize),
            low_free_bytes: low_bytes,
            low_bytes,
        }
    }

    pub(super) fn begin_epoch(&mut self, high: impl FnOnce() -> Vec<bool>) {
        // Not two of them at a time.
        self.is_high = Vec::new();
        self.is_high = high();
        self.low.begin_epoch();
    }

    /// Collects who leaves for the newcomer; false if it is refused.
    pub(super) fn victims(
        &mut self,
        id: SampleId,
        bytes: u64,
        importance: &Importance,
        bytes_of: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        if self.is_high(id) {
            // Below all residents of the same score, so that these are not displaced.
            let newcomer = worth::below_score(id, importance);
            let missing = bytes.saturating_sub(self.high_free_bytes);
            bytes <= self.high_bytes
                && self.high.victims(Some(newcomer), missing, bytes_of, is_pinned, victims)
        } else {
            let missing = bytes.saturating_sub(self.low_free_bytes);
            bytes <= self.low_bytes && self.low.victims(missing, bytes_of, is_pinned, victims)
        }
    }

    pub(super) fn insert(&mut self, place: u32, id: SampleId, bytes: u64, importance: &Importance) {
        if self.is_high(id) {
            self.high.insert(place, worth::by_score(id, importance));
            self.high_free_bytes = self.high_free_bytes.saturating_sub(bytes);
        } else {
            self.low.insert(place);
            self.low_free_bytes = self.low_free_bytes.saturating_sub(bytes);
        }
    }

    pub(super) fn remove(&mut self, place: u32, bytes: u64) {
        if self.low.contains(place) {
            self.low.remove(place);
            self.low_free_bytes += bytes;
        } else {
            self.high.remove(place);
            self.high_free_bytes += bytes;
        }
    }

    pub(super) fn hit(&mut self, place: u32) {
        if self.low.contains(place) {
            self.low.hit(place);
        }
    }

    pub(super) fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
        // Nothing happens to a place that is not in the heap.
        self.high.rekey(place, worth::by_score(id, importance));
    }

    pub(super) fn is_high(&self, id: SampleId) -> bool {
        self.is_high.get(id.index()).copied().unwrap_or(false)
    }
}
