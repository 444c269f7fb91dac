//! CPU time to draw an epoch's plan: by importance, as a permutation, and one node's part of it.

use shade_core::importance::Importance;
use shade_core::plan::{Part, SampleFacts, Strata, draw_plan};
use shade_formats::SampleId;
use shade_job::{PlanSpec, Sampler, strata_for};

use crate::cpu_time::timed;
use crate::figure::{Figure, Unit};

/// ImageNet's number.
pub(crate) const SAMPLES: u32 = 1_280_000;
pub(crate) const SAMPLES_LARGE: u32 = 100_000_000;
const BATCH_SIZE: u32 = 256;
/// Nodes, and the ranks of each, of a plan that is drawn in parts.
const NODES: u32 = 8;
const RANKS_PER_NODE: u32 = 8;
/// What a node's part may take of the time of the whole plan: little more than its share of it.
const PART_TIMES: f64 = 1.0 / 6.0;

/// The plans of a dataset of usual size, in turn.
pub(crate) fn run() -> Vec<Figure> {
    let importance = scores(SAMPLES);
    let (mut pads, mut uniform, mut whole, mut part) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=5 {
        pads.push(ms(Sampler::Pads, seed, &importance));
        uniform.push(ms(Sampler::Uniform, seed, &importance));
        whole.push(ms_by_strata(seed, &importance, &Part::WHOLE));
        part.push(ms_by_strata(seed, &importance, &first_node()));
    }
    let whole = Figure::new("plan, pads by strata, 1.28 million samples", Unit::Ms, whole);
    let part = Figure::new("plan, pads by strata, one of 8 nodes of 1.28 million samples", Unit::Ms, part);
    vec![
        Figure::new("plan, pads, 1.28 million samples", Unit::Ms, pads).with_budget(150.0),
        Figure::new("plan, uniform, 1.28 million samples", Unit::Ms, uniform),
        part.within(PART_TIMES, &whole),
        whole,
    ]
}

/// The plan of a dataset whose tables fit no CPU's cache.
pub(crate) fn run_large() -> Vec<Figure> {
    let importance = scores(SAMPLES_LARGE);
    let pads = (1..=3).map(|seed| ms(Sampler::Pads, seed, &importance)).collect();
    let part = (1..=3).map(|seed| ms_by_strata(seed, &importance, &first_node())).collect();
    vec![
        Figure::new("plan, pads, 100 million samples", Unit::Ms, pads).with_budget(15_000.0),
        Figure::new("plan, pads by strata, one of 8 nodes of 100 million samples", Unit::Ms, part)
            .with_budget(2_000.0),
    ]
}

/// CPU time for the epoch after the first.
fn ms(sampler: Sampler, seed: u64, importance: &Importance) -> f64 {
    let spec = PlanSpec { sampler, seed, ..PlanSpec::default() };
    let (time, plan) = timed(|| draw_plan(&spec, 1, BATCH_SIZE, importance, |_| false, 1.0));
    drop(plan);
    time.as_secs_f64() * 1e3
}

/// CPU time for a part of that epoch, drawn by as many strata as 8 nodes have.
fn ms_by_strata(seed: u64, importance: &Importance, part: &Part) -> f64 {
    let strata = strata_for(RANKS_PER_NODE, NODES, importance.len());
    let spec = PlanSpec { sampler: Sampler::Pads, seed, strata, ..PlanSpec::default() };
    let Ok(strata) = Strata::new(importance.len(), strata, 7) else { return f64::NAN };
    let facts = SampleFacts { strata, part, ..importance.into() };
    let (time, plan) = timed(|| draw_plan(&spec, 1, BATCH_SIZE, facts, |_| false, 1.0));
    drop(plan);
    time.as_secs_f64() * 1e3
}

/// The part of a plan that belongs to the ranks of the first node.
fn first_node() -> Part {
    Part::of((0..RANKS_PER_NODE).collect(), RANKS_PER_NODE * NODES)
}

/// A table as after the first epoch: all delivered, scores of all sizes in no order.
fn scores(samples: u32) -> Importance {
    let mut importance = Importance::new(samples);
    for id in 0..samples {
        let place = u64::from(id) * 7919 % u64::from(samples);
        importance.set_score(SampleId(id), 2.25 + 2.04 * place as f32 / samples as f32);
        importance.record_delivery(SampleId(id), 0);
    }
    importance
}
