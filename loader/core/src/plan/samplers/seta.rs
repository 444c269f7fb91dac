//! The sampler `seta` (Zhou et al., CVPR 2025), as published for ImageNet: samples are put into
//! five groups by their last losses, and an epoch has three neighbouring ones of them.
//!
//! The groups are those of k-means in one dimension, from the easiest to the hardest. The window
//! goes on by one group an epoch, and begins anew behind the hardest. From the epoch `whole_from`
//! on nothing is left out, as the paper does in the last eighth. What was not delivered for `cover`
//! epochs is not left out; the paper has no such guard. Nothing is weighted, so a model trains on
//! another distribution than the dataset's.

use shade_formats::SampleId;

use super::draw::{Draw, Weights};
use crate::importance::loss_of;
use crate::plan::inputs::Inputs;

const GROUPS: usize = 5;
/// Tenths of the groups that an epoch has.
const WINDOW_TENTHS: usize = 6;
/// Most steps of k-means. In one dimension some ten are enough.
const STEPS_MAX: usize = 100;

/// Leaves all out but the groups of the window.
pub(super) fn seta<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let whole_from = inputs.spec.whole_from;
    let losses = known_losses(inputs.scores());
    if losses.is_empty() || whole_from > 0 && inputs.epoch >= whole_from {
        return Draw::permutation(inputs.samples());
    }
    let ends = ends_of_groups(&losses);
    let window = (ends.len() * WINDOW_TENTHS).div_ceil(10);
    let first = inputs.epoch as usize % (ends.len() - window + 1);
    let group = |loss: f64| ends.partition_point(|&end| end < loss);
    let is_taken = |(id, &loss): (u32, &f64)| {
        (first..first + window).contains(&group(loss)) || inputs.is_forgotten(SampleId(id))
    };
    let counts = (0..).zip(&losses).map(|of_sample| u32::from(is_taken(of_sample))).collect();
    Draw::new(counts, Weights::One)
}

/// The loss of each sample. One that is not known is as hard as the hardest that is. None if none
/// is known.
fn known_losses(scores: &[f32]) -> Vec<f64> {
    let losses = || scores.iter().map(|&score| loss_of(score));
    let known = losses().filter(|loss| loss.is_finite()).max_by(f64::total_cmp);
    known.map_or_else(Vec::new, |hardest| losses().map(|loss| loss.min(hardest)).collect())
}

/// The greatest loss of each group, ascending; groups without a sample are not among them.
fn ends_of_groups(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut before = 0.0;
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(sorted.iter().map(|loss| {
            before += loss;
            before
        }))
        .collect();
    // Where each group begins in the sorted losses; at first they are of one size.
    let mut starts: Vec<usize> = (0..=GROUPS).map(|group| group * sorted.len() / GROUPS).collect();
    for _ in 0..STEPS_MAX {
        let mean = |group: &[usize]| match group {
            &[start, end] if start < end => Some((sums.get(end)? - sums.get(start)?) / (end - start) as f64),
            _ => None,
        };
        let means: Vec<f64> = starts.windows(2).filter_map(mean).collect();
        let between = means.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0);
        let ends = between.map(|between| sorted.partition_point(|&loss| loss < between));
        let moved: Vec<usize> = std::iter::once(0).chain(ends).chain([sorted.len()]).collect();
        if moved == starts {
            break;
        }
        starts = moved;
    }
    let end = |group: &[usize]| match group {
        &[start, end] if start < end => sorted.get(end - 1).copied(),
        _ => None,
    };
    starts.windows(2).filter_map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_k_means() {
        let far_apart = [10.1, 0.0, 20.0, 30.2, 0.1, 40.0, 10.0, 30.0, 20.5, 40.1, 10.2];
        assert_eq!(ends_of_groups(&far_apart), [0.1, 10.2, 20.5, 30.2, 40.1]);
        assert_eq!(ends_of_groups(&[1.0; 7]), [1.0], "equal losses are one group");
        assert_eq!(ends_of_groups(&[2.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]), [1.0, 2.0]);
        assert_eq!(ends_of_groups(&[3.0]), [3.0]);
        assert_eq!(ends_of_groups(&[4.0, 3.0]), [3.0, 4.0]);
    }

    #[test]
    fn what_is_not_known_is_as_hard_as_the_hardest() {
        use crate::importance::score_of_loss;
        let scores = [1.0, 8.0, f64::INFINITY].map(score_of_loss);
        let losses = known_losses(&scores);
        assert!((losses[0] - 1.0).abs() < 1e-3 && (losses[1] - 8.0).abs() < 1e-3 && losses[2] == losses[1]);
        assert!(known_losses(&[score_of_loss(f64::NAN)]).is_empty());
    }
}
