//! The policies: who is evicted for whom, and who is admitted. Each is an order of eviction over the places of the
//! residents. Every policy fills the cache on demand: while there is room, all are admitted.

use shade_formats::SampleId;
use shade_formats::control::Policy;

use super::arc::Adaptive;
use super::foresight::Foresight;
use super::lfu::Lfu;
use super::once::Once;
use super::queues::Queues;
use super::ranking::{Ranking, Wanted};
use super::regions::Regions;
use super::residents::Residents;
use super::worth;
use crate::importance::Importance;

/// A record that came for a sample that is not resident.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) id: SampleId,
    pub(super) bytes: u32,
    pub(super) importance: &'a Importance,
    /// The place of its ghost and the bytes it took, if it is one.
    pub(super) ghost: Option<(u32, u64)>,
}

/// An offer that is accepted: who leaves, and what comes.
pub(super) struct Swap<'a, T> {
    pub(super) offer: &'a Offer<'a>,
    pub(super) value: T,
    pub(super) residents: &'a mut Residents<T>,
    pub(super) victims: &'a [u32],
    /// The victims are appended to it.
    pub(super) evicted: &'a mut Vec<(SampleId, T)>,
}

impl<T> Swap<'_, T> {
    /// Carries it out where there are no ghosts. `remove` takes a victim, with its bytes, out of the `order`; `insert` puts
    /// the newcomer in.
    fn within<O>(self, order: &mut O, remove: impl Fn(&mut O, u32, u64), insert: impl FnOnce(&mut O, u32)) {
        let Self { offer, value, residents, victims, evicted } = self;
        for &place in victims {
            remove(order, place, residents.bytes(place));
            if let Some(victim) = residents.remove(place) {
                evicted.push(victim);
            }
        }
        insert(order, residents.insert(offer.id, None, offer.bytes, value));
    }
}

/// The policy's order of eviction over the places of the residents.
pub(super) enum Eviction {
    App(Ranking),
    Lookahead {
        ranking: Ranking,
        foresight: Foresight,
        /// Whether a newcomer that is used later than all residents is refused.
        bypasses: bool,
    },
    TopC(Ranking),
    Lfu(Lfu),
    Lru(Queues<1>),
    Fifo(Queues<1>),
    Arc(Box<Adaptive>),
    Static,
    Icache(Box<Regions>),
    Quiver(Once),
}

impl Eviction {
    /// The order of an empty cache of `capacity_bytes` for samples `0..samples`.
    pub(super) fn new(policy: Policy, capacity_bytes: u64, samples: u32) -> Self {
        let places = samples as usize;
        match policy {
            Policy::App => Self::App(Ranking::for_places(places)),
            Policy::Lookahead => Self::belady(samples, true),
            Policy::TopC => Self::TopC(Ranking::for_places(places)),
            Policy::Lfu => Self::Lfu(Lfu::for_places(places)),
            Policy::Lru => Self::Lru(Queues::for_places(places)),
            Policy::Fifo => Self::Fifo(Queues::for_places(places)),
            Policy::Arc => Self::Arc(Box::new(Adaptive::new(capacity_bytes, places))),
            Policy::Static => Self::Static,
            Policy::Icache => Self::Icache(Box::new(Regions::new(capacity_bytes, samples))),
            Policy::Quiver => Self::Quiver(Once::for_places(places)),
        }
    }

    /// Belady's order as far as uses are known, and APP's behind that.
    pub(super) fn belady(samples: u32, bypasses: bool) -> Self {
        let ranking = Ranking::for_places(samples as usize);
        Self::Lookahead { ranking, foresight: Foresight::of(samples), bypasses }
    }

    /// Collects into `victims` who leaves so that `missing` bytes become free, as few as the order allows, skipping
    /// pinned ones. Returns false, and then `victims` means nothing, if the offer must be refused.
    pub(super) fn victims<T>(
        &mut self,
        offer: &Offer<'_>,
        missing: u64,
        residents: &Residents<T>,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        let &Offer { id, importance, .. } = offer;
        let bytes = u64::from(offer.bytes);
        let bytes_of = |place| residents.bytes(place);
        match self {
            Self::App(ranking) => {
                let worth = |id| worth::with_uses(id, importance);
                let wanted = Wanted { newcomer: Some(worth(id)), missing, is_pinned };
                ranking.victims(residents, worth, wanted, victims)
            }
            Self::Lookahead { ranking, foresight, bypasses } => {
                let worth = |id| worth::by_next_use(id, foresight.next(id), importance);
                let wanted = Wanted { newcomer: bypasses.then(|| worth(id)), missing, is_pinned };
                ranking.victims(residents, worth, wanted, victims)
            }
            Self::TopC(ranking) => {
                let worth = |id| worth::by_score(id, importance);
                let wanted = Wanted { newcomer: Some(worth(id)), missing, is_pinned };
                ranking.victims(residents, worth, wanted, victims)
            }
            Self::Lfu(lfu) => lfu.victims(missing, bytes_of, is_pinned, victims),
            Self::Lru(queue) | Self::Fifo(queue) => {
                oldest_unpinned(queue.oldest_first(0), missing, bytes_of, is_pinned, victims)
            }
            Self::Arc(lists) => lists.victims(offer, missing, bytes_of, is_pinned, victims),
            Self::Static => missing == 0,
            Self::Icache(regions) => regions.victims(id, bytes, importance, bytes_of, is_pinned, victims),
            Self::Quiver(once) => once.victims(missing, bytes_of, is_pinned, victims),
        }
    }

    /// Collects into `unused` residents with no known use until they make `missing` bytes; false if they do not.
    pub(super) fn unused<T>(
        &mut self,
        missing: u64,
        residents: &Residents<T>,
        importance: &Importance,
        is_pinned: impl Fn(u32) -> bool,
        unused: &mut Vec<u32>,
    ) -> bool {
        match self {
            Self::Lookahead { ranking, foresight, .. } => {
                let worth = |id| worth::by_next_use(id, foresight.next(id), importance);
                let wanted = Wanted { newcomer: Some(worth::KNOWN), missing, is_pinned };
                ranking.victims(residents, worth, wanted, unused)
            }
            _ => missing == 0,
        }
    }

    /// Takes out of the order who leaves, and puts the newcomer in.
    pub(super) fn admit<T>(&mut self, swap: Swap<'_, T>) {
        let &Offer { id, importance, .. } = swap.offer;
        let bytes = u64::from(swap.offer.bytes);
        // One question for the policy: one for each victim and one for the newcomer took a seventh more of an access that
        // evicts (`shade-benches cache`).
        match self {
            Self::App(ranking) => {
                let worth = || worth::with_uses(id, importance);
                swap.within(
                    ranking,
                    |ranking, place, _| ranking.remove(place),
                    |ranking, place| ranking.insert(place, worth),
                );
            }
            Self::Lookahead { ranking, foresight, .. } => {
                let worth = || worth::by_next_use(id, foresight.next(id), importance);
                swap.within(
                    ranking,
                    |ranking, place, _| ranking.remove(place),
                    |ranking, place| ranking.insert(place, worth),
                );
            }
            Self::TopC(ranking) => {
                let worth = || worth::by_score(id, importance);
                swap.within(
                    ranking,
                    |ranking, place, _| ranking.remove(place),
                    |ranking, place| ranking.insert(place, worth),
                );
            }
            Self::Lfu(lfu) => swap.within(lfu, |lfu, place, _| lfu.remove(place), Lfu::insert),
            Self::Lru(queue) | Self::Fifo(queue) => {
                swap.within(
                    queue,
                    |queue, place, _| {
                        queue.remove(place);
                    },
                    |queue, place| queue.insert(0, place),
                );
            }
            Self::Arc(lists) => lists.admit(swap),
            Self::Static => swap.within(&mut (), |(), _, _| {}, |(), _| {}),
            Self::Icache(regions) => {
                swap.within(
                    regions,
                    |regions, place, bytes| regions.remove(place, bytes),
                    |regions, place| {
                        regions.insert(place, id, bytes, importance);
                    },
                );
            }
            Self::Quiver(once) => swap.within(once, |once, place, _| once.remove(place), Once::insert),
        }
    }

    /// Takes a resident out of the order that leaves for another reason than want of room.
    pub(super) fn remove(&mut self, place: u32, bytes: u64) {
        match self {
            Self::App(ranking) | Self::TopC(ranking) | Self::Lookahead { ranking, .. } => {
                ranking.remove(place)
            }
            Self::Lfu(lfu) => lfu.remove(place),
            Self::Lru(queue) | Self::Fifo(queue) => {
                queue.remove(place);
            }
            Self::Arc(lists) => lists.remove(place, bytes),
            Self::Static => {}
            Self::Icache(regions) => regions.remove(place, bytes),
            Self::Quiver(once) => once.remove(place),
        }
    }

    /// A use of the resident at `place`.
    pub(super) fn hit(
        &mut self,
        place: u32,
        id: SampleId,
        importance: &Importance,
        bytes_of: impl Fn(u32) -> u64,
    ) {
        match self {
            Self::App(ranking) => ranking.rekey(place, || worth::with_uses(id, importance)),
            Self::Lookahead { ranking, foresight, .. } => {
                ranking.rekey(place, || worth::by_next_use(id, foresight.next(id), importance));
            }
            Self::Lfu(lfu) => lfu.hit(place),
            Self::Lru(queue) => {
                queue.renew(0, place);
            }
            Self::Arc(lists) => lists.hit(place, bytes_of),
            Self::Icache(regions) => regions.hit(place),
            Self::Quiver(once) => once.hit(place),
            Self::TopC(_) | Self::Fifo(_) | Self::Static => {}
        }
    }

    /// What is known of next uses, if the policy asks for it.
    pub(super) fn foresight(&mut self) -> Option<&mut Foresight> {
        match self {
            Self::Lookahead { foresight, .. } => Some(foresight),
            _ => None,
        }
    }

    /// An epoch begins, whose samples of high importance `high` tells by sample.
    pub(super) fn begin_epoch(&mut self, high: impl FnOnce() -> Vec<bool>) {
        match self {
            Self::Icache(regions) => regions.begin_epoch(high),
            Self::Quiver(once) => once.begin_epoch(),
            _ => {}
        }
    }

    /// Which samples may stand in for one another; `None` if none ever do.
    pub(super) fn stand_ins(&self) -> Option<impl Fn(SampleId) -> bool> {
        let regions = match self {
            Self::Icache(regions) => Some(regions),
            Self::Quiver(_) => None,
            _ => return None,
        };
        Some(move |id| regions.is_none_or(|regions| !regions.is_high(id)))
    }

    /// The score of the resident at `place` changed.
    pub(super) fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
        match self {
            Self::App(ranking) => ranking.rekey(place, || worth::with_uses(id, importance)),
            Self::Lookahead { ranking, foresight, .. } => {
                ranking.rekey(place, || worth::by_next_use(id, foresight.next(id), importance));
            }
            Self::TopC(ranking) => ranking.rekey(place, || worth::by_score(id, importance)),
            Self::Icache(regions) => regions.rescore(place, id, importance),
            Self::Lfu(_) | Self::Lru(_) | Self::Fifo(_) | Self::Arc(_) | Self::Static | Self::Quiver(_) => {}
        }
    }
}

/// Collects the first of `places` that are not pinned until they make `missing` bytes; false if they do not.
pub(super) fn oldest_unpinned(
    places: impl Iterator<Item = u32>,
    mut missing: u64,
    bytes: impl Fn(u32) -> u64,
    is_pinned: impl Fn(u32) -> bool,
    victims: &mut Vec<u32>,
) -> bool {
    let mut unpinned = places.filter(|&place| !is_pinned(place));
    while missing > 0 {
        let Some(place) = unpinned.next() else { return false };
        victims.push(place);
        missing = missing.saturating_sub(bytes(place));
    }
    true
}
