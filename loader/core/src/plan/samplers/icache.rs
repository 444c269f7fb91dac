//! The samplers `iis` and `cis`, iCACHE's importance sampling: samples of low importance are
//! trained on less often. `iis` leaves out what is not taken. `cis` delivers it with weight 0: it
//! is read and only forwarded.
//!
//! A selective epoch takes a sample with probability q^β. q is the mid-rank of its score among all
//! scores, from 0 for the lowest to 1 for the highest, and β = 1/3: on average 1/(1+β) = 75 % are
//! taken. A sample that was not delivered for `cover` epochs is taken for certain. The first five
//! epochs, and then every third, are full: they take all samples.
//!
//! iCACHE's code has β = 0.33, an integer percentile that never reaches 100 (so its hardest
//! hundredth is never taken), and a new history in each epoch. A cube root can be compared exactly,
//! without floating-point powers that other machines may round otherwise: u < q^(1/3) where u³ < q.

use std::cmp::Reverse;

use shade_formats::SampleId;

use super::draw::{Draw, Weights, weight};
use crate::importance::Importance;
use crate::plan::inputs::Inputs;
use crate::plan::random::{Random, Stage};

/// The first epochs are full: there is no importance yet to go by.
const WARM_UP_EPOCHS: u32 = 5;
/// Every third epoch is full.
const REUSE_EPOCHS: u32 = 3;
/// Share of the selected samples that count as those of high importance.
const HIGH_SHARE: f64 = 0.7;
/// A draw is a whole number below 2²⁰, so that its cube fits 60 bits.
const DRAW_BITS: u32 = 20;

/// Delivers what is taken.
pub(super) fn iis<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let Selection { taken, chances } = selected(inputs);
    let weights = move || chances.into_iter().map(|chance| weight(f64::from(chance))).collect();
    Draw::new(taken.into_iter().map(u32::from).collect(), Weights::BySample(Box::new(weights)))
}

/// Delivers all samples, with weight 0 what is not taken.
pub(super) fn cis<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let Selection { taken, chances } = selected(inputs);
    let weight_of = |(taken, chance)| if taken { weight(f64::from(chance)) } else { 0.0 };
    let weights = move || taken.into_iter().zip(chances).map(weight_of).collect();
    Draw { weights: Weights::BySample(Box::new(weights)), ..Draw::permutation(inputs.samples()) }
}

fn selected(inputs: &Inputs<'_>) -> Selection {
    let is_forgotten = |id| inputs.is_forgotten(id);
    select(inputs.scores(), inputs.epoch, is_forgotten, &mut inputs.random(Stage::Draw))
}

/// What is taken, and how likely that was.
struct Selection {
    /// By sample.
    taken: Vec<bool>,
    /// By sample, above 0 for what is taken.
    chances: Vec<f32>,
}

/// Selects the samples that `epoch` trains on: at least one, if there are any.
fn select(
    scores: &[f32],
    epoch: u32,
    forgotten: impl Fn(SampleId) -> bool,
    random: &mut Random,
) -> Selection {
    let samples = scores.len();
    let full = || Selection { taken: vec![true; samples], chances: vec![1.0; samples] };
    if epoch < WARM_UP_EPOCHS || epoch.is_multiple_of(REUSE_EPOCHS) {
        return full();
    }
    let mut selection =
        Selection { taken: Vec::with_capacity(samples), chances: Vec::with_capacity(samples) };
    let ranks = mid_ranks(scores);
    // Twice a mid-rank is at most twice the greatest rank.
    let rank_max = 2 * (samples as u64).saturating_sub(1);
    for (id, rank) in (0..).map(SampleId).zip(ranks) {
        let forgotten = forgotten(id);
        let draw = u128::from(random.below(1 << DRAW_BITS));
        let taken = draw.pow(3) * u128::from(rank_max.max(1)) < u128::from(rank) << (3 * DRAW_BITS);
        let chance = (rank as f64 / rank_max.max(1) as f64).cbrt();
        selection.taken.push(taken || forgotten);
        selection.chances.push(if forgotten { 1.0 } else { narrow(chance) });
    }
    if selection.taken.contains(&true) { selection } else { full() }
}

/// By sample: it has high importance in epochs of these `ids`. These are the upper 70 % of them
/// by (score, -id).
#[must_use]
pub fn high_importance(ids: impl IntoIterator<Item = SampleId>, importance: &Importance) -> Vec<bool> {
    let mut high = vec![false; importance.len() as usize];
    for id in ids {
        if let Some(slot) = high.get_mut(id.index()) {
            *slot = true;
        }
    }
    let mut planned: Vec<SampleId> =
        (0..importance.len()).map(SampleId).filter(|id| high.get(id.index()) == Some(&true)).collect();
    // Positive floats order as their bits do.
    planned.sort_unstable_by_key(|&id| (Reverse(importance.score(id).to_bits()), id));
    for id in planned.iter().skip(high_count(planned.len())) {
        if let Some(slot) = high.get_mut(id.index()) {
            *slot = false;
        }
    }
    high
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn high_count(len: usize) -> usize {
    (len as f64 * HIGH_SHARE).round() as usize
}

/// Twice the mid-rank of each value: 0 for the lowest and 2 (n - 1) for the highest, if no other
/// equals it.
fn mid_ranks(scores: &[f32]) -> Vec<u64> {
    let mut order: Vec<(u32, u32)> = (0..).zip(scores).map(|(at, score)| (score.to_bits(), at)).collect();
    order.sort_unstable();
    let mut ranks = vec![0; scores.len()];
    let mut below = 0;
    for same in order.chunk_by(|left, right| left.0 == right.0) {
        let len = same.len() as u64;
        for &(_, at) in same {
            if let Some(rank) = ranks.get_mut(at as usize) {
                *rank = 2 * below + len - 1;
            }
        }
        below += len;
    }
    ranks
}

#[expect(clippy::cast_possible_truncation, reason = "weights are f32 in a batch")]
fn narrow(chance: f64) -> f32 {
    chance as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTIVE: u32 = 7;

    /// Scores that rise with the id, all samples delivered in the epoch before.
    fn rising(samples: u32) -> Importance {
        let mut importance = Importance::new(samples);
        for id in (0..samples).map(SampleId) {
            importance.set_score(id, 2.3 + f32::from(u16::try_from(id.0 % 60_000).unwrap()) / 40_000.0);
            importance.record_delivery(id, SELECTIVE - 1);
        }
        importance
    }

    fn run(importance: &Importance, epoch: u32, cover: u32, seed: u64) -> Selection {
        let forgotten = |id| importance.is_forgotten(id, epoch, cover);
        select(importance.scores(), epoch, forgotten, &mut Random::new(seed, epoch, Stage::Draw))
    }

    fn count(taken: &[bool]) -> usize {
        taken.iter().filter(|&&taken| taken).count()
    }

    #[test]
    fn three_quarters_are_taken_and_nearly_all_of_the_hardest() {
        let importance = rising(50_000);
        for seed in 0..5 {
            let taken = run(&importance, SELECTIVE, 0, seed).taken;
            let share = count(&taken) as f64 / 50_000.0;
            // The binomial's standard deviation is below 0.002.
            assert!((share - 0.75).abs() < 0.01, "{share}");
            assert!(count(&taken[49_500..]) >= 495, "of the hardest hundredth {}", count(&taken[49_500..]));
            // By q^(1/3) the lowest tenth is taken with a mean of 3/4 · 0.1^(1/3) = 34.8 %.
            let lowest = count(&taken[..5000]) as f64 / 5000.0;
            assert!((lowest - 0.348).abs() < 0.035, "{lowest}");
        }
    }

    #[test]
    fn full_epochs_and_what_was_forgotten_take_all() {
        let importance = rising(1000);
        for epoch in [0, 4, 6, 9] {
            assert_eq!(count(&run(&importance, epoch, 0, 1).taken), 1000, "epoch {epoch}");
        }
        assert_eq!(count(&run(&importance, SELECTIVE, 1, 1).taken), 1000, "all are an epoch old");
        assert_eq!(
            count(&run(&Importance::new(1000), SELECTIVE, 5, 1).taken),
            1000,
            "none was ever delivered"
        );
    }

    #[test]
    fn equal_scores_and_single_samples_are_taken_now_and_then() {
        let mut importance = rising(10_000);
        (0..10_000).for_each(|id| importance.set_score(SampleId(id), 3.0));
        let share = count(&run(&importance, SELECTIVE, 0, 1).taken) as f64 / 10_000.0;
        // The mid-rank of all is 1/2, whose cube root is 0.794.
        assert!((share - 0.794).abs() < 0.02, "{share}");
        assert_eq!(run(&rising(1), SELECTIVE, 0, 1).taken, [true]);
        assert_eq!(run(&rising(0), SELECTIVE, 0, 1).taken, [false; 0]);
    }

    #[test]
    fn tags_follow_importance() {
        let importance = rising(100);
        let ids = (0..100).filter(|id| id % 2 == 0).map(SampleId);
        let high = high_importance(ids, &importance);
        let expected: Vec<bool> = (0..100).map(|id| id % 2 == 0 && id >= 30).collect();
        assert_eq!(high, expected, "35 of the 50 that are planned");
    }
}
