//! Scores that are the same on every machine: a table of 65,536, one for each quantile of a loss
//! within its batch.
//!
//! Nodes with plans of several strata exchange quantiles, two bytes each, and any of them may have
//! to draw from them. The logarithm of a C library may differ in the last bit from another's, and
//! so would the plan. The table is made by one in Rust, and a test has its checksum.
#![warn(clippy::indexing_slicing)]

use std::sync::LazyLock;

/// Quantiles that are told apart.
const QUANTILES: usize = 1 << 16;

/// ln(64 q + 9.5) at the middle of each of the 65,536 steps of q.
static SCORES: LazyLock<Vec<f32>> = LazyLock::new(|| (0..QUANTILES).map(made_score).collect());

#[expect(clippy::cast_possible_truncation, reason = "scores are stored as f32")]
fn made_score(step: usize) -> f32 {
    let quantile = (step as f64 + 0.5) / QUANTILES as f64;
    libm::log(64.0 * quantile + 9.5) as f32
}

/// The score of a step.
pub(super) fn score_of_step(step: u16) -> f32 {
    SCORES.get(usize::from(step)).copied().unwrap_or_default()
}

/// The step that has this very score, if there is one.
pub(super) fn step_of_score(score: f32) -> Option<u16> {
    let step = SCORES.binary_search_by(|of_step| of_step.total_cmp(&score)).ok()?;
    u16::try_from(step).ok()
}

/// The score of the j-th smallest of n losses.
pub(super) fn score_of_rank(j: usize, n: usize) -> f32 {
    // (j + 1/2) / n in steps, rounded down: below the last, as j is below n.
    let step = (2 * j + 1) * (QUANTILES / 2) / n.max(1);
    SCORES.get(step).or(SCORES.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use shade_formats::checksum::crc32c;

    use super::*;
    use crate::importance::{SCORE_MAX, SCORE_MIN};

    /// Another table would change plans.
    #[test]
    fn the_table_never_changes() {
        let bytes: Vec<u8> = SCORES.iter().flat_map(|score| score.to_le_bytes()).collect();
        assert_eq!(bytes.len(), 4 * QUANTILES);
        assert_eq!(format!("{:08x}", crc32c(&bytes)), "cc12465a");
    }

    #[test]
    fn a_step_has_a_score_of_its_own() {
        assert!((0..=u16::MAX).all(|step| step_of_score(score_of_step(step)) == Some(step)));
        assert_eq!([SCORE_MIN, 3.0, SCORE_MAX].map(step_of_score), [None; 3]);
    }

    #[test]
    fn scores_rise_and_are_those_of_the_formula() {
        assert!(SCORES.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(SCORES[QUANTILES - 1] < 73.5_f32.ln() && SCORES[0] > 9.5_f32.ln());
        for n in [1_usize, 2, 3, 64, 1000, 32_768] {
            for j in (0..n).step_by(n.div_ceil(10)).chain([n - 1]) {
                let exact = (64.0 * (j as f64 + 0.5) / n as f64 + 9.5).ln();
                // Half a step of the quantile is 5e-5 of the score where it rises fastest.
                assert!((f64::from(score_of_rank(j, n)) - exact).abs() < 6e-5, "{j} of {n}");
            }
        }
    }
}
