//! Residents that may stand in for missing samples, whatever their place in the rest of the plan.
//!
//! [`Plan::exchange`] looks at the next batches alone. What a package brings lies anywhere in the
//! plan, so here a table says where.

use std::collections::VecDeque;
use std::ops::Range;

use shade_formats::SampleId;

use super::epoch::Plan;
use crate::number::to_u32;

/// No position.
const NOWHERE: u32 = u32::MAX;

/// The stand-ins of a plan.
#[derive(Debug)]
pub struct StandIns {
    /// By sample: the last position at which it is used, as far as is known.
    positions: Vec<u32>,
    /// By rank, of those that have the plan's positions by turns: those that wait there, the oldest
    /// first. Some have left the cache since, or are used by now.
    waiting: Vec<VecDeque<SampleId>>,
}

impl StandIns {
    /// The table of a plan that delivers these `ids`, for samples `0..samples`. The `residents` may
    /// stand in for samples of their own rank, where `ranks` have the positions by turns.
    #[must_use]
    pub fn new(ids: &[SampleId], samples: u32, ranks: usize, residents: Vec<SampleId>) -> Self {
        let mut positions = vec![NOWHERE; samples as usize];
        for (at, id) in (0..).zip(ids) {
            if let Some(position) = positions.get_mut(id.index()) {
                *position = at;
            }
        }
        let mut all = Self { positions, waiting: vec![VecDeque::new(); ranks] };
        residents.into_iter().for_each(|sample| all.add(sample));
        all
    }

    /// The sample is resident and may stand in.
    pub fn add(&mut self, sample: SampleId) {
        let at = self.positions.get(sample.index()).copied().unwrap_or(NOWHERE);
        let ranks = self.waiting.len();
        if let Some(waiting) = self.waiting.get_mut(at as usize % ranks).filter(|_| at != NOWHERE) {
            waiting.push_back(sample);
        }
    }

    /// Whether the plan uses the sample at position `from` or later.
    #[must_use]
    pub fn is_used_from(&self, sample: SampleId, from: u32) -> bool {
        self.positions.get(sample.index()).is_some_and(|&at| at != NOWHERE && at >= from)
    }

    /// As [`Plan::exchange`], with stand-ins from all of the plan behind `to`, the oldest first.
    pub fn exchange(
        &mut self,
        plan: &mut Plan,
        Range { start: from, end: to }: Range<u32>,
        is_absent: impl Fn(SampleId) -> bool,
        may_stand_in: impl Fn(SampleId) -> bool,
    ) -> Vec<u32> {
        let Self { positions, waiting } = self;
        let ranks = waiting.len();
        let next = |at: usize, ids: &[SampleId], is_new: &dyn Fn(SampleId) -> bool| {
            let waiting = waiting.get_mut(at % ranks)?;
            while let Some(sample) = waiting.pop_front() {
                let at = positions.get(sample.index()).copied().unwrap_or(NOWHERE);
                let is_later = at >= to && ids.get(at as usize) == Some(&sample);
                if is_later && may_stand_in(sample) && is_new(sample) {
                    return Some(at as usize);
                }
            }
            None
        };
        let swapped = plan.swap_absent(from as usize..to as usize, is_absent, next);
        for &(at, other) in &swapped {
            for position in [at, other] {
                let slot = plan.ids.get(position).and_then(|id| positions.get_mut(id.index()));
                // Positions of a plan are u32.
                slot.into_iter().for_each(|slot| *slot = to_u32(position));
            }
        }
        swapped.into_iter().map(|(at, _)| to_u32(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Part, PlanSummary};

    fn samples(ids: impl IntoIterator<Item = u32>) -> Vec<SampleId> {
        ids.into_iter().map(SampleId).collect()
    }

    fn plan(ids: impl IntoIterator<Item = u32>) -> Plan {
        Plan {
            epoch: 0,
            part: Part::WHOLE,
            ids: samples(ids),
            weights: Vec::new(),
            summary: PlanSummary::default(),
        }
    }

    #[test]
    fn the_oldest_that_is_used_later_stands_in_from_anywhere_in_the_plan() {
        let mut plan = plan(0..1000);
        // 2 is in the batch, 5000 not in the plan, 901 has left the cache.
        let mut all = StandIns::new(&plan.ids, 6000, 1, samples([2, 5000, 901, 900]));
        all.add(SampleId(30));
        all.add(SampleId(31));
        let exchanged = all.exchange(&mut plan, 0..4, |id| id.0 < 2, |id| id.0 != 901);
        assert_eq!(exchanged, [0, 1]);
        assert_eq!(plan.ids[..4], samples([900, 30, 2, 3]));
        assert_eq!((plan.ids[900], plan.ids[30]), (SampleId(0), SampleId(1)));
        assert!(all.is_used_from(SampleId(0), 4) && !all.is_used_from(SampleId(900), 4));
        // 31 still waits.
        assert_eq!(all.exchange(&mut plan, 4..8, |_| true, |_| true), [4]);
        assert_eq!(plan.ids[4..6], samples([31, 5]));
    }

    proptest! {
        #[test]
        fn every_use_stays_in_the_plan_and_no_settled_batch_changes(
            order in Just((0..60u32).collect::<Vec<_>>()).prop_shuffle(),
            waiting in prop::collection::vec(0..70u32, 0..60), absent in prop::collection::vec(any::<bool>(), 60),
            ranks in 1..4usize,
        ) {
            let mut plan = plan(order);
            let planned = plan.clone();
            let mut all = StandIns::new(&plan.ids, 60, ranks, samples(waiting));
            let is_absent = |id: SampleId| absent[id.index()];
            for from in (0..60).step_by(8) {
                let (before, to) = (plan.ids.clone(), 60.min(from + 8));
                let exchanged = all.exchange(&mut plan, from..to, is_absent, |id| !is_absent(id));
                prop_assert_eq!(&plan.ids[..from as usize], &before[..from as usize]);
                for at in from..to {
                    let (was, is) = (before[at as usize], plan.ids[at as usize]);
                    prop_assert_eq!(exchanged.contains(&at), was != is);
                    prop_assert!(was == is || (is_absent(was) && !is_absent(is)));
                }
            }
            for rank in 0..ranks {
                let of_rank = |plan: &Plan| {
                    let mut ids: Vec<SampleId> = plan.ids.iter().copied().skip(rank).step_by(ranks).collect();
                    ids.sort_unstable();
                    ids
                };
                prop_assert_eq!(of_rank(&plan), of_rank(&planned), "rank {} of {}", rank, ranks);
            }
        }
    }
}
