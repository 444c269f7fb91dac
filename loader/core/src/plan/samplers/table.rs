//! The table of samplers.

use shade_formats::control::Sampler;

use super::draw::Draw;
use super::{echo, icache, infobatch, pads, replacement, uniform, weighted};
use crate::plan::inputs::Inputs;

/// One row.
struct SamplerRow {
    /// Draws an epoch.
    draw: for<'a> fn(&'a Inputs<'a>) -> Draw<'a>,
    /// Epochs may have fewer deliveries than the dataset has samples.
    leaves_out: bool,
}

fn row(sampler: Sampler) -> SamplerRow {
    match sampler {
        Sampler::Uniform => SamplerRow { draw: uniform::uniform, leaves_out: false },
        Sampler::Sequential => SamplerRow { draw: uniform::sequential, leaves_out: false },
        Sampler::Pads => SamplerRow { draw: pads::pads, leaves_out: false },
        Sampler::Iis => SamplerRow { draw: icache::iis, leaves_out: true },
        Sampler::Cis => SamplerRow { draw: icache::cis, leaves_out: false },
        Sampler::Replacement => SamplerRow { draw: replacement::replacement, leaves_out: false },
        Sampler::Echo => SamplerRow { draw: echo::echo, leaves_out: false },
        Sampler::Weighted | Sampler::Balanced => SamplerRow { draw: weighted::weighted, leaves_out: false },
        Sampler::Infobatch => SamplerRow { draw: infobatch::infobatch, leaves_out: true },
    }
}

/// Draws what the epoch trains on, with the sampler that is asked for.
pub(in crate::plan) fn draw<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    (row(inputs.spec.sampler).draw)(inputs)
}

/// Whether an epoch of `sampler` may have fewer deliveries than the dataset has samples.
#[must_use]
pub fn may_leave_out(sampler: Sampler) -> bool {
    row(sampler).leaves_out
}
