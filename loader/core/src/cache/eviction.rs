//! What a policy decides: the trait that every policy implements. [`policies`](super::policies) is
//! the table of those that do.
//!
//! A policy keeps an order of eviction over the *places* of the residents, which are numbers (see
//! `residents`). Every policy fills the cache on demand: while there is room, all are admitted.

use shade_formats::SampleId;

use super::next_uses::NextUses;
use super::residents::Residents;
use crate::importance::Importance;

/// A record that came for a sample that is not resident: the newcomer.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) id: SampleId,
    pub(super) bytes: u32,
    pub(super) importance: &'a Importance,
    /// Place and bytes of its ghost, if it has one.
    pub(super) ghost: Option<(u32, u64)>,
}

/// What must become free.
#[derive(Clone, Copy)]
pub(super) struct Need {
    pub(super) bytes: u64,
    /// Limit of residents that leave for it: the search fails beyond. There is one where a search
    /// for all could take long.
    pub(super) most: usize,
}

impl Need {
    /// `bytes`, whatever leaves for them.
    pub(super) fn of(bytes: u64) -> Self {
        Self { bytes, most: usize::MAX }
    }
}

/// A search for residents that leave so that a newcomer finds room, or as the cache has become
/// smaller.
pub(super) struct Search<'a, T, P> {
    pub(super) need: Need,
    pub(super) residents: &'a Residents<T>,
    /// Says by place which residents must stay.
    pub(super) is_pinned: P,
    /// The places found: as few as the order allows. They mean nothing if the search fails.
    pub(super) victims: &'a mut Vec<u32>,
}

/// What the rest of the loader must know of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It goes by next uses, which `Cache::use_at`, `see` and `forget_uses` tell it.
    pub looks_ahead: bool,
    /// Residents may be served in place of samples that are not resident: then the caller asks
    /// [`Plan::exchange`](crate::plan::Plan::exchange) for it.
    pub exchanges: bool,
    /// Samples served in place of others are counted as such rather than as hits.
    pub counts_exchanges: bool,
    /// Nothing is ever evicted from a cache that has room for the whole dataset. It is false for a
    /// policy with regions: one region may evict while another has room.
    pub keeps_what_fits: bool,
}

impl Properties {
    /// The properties of most policies.
    pub(super) const USUAL: Self =
        Self { looks_ahead: false, exchanges: false, counts_exchanges: false, keeps_what_fits: true };
}

/// A policy. The first four methods and `hit` must be written.
pub(super) trait Eviction {
    /// What sets it apart from most policies.
    const PROPERTIES: Properties = Properties::USUAL;

    /// Finds the residents that leave for the newcomer. Returns false if it is refused.
    fn victims<T, P: Fn(u32) -> bool>(&mut self, offer: &Offer<'_>, search: Search<'_, T, P>) -> bool;

    /// Finds the residents that leave a cache that has become smaller, in the order of eviction.
    /// Returns false if they are not enough, as others are pinned.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool;

    /// The newcomer is resident at `place`.
    fn insert(&mut self, place: u32, offer: &Offer<'_>);

    /// The resident at `place` leaves.
    fn remove(&mut self, place: u32, bytes: u64);

    /// Evicts residents, which are appended to `evicted`. Only a policy with ghosts needs its own.
    #[inline(always)]
    fn evict<T>(&mut self, residents: &mut Residents<T>, victims: &[u32], evicted: &mut Vec<(SampleId, T)>) {
        for &place in victims {
            self.remove(place, residents.bytes(place));
            if let Some(victim) = residents.remove(place) {
                evicted.push(victim);
            }
        }
    }

    /// Evicts the victims and admits the newcomer. Only a policy with ghosts needs its own.
    // One question for the policy: one for each victim and one for the newcomer took a seventh more
    // of an access that evicts (`shade-benches cache`).
    fn admit<T>(
        &mut self,
        offer: &Offer<'_>,
        value: T,
        residents: &mut Residents<T>,
        victims: &[u32],
        evicted: &mut Vec<(SampleId, T)>,
    ) {
        self.evict(residents, victims, evicted);
        self.insert(residents.insert(offer.id, None, offer.bytes, value), offer);
    }

    /// The resident at `place` is used.
    fn hit<T>(&mut self, place: u32, id: SampleId, importance: &Importance, residents: &Residents<T>);

    /// The resident at `place` was read ahead of its use, which is still to come.
    fn await_use(&mut self, _place: u32) {}

    /// The score of the resident at `place` changed.
    fn rescore(&mut self, _place: u32, _id: SampleId, _importance: &Importance) {}

    /// The cache has this capacity from now on. [`surplus`](Self::surplus) finds those that leave.
    fn resize(&mut self, _capacity_bytes: u64) {}

    /// The keys of all residents may have changed.
    fn rank_anew(&mut self) {}

    /// Whether [`rank_on`](Self::rank_on) is called from now on until it has no more to do. Else a
    /// policy that ranks residents does so when victims are asked for.
    fn keep_ranked(&mut self, _is_kept: bool) {}

    /// Goes on to rank residents anew, with `most` of them. Returns whether there are more.
    fn rank_on<T>(&mut self, _most: u32, _residents: &Residents<T>, _importance: &Importance) -> bool {
        false
    }

    /// An epoch begins. `may_use` tells which samples some job may use, and `high` by sample which
    /// ones have high importance.
    fn begin_epoch<T>(
        &mut self,
        _residents: &Residents<T>,
        _may_use: impl Fn(SampleId) -> bool,
        _high: impl FnOnce() -> Vec<bool>,
    ) {
    }

    /// The table of next uses, for a policy that looks ahead into the plan.
    fn next_uses(&mut self) -> Option<&mut NextUses> {
        None
    }

    /// Finds residents without a known next use. Returns false if they are not enough. Prefetching
    /// asks for it.
    fn unused<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        search.need.bytes == 0
    }

    /// Whether the sample may be served in place of another, or another in its place, with a policy
    /// that `exchanges`.
    fn may_be_exchanged(&self, _id: SampleId) -> bool {
        false
    }
}
