//! The sampler `infobatch` (Qin et al., ICLR 2024): a share of the samples of low loss is left out.
//!
//! Among the samples whose score is below the mean of all scores, the share `prune` is left out,
//! chosen anew for each epoch. The others of them have the weight that makes up for it, 1/(1 -
//! prune); all other samples have 1. So the weighted loss has the mean of a plain pass over the
//! dataset. From the epoch `whole_from` on nothing is left out: the paper trains the last 12.5 % of
//! its epochs so. What was not delivered for `cover` epochs is not left out.
//!
//! The paper's score is the loss itself; ours is its rank within the batch (see `importance`).

use shade_formats::SampleId;

use super::chances::quantise;
use super::draw::{Draw, Weights, weight};
use crate::plan::inputs::Inputs;
use crate::plan::random::{Select, Stage};

/// Leaves a share of the easy samples out.
pub(super) fn infobatch<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let whole_from = inputs.spec.whole_from;
    if whole_from > 0 && inputs.epoch >= whole_from {
        return Draw::permutation(inputs.samples());
    }
    let scores = inputs.scores();
    let sum: u64 = scores.iter().map(|&score| u64::from(quantise(score))).sum();
    // Compared by whole numbers: score < sum / N.
    let is_easy = |(id, &score): (u32, &f32)| {
        u64::from(quantise(score)) * (scores.len() as u64) < sum && !inputs.is_forgotten(SampleId(id))
    };
    let easy: Vec<bool> = (0..).zip(scores).map(is_easy).collect();
    let count = easy.iter().filter(|&&easy| easy).count() as u64;
    let kept = count - share_of(count, inputs.spec.prune);
    let mut select = Select::new(kept, count);
    let mut random = inputs.random(Stage::Draw);
    let counts = easy.iter().map(|&easy| if easy { select.next(1, &mut random) } else { 1 }).collect();
    let of_easy = weight(kept as f64 / count.max(1) as f64);
    let weights = move || easy.into_iter().map(|easy| if easy { of_easy } else { 1.0 }).collect();
    Draw::new(counts, Weights::BySample(Box::new(weights)))
}

/// `share` of `count`, rounded down; at most all but one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the count")]
fn share_of(count: u64, share: f64) -> u64 {
    ((count as f64 * share.clamp(0.0, 1.0)) as u64).min(count.saturating_sub(1))
}
