//! The part of a plan that a daemon draws and delivers: the positions of the ranks that attach to
//! it.
//!
//! Rank r of W has the positions p with p mod W = r. A daemon numbers its own positions from 0, in
//! their order: these are *places*, and its plan has a sample for each. So it does with its ranks
//! what it would do if they were all, and knows of the whole plan just what a place is called.

/// The ranks at a daemon, as far as the plan is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// All ranks; 0 if they are all here, and each place is its position.
    world_size: u32,
    /// The ranks here, in their order.
    ranks: Vec<u32>,
}

impl Part {
    /// The whole plan.
    pub const WHOLE: Self = Self { world_size: 0, ranks: Vec::new() };

    /// The part of these ranks, each of them below `world_size`.
    #[must_use]
    pub fn of(mut ranks: Vec<u32>, world_size: u32) -> Self {
        ranks.sort_unstable();
        ranks.dedup();
        ranks.retain(|&rank| rank < world_size);
        if ranks.len() == world_size as usize { Self::WHOLE } else { Self { world_size, ranks } }
    }

    /// Whether it is all of the plan.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.world_size == 0
    }

    /// Whether the rank's positions are in it.
    #[must_use]
    pub fn has(&self, rank: u32) -> bool {
        self.is_whole() || self.ranks.binary_search(&rank).is_ok()
    }

    /// Its ranks in their order, and how many there are in all; `None` if it is all of the plan.
    #[must_use]
    pub fn ranks(&self) -> Option<(&[u32], u32)> {
        (!self.is_whole()).then_some((&self.ranks, self.world_size))
    }

    /// Number of places before `position`.
    #[must_use]
    pub fn places_before(&self, position: u32) -> u32 {
        if self.is_whole() {
            return position;
        }
        let below = self.ranks.partition_point(|&rank| rank < position % self.world_size);
        let places = u64::from(position / self.world_size) * self.ranks.len() as u64 + below as u64;
        // There are no more places than positions.
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    /// The place of `position`, if it is in the part.
    #[must_use]
    pub fn place(&self, position: u32) -> Option<u32> {
        let is_in = self.is_whole() || self.has(position % self.world_size);
        is_in.then(|| self.places_before(position))
    }

    /// The seats of the part among `strata`, in their order: row t of a plan has a place for each.
    /// The number of ranks divides that of strata.
    pub(super) fn seats(&self, strata: u32) -> Vec<u32> {
        (0..strata).filter(|seat| self.is_whole() || self.has(seat % self.world_size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_ranks_are_the_whole_plan() {
        let whole = Part::of(vec![1, 0, 2], 3);
        assert_eq!((whole.clone(), whole.is_whole(), whole.ranks()), (Part::WHOLE, true, None));
        assert_eq!((whole.place(17), whole.places_before(17), whole.seats(3)), (Some(17), 17, vec![0, 1, 2]));
    }

    #[test]
    fn a_part_by_hand() {
        let part = Part::of(vec![3, 0], 4);
        let places: Vec<Option<u32>> = (0..9).map(|position| part.place(position)).collect();
        assert_eq!(places, [Some(0), None, None, Some(1), Some(2), None, None, Some(3), Some(4)]);
        assert_eq!(part.seats(8), [0, 3, 4, 7]);
        assert!(part.has(3) && !part.has(1) && !part.has(4));
    }

    proptest! {
        #[test]
        fn places_are_numbered_without_a_gap(
            world_size in 1..12_u32, ranks in prop::collection::vec(0..12_u32, 1..12), positions in 0..200_u32
        ) {
            let part = Part::of(ranks, world_size);
            let mut next = 0;
            for position in 0..positions {
                prop_assert_eq!(part.places_before(position), next);
                let place = part.place(position);
                prop_assert_eq!(place, part.has(position % world_size).then_some(next));
                next += u32::from(place.is_some());
            }
        }
    }
}
