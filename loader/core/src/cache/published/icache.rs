//! The policy `icache` (Chen et al., HPCA 2023): nine tenths of the bytes for samples of high
//! importance, one tenth for the others.
//!
//! In the high region a newcomer displaces residents of strictly lower score, or is refused. In the
//! low region it displaces what the epoch has used, as with [`Quiver`]. Each epoch says at its
//! start which samples of all jobs' plans have high importance; a resident stays in its region
//! until it leaves. Samples of low importance may be exchanged for one another.

use shade_formats::SampleId;

use super::quiver::Quiver;
use crate::cache::eviction::{Eviction, Need, Offer, Properties, Search};
use crate::cache::heap::Heap;
use crate::cache::ranking::{key_below_score, key_by_score};
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// The low region has a tenth of the bytes, as in iCACHE's code.
const LOW_PART: u64 = 10;

/// Places by region, with the limit of each region.
pub(crate) struct Icache {
    /// By sample.
    is_high: Vec<bool>,
    high: Heap,
    /// Scores have changed that it does not have yet.
    is_stale: bool,
    high_used_bytes: u64,
    high_bytes: u64,
    low: Quiver,
    low_used_bytes: u64,
    low_bytes: u64,
}

impl Icache {
    /// The order of an empty cache of `capacity_bytes` for samples `0..samples`.
    pub(crate) fn new(capacity_bytes: u64, samples: u32) -> Self {
        let mut new = Self {
            // Before the first epoch no sample is known to have low importance.
            is_high: vec![true; samples as usize],
            high: Heap::for_places(samples as usize),
            is_stale: false,
            high_used_bytes: 0,
            high_bytes: 0,
            low: Quiver::new(samples),
            low_used_bytes: 0,
            low_bytes: 0,
        };
        new.resize(capacity_bytes);
        new
    }

    fn is_high(&self, id: SampleId) -> bool {
        self.is_high.get(id.index()).copied().unwrap_or(false)
    }

    /// Ranks the high region by the scores of now, if they have changed.
    fn refresh<T>(&mut self, residents: &Residents<T>, importance: &Importance) {
        if std::mem::take(&mut self.is_stale) {
            // The heap ignores a place of the low region.
            residents.iter().for_each(|(place, id)| self.high.rekey(place, key_by_score(id, importance)));
        }
    }
}

impl Eviction for Icache {
    /// A sample of low importance that was exchanged is not what the plan had, so it is no hit. One
    /// region may evict while the other has room.
    const PROPERTIES: Properties =
        Properties { exchanges: true, counts_exchanges: true, keeps_what_fits: false, ..Properties::USUAL };

    fn victims<T, P: Fn(u32) -> bool>(&mut self, offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        self.refresh(search.residents, offer.importance);
        let bytes = u64::from(offer.bytes);
        if self.is_high(offer.id) {
            // Below all residents with the same score, so that these are not displaced.
            let newcomer = key_below_score(offer.id, offer.importance);
            let missing = (self.high_used_bytes + bytes).saturating_sub(self.high_bytes);
            let Search { residents, is_pinned, victims, .. } = search;
            let bytes_of = |place| residents.bytes(place);
            bytes <= self.high_bytes
                && self.high.victims(Some(newcomer), Need::of(missing), bytes_of, is_pinned, victims)
        } else {
            let missing = (self.low_used_bytes + bytes).saturating_sub(self.low_bytes);
            bytes <= self.low_bytes && self.low.victims(offer, Search { need: Need::of(missing), ..search })
        }
    }

    /// Each region has its own surplus, whatever the other one has.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool {
        let Search { need: Need { most, .. }, residents, is_pinned, victims } = search;
        self.refresh(residents, importance);
        let need = Need { bytes: self.high_used_bytes.saturating_sub(self.high_bytes), most };
        let high = self.high.victims(None, need, |place| residents.bytes(place), &is_pinned, victims);
        let need = Need { bytes: self.low_used_bytes.saturating_sub(self.low_bytes), most };
        let low = self.low.surplus(Search { need, residents, is_pinned, victims }, importance);
        high && low
    }

    fn insert(&mut self, place: u32, offer: &Offer<'_>) {
        let bytes = u64::from(offer.bytes);
        if self.is_high(offer.id) {
            self.high.insert(place, key_by_score(offer.id, offer.importance));
            self.high_used_bytes += bytes;
        } else {
            self.low.insert(place, offer);
            self.low_used_bytes += bytes;
        }
    }

    fn remove(&mut self, place: u32, bytes: u64) {
        if self.low.contains(place) {
            self.low.remove(place, bytes);
            self.low_used_bytes -= bytes;
        } else {
            self.high.remove(place);
            self.high_used_bytes -= bytes;
        }
    }

    fn hit<T>(&mut self, place: u32, id: SampleId, importance: &Importance, residents: &Residents<T>) {
        if self.low.contains(place) {
            self.low.hit(place, id, importance, residents);
        }
    }

    fn await_use(&mut self, place: u32) {
        if self.low.contains(place) {
            self.low.await_use(place);
        }
    }

    fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
        // The heap ignores a place of the low region.
        self.high.rekey(place, key_by_score(id, importance));
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.low_bytes = capacity_bytes / LOW_PART;
        self.high_bytes = capacity_bytes - self.low_bytes;
    }

    /// The high region is ranked when victims are asked for.
    fn rank_anew(&mut self) {
        self.is_stale = true;
    }

    fn begin_epoch<T>(
        &mut self,
        residents: &Residents<T>,
        may_use: impl Fn(SampleId) -> bool,
        high: impl FnOnce() -> Vec<bool>,
    ) {
        // Frees the old table first, so that there are never two.
        self.is_high = Vec::new();
        self.is_high = high();
        self.low.begin_epoch(residents, may_use, Vec::new);
    }

    fn may_be_exchanged(&self, id: SampleId) -> bool {
        !self.is_high(id)
    }
}
