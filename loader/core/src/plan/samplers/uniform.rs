//! The samplers that deliver each sample once: `uniform`, a permutation, and `sequential`, the
//! samples as they are numbered. They draw alike; `table` says that one of them keeps its order.

use super::draw::Draw;
use crate::plan::inputs::Inputs;

/// Each sample once. The order makes it a permutation, unless it is kept.
pub(super) fn uniform<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    Draw::permutation(inputs.samples())
}
