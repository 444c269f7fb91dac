//! Exchange (Quiver and iCACHE call it substitution): a batch takes residents of later batches
//! instead of samples that it would have to wait for. A *substitute* is something else here: what
//! takes the place of a bad record.
//!
//! Two positions of the plan change places, so every sample still comes as often as planned. The
//! policy decides which samples take part: `quiver` takes any resident for any absent sample,
//! `icache` exchanges samples of low importance only.
//!
//! What the stages before have promised still holds:
//!
//! | stage | promise | kept, as |
//! |---|---|---|
//! | strata | a sample is at its rank | samples of one rank change places among themselves |
//! | sampler | each comes as often as drawn, with its weight | both change places |
//! | `sequential` | samples in their order | nothing changes places |
//! | order | repeats are apart, and not twice in a batch | only what comes once changes places |
//! | use numbers | each use has its own crop | the same |
//! | `pace` | batches miss evenly | nothing changes places |
//! | a mixture | batches have one ratio of its parts | nothing changes places |
//! | slice | repeats in a batch are dealt to the ranks | with repeats nothing changes places |
//! | slice | a tail is dropped whatever is cached | nothing changes places with it |

use std::collections::HashMap;
use std::ops::Range;

use shade_formats::SampleId;
use shade_job::PlanSpec;

use super::epoch::Plan;
use super::samplers::keeps_order;
use crate::number::to_u32;

/// Number of batches in which stand-ins are looked for, with the one at hand: Quiver's k.
const WINDOW_BATCHES: usize = 10;

/// Whether samples of such plans may change places.
#[must_use]
pub fn may_exchange(spec: &PlanSpec) -> bool {
    !keeps_order(spec.sampler) && !spec.pace && spec.parts.is_empty() && spec.bucket.is_empty()
}

impl Plan {
    /// The samples that come more than once, by sample; empty if there is none.
    #[must_use]
    pub fn repeated(&self, samples: u32) -> Vec<bool> {
        if self.summary.repeat_max <= 1 {
            return Vec::new();
        }
        let (mut seen, mut repeated) = (vec![false; samples as usize], vec![false; samples as usize]);
        for id in &self.ids {
            if let (Some(seen), Some(repeated)) = (seen.get_mut(id.index()), repeated.get_mut(id.index())) {
                *repeated |= std::mem::replace(seen, true);
            }
        }
        repeated
    }

    /// Fills the batch at positions `from..to` with stand-ins: each of its samples that `is_absent`
    /// changes places with the next sample of the following batches that `may_stand_in`. Behind
    /// position `end` nothing is delivered: the tail that is dropped would be what is not cached.
    /// Only positions of one rank change places, of `ranks` that have them by turns. No sample
    /// comes twice into the batch for that. Returns the positions that now have a stand-in.
    pub fn exchange(
        &mut self,
        Range { start: from, end: to }: Range<usize>,
        end: usize,
        ranks: usize,
        is_absent: impl Fn(SampleId) -> bool,
        may_stand_in: impl Fn(SampleId) -> bool,
    ) -> Vec<u32> {
        let to = to.min(self.ids.len());
        let window = to.saturating_sub(from).saturating_mul(WINDOW_BATCHES);
        let end = end.min(self.ids.len()).min(from.saturating_add(window));
        // By rank: where its search goes on.
        let mut later: Vec<_> =
            (0..ranks).map(|rank| (first_of(rank, ranks, to)..end).step_by(ranks)).collect();
        let next = |at: usize, ids: &[SampleId], is_new: &dyn Fn(SampleId) -> bool| {
            later[at % ranks].find(|&other| may_stand_in(ids[other]) && is_new(ids[other]))
        };
        let swapped = self.swap_absent(from..to, is_absent, next);
        // Positions of a plan are u32.
        swapped.into_iter().map(|(at, _)| to_u32(at)).collect()
    }

    /// Swaps each sample of `batch` that `is_absent` with the position that `next` finds for it,
    /// given its own, the plan's samples, and which of them are not in the batch. Returns the pairs
    /// of positions.
    pub(super) fn swap_absent(
        &mut self,
        batch: Range<usize>,
        is_absent: impl Fn(SampleId) -> bool,
        mut next: impl FnMut(usize, &[SampleId], &dyn Fn(SampleId) -> bool) -> Option<usize>,
    ) -> Vec<(usize, usize)> {
        let batch = batch.start..batch.end.min(self.ids.len());
        let mut swapped = Vec::new();
        // How often each sample is in the batch.
        let mut counts: HashMap<SampleId, u32> = HashMap::new();
        for at in batch.clone() {
            let absent = self.ids[at];
            if !is_absent(absent) {
                continue;
            }
            if counts.is_empty() {
                self.ids[batch.clone()].iter().for_each(|&id| *counts.entry(id).or_default() += 1);
            }
            let is_new = |id| counts.get(&id).is_none_or(|&count| count == 0);
            let Some(other) = next(at, &self.ids, &is_new) else { continue };
            if let Some(count) = counts.get_mut(&absent) {
                *count -= 1;
            }
            counts.insert(self.ids[other], 1);
            self.swap(at, other);
            swapped.push((at, other));
        }
        swapped
    }

    /// The samples at two places change places, with their weights.
    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        self.ids.swap(one, other);
        if self.weights.len() == self.ids.len() {
            self.weights.swap(one, other);
        }
    }
}

/// The rank's first position from `from` on.
fn first_of(rank: usize, ranks: usize, from: usize) -> usize {
    from + (rank + ranks - from % ranks) % ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Part, PlanSummary};

    fn plan(ids: impl IntoIterator<Item = u32>) -> Plan {
        let ids: Vec<SampleId> = ids.into_iter().map(SampleId).collect();
        // A weight that tells its sample.
        let weights = ids.iter().map(|id| f32::from(u16::try_from(id.0).unwrap())).collect();
        Plan { epoch: 0, part: Part::WHOLE, ids, weights, summary: PlanSummary::default() }
    }

    fn ids(plan: &Plan) -> Vec<u32> {
        plan.ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn absent_samples_change_places_with_residents_of_later_batches() {
        let mut plan = plan([1, 12, 3, 4, 5, 16, 17, 8, 19]);
        let resident = |id: SampleId| id.0 > 10;
        assert_eq!(plan.exchange(0..3, usize::MAX, 1, |id| !resident(id), resident), [0, 2]);
        assert_eq!(ids(&plan), [16, 12, 17, 4, 5, 1, 3, 8, 19]);
        assert_eq!(plan.weights, [16.0, 12.0, 17.0, 4.0, 5.0, 1.0, 3.0, 8.0, 19.0]);
    }

    #[test]
    fn nothing_changes_places_with_a_tail_that_is_dropped() {
        let mut plan = plan([1, 2, 3, 4, 15, 6, 17, 18]);
        let resident = |id: SampleId| id.0 > 10;
        assert_eq!(plan.exchange(0..3, 6, 1, |id| !resident(id), resident), [0]);
        assert_eq!(ids(&plan), [15, 2, 3, 4, 1, 6, 17, 18]);
    }

    #[test]
    fn a_stand_in_is_no_second_time_in_its_batch() {
        let mut plan = plan([1, 12, 2, 12, 12, 13]);
        let resident = |id: SampleId| id.0 > 10;
        assert_eq!(plan.exchange(0..3, usize::MAX, 1, |id| !resident(id), resident), [0]);
        assert_eq!(ids(&plan), [13, 12, 2, 12, 12, 1]);
    }

    #[test]
    fn stand_ins_come_from_the_next_batches_only() {
        let mut plan = plan((0..200).map(|id| if id == 150 { 1000 } else { id }));
        assert_eq!(plan.exchange(0..4, usize::MAX, 1, |_| true, |id| id.0 == 1000), [0u32; 0]);
        assert_eq!(plan.exchange(120..124, usize::MAX, 1, |_| true, |id| id.0 == 1000), [120]);
        assert_eq!(plan.exchange(198..300, usize::MAX, 1, |_| true, |_| true), [0u32; 0]);
        assert_eq!(plan.exchange(300..400, usize::MAX, 1, |_| true, |_| true), [0u32; 0]);
    }

    /// A loader of eight ranks with the largest batches has a global batch of 262,144 samples. A
    /// search of the batch for each candidate takes 10^11 steps there.
    #[test]
    fn a_large_global_batch_does_not_stop_the_core() {
        const BATCH: u32 = 8 * 32_768;
        let ids: Vec<SampleId> = (0..10 * BATCH).map(SampleId).collect();
        let mut plan =
            Plan { epoch: 0, part: Part::WHOLE, ids, weights: Vec::new(), summary: PlanSummary::default() };
        let exchanged = plan.exchange(0..BATCH as usize, usize::MAX, 1, |_| true, |id| id.0 >= 9 * BATCH);
        assert_eq!(exchanged.len(), BATCH as usize);
        assert_eq!((plan.ids[0].0, plan.ids[BATCH as usize - 1].0), (9 * BATCH, 10 * BATCH - 1));
    }

    proptest! {
        #[test]
        fn a_search_of_the_batch_for_each_candidate_finds_the_same(
            drawn in prop::collection::vec(0..25u32, 60), resident in prop::collection::vec(any::<bool>(), 25)
        ) {
            let is_resident = |id: SampleId| resident[id.index()];
            let (mut plan, mut searched) = (plan(drawn.clone()), drawn);
            for from in (0..60).step_by(8) {
                let to = 60.min(from + 8);
                let exchanged = plan.exchange(from..to, usize::MAX, 1, |id| !is_resident(id), is_resident);
                let (mut other, mut expected) = (to, Vec::new());
                for at in (from..to).filter(|&at| !is_resident(SampleId(searched[at]))).collect::<Vec<_>>() {
                    let found = (other..60.min(from + 8 * WINDOW_BATCHES)).find(|&later| {
                        is_resident(SampleId(searched[later])) && !searched[from..to].contains(&searched[later])
                    });
                    let Some(found) = found else { break };
                    searched.swap(at, found);
                    expected.push(u32::try_from(at).unwrap());
                    other = found + 1;
                }
                prop_assert_eq!(exchanged, expected);
                prop_assert_eq!(ids(&plan), searched.clone());
            }
        }

        #[test]
        fn samples_stay_at_their_rank(
            drawn in prop::collection::vec(0..200u32, 60), resident in prop::collection::vec(any::<bool>(), 200),
            ranks in 1..5usize,
        ) {
            let of_rank = |plan: &Plan, rank: usize| {
                let mut ids: Vec<u32> = ids(plan).into_iter().skip(rank).step_by(ranks).collect();
                ids.sort_unstable();
                ids
            };
            let is_resident = |id: SampleId| resident[id.index()];
            let before = plan(drawn);
            let mut after = before.clone();
            for from in (0..60).step_by(8) {
                after.exchange(from..from + 8, usize::MAX, ranks, |id| !is_resident(id), is_resident);
            }
            for rank in 0..ranks {
                prop_assert_eq!(of_rank(&after, rank), of_rank(&before, rank));
            }
            prop_assert!(after.weights.iter().zip(ids(&after)).all(|(&weight, id)| weight == f32::from(u16::try_from(id).unwrap())));
        }

        #[test]
        fn what_comes_more_than_once_is_known(drawn in prop::collection::vec(0..80u32, 60)) {
            let mut plan = plan(drawn.clone());
            plan.summary.repeat_max = 2;
            let count = |id: u32| drawn.iter().filter(|&&other| other == id).count();
            prop_assert_eq!(plan.repeated(80), (0..80).map(|id| count(id) > 1).collect::<Vec<_>>());
        }

        #[test]
        fn everything_still_comes_once(
            order in Just((0..60u32).collect::<Vec<_>>()).prop_shuffle(), resident in prop::collection::vec(any::<bool>(), 60)
        ) {
            let mut plan = plan(order);
            let is_resident = |id: SampleId| resident[id.index()];
            for from in (0..60).step_by(8) {
                plan.exchange(from..from + 8, usize::MAX, 1, |id| !is_resident(id), is_resident);
            }
            let mut sorted = ids(&plan);
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..60));
            // Residents are far fewer than ten batches here, so all come first.
            let first = plan.ids.iter().position(|&id| !is_resident(id)).unwrap_or(60);
            prop_assert!(plan.ids.iter().skip(first.next_multiple_of(8)).all(|&id| !is_resident(id)));
        }
    }
}
