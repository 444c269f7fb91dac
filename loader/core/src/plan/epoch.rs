//! Runs the stages: from score table, residency and parameters to the list of samples of one epoch.
//!
//! Each stratum is drawn on its own. Row t of a plan, its positions tP to tP + P - 1, has the t-th
//! sample of each stratum's list, in the order of the seats. A daemon draws the strata of its own
//! ranks, so that memory and time go by its share of the dataset. One after the other: the core has
//! one thread.

use shade_formats::SampleId;
use shade_formats::checksum::crc32c_append;
use shade_job::{PlanSpec, Sampler};

use super::buckets::by_buckets;
use super::inputs::{EpochInputs, Inputs, SampleFacts};
use super::list::{List, PlanSummary, draw_list};
use super::mixture::draw_mixture;
use super::part::Part;
use crate::number::to_u32;

/// The samples of one epoch in the order of delivery: all of them, or those of a daemon's ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which epoch, counted from 0.
    pub epoch: u32,
    /// Whose samples these are.
    pub part: Part,
    /// The sample at each place. All daemons together have as many as the dataset, or fewer with
    /// `iis`, `infobatch` and `seta`; those of a mixture have as many as an epoch of it is long.
    pub ids: Vec<SampleId>,
    /// The loss weight at each place: 1/λ, which is 1 in a permutation; 0 for what is not to be
    /// trained on. A place without one has 1.
    pub weights: Vec<f32>,
    /// Figures of the plan.
    pub summary: PlanSummary,
}

impl Plan {
    /// Number of positions of the whole plan, of a dataset of `samples` samples. Nobody plans a
    /// shorter epoch where there are several nodes.
    pub(crate) fn len_of_all(&self, samples: u32) -> u32 {
        if self.part.is_whole() { to_u32(self.ids.len()) } else { samples }
    }

    /// The seats of its strata, and the CRC32C of each one's list: of its ids, then of its weights.
    pub(crate) fn lists(&self, strata: u32) -> Vec<(u32, u32)> {
        let seats = self.part.seats(strata);
        let crc = |at: usize| {
            let ids = self.ids.iter().skip(at).step_by(seats.len());
            let weights = self.weights.iter().skip(at).step_by(seats.len());
            let bytes = ids.map(|id| id.0.to_le_bytes()).chain(weights.map(|weight| weight.to_le_bytes()));
            bytes.fold(0, |crc, bytes| crc32c_append(crc, &bytes))
        };
        seats.iter().enumerate().map(|(at, &seat)| (seat, crc(at))).collect()
    }

    /// Puts the samples of a part in its places of this whole plan.
    pub(crate) fn replace(&mut self, part: &Self) {
        let rows = (0..).zip(self.ids.iter_mut().zip(&mut self.weights));
        let places = rows.filter(|&(position, _)| part.part.place(position).is_some());
        for ((_, (to_id, to_weight)), (id, weight)) in places.zip(part.ids.iter().zip(&part.weights)) {
            (*to_id, *to_weight) = (*id, *weight);
        }
    }

    /// Whether `part` is a part of this whole plan.
    pub(crate) fn has(&self, part: &Self) -> bool {
        let rows = (0..).zip(self.ids.iter().zip(&self.weights));
        let rows = rows.filter(|&(position, _)| part.part.place(position).is_some()).map(|(_, row)| row);
        rows.eq(part.ids.iter().zip(&part.weights))
    }
}

/// The parameters in force. A sampler that goes by importance is replaced by a permutation unless a
/// loss was `reported` in the epoch that has just ended: draws with replacement from equal scores
/// would leave a third of the samples out for nothing.
#[must_use]
pub fn spec_now(spec: &PlanSpec, reported: bool) -> PlanSpec {
    let now = |sampler: Sampler| match sampler.is_by_importance() && !reported {
        true => Sampler::Uniform,
        false => sampler,
    };
    PlanSpec { sampler: now(spec.sampler), parts: spec.parts.with_samplers(now), ..*spec }
}

/// Draws the plan of `epoch`, or the part of it that `facts` ask for. It is empty without samples.
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
    let (facts, planned) = (facts.into(), Vec::new());
    draw_from(&EpochInputs { spec, epoch, batch_size, facts, rep_now, is_resident: &resident, planned })
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
    let (epoch, facts) = (current.epoch.wrapping_add(1), facts.into());
    let mut planned = vec![false; facts.importance.len() as usize];
    for id in &current.ids {
        planned.get_mut(id.index()).into_iter().for_each(|slot| *slot = true);
    }
    draw_from(&EpochInputs { spec, epoch, batch_size, facts, rep_now, is_resident: &resident, planned })
}

/// Draws the lists of all strata that are asked for, and deals them over the rows.
fn draw_from(all: &EpochInputs<'_>) -> Plan {
    let (epoch, part) = (all.epoch, all.facts.part.clone());
    if !all.spec.parts.is_empty() {
        assert!(part.is_whole(), "every node draws all of a mixture");
        let List { ids, weights, summary } = draw_mixture(all);
        return Plan { epoch, part, ids, weights, summary };
    }
    let SampleFacts { strata, seats: order, .. } = &all.facts;
    let seats = part.seats(strata.count());
    if let [seat] = seats[..] {
        let list = draw_list(&Inputs::new(all, order.stratum(seat)));
        let List { ids, weights, summary } = by_buckets(list, all);
        return Plan { epoch, part, ids, weights, summary };
    }
    assert!(all.facts.buckets.is_empty(), "a plan with buckets has one stratum");
    let places = seats.iter().map(|&seat| strata.len(seat) as usize).sum();
    let (mut ids, mut weights) = (vec![SampleId::default(); places], vec![1.0; places]);
    let mut summary = PlanSummary::default();
    for (at, &seat) in seats.iter().enumerate() {
        let list = draw_list(&Inputs::new(all, order.stratum(seat)));
        summary.add(list.summary);
        let places = (at..).step_by(seats.len());
        for ((place, id), weight) in places.zip(list.ids).zip(list.weights) {
            // A list is as long as its stratum.
            if let (Some(to), Some(of)) = (ids.get_mut(place), weights.get_mut(place)) {
                (*to, *of) = (id, weight);
            }
        }
    }
    Plan { epoch, part, ids, weights, summary }
}
