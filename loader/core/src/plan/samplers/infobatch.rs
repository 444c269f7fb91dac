//! The sampler `infobatch` (Qin et al., ICLR 2024): a share of the samples of low loss is left out.
//!
//! Among the samples whose last loss is below the mean of all last losses, the share `prune` is
//! left out, chosen anew for each epoch. The others of them have the weight that makes up for it,
//! 1/(1 - prune); all other samples have 1. So the weighted loss has the mean of a plain pass over
//! the dataset. From the epoch `whole_from` on nothing is left out: the paper trains the last 12.5
//! % of its epochs so. What was not delivered for `cover` epochs is not left out; the paper has no
//! such guard.
//!
//! Losses have a long tail, so more samples are below their mean than above it. Their ranks would
//! not tell: half of them are below the mean rank, whatever the losses are.

use shade_formats::SampleId;

use super::draw::{Draw, Weights, weight};
use crate::importance::loss_of;
use crate::plan::inputs::Inputs;
use crate::plan::random::{Select, Stage};

/// Leaves a share of the easy samples out.
pub(super) fn infobatch<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let whole_from = inputs.spec.whole_from;
    if whole_from > 0 && inputs.epoch >= whole_from {
        return Draw::permutation(inputs.samples());
    }
    let scores = inputs.scores();
    let mean = mean_loss(scores);
    let is_easy = |(id, &score): (u32, &f32)| loss_of(score) < mean && !inputs.is_forgotten(SampleId(id));
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

/// The mean of the losses that are known, added in the order of the samples; 0 if none is.
fn mean_loss(scores: &[f32]) -> f64 {
    let known = || scores.iter().map(|&score| loss_of(score)).filter(|loss| loss.is_finite());
    known().sum::<f64>() / known().count().max(1) as f64
}

/// `share` of `count`, rounded down; at most all but one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the count")]
fn share_of(count: u64, share: f64) -> u64 {
    ((count as f64 * share.clamp(0.0, 1.0)) as u64).min(count.saturating_sub(1))
}
