//! When samples were scored: the latest place in the order of plans decides a sample's score,
//! whenever its report comes. So the table of importance does not depend on timing, and a report
//! may be taken in twice.

use crate::number::to_u32;

/// Set in places of the current epoch. Places of the epoch before do not have it, so that every
/// place of the current one is later.
const CURRENT: u32 = 1 << 31;

/// By sample: the place of the latest report that scored it, in this epoch or the one before;
/// 0: in neither.
#[derive(Clone, Debug)]
pub(super) struct ScoredAt {
    places: Vec<u32>,
}

impl ScoredAt {
    /// No sample is scored.
    pub(super) fn new(samples: u32) -> Self {
        Self { places: vec![0; samples as usize] }
    }

    /// Those of a saved state.
    pub(super) fn of(places: Vec<u32>) -> Self {
        Self { places }
    }

    /// As a saved state has them.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u32 {
        to_u32(self.places.len())
    }

    /// A report comes of the plan's place `order`, batch × ranks + rank, of this epoch or the one
    /// before. Whether it decides the sample's score: notes that.
    pub(super) fn decides(&mut self, sample: usize, order: u32, is_current: bool) -> bool {
        let place = order.saturating_add(1).min(CURRENT - 1) | if is_current { CURRENT } else { 0 };
        self.hears(sample, place)
    }

    /// Another node has a score of the sample that came at this place, as
    /// [`places`](Self::places) there has it. Whether it decides the sample's score: notes that.
    pub(super) fn hears(&mut self, sample: usize, place: u32) -> bool {
        let known = &mut self.places[sample];
        let decides = place >= *known;
        if decides {
            *known = place;
        }
        decides
    }

    /// The next epoch begins.
    pub(super) fn end_epoch(&mut self) {
        for place in &mut self.places {
            *place = if *place & CURRENT == 0 { 0 } else { *place & !CURRENT };
        }
    }

    /// From now on places are counted otherwise: all reports that come are later than those that
    /// came.
    pub(super) fn end_count(&mut self) {
        for place in &mut self.places {
            *place = (*place & CURRENT) | (*place & !CURRENT).min(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_place_decides_whatever_comes_first() {
        let mut scored_at = ScoredAt::new(1);
        assert!(scored_at.decides(0, 5, true) && !scored_at.decides(0, 4, true));
        assert!(scored_at.decides(0, 5, true), "a report may come again");
        scored_at.end_epoch();
        // Late ones of the epoch before stand below each other as they did, and below new ones.
        assert!(!scored_at.decides(0, 4, false) && scored_at.decides(0, 6, false));
        assert!(scored_at.decides(0, 0, true) && !scored_at.decides(0, 7, false));
        scored_at.end_epoch();
        scored_at.end_epoch();
        assert!(scored_at.decides(0, 0, false), "nobody knows of older ones");
    }

    #[test]
    fn places_of_another_count_are_before_all_others() {
        let mut scored_at = ScoredAt::new(1);
        assert!(scored_at.decides(0, 900, true));
        scored_at.end_count();
        assert!(scored_at.decides(0, 0, true) && !scored_at.decides(0, 1_000, false));
        assert!(scored_at.decides(0, u32::MAX, true), "the last place is one");
    }
}
