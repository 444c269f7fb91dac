//! Runs the stages: from score table, residency and parameters to the list of samples of one epoch.

use serde::Serialize;
use shade_formats::SampleId;
use shade_formats::control::{Order, PlanSpec, Sampler};

use super::inputs::{Inputs, SampleFacts};
use super::orders::{as_drawn, in_order};
use super::pace::pace;
use super::random::Stage;
use super::samplers::{Draw, Weights, draw};

/// All samples of one epoch in the order of delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which epoch, counted from 0.
    pub epoch: u32,
    /// The sample at each position; as many as the dataset has, or fewer with `iis` and
    /// `infobatch`.
    pub ids: Vec<SampleId>,
    /// The loss weight at each position: 1/λ, which is 1 in a permutation; 0 for what is not to be
    /// trained on. A position without one has 1.
    pub weights: Vec<f32>,
    /// Figures of the plan.
    pub summary: PlanSummary,
}

/// Figures of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

/// The parameters in force. A sampler that goes by importance is replaced by a permutation unless a
/// loss was `reported` in the epoch that has just ended: draws with replacement from equal scores
/// would leave a third of the samples out for nothing.
#[must_use]
pub fn spec_now(spec: &PlanSpec, reported: bool) -> PlanSpec {
    if spec.sampler.is_by_importance() && !reported {
        PlanSpec { sampler: Sampler::Uniform, ..*spec }
    } else {
        *spec
    }
}

/// Draws the plan of `epoch` for the samples that `facts` describe; empty if there are none.
///
/// `resident` says which samples are in the cache. `rep_now` is the replication factor in force,
/// see [`rep_now`](super::rep_now). `batch_size` is that of one rank. `spec` is taken as validated,
/// see [`spec_now`]; a parameter out of its range is clamped.
#[must_use]
pub fn draw_plan<'a>(
    spec: &PlanSpec,
    epoch: u32,
    batch_size: u32,
    facts: impl Into<SampleFacts<'a>>,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
) -> Plan {
    draw_from(&Inputs::new(spec, epoch, batch_size, facts.into(), &resident, rep_now, &[]))
}

/// Draws the plan after `current` before anything of `current` was delivered: as [`draw_plan`], but
/// its samples do not count as forgotten.
#[must_use]
pub fn draw_next_plan<'a>(
    spec: &PlanSpec,
    current: &Plan,
    batch_size: u32,
    facts: impl Into<SampleFacts<'a>>,
    resident: impl Fn(SampleId) -> bool,
    rep_now: f64,
) -> Plan {
    let epoch = current.epoch.wrapping_add(1);
    draw_from(&Inputs::new(spec, epoch, batch_size, facts.into(), &resident, rep_now, &current.ids))
}

/// Runs the stages.
fn draw_from<'a>(inputs: &'a Inputs<'a>) -> Plan {
    let Draw { counts, weights, sequence, order, keeps_order, hit_cap_withheld, covered } = draw(inputs);
    let repeat_max = counts.iter().copied().max().unwrap_or(0);
    let distinct = u32::try_from(counts.iter().filter(|&&count| count > 0).count()).unwrap_or(u32::MAX);
    let summary = PlanSummary { distinct, repeat_max, hit_cap_withheld, covered };
    let ids = if keeps_order {
        as_numbered(&counts)
    } else {
        ordered(counts, sequence, order.unwrap_or(inputs.spec.order), inputs)
    };
    let weights = match weights {
        Weights::One => vec![1.0; ids.len()],
        Weights::BySample(by_sample) => {
            let by_sample = by_sample();
            ids.iter().map(|id| by_sample.get(id.index()).copied().unwrap_or(1.0)).collect()
        }
    };
    Plan { epoch: inputs.epoch, ids, weights, summary }
}

/// Each sample as often as `counts` says, in the order of the samples.
fn as_numbered(counts: &[u32]) -> Vec<SampleId> {
    let mut ids = Vec::with_capacity(counts.len());
    for (id, &count) in (0..).map(SampleId).zip(counts) {
        ids.extend(std::iter::repeat_n(id, count as usize));
    }
    ids
}

/// Each sample as often as `counts` says, in this order of delivery.
fn ordered(
    counts: Vec<u32>,
    sequence: Option<Vec<SampleId>>,
    order: Order,
    inputs: &Inputs<'_>,
) -> Vec<SampleId> {
    let mut ids = match sequence.filter(|_| order == Order::Shuffled) {
        Some(sequence) => as_drawn(sequence, inputs),
        None => in_order(counts, order, inputs),
    };
    if inputs.spec.pace {
        pace(&mut ids, inputs.residents(), inputs.batch_size, &mut inputs.random(Stage::Pace));
    }
    ids
}
