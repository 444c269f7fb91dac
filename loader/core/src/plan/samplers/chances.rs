//! Draws with replacement: each sample with a chance in proportion to its score.
//!
//! There are N draws with p = (1-u)·score/Σscore + u/N, in whole numbers: scores become multiples
//! of 2⁻²⁰, the explore share u a multiple of 2⁻¹⁶, and from there on nothing is rounded. There are
//! no floating-point sums, whose result would depend on their order.
//!
//! A draw is a level below the sum of all weights, and each sample owns as many levels in a row as
//! its weight. All levels are drawn, sorted, and matched with the samples in one walk. An alias
//! table needs no sort, but looks up a cell of 16 bytes at random for each draw. That is slower: 89
//! ms against 66 ms for 1.28 million samples.

use shade_formats::SampleId;

use crate::plan::random::Random;

const SCORE_UNIT: f64 = (1 << 20) as f64;
const SHARE_UNIT: u64 = 1 << 16;
/// Largest chance over the mean chance, of scores that `rank` gives.
const CHANCE_MAX: u128 = 2;
/// Largest chance over the mean chance, of all scores that there may be.
pub(super) const CHANCE_MAX_WIDE: u128 = 5;

/// Quantised chances of the samples: each is drawn with probability weight / `total`. A weight is
/// computed from the score whenever it is needed: a few instructions instead of 4 bytes a sample.
#[derive(Clone, Copy)]
pub(super) struct Chances<'a> {
    scores: &'a [f32],
    /// u, in units of 2⁻¹⁶.
    explore: u64,
    /// Mean of the scores, in units of 2⁻²⁰.
    mean: u64,
    total: u64,
}

impl<'a> Chances<'a> {
    /// The chances that scores give. They are between `SCORE_MIN` and `SCORE_MAX`; `explore` is u,
    /// 0 to 1.
    pub(super) fn new(scores: &'a [f32], explore: f64) -> Self {
        let sum: u64 = scores.iter().map(|&score| u64::from(quantise(score))).sum();
        let mean = sum / (scores.len() as u64).max(1);
        let chances = Self { scores, explore: quantise_share(explore), mean, total: 0 };
        Self { total: chances.weights().map(u64::from).sum(), ..chances }
    }

    /// N·p of each sample: how often it is expected in an epoch.
    pub(super) fn expected_uses(&self) -> impl Iterator<Item = f64> {
        let uses = self.scores.len() as f64 / self.total as f64;
        self.weights().map(move |weight| f64::from(weight) * uses)
    }

    /// Draws as many samples as there are, with replacement; returns how often each was drawn.
    pub(super) fn draw(&self, random: &mut Random) -> Vec<u32> {
        draw_by(self.weights(), self.scores.len(), self.total, random)
    }

    /// Draws as many samples as there are, with replacement, in an order that is as random. Jobs
    /// with the same `random` numbers draw alike.
    ///
    /// The numbers name candidates: samples, each as likely, with a level. A job takes a candidate
    /// if its level is below the sample's chance. So each job draws by its own chances, and of two
    /// jobs both take what the smaller of their chances allows, which is as much as can be shared.
    pub(super) fn draw_coupled(&self, random: &mut Random) -> Vec<SampleId> {
        let samples = self.scores.len() as u64;
        // A chance is at most this many times the mean. One limit for all, so that levels compare.
        let is_wide = self.weights().any(|weight| u64::from(weight) * samples > 2 * self.total);
        let most = u128::from(self.total) * if is_wide { CHANCE_MAX_WIDE } else { CHANCE_MAX };
        let mut ids = Vec::with_capacity(self.scores.len());
        while ids.len() < self.scores.len() {
            let (sample, level) = random.with_fraction(samples);
            let Some(&score) = usize::try_from(sample).ok().and_then(|at| self.scores.get(at)) else { break };
            // level / 2⁶⁴ < weight · samples / most
            if u128::from(level) * most < (u128::from(self.weight(score)) * u128::from(samples)) << 64 {
                ids.extend(u32::try_from(sample).map(SampleId));
            }
        }
        ids
    }

    fn weights(&self) -> impl Iterator<Item = u32> {
        self.scores.iter().map(|&score| self.weight(score))
    }

    /// Between the quantised score and the mean, so it has 23 bits and is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "23 bits")]
    fn weight(&self, score: f32) -> u32 {
        let mixed = u64::from(quantise(score)) * (SHARE_UNIT - self.explore) + self.mean * self.explore;
        (mixed / SHARE_UNIT) as u32
    }
}

/// Draws with replacement by these weights, whose sum is `total`; returns how often each was drawn.
pub(super) fn draw_by(
    weights: impl Iterator<Item = u32>,
    draws: usize,
    total: u64,
    random: &mut Random,
) -> Vec<u32> {
    let mut levels: Vec<u64> = (0..draws).map(|_| random.below(total)).collect();
    levels.sort_unstable();
    let mut levels = levels.into_iter().peekable();
    let mut end = 0;
    let count_of = |weight| {
        end += u64::from(weight);
        let mut count = 0;
        while levels.next_if(|&level| level < end).is_some() {
            count += 1;
        }
        count
    };
    weights.map(count_of).collect()
}

/// A score in units of 2⁻²⁰, rounded half up: exact, as f64 holds the sum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "scores are between SCORE_MIN and SCORE_MAX"
)]
pub(super) fn quantise(score: f32) -> u32 {
    (f64::from(score) * SCORE_UNIT + 0.5) as u32
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

    /// Each level by itself, looked up from the first sample on.
    fn slowly(chances: &Chances, random: &mut Random) -> Vec<u32> {
        let weights: Vec<u64> = chances.weights().map(u64::from).collect();
        let mut counts = vec![0; weights.len()];
        for _ in 0..counts.len() {
            let mut level = random.below(chances.total);
            let mut sample = 0;
            while level >= weights[sample] {
                level -= weights[sample];
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
            let chances = Chances::new(&scores, 0.0);
            let random = || Random::new(4, 1, Stage::Draw);
            assert_eq!(chances.draw(&mut random()), slowly(&chances, &mut random()));
        }
    }

    #[test]
    fn explore_moves_the_chances_towards_the_mean() {
        let scores = [2.5, 4.0, 3.1, 3.9];
        let [plain, half, whole] = [0.0, 0.5, 1.0].map(|explore| Chances::new(&scores, explore));
        for ((plain, half), whole) in
            plain.expected_uses().zip(half.expected_uses()).zip(whole.expected_uses())
        {
            assert!((half - f64::midpoint(plain, 1.0)).abs() < 1e-5);
            assert!((whole - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn no_sample_is_an_empty_draw() {
        let chances = Chances::new(&[], 0.5);
        assert_eq!(chances.draw(&mut Random::new(0, 0, Stage::Draw)), [0u32; 0]);
    }
}
