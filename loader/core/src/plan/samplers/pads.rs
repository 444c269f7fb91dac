//! The sampler `pads` (SHADE's PADS): draws with replacement, by importance.
//!
//! The first epoch is a permutation: no loss is known yet. After it, an epoch has as many draws as
//! the dataset has samples. Then `replicate` multiplies the draws of residents, if that is asked
//! for, and `cover` puts in what was not delivered for long.
//!
//! A position of sample i has weight 1/λᵢ. λᵢ is how often the sample is expected in the epoch: N·p
//! of the draw, times what replication did to its class (resident or not). A loss weighted by it
//! has the mean of a plain pass over the dataset. `cover` is not corrected for: it adds at most one
//! delivery of a sample in that many epochs, and its weight is that of a draw.

use shade_formats::SampleId;

use super::chances::Chances;
use super::cover::{cover, cover_in_place};
use super::draw::{Draw, Weights, weight};
use super::replicate::{Replicated, replicate};
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Draws by importance.
pub(super) fn pads<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    if inputs.epoch == 0 {
        return Draw::permutation(inputs.samples());
    }
    let chances = Chances::new(inputs.scores(), inputs.spec.explore);
    let mut sequence = inputs.is_coupled().then(|| chances.draw_coupled(&mut inputs.random(Stage::Couple)));
    let mut counts = match &sequence {
        Some(ids) => counts_of(ids, inputs.samples()),
        None => chances.draw(&mut inputs.random(Stage::Draw)),
    };
    let mut replicated = Replicated::NONE;
    let mut residents: &[bool] = &[];
    if inputs.rep_now > 1.0 {
        residents = inputs.residents();
        let mut random = inputs.random(Stage::Replicate);
        replicated = replicate(&mut counts, residents, inputs.rep_now, inputs.spec.hit_cap, &mut random);
    }
    let is_forgotten = |id| inputs.is_forgotten(id);
    let covered = cover(&mut counts, is_forgotten, &mut inputs.random(Stage::Cover));
    if let Some(ids) = &mut sequence {
        cover_in_place(ids, &counts, &mut inputs.random(Stage::CoverPlace));
    }
    let weights = move || {
        let residents = residents.iter().copied().chain(std::iter::repeat(false));
        let uses = chances.expected_uses().zip(residents);
        uses.map(|(uses, is_resident)| weight(uses * replicated.factor(is_resident))).collect()
    };
    let hit_cap_withheld = replicated.withheld;
    Draw { sequence, hit_cap_withheld, covered, ..Draw::new(counts, Weights::BySample(Box::new(weights))) }
}

/// How often each sample occurs.
fn counts_of(ids: &[SampleId], samples: u32) -> Vec<u32> {
    let mut counts = vec![0; samples as usize];
    for id in ids {
        if let Some(count) = counts.get_mut(id.index()) {
            *count += 1;
        }
    }
    counts
}
