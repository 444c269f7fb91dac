//! CPU time to draw an epoch's plan: by importance, and as a permutation.

use shade_core::importance::Importance;
use shade_core::plan::draw_plan;
use shade_formats::SampleId;
use shade_formats::control::{PlanSpec, Sampler};

use crate::cpu_time::timed;
use crate::figure::{Figure, Unit};

/// ImageNet's number.
const SAMPLES: u32 = 1_280_000;
const SAMPLES_LARGE: u32 = 100_000_000;
const BATCH_SIZE: u32 = 256;

/// The plans of a dataset of usual size, in turn.
pub(crate) fn run() -> Vec<Figure> {
    let importance = scores(SAMPLES);
    let (mut pads, mut uniform) = (Vec::new(), Vec::new());
    for seed in 1..=5 {
        pads.push(ms(Sampler::Pads, seed, &importance));
        uniform.push(ms(Sampler::Uniform, seed, &importance));
    }
    vec![
        Figure::new("plan, pads, 1.28 million samples", Unit::Ms, pads).with_budget(150.0),
        Figure::new("plan, uniform, 1.28 million samples", Unit::Ms, uniform),
    ]
}

/// The plan of a dataset whose tables fit no CPU's cache.
pub(crate) fn run_large() -> Vec<Figure> {
    let importance = scores(SAMPLES_LARGE);
    let pads = (1..=3).map(|seed| ms(Sampler::Pads, seed, &importance)).collect();
    vec![Figure::new("plan, pads, 100 million samples", Unit::Ms, pads).with_budget(15_000.0)]
}

/// CPU time for the epoch after the first.
fn ms(sampler: Sampler, seed: u64, importance: &Importance) -> f64 {
    let spec = PlanSpec { sampler, seed, ..PlanSpec::default() };
    let (time, plan) = timed(|| draw_plan(&spec, 1, BATCH_SIZE, importance, |_| false, 1.0));
    drop(plan);
    time.as_secs_f64() * 1e3
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
