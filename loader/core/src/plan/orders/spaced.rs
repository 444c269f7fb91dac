//! The order `spaced`: the repeats of a sample some batches apart (`gap`), 20 to 60 by default, so
//! that a small cache holds it from use to use.
//!
//! Batches are filled from first to last, with the repeats that are due and with samples that
//! begin. These come in random order, except that a sample with many repeats begins early enough
//! for them. Where the epoch is too short for such gaps they are shortened evenly. At its end, when
//! nothing is left to begin, what would be due later comes earlier.
//!
//! Nothing repeats in the first batches, so more samples begin there. For an even rate of misses
//! these are residents, as far as there are any, and each batch has as many of the others as the
//! next.
//!
//! In a plan of several strata each has its rows of these batches. Where a batch has less than a
//! row, gaps are whole rows.

use std::collections::VecDeque;

use shade_formats::SampleId;

use super::ordered::Ordered;
use crate::plan::gap::{GAP_BATCHES, GAP_SHARE};
use crate::plan::inputs::Inputs;
use crate::plan::random::{Random, Stage};

/// Resolution of the places at which samples begin, in parts of a batch.
const PARTS: u64 = 1 << 16;

/// A use that is due, and how many there are after it.
type Due = (SampleId, u32);

/// Fewest and most batches from a use to the next.
#[derive(Clone, Copy)]
pub(super) struct Gaps {
    pub(super) min: usize,
    max: usize,
}

impl Gaps {
    /// Those of a stratum's list, in its own batches.
    pub(super) fn of(inputs: &Inputs<'_>) -> Self {
        let most = inputs.spec.gap.unwrap_or(GAP_BATCHES);
        let own = |batches: u32| inputs.own_batches(batches as usize);
        Self { min: own(most / GAP_SHARE), max: own(most) }
    }
}

/// Lists each sample as often as `counts` says.
pub(super) fn spaced(counts: &[u32], inputs: &Inputs<'_>) -> Ordered {
    let residents = if inputs.spec.pace { inputs.residents() } else { &[] };
    list(counts, residents, inputs.batch_size, Gaps::of(inputs), &mut inputs.random(Stage::Space)).into()
}

/// The draws in this order, with fewest and most batches from use to use. `resident` says by sample
/// what is in the cache if misses must be even; else it is empty.
fn list(
    counts: &[u32],
    resident: &[bool],
    batch_size: usize,
    gaps: Gaps,
    random: &mut Random,
) -> Vec<SampleId> {
    let total: usize = counts.iter().map(|&count| count as usize).sum();
    let batches = total.div_ceil(batch_size);
    let is_resident = |due: &Due| resident.get(due.0.index()) == Some(&true);
    let (mut residents, mut others): (VecDeque<Due>, VecDeque<Due>) =
        begins(counts, batches, gaps.min.midpoint(gaps.max), random).into_iter().partition(is_resident);
    let misses = others.len();
    let mut missed = 0;
    let mut ids: Vec<SampleId> = Vec::with_capacity(total);
    let mut due: Vec<Vec<Due>> = vec![Vec::new(); batches];
    // From the batch at hand to this one nothing is due.
    let mut waiting = 0;
    for batch in 0..batches {
        let start = ids.len();
        let end = total.min(start + batch_size);
        let mut repeats = std::mem::take(&mut due[batch]);
        while ids.len() < end {
            let behind = misses * (batch + 1) > missed * batches;
            let (first, second) =
                if behind { (&mut others, &mut residents) } else { (&mut residents, &mut others) };
            let next =
                repeats.pop().or_else(|| first.pop_front()).or_else(|| second.pop_front()).or_else(|| {
                    waiting = waiting.max(batch);
                    while due.get(waiting).is_some_and(Vec::is_empty) {
                        waiting += 1;
                    }
                    due.get_mut(waiting)?.pop()
                });
            let Some((id, left)) = next else { break };
            ids.push(id);
            missed = misses - others.len();
            if left > 0 {
                let uses = counts[id.index()] as usize;
                let gap_max = gaps.max.min((batches - 1) / (uses - 1)).max(1);
                let gap_min = gaps.min.min(gap_max);
                let gap = gap_min + random.position(gap_max - gap_min + 1);
                let at = (batch + gap).min(batches - 1);
                // What came earlier may come again before what is due later.
                waiting = waiting.min(at);
                due[at].push((id, left - 1));
            }
        }
        // What found no room is first in the next batch, as the last one to be popped is.
        if let Some(next) = due.get_mut(batch + 1) {
            next.append(&mut repeats);
        }
        random.shuffle(&mut ids[start..]);
    }
    assert_eq!(ids.len(), total, "every use is delivered");
    ids
}

/// The samples in the order in which they begin, with the uses that follow.
fn begins(counts: &[u32], batches: usize, gap_mean: usize, random: &mut Random) -> Vec<Due> {
    let drawn = (0..).map(SampleId).zip(counts).filter(|&(_, &count)| count > 0);
    let mut begins: Vec<(u64, Due)> = drawn
        .map(|(id, &count)| {
            let latest = batches.saturating_sub((count as usize - 1).saturating_mul(gap_mean)).max(1);
            (random.below(latest as u64 * PARTS), (id, count - 1))
        })
        .collect();
    begins.sort_unstable();
    begins.into_iter().map(|(_, due)| due).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GAPS: Gaps = Gaps { min: 20, max: 60 };

    fn run(counts: &[u32], batch_size: usize, seed: u64) -> Vec<SampleId> {
        list(counts, &[], batch_size, GAPS, &mut Random::new(seed, 1, Stage::Space))
    }

    /// From each use to the next of the same sample, in batches.
    fn gaps(ids: &[SampleId], samples: usize, batch_size: usize) -> Vec<usize> {
        let mut last = vec![None; samples];
        let mut gaps = Vec::new();
        for (position, id) in ids.iter().enumerate() {
            let batch = position / batch_size;
            if let Some(before) = last[id.index()].replace(batch) {
                gaps.push(batch - before);
            }
        }
        gaps
    }

    /// As often as draws with replacement give: 1, 2, 3, 4 and 5 times 36.8, 18.4, 6.1, 1.5 and 0.3
    /// %.
    fn drawn(samples: u32) -> Vec<u32> {
        let share = |sample: u32| (u64::from(sample) * 2_654_435_761 % 1000) as u32;
        (0..samples)
            .map(|sample| match share(sample) {
                0..368 => 0,
                368..736 => 1,
                736..920 => 2,
                920..981 => 3,
                981..997 => 4,
                _ => 5,
            })
            .collect()
    }

    #[test]
    fn repeats_are_as_far_apart_as_asked_for_but_for_the_epochs_end() {
        let counts = drawn(50_000);
        let ids = run(&counts, 64, 3);
        let gaps = gaps(&ids, counts.len(), 64);
        let right = gaps.iter().filter(|&&gap| (GAPS.min..=GAPS.max).contains(&gap)).count();
        assert!(right as f64 >= 0.97 * gaps.len() as f64, "{right} of {}", gaps.len());
    }

    #[test]
    fn first_uses_come_all_through_the_epoch() {
        let counts = drawn(50_000);
        let ids = run(&counts, 64, 3);
        let mut seen = vec![false; counts.len()];
        let firsts: Vec<bool> =
            ids.iter().map(|id| !std::mem::replace(&mut seen[id.index()], true)).collect();
        let shares: Vec<f64> = firsts
            .chunks(ids.len().div_ceil(10))
            .map(|part| part.iter().filter(|&&first| first).count() as f64 / part.len() as f64)
            .collect();
        // Nothing repeats yet in the first 20 batches, so the first tenth has more.
        assert!(shares[1..9].iter().all(|share| (0.55..0.70).contains(share)), "{shares:?}");
    }

    #[test]
    fn where_misses_are_to_be_even_they_are_from_the_first_batch_on() {
        let counts = drawn(50_000);
        let resident: Vec<bool> = (0..50_000).map(|sample| sample % 5 == 0).collect();
        let ids = list(&counts, &resident, 64, GAPS, &mut Random::new(3, 1, Stage::Space));
        let mut seen = resident;
        let misses: Vec<bool> =
            ids.iter().map(|id| !std::mem::replace(&mut seen[id.index()], true)).collect();
        let counts: Vec<usize> =
            misses.chunks(64).map(|batch| batch.iter().filter(|&&miss| miss).count()).collect();
        // Half of the accesses; without residents in front all but a fifth of the first batches.
        let far_off = counts.iter().filter(|&&count| !(30..=36).contains(&count)).count();
        assert!(far_off * 10 <= counts.len(), "{far_off} of {} batches: {counts:?}", counts.len());
    }

    #[test]
    fn what_comes_early_at_the_epochs_end_may_come_again_before_what_is_due_later() {
        for seed in 0..1000 {
            let random = &mut Random::new(seed, 1, Stage::Space);
            let ids = list(&[5; 4], &[], 1, Gaps { min: 2, max: 6 }, random);
            let uses = |id: u32| ids.iter().filter(|&&other| other == SampleId(id)).count();
            assert_eq!([0, 1, 2, 3].map(uses), [5; 4], "seed {seed}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

        #[test]
        fn it_is_an_order_of_these_uses(
            // Few samples and short gaps, too: there an epoch is all beginning and end.
            counts in prop_oneof![
                prop::collection::vec(0..9u32, 0..9), prop::collection::vec(0..9u32, 0..200)
            ],
            batch_size in prop_oneof![1..4usize, 1..40usize], min in prop_oneof![1..4usize, 1..40usize],
            wider in prop_oneof![0..8usize, 0..60usize], seed: u64, cached: bool,
        ) {
            let resident: Vec<bool> = (0..200).map(|sample| cached && sample % 3 == 0).collect();
            let gaps = Gaps { min, max: min + wider };
            let run = || {
                let random = &mut Random::new(seed, 1, Stage::Space);
                list(&counts, &resident, batch_size, gaps, random)
            };
            let ids = run();
            let mut delivered = vec![0; counts.len()];
            ids.iter().for_each(|id| delivered[id.index()] += 1);
            prop_assert_eq!(&delivered, &counts);
            prop_assert_eq!(ids, run());
        }
    }
}
