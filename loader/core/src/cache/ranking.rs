//! The policies that rank residents by a key: `app` and `topc` in this file, `lookahead` in its
//! own.
//!
//! A newcomer is admitted only if every sample that it displaces has a smaller key.
//!
//! A key is made of what is known of a sample at any time. So the heap of the residents is built
//! when victims are first asked for. A cache with room for all samples never asks: there, keeping
//! the heap took a fifth of all time with images of 3 KB, and two thirds of an epoch's start.

use shade_formats::SampleId;

use super::eviction::{Eviction, Offer, Properties, Search};
use super::heap::{Heap, Key};
use super::next_uses::NextUses;
use super::residents::Residents;
use crate::importance::Importance;

/// What residents are ranked by.
pub(super) trait RankedBy {
    /// Whether a hit changes the sample's key.
    const HITS_COUNT: bool;
    /// For a key that is made of next uses: above the keys of all samples without a known next use
    /// and below all others.
    const KNOWN_USE: Option<Key> = None;

    /// The sample's key. The resident with the smallest key is evicted first.
    fn key(&self, id: SampleId, importance: &Importance) -> Key;

    /// Whether a newcomer with the smallest key is refused.
    fn bypasses(&self) -> bool {
        true
    }

    /// The table of next uses, if keys are made of it.
    fn next_uses(&mut self) -> Option<&mut NextUses> {
        None
    }
}

/// `app` (SHADE's APP): by (score, uses, -id).
pub(super) struct ByUses;

impl RankedBy for ByUses {
    const HITS_COUNT: bool = true;

    fn key(&self, id: SampleId, importance: &Importance) -> Key {
        key_by_uses(id, importance)
    }
}

/// `topc`: by (score, -id).
pub(super) struct ByScore;

impl RankedBy for ByScore {
    const HITS_COUNT: bool = false;

    fn key(&self, id: SampleId, importance: &Importance) -> Key {
        key_by_score(id, importance)
    }
}

/// (score, uses, -id).
pub(super) fn key_by_uses(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance) | u64::from(importance.uses(id)), id)
}

/// (score, -id).
pub(super) fn key_by_score(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance), id)
}

/// Below [`key_by_score`] of every sample with the same score, and above those with a lower one.
pub(super) fn key_below_score(id: SampleId, importance: &Importance) -> Key {
    key(score(id, importance), SampleId(u32::MAX))
}

/// A key with `rank` in its upper 64 bits. If ranks are equal the smaller id has the larger
/// key.
///
/// Scores stand above uses. They are positive, and positive floats order as their bits do and leave
/// the top bit free: `lookahead` sets it for a known next use.
pub(super) const fn key(rank: u64, id: SampleId) -> Key {
    Key::new((rank as u128) << 32 | !id.0 as u128)
}

fn score(id: SampleId, importance: &Importance) -> u64 {
    u64::from(importance.score(id).to_bits()) << 32
}

/// The places of all residents by their keys.
pub(super) struct Ranking<B> {
    /// `None` until victims are asked for.
    heap: Option<Heap>,
    /// Largest possible number of places.
    places: usize,
    by: B,
}

impl<B: RankedBy> Ranking<B> {
    /// The ranking of an empty cache for samples `0..samples`.
    pub(super) fn new(samples: u32, by: B) -> Self {
        Self { heap: None, places: samples as usize, by }
    }

    /// As [`Heap::victims`], over all residents.
    fn below<T, P: Fn(u32) -> bool>(
        &mut self,
        newcomer: Option<Key>,
        search: Search<'_, T, P>,
        importance: &Importance,
    ) -> bool {
        let Search { need, residents, is_pinned, victims } = search;
        if need.bytes == 0 {
            return true;
        }
        let heap = self.heap.get_or_insert_with(|| {
            let mut heap = Heap::for_places(self.places);
            residents.iter().for_each(|(place, id)| heap.insert(place, self.by.key(id, importance)));
            heap
        });
        heap.victims(newcomer, need, |place| residents.bytes(place), is_pinned, victims)
    }
}

impl<B: RankedBy> Eviction for Ranking<B> {
    const PROPERTIES: Properties = Properties { looks_ahead: B::KNOWN_USE.is_some(), ..Properties::USUAL };

    fn victims<T, P: Fn(u32) -> bool>(&mut self, offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        let newcomer = self.by.bypasses().then(|| self.by.key(offer.id, offer.importance));
        self.below(newcomer, search, offer.importance)
    }

    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool {
        self.below(None, search, importance)
    }

    fn insert(&mut self, place: u32, offer: &Offer<'_>) {
        if let Some(heap) = &mut self.heap {
            heap.insert(place, self.by.key(offer.id, offer.importance));
        }
    }

    fn remove(&mut self, place: u32, _bytes: u64) {
        if let Some(heap) = &mut self.heap {
            heap.remove(place);
        }
    }

    fn hit<T>(&mut self, place: u32, id: SampleId, importance: &Importance, _residents: &Residents<T>) {
        if B::HITS_COUNT {
            self.rescore(place, id, importance);
        }
    }

    fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
        if let Some(heap) = &mut self.heap {
            heap.rekey(place, self.by.key(id, importance));
        }
    }

    /// The heap is built again when victims are asked for.
    fn rank_anew(&mut self) {
        self.heap = None;
    }

    fn next_uses(&mut self) -> Option<&mut NextUses> {
        self.by.next_uses()
    }

    fn unused<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, importance: &Importance) -> bool {
        match B::KNOWN_USE {
            Some(known) => self.below(Some(known), search, importance),
            None => search.need.bytes == 0,
        }
    }
}
