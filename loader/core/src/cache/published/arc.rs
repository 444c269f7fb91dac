//! The policy `arc` (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache",
//! FAST 2003), in bytes. Every newcomer is admitted.
//!
//! The names are the paper's. T1 holds the residents used once since they came, T2 the others, each
//! from the least to the most recently used. A sample evicted lately leaves a ghost, which has no
//! value: in B1 if it was in T1, in B2 if it was in T2. A miss on a ghost of B1 says that T1 should
//! have been larger, a miss on a ghost of B2 that T2 should. So the target for T1, the paper's p,
//! grows and shrinks by what such misses bring.
//!
//! With records of one size this is the paper's algorithm exactly. For records of any size:
//! - Sizes of lists are in bytes.
//! - As many victims leave as the newcomer needs, each chosen by the paper's REPLACE.
//! - A ghost moves the target by the newcomer's bytes times the paper's step.
//! - Ghosts are forgotten after the newcomer came rather than before. That is the same for equal
//!   sizes.
//!
//! Pinned residents are passed over; where all of a list are pinned, the other list gives way. A
//! refused offer changes nothing, not even the target.

use shade_formats::SampleId;

use crate::cache::eviction::{Eviction, Need, Offer, Search};
use crate::cache::queues::Queues;
use crate::cache::residents::Residents;
use crate::importance::Importance;

/// Residents used once.
const T1: usize = 0;
/// Residents used again.
const T2: usize = 1;
/// Ghosts of T1; with T1 at most the capacity.
const B1: usize = 2;
/// Ghosts of T2; with the three others at most twice the capacity.
const B2: usize = 3;

/// ARC's lists and its target.
pub(crate) struct Adaptive {
    capacity_bytes: u64,
    /// Places from the least to the most recently used.
    lists: Queues<4>,
    bytes: [u64; 4],
    /// p, from 0 to the capacity: T1 gives way when it is larger. It has fractions: a step is a
    /// quotient of the sizes of two lists.
    target_bytes: f64,
}

impl Adaptive {
    /// The lists of an empty cache of `capacity_bytes` for samples `0..samples`.
    pub(crate) fn new(capacity_bytes: u64, samples: u32) -> Self {
        let lists = Queues::for_places(samples as usize);
        Self { capacity_bytes, lists, bytes: [0; 4], target_bytes: 0.0 }
    }

    /// Makes a victim of the offer a ghost at its place. Returns false if it becomes none: T1 with
    /// the newcomer fills all that T1 and B1 may, the paper's case IV(A), and there are no older
    /// ghosts to forget in its stead.
    #[inline(always)]
    fn displace(&mut self, place: u32, bytes: u64, offer: &Offer<'_>) -> bool {
        let is_of_t1 = self.lists.queue_of(place) == Some(T1);
        let is_too_much = offer.ghost.is_none()
            && self.lists.is_empty(B1)
            && self.bytes[T1] + u64::from(offer.bytes) > self.capacity_bytes;
        if is_of_t1 && is_too_much {
            self.remove(place, bytes);
            return false;
        }
        self.demote(place, bytes);
        true
    }

    /// Makes a resident a ghost at its place.
    #[inline(always)]
    fn demote(&mut self, place: u32, bytes: u64) {
        let ghosts = if self.lists.queue_of(place) == Some(T1) { B1 } else { B2 };
        if let Some(before) = self.lists.renew(ghosts, place) {
            self.bytes[before] -= bytes;
            self.bytes[ghosts] += bytes;
        }
    }

    /// Forgets the oldest ghosts of lists that have too many.
    fn trim<T>(&mut self, residents: &mut Residents<T>) {
        while let Some(ghost) = self.forget_one(|ghost| residents.bytes(ghost)) {
            residents.forget(ghost);
        }
    }

    /// Forgets the oldest ghost of a list that has too many.
    fn forget_one(&mut self, bytes_of: impl Fn(u32) -> u64) -> Option<u32> {
        let of_t1 = self.bytes[T1] + self.bytes[B1];
        let in_all = of_t1 + self.bytes[T2] + self.bytes[B2];
        let oldest =
            |list, is_too_long: bool| is_too_long.then(|| self.lists.oldest_first(list).next()).flatten();
        let ghost = oldest(B1, of_t1 > self.capacity_bytes)
            .or_else(|| oldest(B2, in_all > self.capacity_bytes.saturating_mul(2)))?;
        self.remove(ghost, bytes_of(ghost));
        Some(ghost)
    }

    /// The paper's REPLACE: the residents that leave until `search` has enough, by this target.
    fn replace<T, P: Fn(u32) -> bool>(&self, target: f64, is_in_b2: bool, search: Search<'_, T, P>) -> bool {
        let Search { need: Need { bytes: mut missing, most }, residents, is_pinned, victims } = search;
        let unpinned = |list| self.lists.oldest_first(list).filter(|&place| !is_pinned(place));
        let mut from_t1 = unpinned(T1).map(|place| (T1, place));
        let mut from_t2 = unpinned(T2).map(|place| (T2, place));
        let mut t1_bytes = self.bytes[T1];
        while missing > 0 {
            if victims.len() == most {
                return false;
            }
            let t1 = t1_bytes as f64;
            let t1_gives_way = if is_in_b2 { t1 >= target } else { t1 > target };
            let victim = if t1_gives_way {
                from_t1.next().or_else(|| from_t2.next())
            } else {
                from_t2.next().or_else(|| from_t1.next())
            };
            let Some((list, place)) = victim else { return false };
            let found = residents.bytes(place);
            if list == T1 {
                t1_bytes -= found;
            }
            victims.push(place);
            missing = missing.saturating_sub(found);
        }
        true
    }

    fn ghost_list(&self, offer: &Offer<'_>) -> Option<usize> {
        self.lists.queue_of(offer.ghost?.0)
    }

    /// The target that a newcomer leads to, the paper's ADAPTATION.
    fn target_after(&self, offer: &Offer<'_>) -> f64 {
        let Some(list) = self.ghost_list(offer) else { return self.target_bytes };
        // A list whose ghosts all have 0 bytes counts as one byte: there is no division by 0.
        let [b1, b2] = [B1, B2].map(|list| self.bytes[list].max(1) as f64);
        let bytes = f64::from(offer.bytes);
        if list == B1 {
            (self.target_bytes + (b2 / b1).max(1.0) * bytes).min(self.capacity_bytes as f64)
        } else {
            (self.target_bytes - (b1 / b2).max(1.0) * bytes).max(0.0)
        }
    }
}

impl Eviction for Adaptive {
    /// The places that REPLACE takes for the newcomer.
    fn victims<T, P: Fn(u32) -> bool>(&mut self, offer: &Offer<'_>, search: Search<'_, T, P>) -> bool {
        self.replace(self.target_after(offer), self.ghost_list(offer) == Some(B2), search)
    }

    /// The places that REPLACE takes.
    fn surplus<T, P: Fn(u32) -> bool>(&mut self, search: Search<'_, T, P>, _importance: &Importance) -> bool {
        self.replace(self.target_bytes, false, search)
    }

    /// Samples that leave a smaller cache become ghosts, too. Which ghosts stay depends on how many
    /// leave at once.
    fn evict<T>(&mut self, residents: &mut Residents<T>, victims: &[u32], evicted: &mut Vec<(SampleId, T)>) {
        for &place in victims {
            self.demote(place, residents.bytes(place));
            evicted.extend(residents.retire(place));
        }
        self.trim(residents);
    }

    /// The victims become ghosts. Ghosts beyond the lists' limits are forgotten.
    fn admit<T>(
        &mut self,
        offer: &Offer<'_>,
        value: T,
        residents: &mut Residents<T>,
        victims: &[u32],
        evicted: &mut Vec<(SampleId, T)>,
    ) {
        self.target_bytes = self.target_after(offer);
        for &place in victims {
            let is_remembered = self.displace(place, residents.bytes(place), offer);
            let victim = if is_remembered { residents.retire(place) } else { residents.remove(place) };
            if let Some(victim) = victim {
                evicted.push(victim);
            }
        }
        let ghost = offer.ghost.map(|(place, _)| place);
        self.insert(residents.insert(offer.id, ghost, offer.bytes, value), offer);
        self.trim(residents);
    }

    /// A newcomer comes into T2 if it has a ghost, whose place it takes, and else into T1.
    #[inline(always)]
    fn insert(&mut self, place: u32, offer: &Offer<'_>) {
        let list = if let Some((ghost, bytes)) = offer.ghost {
            self.remove(ghost, bytes);
            T2
        } else {
            T1
        };
        self.lists.insert(list, place);
        self.bytes[list] += u64::from(offer.bytes);
    }

    #[inline(always)]
    fn remove(&mut self, place: u32, bytes: u64) {
        if let Some(list) = self.lists.remove(place) {
            self.bytes[list] -= bytes;
        }
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.target_bytes = self.target_bytes.min(capacity_bytes as f64);
    }

    /// A used resident is in T2 from now on. Most are there already: their bytes are not looked up.
    fn hit<T>(&mut self, place: u32, _id: SampleId, _importance: &Importance, residents: &Residents<T>) {
        if self.lists.renew(T2, place) == Some(T1) {
            let bytes = residents.bytes(place);
            self.bytes[T1] -= bytes;
            self.bytes[T2] += bytes;
        }
    }
}
