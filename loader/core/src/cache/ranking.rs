//! The policies that rank residents by a key: `app` and `topc` in this file, `lookahead` in its
//! own.
//!
//! A newcomer is admitted only if every sample that it displaces has a smaller key.
//!
//! A key is made of what is known of a sample at any time. So the heap of the residents can be
//! built when victims are first asked for. A cache with room for all samples never asks: there,
//! keeping the heap took a fifth of all time with images of 3 KB, and two thirds of an epoch's
//! start.
//!
//! To rank a million residents takes a tenth of a second and more. So a cache without room for all
//! is [kept ranked](Eviction::keep_ranked): its heap is there from the start, and the next one is
//! made [in slices](Eviction::rank_on) when keys have changed. Until it is whole the one before
//! decides, with the keys of then.

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

/// A heap that is being made.
struct NextHeap {
    heap: Heap,
    /// Residents at places below are in it.
    made: u32,
}

/// The places of all residents by their keys.
pub(super) struct Ranking<B> {
    /// `None` until victims are asked for.
    heap: Option<Heap>,
    /// The one that takes its place.
    next: Option<NextHeap>,
    /// Heaps are made in slices.
    is_kept: bool,
    /// Largest possible number of places.
    places: usize,
    by: B,
}

impl<B: RankedBy> Ranking<B> {
    /// The ranking of an empty cache for samples `0..samples`.
    pub(super) fn new(samples: u32, by: B) -> Self {
        Self { heap: None, next: None, is_kept: false, places: samples as usize, by }
    }

    fn next_heap(&self) -> NextHeap {
        NextHeap { heap: Heap::for_places(self.places), made: 0 }
    }

    /// Takes residents at places below `end` into a heap that is being made.
    fn make<T>(&self, next: &mut NextHeap, end: u32, residents: &Residents<T>, importance: &Importance) {
        for place in next.made..end {
            if let Some(id) = residents.id(place) {
                next.heap.insert(place, self.by.key(id, importance));
            }
        }
        next.made = end;
    }

    /// The heap that is being made, if it has the place.
    fn next_with(&mut self, place: u32) -> Option<&mut Heap> {
        self.next.as_mut().filter(|next| place < next.made).map(|next| &mut next.heap)
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
        if self.heap.is_none() {
            let mut next = self.next.take().unwrap_or_else(|| self.next_heap());
            self.make(&mut next, residents.places(), residents, importance);
            self.heap = Some(next.heap);
        }
        let Some(heap) = &mut self.heap else { return false };
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
        if self.heap.is_none() && self.next.is_none() {
            return;
        }
        let key = self.by.key(offer.id, offer.importance);
        self.heap.iter_mut().for_each(|heap| heap.insert(place, key));
        self.next_with(place).into_iter().for_each(|heap| heap.insert(place, key));
    }

    fn remove(&mut self, place: u32, _bytes: u64) {
        self.heap.iter_mut().for_each(|heap| heap.remove(place));
        self.next_with(place).into_iter().for_each(|heap| heap.remove(place));
    }

    fn hit<T>(&mut self, place: u32, id: SampleId, importance: &Importance, _residents: &Residents<T>) {
        if B::HITS_COUNT {
            self.rescore(place, id, importance);
        }
    }

    /// While a heap is being made, the one before keeps its keys: they are old anyway.
    fn rescore(&mut self, place: u32, id: SampleId, importance: &Importance) {
        let heap = match &mut self.next {
            Some(next) => (place < next.made).then_some(&mut next.heap),
            None => self.heap.as_mut(),
        };
        if let Some(heap) = heap {
            heap.rekey(place, self.by.key(id, importance));
        }
    }

    fn rank_anew(&mut self) {
        if self.is_kept {
            self.next = Some(self.next_heap());
        } else {
            // It is built again when victims are asked for.
            self.heap = None;
        }
    }

    fn keep_ranked(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
        if !is_kept {
            (self.heap, self.next) = (None, None);
        } else if self.heap.is_none() && self.next.is_none() {
            self.next = Some(self.next_heap());
        }
    }

    fn rank_on<T>(&mut self, most: u32, residents: &Residents<T>, importance: &Importance) -> bool {
        let Some(mut next) = self.next.take() else { return false };
        let end = next.made.saturating_add(most).min(residents.places());
        self.make(&mut next, end, residents, importance);
        if end < residents.places() {
            self.next = Some(next);
            return true;
        }
        self.heap = Some(next.heap);
        false
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
