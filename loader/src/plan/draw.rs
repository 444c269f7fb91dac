//! Stage 1: how often each sample occurs in the epoch.
//!
//! A permutation takes each sample once. PADS draws N times with p = (1-u)·score/Σscore + u/N, in whole numbers: scores
//! become multiples of 2⁻²⁰, the explore share u one of 2⁻¹⁶, and from there on nothing is rounded. There are no
//! floating-point sums, whose result would depend on their order.
//!
//! A draw is a level below the sum of all weights, and each sample owns as many levels in a row as its weight. All levels
//! are drawn, sorted, and matched with the samples in one walk. An alias table needs no sort, but looks up a cell of
//! 16 bytes at random for each draw, which for a million samples is slower: 89 ms against 66 ms for 1.28 million.

use super::random::Random;
use crate::importance::{Importance, SCORE_MAX};

const SCORE_UNIT: f32 = (1 << 20) as f32;
const SHARE_UNIT: u64 = 1 << 16;

/// Quantised chances of the samples: sample i is drawn with probability `weights[i] / total`.
pub(super) struct Chances {
    weights: Vec<u32>,
    total: u64,
}

impl Chances {
    /// Quantises the score table. `explore` is u, 0 to 1.
    pub(super) fn new(importance: &Importance, explore: f64) -> Self {
        let mut weights: Vec<u32> = importance.scores().iter().map(|&score| quantise(score)).collect();
        let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let explore = quantise_share(explore);
        if explore > 0 {
            let mean = sum / (weights.len() as u64).max(1);
            for weight in &mut weights {
                let mixed = (u64::from(*weight) * (SHARE_UNIT - explore) + mean * explore) / SHARE_UNIT;
                // Between the weight and the mean, so it fits and is not 0.
                *weight = u32::try_from(mixed).unwrap_or(u32::MAX);
            }
        }
        let total = weights.iter().map(|&weight| u64::from(weight)).sum();
        Self { weights, total }
    }

    /// N·p of each sample: how often it is expected in an epoch.
    pub(super) fn expected_uses(&self) -> impl Iterator<Item = f64> {
        let unit = self.weights.len() as f64 / self.total as f64;
        self.weights.iter().map(move |&weight| f64::from(weight) * unit)
    }

    /// Draws as many samples as there are, with replacement; returns how often each was drawn.
    pub(super) fn draw(&self, random: &mut Random) -> Vec<u32> {
        let mut levels: Vec<u64> = self.weights.iter().map(|_| random.below(self.total)).collect();
        levels.sort_unstable();
        let mut levels = levels.into_iter().peekable();
        let mut end = 0;
        let mut count_of = |&weight: &u32| {
            end += u64::from(weight);
            let mut count = 0;
            while levels.next_if(|&level| level < end).is_some() {
                count += 1;
            }
            count
        };
        self.weights.iter().map(&mut count_of).collect()
    }
}

/// A score in units of 2⁻²⁰, at least 1. Exact: scores have 24 significant bits and are below 8.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped, and the cast saturates"
)]
fn quantise(score: f32) -> u32 {
    ((score.min(SCORE_MAX) * SCORE_UNIT).round() as u32).max(1)
}

/// A share in units of 2⁻¹⁶, at most the whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped, and the cast saturates"
)]
fn quantise_share(share: f64) -> u64 {
    ((share.clamp(0.0, 1.0) * SHARE_UNIT as f64).round() as u64).min(SHARE_UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::random::Stage;
    use shade_formats::SampleId;

    fn table(scores: &[f32]) -> Importance {
        let mut importance = Importance::new(u32::try_from(scores.len()).unwrap());
        for (id, &score) in (0..).zip(scores) {
            importance.set_score(SampleId(id), score);
        }
        importance
    }

    /// Each level by itself, looked up from the first sample on.
    fn slowly(chances: &Chances, random: &mut Random) -> Vec<u32> {
        let mut counts = vec![0; chances.weights.len()];
        for _ in 0..counts.len() {
            let mut level = random.below(chances.total);
            let mut sample = 0;
            while level >= u64::from(chances.weights[sample]) {
                level -= u64::from(chances.weights[sample]);
                sample += 1;
            }
            counts[sample] += 1;
        }
        counts
    }

    #[test]
    fn sorted_levels_find_the_samples_that_a_search_finds() {
        for scores in [
            vec![3.0],
            vec![3.0; 5],
            vec![2.3, 4.2, 2.9, 2.3, 4.29, 3.7, 2.3],
            (0..1000u16).map(|i| 2.26 + f32::from(i * 37 % 1000) * 0.002).collect(),
        ] {
            let chances = Chances::new(&table(&scores), 0.0);
            let random = || Random::new(4, 1, Stage::Draw);
            assert_eq!(chances.draw(&mut random()), slowly(&chances, &mut random()));
        }
    }

    #[test]
    fn explore_moves_the_chances_towards_the_mean() {
        let scores = [2.5, 4.0, 3.1, 3.9];
        let plain = Chances::new(&table(&scores), 0.0);
        let half = Chances::new(&table(&scores), 0.5);
        let whole = Chances::new(&table(&scores), 1.0);
        for ((plain, half), whole) in
            plain.expected_uses().zip(half.expected_uses()).zip(whole.expected_uses())
        {
            assert!((half - f64::midpoint(plain, 1.0)).abs() < 1e-5);
            assert!((whole - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn no_sample_is_an_empty_draw() {
        let chances = Chances::new(&Importance::new(0), 0.5);
        assert_eq!(chances.draw(&mut Random::new(0, 0, Stage::Draw)), [0u32; 0]);
    }
}
