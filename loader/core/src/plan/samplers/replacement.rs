//! The sampler `replacement`: as many draws as the dataset has samples, each sample equally likely
//! in each.
//!
//! An epoch has 63.2 % of the samples, some more than once, so it hits as often as `pads`, without
//! any loss. It is there to tell apart what repeats do and what importance does. The guard `cover`
//! applies. Every sample is expected once, so the weights are 1.

use super::cover::cover;
use super::draw::{Draw, Weights};
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Draws uniformly, with replacement.
pub(super) fn replacement<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let samples = inputs.samples() as usize;
    let mut counts = vec![0; samples];
    let mut random = inputs.random(Stage::Draw);
    for _ in 0..samples {
        if let Some(count) = counts.get_mut(random.position(samples)) {
            *count += 1;
        }
    }
    let is_forgotten = |id| inputs.is_forgotten(id);
    let covered = cover(&mut counts, is_forgotten, &mut inputs.random(Stage::Cover));
    Draw { covered, ..Draw::new(counts, Weights::One) }
}
