//! The cache proper: one hard byte limit, any policy.
//!
//! An access is `get` or `hit` where the sample is resident, and otherwise one read and then an [`offer`](Cache::offer).
//! An offer is all or nothing: either the newcomer is admitted and all its victims evicted in one step, or nothing
//! changes and the value comes back. Values are what the caller stores: blocks of the arena, or `()` in a simulation.

use shade_formats::SampleId;
use shade_formats::control::Policy;

use super::eviction::{Eviction, Offer, Swap};
use super::residents::Residents;
use crate::importance::Importance;

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// The value is resident.
    Admitted,
    /// Nothing changed; here is the value.
    Bypassed(T),
}

/// Resident samples with their values, at most `capacity_bytes` of them at every moment.
pub struct Cache<T> {
    residents: Residents<T>,
    eviction: Eviction,
    capacity_bytes: u64,
    /// Victims of the offer at hand; kept for its space.
    victims: Vec<u32>,
}

impl<T> Cache<T> {
    /// An empty cache for samples `0..samples`. A capacity of 0 is fine: every record bypasses it.
    #[must_use]
    pub fn new(policy: Policy, capacity_bytes: u64, samples: u32) -> Self {
        Self::with(Eviction::new(policy, capacity_bytes, samples), capacity_bytes, samples)
    }

    /// As [`Policy::Lookahead`], but a newcomer is admitted even if it is used later than all residents: Belady's MIN without
    /// bypass, to compare with.
    #[must_use]
    pub fn that_admits_all(capacity_bytes: u64, samples: u32) -> Self {
        Self::with(Eviction::belady(samples, false), capacity_bytes, samples)
    }

    fn with(eviction: Eviction, capacity_bytes: u64, samples: u32) -> Self {
        Self { residents: Residents::new(samples), eviction, capacity_bytes, victims: Vec::new() }
    }

    /// The sample's value, without counting as a use.
    #[must_use]
    pub fn get(&self, id: SampleId) -> Option<&T> {
        self.residents.resident(id).map(|(_, value)| value)
    }

    /// The sample's value, as a use: it moves in the order of eviction. Record the use in the table first.
    // Where everything misses, a call for that alone took a tenth to a fifth of an access (`shade-benches cache`, loop).
    #[inline(always)]
    pub fn hit(&mut self, id: SampleId, importance: &Importance) -> Option<&T> {
        let (place, value) = self.residents.resident(id)?;
        self.eviction.hit(place, id, importance, |place| self.residents.bytes(place));
        Some(value)
    }

    /// Offers a record of `bytes` that was read for `id`. Evicted samples are appended to `evicted`.
    ///
    /// Residents for whose value `is_pinned` holds are not evicted. A sample that is resident already, or that is not in
    /// the dataset, is bypassed; so is a record of 4 GiB or more (the format's limit is 1 GiB).
    pub fn offer(
        &mut self,
        id: SampleId,
        bytes: u64,
        value: T,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
        evicted: &mut Vec<(SampleId, T)>,
    ) -> Admission<T> {
        let Ok(bytes) = u32::try_from(bytes) else { return Admission::Bypassed(value) };
        let offer = &Offer { id, bytes, importance, ghost: self.residents.ghost(id) };
        if !self.residents.is_absent(id) || !self.find_room(offer, is_pinned) {
            return Admission::Bypassed(value);
        }
        let (residents, victims) = (&mut self.residents, self.victims.as_slice());
        self.eviction.admit(Swap { offer, value, residents, victims, evicted });
        Admission::Admitted
    }

    /// Whether `bytes` are free or held by unpinned samples with no known use. Only `Policy::Lookahead` knows uses; with
    /// others nothing but free space counts.
    #[must_use]
    pub fn has_unused_room(
        &mut self,
        bytes: u64,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
    ) -> bool {
        self.victims.clear();
        let residents = &self.residents;
        let missing = bytes.saturating_sub(self.capacity_bytes - residents.used_bytes());
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        self.eviction.unused(missing, residents, importance, is_pinned, &mut self.victims)
    }

    /// Tells the cache that the sample's score changed. Never changes what is resident.
    pub fn rescore(&mut self, id: SampleId, importance: &Importance) {
        if let Some(place) = self.residents.place(id) {
            self.eviction.rescore(place, id, importance);
        }
    }

    /// Tells the cache that the sample is used now and when next, as a position of the plan, if that is in sight. Call it
    /// before [`hit`](Self::hit), or before the read of a miss.
    pub fn use_at(&mut self, id: SampleId, next: Option<u32>) {
        if let Some(foresight) = self.eviction.foresight() {
            foresight.set(id, next);
        }
    }

    /// Tells the cache that the use at `position` of the plan has come into sight. A use that is known already is sooner.
    pub fn see(&mut self, id: SampleId, position: u32, importance: &Importance) {
        if let Some(foresight) = self.eviction.foresight()
            && foresight.next(id).is_none()
        {
            foresight.set(id, Some(position));
            self.rescore(id, importance);
        }
    }

    /// Tells the cache that the plan it has seen uses of is over: no next use is known any more.
    pub fn forget_uses(&mut self, importance: &Importance) {
        if let Some(foresight) = self.eviction.foresight() {
            foresight.clear();
            let residents: Vec<SampleId> = self.ids().collect();
            residents.into_iter().for_each(|id| self.rescore(id, importance));
        }
    }

    /// Tells the cache that an epoch begins. `Policy::Icache` asks `high` which samples count as those of high importance in
    /// it, by sample; what is beyond is not.
    pub fn begin_epoch(&mut self, high: impl FnOnce() -> Vec<bool>) {
        self.eviction.begin_epoch(high);
    }

    /// Whether samples that are resident may be served instead of others that are not: the caller of
    /// [`Plan::exchange`](crate::plan::Plan::exchange) asks.
    #[must_use]
    pub fn exchanges(&self) -> bool {
        self.eviction.stand_ins().is_some()
    }

    /// Whether `id` is not resident and another sample may stand in for it.
    #[must_use]
    pub fn wants_stand_in(&self, id: SampleId) -> bool {
        self.residents.is_absent(id) && self.may_be_exchanged(id)
    }

    /// Whether `id` is resident and may stand in for another sample.
    #[must_use]
    pub fn may_stand_in(&self, id: SampleId) -> bool {
        self.residents.place(id).is_some() && self.may_be_exchanged(id)
    }

    fn may_be_exchanged(&self, id: SampleId) -> bool {
        self.eviction.stand_ins().is_some_and(|may| may(id))
    }

    /// Takes the sample out, pinned or not, and returns its value. No policy holds it against the sample.
    pub fn remove(&mut self, id: SampleId) -> Option<T> {
        let place = self.residents.place(id)?;
        self.eviction.remove(place, self.residents.bytes(place));
        self.residents.remove(place).map(|(_, value)| value)
    }

    /// Number of resident samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.residents.len()
    }

    /// Whether nothing is resident.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all residents.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.residents.used_bytes()
    }

    /// The limit given to [`new`](Self::new).
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Resident samples in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = SampleId> {
        self.residents.iter().map(|(_, id)| id)
    }

    /// Whether the offer fits once `self.victims` are gone. Changes nothing else.
    fn find_room(&mut self, offer: &Offer<'_>, is_pinned: impl Fn(&T) -> bool) -> bool {
        self.victims.clear();
        let bytes = u64::from(offer.bytes);
        if bytes > self.capacity_bytes {
            return false;
        }
        let residents = &self.residents;
        let missing = bytes.saturating_sub(self.capacity_bytes - residents.used_bytes());
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        self.eviction.victims(offer, missing, residents, is_pinned, &mut self.victims)
    }
}
