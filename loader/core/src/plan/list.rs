//! Draws what is drawn on its own: the samples of a stratum, or of a mixture's part.

use serde::Serialize;
use shade_formats::SampleId;
use shade_job::Order;

use super::inputs::Inputs;
use super::orders::{as_drawn, in_order};
use super::pace::pace;
use super::random::Stage;
use super::samplers::{Draw, Weights, draw, keeps_order};
use crate::number::to_u32;

/// Figures of a plan, or of a daemon's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl PlanSummary {
    /// Adds the figures of samples that are not among those before.
    pub(super) fn add(&mut self, other: Self) {
        let Self { distinct, repeat_max, hit_cap_withheld, covered } = other;
        self.distinct += distinct;
        self.repeat_max = self.repeat_max.max(repeat_max);
        self.hit_cap_withheld += hit_cap_withheld;
        self.covered += covered;
    }
}

/// Deliveries in their order: of a stratum, or of a pass of a mixture's part.
pub(super) struct List {
    pub(super) ids: Vec<SampleId>,
    pub(super) weights: Vec<f32>,
    pub(super) summary: PlanSummary,
}

/// Runs the stages over samples that are drawn with one another.
pub(super) fn draw_list<'a>(inputs: &'a Inputs<'a>) -> List {
    let Draw { counts, weights, sequence, order, hit_cap_withheld, covered } = draw(inputs);
    let repeat_max = counts.iter().copied().max().unwrap_or(0);
    let distinct = to_u32(counts.iter().filter(|&&count| count > 0).count());
    let summary = PlanSummary { distinct, repeat_max, hit_cap_withheld, covered };
    let numbers = if keeps_order(inputs.spec.sampler) {
        as_numbered(&counts)
    } else {
        ordered(counts, sequence, order.unwrap_or(inputs.spec.order), inputs)
    };
    let weights = match weights {
        Weights::One => vec![1.0; numbers.len()],
        Weights::BySample(by_sample) => {
            let by_sample = by_sample();
            numbers.iter().map(|number| by_sample.get(number.index()).copied().unwrap_or(1.0)).collect()
        }
    };
    List { ids: inputs.as_samples(numbers), weights, summary }
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
        let repeats_stay = order == Order::Spaced;
        let random = &mut inputs.random(Stage::Pace);
        pace(&mut ids, inputs.residents(), repeats_stay, inputs.batch_size, random);
    }
    ids
}
