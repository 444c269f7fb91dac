//! The cache proper: one hard byte limit, and the policies' orders of eviction.
//!
//! An access is `get` or `hit` where the sample is resident, and otherwise one read and then an [`offer`](Cache::offer).
//! An offer is all or nothing: either the newcomer is admitted and all its victims evicted in one step, or nothing
//! changes and the value comes back. Values are what the caller stores: blocks of the arena, or `()` in a simulation.

use shade_formats::SampleId;

use super::app::{Heap, Key};
use super::foresight::Foresight;
use super::lru::Recency;
use super::residents::Residents;
use crate::importance::Importance;

/// Who is evicted, and who is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// SHADE's: a newcomer is admitted only if every sample it displaces is worth less: (score, uses, -id).
    App,
    /// The plan's: a newcomer is admitted only if every sample it displaces is used later, where uses that are not known come
    /// last, in APP's order. It knows what it is told by [`use_at`](Cache::use_at) and [`see`](Cache::see); of nothing, it is APP.
    Lookahead,
    /// Every newcomer is admitted and displaces the least recently used.
    Lru,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// The value is resident.
    Admitted,
    /// Nothing changed; here is the value.
    Bypassed(T),
}

/// The policy's order of eviction over the places of the residents.
enum Eviction {
    Worth(Heap, Foresight),
    Lru(Recency),
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
        let eviction = match policy {
            Policy::App => Eviction::Worth(Heap::default(), Foresight::default()),
            Policy::Lookahead => Eviction::Worth(Heap::default(), Foresight::of(samples)),
            Policy::Lru => Eviction::Lru(Recency::new()),
        };
        Self { residents: Residents::new(samples), eviction, capacity_bytes, victims: Vec::new() }
    }

    /// The sample's value, without counting as a use.
    #[must_use]
    pub fn get(&self, id: SampleId) -> Option<&T> {
        self.residents.value(self.residents.place(id)?)
    }

    /// The sample's value, as a use: it moves in the order of eviction. Record the use in the table first.
    pub fn hit(&mut self, id: SampleId, importance: &Importance) -> Option<&T> {
        let place = self.residents.place(id)?;
        match &mut self.eviction {
            Eviction::Worth(heap, foresight) => {
                heap.rekey(place, Key::of(id, foresight.next(id), importance))
            }
            Eviction::Lru(recency) => recency.touch(place),
        }
        self.residents.value(place)
    }

    /// Offers a record of `bytes` that was read for `id`. Evicted samples are appended to `evicted`.
    ///
    /// Residents for whose value `is_pinned` holds are not evicted. A sample that is resident already, or that is not in
    /// the dataset, is bypassed.
    pub fn offer(
        &mut self,
        id: SampleId,
        bytes: u64,
        value: T,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
        evicted: &mut Vec<(SampleId, T)>,
    ) -> Admission<T> {
        let room = self.residents.is_absent(id) && self.find_room(id, bytes, importance, is_pinned);
        if !room {
            return Admission::Bypassed(value);
        }
        let victims = std::mem::take(&mut self.victims);
        evicted.extend(victims.iter().filter_map(|&place| self.evict(place)));
        self.victims = victims;
        let place = self.residents.insert(id, bytes, value);
        match &mut self.eviction {
            Eviction::Worth(heap, foresight) => {
                heap.insert(place, Key::of(id, foresight.next(id), importance))
            }
            Eviction::Lru(recency) => recency.insert(place),
        }
        Admission::Admitted
    }

    /// Tells the cache that the sample's score changed. Never changes what is resident.
    pub fn rescore(&mut self, id: SampleId, importance: &Importance) {
        if let (Some(place), Eviction::Worth(heap, foresight)) =
            (self.residents.place(id), &mut self.eviction)
        {
            heap.rekey(place, Key::of(id, foresight.next(id), importance));
        }
    }

    /// Tells the cache that the sample is used now and when next, as a position of the plan, if that is in sight. Call it
    /// before [`hit`](Self::hit), or before the read of a miss.
    pub fn use_at(&mut self, id: SampleId, next: Option<u32>) {
        if let Eviction::Worth(_, foresight) = &mut self.eviction {
            foresight.set(id, next);
        }
    }

    /// Tells the cache that the use at `position` of the plan has come into sight. A use that is known already is sooner.
    pub fn see(&mut self, id: SampleId, position: u32, importance: &Importance) {
        if let Eviction::Worth(_, foresight) = &mut self.eviction
            && foresight.next(id).is_none()
        {
            foresight.set(id, Some(position));
            self.rescore(id, importance);
        }
    }

    /// Tells the cache that the plan it has seen uses of is over: no next use is known any more.
    pub fn forget_uses(&mut self, importance: &Importance) {
        if let Eviction::Worth(_, foresight) = &mut self.eviction {
            foresight.clear();
        }
        let residents: Vec<SampleId> = self.ids().collect();
        residents.into_iter().for_each(|id| self.rescore(id, importance));
    }

    /// Evicts the sample, pinned or not, and returns its value.
    pub fn remove(&mut self, id: SampleId) -> Option<T> {
        let place = self.residents.place(id)?;
        self.evict(place).map(|(_, value)| value)
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
        self.residents.ids()
    }

    /// Whether `bytes` fit once `self.victims` are gone. Changes nothing else.
    fn find_room(
        &mut self,
        id: SampleId,
        bytes: u64,
        importance: &Importance,
        is_pinned: impl Fn(&T) -> bool,
    ) -> bool {
        self.victims.clear();
        if bytes > self.capacity_bytes {
            return false;
        }
        let residents = &self.residents;
        let missing = bytes.saturating_sub(self.capacity_bytes - residents.used_bytes());
        let is_pinned = |place| residents.value(place).is_some_and(&is_pinned);
        match &mut self.eviction {
            Eviction::Worth(heap, foresight) => {
                let newcomer = Key::of(id, foresight.next(id), importance);
                heap.victims(newcomer, missing, |place| residents.bytes(place), is_pinned, &mut self.victims)
            }
            Eviction::Lru(recency) => {
                let mut found = 0;
                for place in recency.oldest_first().filter(|&place| !is_pinned(place)) {
                    if found >= missing {
                        break;
                    }
                    found += residents.bytes(place);
                    self.victims.push(place);
                }
                found >= missing
            }
        }
    }

    fn evict(&mut self, place: u32) -> Option<(SampleId, T)> {
        match &mut self.eviction {
            Eviction::Worth(heap, _) => heap.remove(place),
            Eviction::Lru(recency) => recency.remove(place),
        }
        self.residents.remove(place)
    }
}
