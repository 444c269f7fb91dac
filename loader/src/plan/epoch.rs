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
use super::pace::pace;
use super::random::{Random, Stage};
use super::replicate::{Replicated, replicate};
use super::selection::select;
use crate::importance::Importance;

/// All samples of one epoch in the order of delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which epoch, counted from 0.
    pub epoch: u32,
    /// The sample at each position; as many as the dataset has, or fewer with `iis`.
    pub ids: Vec<SampleId>,
    /// The loss weight at each position: 1/λ, which is 1 in a permutation; 0 for what is not to be trained on. A position
    /// without one has 1.
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

/// The parameters in force: those of a permutation unless a loss was `reported` in the epoch that has just ended, whatever the
/// sampler. Draws with replacement from equal scores would leave a third of the samples out for nothing.
#[must_use]
pub fn spec_now(spec: &PlanSpec, reported: bool) -> PlanSpec {
    if spec.sampler.is_by_importance() && !reported {
        PlanSpec { sampler: Sampler::Uniform, ..*spec }
    } else {
        *spec
    }
}

/// Draws the plan of `epoch` for a dataset of `importance.len()` samples; empty if there are none.
///
/// `sequential`: the samples as they are. `uniform`, and epoch 0 of `pads`: a permutation, whatever `rep` says. Otherwise `pads` with the factor `rep_now` (see
/// [`rep_now`](super::rep_now)) on the samples that `resident` says are in the cache. A plan of `iis` can be shorter than the
/// dataset. `batch_size` is that of one rank. `spec` is taken as validated, see [`spec_now`]; a parameter out of its range is clamped.
#[must_use]
pub fn draw_plan(
    spec: &PlanSpec,
    epoch: u32,
    batch_size: u32,
    importance: &Importance,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
) -> Plan {
    draw(spec, epoch, batch_size, importance, resident, rep_now, &[])
}

/// Draws the plan after `current` before anything of `current` was delivered: as [`draw_plan`], but its samples do not count as
/// forgotten.
#[must_use]
pub fn draw_next_plan(
    spec: &PlanSpec,
    current: &Plan,
    batch_size: u32,
    importance: &Importance,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
) -> Plan {
    let mut planned = vec![false; importance.len() as usize];
    for id in &current.ids {
        if let Some(slot) = planned.get_mut(id.index()) {
            *slot = true;
        }
    }
    draw(spec, current.epoch.wrapping_add(1), batch_size, importance, resident, rep_now, &planned)
}

/// `planned` says by sample which are to be delivered before; nothing is where it is too short.
fn draw(
    spec: &PlanSpec,
    epoch: u32,
    batch_size: u32,
    importance: &Importance,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
    planned: &[bool],
) -> Plan {
    let forgotten = |id: SampleId| {
        planned.get(id.index()) != Some(&true) && importance.is_forgotten(id, epoch, spec.cover)
    };
    let random = |stage| Random::new(spec.seed, epoch, stage);
    let replicates = spec.sampler == Sampler::Pads && epoch > 0 && rep_now > 1.0;
    let resident: Vec<bool> = if replicates || asks_for_residents(spec) {
        (0..importance.len()).map(SampleId).map(resident).collect()
    } else {
        Vec::new()
    };
    let mut summary = PlanSummary::default();
    let permutation = || vec![1; importance.len() as usize];
    let (counts, weights) = match spec.sampler {
        Sampler::Uniform | Sampler::Sequential => (permutation(), Weights::One),
        Sampler::Pads if epoch == 0 => (permutation(), Weights::One),
        Sampler::Pads => {
            let chances = Chances::new(importance, spec.explore);
            let mut counts = chances.draw(&mut random(Stage::Draw));
            let mut replicated = Replicated::NONE;
            if replicates {
                let mut random = random(Stage::Replicate);
                replicated = replicate(&mut counts, &resident, rep_now, spec.hit_cap, &mut random);
            }
            summary.hit_cap_withheld = replicated.withheld;
            summary.covered = cover(&mut counts, forgotten, &mut random(Stage::Cover));
            (counts, Weights::Drawn(chances, replicated))
        }
        Sampler::Iis => {
            let selection = select(importance, epoch, forgotten, &mut random(Stage::Draw));
            let weights = selection.chances.iter().map(|&chance| reciprocal(f64::from(chance))).collect();
            (selection.taken.into_iter().map(u32::from).collect(), Weights::BySample(weights))
        }
        Sampler::Cis => {
            let selection = select(importance, epoch, forgotten, &mut random(Stage::Draw));
            let weight =
                |(&taken, &chance): (&bool, &f32)| if taken { reciprocal(f64::from(chance)) } else { 0.0 };
            let weights = selection.taken.iter().zip(&selection.chances).map(weight).collect();
            (permutation(), Weights::BySample(weights))
        }
    };
    summary.repeat_max = counts.iter().copied().max().unwrap_or(0);
    summary.distinct = u32::try_from(counts.iter().filter(|&&count| count > 0).count()).unwrap_or(u32::MAX);
    let batch_size = batch_size.max(1) as usize;
    let cached = if asks_for_residents(spec) { resident.as_slice() } else { &[] };
    let ids = if spec.sampler == Sampler::Sequential {
        (0..importance.len()).map(SampleId).collect()
    } else {
        let mut ids = in_order(counts, spec.order, cached, batch_size, random);
        if spec.pace {
            pace(&mut ids, &resident, batch_size, &mut random(Stage::Pace));
        }
        ids
    };
    let by_sample = match weights {
        Weights::One => None,
        Weights::BySample(weights) => Some(weights),
        // Only now: until here it would be memory for nothing.
        Weights::Drawn(chances, replicated) => Some(draw_weights(&chances, &replicated, &resident)),
    };
    let weights = by_sample.map_or_else(
        || vec![1.0; ids.len()],
        |weights| ids.iter().map(|id| weights.get(id.index()).copied().unwrap_or(1.0)).collect(),
    );
    Plan { epoch, ids, weights, summary }
}

/// Whether the order depends on what is resident when the plan is drawn.
fn asks_for_residents(spec: &PlanSpec) -> bool {
    matches!(spec.order, Order::HitsFirst | Order::Opportunistic) || spec.pace
}

/// The loss weights of a plan.
enum Weights<'a> {
    /// Those of a permutation.
    One,
    /// By sample.
    BySample(Vec<f32>),
    /// 1/λ of what was drawn, and then replicated.
    Drawn(Chances<'a>, Replicated),
}

/// 1/λ by sample.
fn draw_weights(chances: &Chances<'_>, replicated: &Replicated, resident: &[bool]) -> Vec<f32> {
    let residents = resident.iter().copied().chain(std::iter::repeat(false));
    let uses = chances.expected_uses().zip(residents);
    uses.map(|(uses, is_resident)| reciprocal(uses * replicated.factor(is_resident))).collect()
}

/// 1 where the sample was not expected at all: only `cover` can have put it in.
#[expect(clippy::cast_possible_truncation, reason = "weights are f32 in a batch")]
fn reciprocal(expected_uses: f64) -> f32 {
    if expected_uses > 0.0 { (1.0 / expected_uses) as f32 } else { 1.0 }
}
