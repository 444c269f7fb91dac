//! Accesses that are known before they are simulated: a list, a recording, or what a training drew
//! before.

use std::borrow::Cow;
use std::ops::Range;

use shade_formats::SampleId;

use crate::outcome::Repeats;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Script<'a> {
    pub(super) accesses: Cow<'a, [SampleId]>,
    /// The loss of each, NaN where there is none; empty if there are none at all.
    pub(super) losses: &'a [f32],
    /// By batch: how many batches were opened, from the beginning on, when its last read was back.
    /// Empty if that is not known.
    pub(super) back: &'a [u32],
    pub(super) epochs: Cow<'a, [Epoch]>,
}

/// An epoch of accesses that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) accesses: Range<usize>,
    /// Its first batch, among all.
    pub(super) first_batch: usize,
    pub(super) repeats: Repeats,
    /// Another training begins with it.
    pub(super) begins_job: bool,
}
