//! ARC (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003), in bytes.
//!
//! The names are the paper's. Residents used once since they came are in T1, the others in T2, each from the least to
//! the most recently used. What was evicted lately is remembered without its value: ghosts, B1 from T1 and B2 from T2.
//! A miss on a ghost of B1 says that T1 should have been larger, one on a ghost of B2 that T2 should. So the target for
//! T1, the paper's p, grows and shrinks by what such misses bring.
//!
//! With records of one size this is the paper's algorithm exactly. What differs for the sake of records of any size:
//! sizes of lists are in bytes; as many victims leave as the newcomer needs, each chosen by the paper's REPLACE; a
//! ghost moves the target by the newcomer's bytes times the paper's step; ghosts are forgotten after the newcomer came
//! rather than before, which is the same for equal sizes. Pinned residents are passed over; where a list has no others,
//! the other list gives way. An offer that is refused changes nothing, not even the target.

use shade_formats::SampleId;

use super::list::List;
use super::residents::Residents;

/// Places from the least to the most recently used, and their bytes.
struct Queue {
    order: List,
    bytes: u64,
}

impl Queue {
    fn new() -> Self {
        Self { order: List::new(), bytes: 0 }
    }

    fn insert(&mut self, place: u32, bytes: u64) {
        self.order.insert(place);
        self.bytes += bytes;
    }

    /// Takes a place out; false if it is not in the queue.
    fn remove(&mut self, place: u32, bytes: u64) -> bool {
        let is_here = self.order.contains(place);
        if is_here {
            self.order.remove(place);
            self.bytes -= bytes;
        }
        is_here
    }

    fn oldest(&self) -> Option<u32> {
        self.order.oldest_first().next()
    }
}

/// ARC's lists and its target.
pub(super) struct Adaptive {
    capacity_bytes: u64,
    t1: Queue,
    t2: Queue,
    /// The samples of B1 and B2, with the bytes they took. Their places are not those of residents.
    ghosts: Residents<()>,
    /// With T1 at most the capacity.
    b1: Queue,
    /// With the three others at most twice the capacity.
    b2: Queue,
    /// p, 0 to the capacity: T1 gives way when it is larger. Fractions count: a step is a quotient of two lists' sizes.
    target_bytes: f64,
}

impl Adaptive {
    pub(super) fn new(capacity_bytes: u64, samples: u32) -> Self {
        Self {
            capacity_bytes,
            t1: Queue::new(),
            t2: Queue::new(),
            ghosts: Residents::new(samples),
            b1: Queue::new(),
            b2: Queue::new(),
            target_bytes: 0.0,
        }
    }

    /// A use of a resident: it is in T2 from now on.
    pub(super) fn hit(&mut self, place: u32, bytes: u64) {
        if self.t1.remove(place, bytes) {
            self.t2.insert(place, bytes);
        } else {
            self.t2.order.renew(place);
        }
    }

    /// Collects into `victims` the places that REPLACE takes for a newcomer, as few as make `missing` bytes. Returns
    /// false, and then `victims` means nothing, if all that is not pinned is less.
    pub(super) fn victims(
        &self,
        id: SampleId,
        bytes: u64,
        mut missing: u64,
        bytes_of: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        let target = self.target_after(id, bytes);
        let is_in_b2 = self.ghosts.place(id).is_some_and(|ghost| self.b2.order.contains(ghost));
        let mut from_t1 = self.t1.order.oldest_first().filter(|&place| !is_pinned(place));
        let mut from_t2 = self.t2.order.oldest_first().filter(|&place| !is_pinned(place));
        let mut t1_bytes = self.t1.bytes;
        while missing > 0 {
            let t1 = t1_bytes as f64;
            let t1_gives_way = if is_in_b2 { t1 >= target } else { t1 > target };
            let place = if t1_gives_way {
                from_t1.next().or_else(|| from_t2.next())
            } else {
                from_t2.next().or_else(|| from_t1.next())
            };
            let Some(place) = place else { return false };
            let found = bytes_of(place);
            if self.t1.order.contains(place) {
                t1_bytes -= found;
            }
            victims.push(place);
            missing = missing.saturating_sub(found);
        }
        true
    }

    /// Moves the target for a newcomer that will be admitted; before its victims are [evicted](Self::evict).
    pub(super) fn adapt(&mut self, id: SampleId, bytes: u64) {
        self.target_bytes = self.target_after(id, bytes);
    }

    /// Takes a victim out and remembers it.
    pub(super) fn evict(&mut self, place: u32, id: SampleId, bytes: u64) {
        let was_in_t1 = self.t1.remove(place, bytes);
        if !was_in_t1 {
            self.t2.remove(place, bytes);
        }
        let ghosts = if was_in_t1 { &mut self.b1 } else { &mut self.b2 };
        ghosts.insert(self.ghosts.insert(id, bytes, ()), bytes);
    }

    /// Takes a place out without a trace: it did not leave for want of room.
    pub(super) fn remove(&mut self, place: u32, bytes: u64) {
        if !self.t1.remove(place, bytes) {
            self.t2.remove(place, bytes);
        }
    }

    /// Puts a newcomer into T2 if it was a ghost, else into T1, and forgets the ghosts that are too many then.
    pub(super) fn insert(&mut self, place: u32, id: SampleId, bytes: u64) {
        if let Some(ghost) = self.ghosts.place(id) {
            self.forget(ghost);
            self.t2.insert(place, bytes);
        } else {
            self.t1.insert(place, bytes);
        }
        while self.t1.bytes + self.b1.bytes > self.capacity_bytes {
            let Some(ghost) = self.b1.oldest() else { break };
            self.forget(ghost);
        }
        let total_bytes_max = self.capacity_bytes.saturating_mul(2);
        while self.t1.bytes + self.t2.bytes + self.ghosts.used_bytes() > total_bytes_max {
            let Some(ghost) = self.b2.oldest() else { break };
            self.forget(ghost);
        }
    }

    fn forget(&mut self, ghost: u32) {
        let bytes = self.ghosts.bytes(ghost);
        if !self.b1.remove(ghost, bytes) {
            self.b2.remove(ghost, bytes);
        }
        self.ghosts.remove(ghost);
    }

    /// The target that a newcomer leads to, the paper's ADAPTATION.
    fn target_after(&self, id: SampleId, bytes: u64) -> f64 {
        let Some(ghost) = self.ghosts.place(id) else { return self.target_bytes };
        // A list whose ghosts are all of 0 bytes counts as one byte, so that there is no division by 0.
        let (b1, b2) = (self.b1.bytes.max(1) as f64, self.b2.bytes.max(1) as f64);
        let bytes = bytes as f64;
        if self.b1.order.contains(ghost) {
            (self.target_bytes + (b2 / b1).max(1.0) * bytes).min(self.capacity_bytes as f64)
        } else {
            (self.target_bytes - (b1 / b2).max(1.0) * bytes).max(0.0)
        }
    }
}
