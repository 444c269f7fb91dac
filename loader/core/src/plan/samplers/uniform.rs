//! The samplers that deliver each sample once: `uniform`, a permutation, and `sequential`, the
//! samples as they are numbered.

use super::draw::Draw;
use crate::plan::inputs::Inputs;

/// Each sample once. The order makes it a permutation.
pub(super) fn uniform<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    Draw::permutation(inputs.samples())
}

/// Each sample once, in the order of the samples.
pub(super) fn sequential<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    Draw { keeps_order: true, ..uniform(inputs) }
}
