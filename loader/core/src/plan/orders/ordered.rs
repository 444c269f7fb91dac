//! What an order gives: the draws of an epoch in the order of delivery, in one part or two.

use shade_formats::SampleId;

/// Draws in the order of delivery. Repeats of a sample may still be close.
pub(super) struct Ordered {
    pub(super) ids: Vec<SampleId>,
    /// Position at which the second part begins; 0 if there is one part only. A draw is never moved
    /// into the other part.
    pub(super) split: usize,
}

impl From<Vec<SampleId>> for Ordered {
    fn from(ids: Vec<SampleId>) -> Self {
        Self { ids, split: 0 }
    }
}
