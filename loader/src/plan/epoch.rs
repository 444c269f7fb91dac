//! Runs the stages: from score table, residency and parameters to the list of samples of one epoch.
//!
//! Weights: a position of sample i carries 1/λᵢ, where λᵢ is how often the sample is expected in the epoch: N·p of the
//! draw, times what replication did to its class (resident or not). A loss weighted by it has the mean of a plain pass
//! over the dataset. A permutation has weights of 1. `cover` is not corrected for: it adds at most one delivery of a
//! sample in that many epochs, and its weight is that of a draw.

use shade_formats::SampleId;
use shade_formats::control::{Order, PlanSpec, Sampler};

use super::cover::cover;
use super::draw::Chances;
use super::order::in_order;
use super::random::{Random, Stage};
use super::replicate::{Replicated, replicate};
use crate::importance::Importance;

/// All samples of one epoch in the order of delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which epoch, counted from 0.
    pub epoch: u32,
    /// The sample at each position; as many as the dataset has.
    pub ids: Vec<SampleId>,
    /// The loss weight at each position: 1/λ, which is 1 in a permutation.
    pub weights: Vec<f32>,
    /// What is worth reporting about it.
    pub summary: PlanSummary,
}

/// What is worth reporting about a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSummary {
    /// Different samples in the plan.
    pub distinct: u32,
    /// Occurrences of the sample that occurs most often.
    pub repeat_max: u32,
    /// Copies of resident samples that the `hit_cap` guard withheld.
    pub hit_cap_withheld: u32,
    /// Samples that the `cover` guard put in.
    pub covered: u32,
}

/// Draws the plan of `epoch` for a dataset of `importance.len()` samples; empty if there are none.
///
/// `uniform`, and epoch 0 of `pads`: a permutation, whatever `rep` says. Otherwise `pads` with the factor `rep_now` (see
/// [`rep_now`](super::rep_now)) on the samples that `resident` says are in the cache. `batch_size` is that of one rank.
/// `spec` is taken as validated; a parameter out of its range is clamped.
#[must_use]
pub fn draw_plan(
    spec: &PlanSpec,
    epoch: u32,
    batch_size: u32,
    importance: &Importance,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
) -> Plan {
    let random = |stage| Random::new(spec.seed, epoch, stage);
    let permutation = spec.sampler == Sampler::Uniform || epoch == 0;
    let replicates = !permutation && rep_now > 1.0;
    let resident: Vec<bool> = if replicates || spec.order == Order::HitsFirst {
        (0..importance.len()).map(SampleId).map(resident).collect()
    } else {
        Vec::new()
    };
    let mut summary = PlanSummary::default();
    let mut replicated = Replicated::NONE;
    let chances = (!permutation).then(|| Chances::new(importance, spec.explore));
    let counts = match &chances {
        None => vec![1; importance.len() as usize],
        Some(chances) => {
            let mut counts = chances.draw(&mut random(Stage::Draw));
            if replicates {
                replicated =
                    replicate(&mut counts, &resident, rep_now, spec.hit_cap, &mut random(Stage::Replicate));
            }
            summary.covered = cover(&mut counts, importance, epoch, spec.cover, &mut random(Stage::Cover));
            counts
        }
    };
    summary.hit_cap_withheld = replicated.withheld;
    summary.repeat_max = counts.iter().copied().max().unwrap_or(0);
    summary.distinct = u32::try_from(counts.iter().filter(|&&count| count > 0).count()).unwrap_or(u32::MAX);
    let (mut shuffle, mut spread) = (random(Stage::Shuffle), random(Stage::Spread));
    let ids = in_order(&counts, spec.order, &resident, batch_size, &mut shuffle, &mut spread);
    let weights = match chances {
        None => vec![1.0; ids.len()],
        Some(chances) => weights(&chances, &replicated, &resident, &ids),
    };
    Plan { epoch, ids, weights, summary }
}

/// 1/λ at each position.
fn weights(chances: &Chances, replicated: &Replicated, resident: &[bool], ids: &[SampleId]) -> Vec<f32> {
    let residents = resident.iter().copied().chain(std::iter::repeat(false));
    let by_sample: Vec<f32> = chances
        .expected_uses()
        .zip(residents)
        .map(|(uses, resident)| {
            let factor = if resident { replicated.resident_factor } else { replicated.other_factor };
            reciprocal(uses * factor)
        })
        .collect();
    ids.iter().map(|id| by_sample.get(id.index()).copied().unwrap_or(1.0)).collect()
}

/// 1 where the sample was not expected at all: only `cover` can have put it in.
#[expect(clippy::cast_possible_truncation, reason = "weights are f32 in a batch")]
fn reciprocal(expected_uses: f64) -> f32 {
    if expected_uses > 0.0 { (1.0 / expected_uses) as f32 } else { 1.0 }
}
