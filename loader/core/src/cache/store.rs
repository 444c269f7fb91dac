//! The cache proper: one hard byte limit, any policy.
//!
//! An access is `get` or `hit` where the sample is resident. Otherwise it is one read and then an
//! [`offer`](Cache::offer). An offer is all or nothing: either the newcomer is admitted and all its
//! victims are evicted in one step, or nothing changes and the value comes back. Values are what
//! the caller stores: blocks of the arena, or `()` in a simulation.

use shade_formats::SampleId;
use shade_job::Policy;

use super::eviction::{Need, Offer, Properties, Search};
use super::next_uses::Clock;
use super::policies::AnyPolicy;
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

/// Bytes that looking at a resident counts as, among those that are moved: it waits for memory.
const LOOK_BYTES: u64 = 512;

/// Resident samples with their values, at most `capacity_bytes` of them at every moment. When the
/// capacity shrinks, what is pinned may exceed it until it is not.
pub struct Cache<T> {
    residents: Residents<T>,
    policy: AnyPolicy,
    properties: Properties,
    capacity_bytes: u64,
    /// The capacity was changed, and residents may have to leave for that.
    has_surplus: bool,
    /// Some of them were not looked at yet.
    has_slices_left: bool,
    /// Victims of the offer at hand; kept for its space.
    victims: Vec<u32>,
}

impl<T> Cache<T> {
    /// An empty cache for samples `0..samples`. A capacity of 0 is fine: every record bypasses it.
    #[must_use]
    pub fn new(policy: Policy, capacity_bytes: u64, samples: u32) -> Self {
        let properties = Properties::of(policy);
        Self::with(AnyPolicy::new(policy, capacity_bytes, samples), properties, capacity_bytes, samples)
    }

    /// As [`Policy::Lookahead`], but a newcomer is admitted even if it is used later than all
    /// residents: Belady's MIN without bypass, to compare with.
    #[must_use]
    pub fn that_admits_all(capacity_bytes: u64, samples: u32) -> Self {
        let properties = Properties::of(Policy::Lookahead);
        Self::with(AnyPolicy::min_that_admits_all(samples), properties, capacity_bytes, samples)
    }

    fn with(policy: AnyPolicy, properties: Properties, capacity_bytes: u64, samples: u32) -> Self {
        let residents = Residents::new(samples);
        Self {
            residents,
            policy,
            properties,
            capacity_bytes,
            has_surplus: false,
            has_slices_left: false,
            victims: Vec::new(),
        }
    }

    /// What there is to know of the policy.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// The sample's value, without counting as a use.
    #[must_use]
    pub fn get(&self, id: SampleId) -> Option<&T> {
        self.residents.resident(id).map(|(_, value)| value)
    }

    /// The sample's value, as a use: it moves in the order of eviction. Record the use in the table
    /// first.
    // Where everything misses, a call for that alone took a tenth to a fifth of an access
    // (`shade-benches cache`, loop).
    #[inline(always)]
    pub fn hit(&mut self, id: SampleId, importance: &Importance) -> Option<&T> {
        let (place, value) = self.residents.resident(id)?;
        self.policy.hit(place, id, importance, &self.residents);
        Some(value)
    }

    /// Offers a record of `bytes` that was read for `id`. Evicted samples are appended to
    /// `evicted`.
    ///
    /// Residents for whose value `is_pinned` holds are not evicted. A sample that is resident
    /// already or not in the dataset is bypassed, as is a record of 4 GiB or more (the format's
    /// limit is 1 GiB).
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
        self.policy.admit(offer, value, &mut self.residents, &self.victims, evicted);
        Admission::Admitted
    }

    /// Whether residents leave for a smaller capacity: until then no newcomer comes.
    #[must_use]
    pub fn has_slices_left(&self) -> bool {
        self.has_slices_left
    }

    /// Whether `bytes` are free or held by unpinned samples without a known next use. With a policy
    /// that does not [look ahead](Properties::looks_ahead) only free space counts.
    #[must_use]
    pub fn has_unused_room(
        &mut self,
        bytes: u64,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
    ) -> bool {
        if self.has_slices_left {
            return false;
        }
        let need = Need::of(self.missing(bytes));
        let residents = &self.residents;
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        self.victims.clear();
        let search = Search { need, residents, is_pinned, victims: &mut self.victims };
        self.policy.unused(search, importance)
    }

    /// Whether a record of `bytes` that is read for `id` ahead of its use would be admitted. A
    /// policy that [looks ahead](Properties::looks_ahead) wants to know of a use, too.
    #[must_use]
    pub fn would_admit(
        &mut self,
        id: SampleId,
        bytes: u64,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
    ) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let offer = &Offer { id, bytes, importance, ghost: self.residents.ghost(id) };
        self.residents.is_absent(id)
            && self.policy.next_uses().is_none_or(|next_uses| next_uses.due(id).is_some())
            && self.find_room(offer, is_pinned)
    }

    /// Whether a record of `bytes` that the tier has is worth a place here: there is room, or its
    /// next use is known. With a policy that does not [look ahead](Properties::looks_ahead) it is.
    #[must_use]
    pub fn is_worth_moving(&mut self, id: SampleId, bytes: u64) -> bool {
        self.missing(bytes) == 0
            || self.policy.next_uses().is_none_or(|next_uses| next_uses.due(id).is_some())
    }

    /// Tells the cache that the sample, if it is resident, was read ahead of its use.
    pub fn await_use(&mut self, id: SampleId) {
        if let Some(place) = self.residents.place(id) {
            self.policy.await_use(place);
        }
    }

    /// Changes the capacity. What has no room any more leaves with
    /// [`evict_surplus`](Self::evict_surplus).
    pub fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.policy.resize(capacity_bytes);
        (self.has_surplus, self.has_slices_left) = (true, true);
    }

    /// Whether the capacity was changed and residents may still have to leave for that.
    #[must_use]
    pub fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    /// Evicts what a smaller capacity has no room for, in the policy's order, but no more than
    /// `most` residents: the next call [goes on](Self::has_slices_left). Evicted samples are
    /// appended to `evicted`. Pinned residents stay; a later call evicts them.
    pub fn evict_surplus(
        &mut self,
        most: usize,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
        evicted: &mut Vec<(SampleId, T)>,
    ) {
        let need = Need { bytes: self.missing(0), most };
        let residents = &self.residents;
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        self.victims.clear();
        let search = Search { need, residents, is_pinned, victims: &mut self.victims };
        self.has_surplus = !self.policy.surplus(search, importance);
        self.has_slices_left = self.has_surplus && self.victims.len() >= most;
        self.policy.evict(&mut self.residents, &self.victims, evicted);
    }

    /// Offers residents' values to `change`, in no particular order, until it has changed some of
    /// `bytes_max` bytes. `from` is 0 or what the call before has returned: where to go on. `None`:
    /// all were offered.
    pub fn change_values(
        &mut self,
        from: u32,
        mut bytes_max: u64,
        mut change: impl FnMut(&mut T) -> bool,
    ) -> Option<u32> {
        for place in from..self.residents.places() {
            if bytes_max == 0 {
                return Some(place);
            }
            let was_changed = self.residents.value_mut(place).is_some_and(&mut change);
            let bytes = if was_changed { self.residents.bytes(place) } else { 0 };
            bytes_max = bytes_max.saturating_sub(bytes.max(LOOK_BYTES));
        }
        None
    }

    /// Tells the cache that the sample's score changed. Never changes what is resident.
    pub fn rescore(&mut self, id: SampleId, importance: &Importance) {
        if let Some(place) = self.residents.place(id) {
            self.policy.rescore(place, id, importance);
        }
    }

    /// Tells the cache that `job` uses the sample now and when it uses it next, as a position of
    /// its plan, if that is in sight. Call it before [`hit`](Self::hit), or before the read of a
    /// miss.
    pub fn use_at(&mut self, job: u32, id: SampleId, next: Option<u32>) {
        if let Some(next_uses) = self.policy.next_uses() {
            next_uses.set(job, id, next);
        }
    }

    /// Tells the cache that the use at `position` of the job's plan has come into sight. A use of
    /// the same job that is known already is sooner.
    pub fn see(&mut self, job: u32, id: SampleId, position: u32, importance: &Importance) {
        if let Some(next_uses) = self.policy.next_uses()
            && next_uses.set_if_unknown(job, id, position)
        {
            self.rescore(id, importance);
        }
    }

    /// Tells the cache that the job's plan is over: no next use of it is known any more.
    pub fn forget_uses(&mut self, job: u32) {
        if let Some(next_uses) = self.policy.next_uses() {
            next_uses.clear(job);
            self.policy.rank_anew();
        }
    }

    /// Tells the cache that the job has ended. Call [`rank_anew`](Self::rank_anew) afterwards.
    pub fn forget_job(&mut self, job: u32) {
        if let Some(next_uses) = self.policy.next_uses() {
            next_uses.forget(job);
        }
    }

    /// When the job's positions are due.
    pub fn clock(&mut self, job: u32) -> Clock {
        self.policy.next_uses().map_or(Clock::POSITIONS, |next_uses| next_uses.clock(job))
    }

    /// Tells the cache when the job's positions are due. Call [`rank_anew`](Self::rank_anew)
    /// afterwards.
    pub fn set_clock(&mut self, job: u32, clock: Clock) {
        if let Some(next_uses) = self.policy.next_uses() {
            next_uses.set_clock(job, clock);
        }
    }

    /// Scores or the times of next uses have changed: all residents are ranked anew when victims
    /// are asked for, or [in slices](Self::keep_ranked). Never changes what is resident.
    pub fn rank_anew(&mut self) {
        self.policy.rank_anew();
    }

    /// Whether residents are ranked anew in slices, with [`rank_on`](Self::rank_on), and never all
    /// at once. Right for a cache that must evict, as ranking a million takes a while; one with
    /// room for all samples need not be ranked at all.
    pub fn keep_ranked(&mut self, is_kept: bool) {
        self.policy.keep_ranked(is_kept);
    }

    /// Goes on to rank residents anew, with `most` of them. Until all are, what is evicted goes by
    /// the ranks that they had before. Returns whether there are more.
    pub fn rank_on(&mut self, most: u32, importance: &Importance) -> bool {
        self.policy.rank_on(most, &self.residents, importance)
    }

    /// Tells the cache that an epoch begins. `may_use` says which samples some job may use, and
    /// `high` by sample which ones have high importance; samples beyond its end have low
    /// importance. Only a policy that needs them asks.
    pub fn begin_epoch(&mut self, may_use: impl Fn(SampleId) -> bool, high: impl FnOnce() -> Vec<bool>) {
        self.policy.begin_epoch(&self.residents, may_use, high);
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

    /// Whether the sample may be served in place of another, or another in its place.
    #[must_use]
    pub fn may_be_exchanged(&self, id: SampleId) -> bool {
        self.policy.may_be_exchanged(id)
    }

    /// Takes the sample out, pinned or not, and returns its value. It leaves no ghost.
    pub fn remove(&mut self, id: SampleId) -> Option<T> {
        let place = self.residents.place(id)?;
        self.policy.remove(place, self.residents.bytes(place));
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

    /// The limit given to [`new`](Self::new) or [`resize`](Self::resize) last.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Resident samples in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = SampleId> {
        self.residents.iter().map(|(_, id)| id)
    }

    /// Chooses `self.victims` and returns whether the offer fits once they are gone. Changes
    /// nothing else.
    fn find_room(&mut self, offer: &Offer<'_>, is_pinned: impl Fn(&T) -> bool) -> bool {
        let bytes = u64::from(offer.bytes);
        if bytes > self.capacity_bytes || self.has_slices_left {
            return false;
        }
        let need = Need::of(self.missing(bytes));
        let residents = &self.residents;
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        self.victims.clear();
        self.policy.victims(offer, Search { need, residents, is_pinned, victims: &mut self.victims })
    }

    /// Bytes that must become free so that `bytes` find room.
    fn missing(&self, bytes: u64) -> u64 {
        self.residents.used_bytes().saturating_add(bytes).saturating_sub(self.capacity_bytes)
    }
}
