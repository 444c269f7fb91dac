//! The table of samplers.

use shade_job::Sampler;

use super::draw::Draw;
use super::{echo, icache, infobatch, pads, replacement, seta, uniform, weighted};
use crate::plan::inputs::Inputs;

/// One row.
struct SamplerRow {
    /// Draws an epoch.
    draw: for<'a> fn(&'a Inputs<'a>) -> Draw<'a>,
    /// Epochs may have fewer deliveries than the dataset has samples.
    leaves_out: bool,
    /// Samples are delivered as they are numbered: nothing may change their order.
    keeps_order: bool,
}

/// A sampler with epochs of the dataset's length, in the order that the job asks for.
const USUAL: SamplerRow = SamplerRow { draw: uniform::uniform, leaves_out: false, keeps_order: false };

fn row(sampler: Sampler) -> SamplerRow {
    match sampler {
        Sampler::Uniform => USUAL,
        Sampler::Sequential => SamplerRow { keeps_order: true, ..USUAL },
        Sampler::Pads => SamplerRow { draw: pads::pads, ..USUAL },
        Sampler::Iis => SamplerRow { draw: icache::iis, leaves_out: true, ..USUAL },
        Sampler::Cis => SamplerRow { draw: icache::cis, ..USUAL },
        Sampler::Replacement => SamplerRow { draw: replacement::replacement, ..USUAL },
        Sampler::Echo => SamplerRow { draw: echo::echo, ..USUAL },
        Sampler::Weighted | Sampler::Balanced => SamplerRow { draw: weighted::weighted, ..USUAL },
        Sampler::Infobatch => SamplerRow { draw: infobatch::infobatch, leaves_out: true, ..USUAL },
        Sampler::Seta => SamplerRow { draw: seta::seta, leaves_out: true, ..USUAL },
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

/// Whether epochs of `sampler` have the samples as they are numbered. No order, no pacing and no
/// exchange applies.
#[must_use]
pub(in crate::plan) fn keeps_order(sampler: Sampler) -> bool {
    row(sampler).keeps_order
}
