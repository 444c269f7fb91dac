//! The policy `lookahead`: a sample that the plan uses sooner ranks higher; samples without a known
//! next use rank below, as in `app`.
//!
//! This is Belady's order as far as the plan is known. Distances shrink alike as the plan goes on,
//! so positions order as distances do, and with several jobs so do the times of `next_uses`. A next
//! use that is not known is expected at a distance of L + N/λ: farther than every known one, and
//! the nearer the higher the score. No clock is needed.

use shade_formats::SampleId;

use super::heap::Key;
use super::next_uses::NextUses;
use super::ranking::{RankedBy, key, key_by_uses};
use crate::importance::Importance;

/// Set in the rank of a sample with a known next use.
const KNOWN: u64 = 1 << 63;
/// Latest time of a next use.
const DUE_MAX: u64 = KNOWN - 1;

/// By the time of the next use.
pub(super) struct ByNextUse {
    next_uses: NextUses,
    bypasses: bool,
}

impl ByNextUse {
    /// For samples `0..samples`, whose next uses are not known yet.
    pub(super) fn new(samples: u32) -> Self {
        Self { next_uses: NextUses::new(samples), bypasses: true }
    }

    /// An order by the next use in which no newcomer is refused.
    pub(super) fn that_admits_all(samples: u32) -> Self {
        Self { bypasses: false, ..Self::new(samples) }
    }
}

impl RankedBy for ByNextUse {
    const HITS_COUNT: bool = true;
    const KNOWN_USE: Option<Key> = Some(key(KNOWN, SampleId(u32::MAX)));

    fn key(&self, id: SampleId, importance: &Importance) -> Key {
        match self.next_uses.due(id) {
            Some(due) => key(KNOWN | (DUE_MAX - due), id),
            None => key_by_uses(id, importance),
        }
    }

    fn bypasses(&self) -> bool {
        self.bypasses
    }

    fn next_uses(&mut self) -> Option<&mut NextUses> {
        Some(&mut self.next_uses)
    }
}
