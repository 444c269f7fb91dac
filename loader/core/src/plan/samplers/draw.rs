//! What a sampler gives: how often each sample is delivered, and its loss weights.

use shade_formats::SampleId;
use shade_job::Order;

/// What an epoch trains on.
pub(in crate::plan) struct Draw<'a> {
    /// How often each sample is delivered, by sample. The sum is the epoch's length.
    pub(in crate::plan) counts: Vec<u32>,
    pub(in crate::plan) weights: Weights<'a>,
    /// The deliveries in their order, if the sampler drew them in one.
    pub(in crate::plan) sequence: Option<Vec<SampleId>>,
    /// The order that belongs to the sampler, whatever the job asks for.
    pub(in crate::plan) order: Option<Order>,
    /// Copies of resident samples that the `hit_cap` guard withheld.
    pub(in crate::plan) hit_cap_withheld: u32,
    /// Samples that the `cover` guard put in.
    pub(in crate::plan) covered: u32,
}

/// The loss weights of an epoch.
pub(in crate::plan) enum Weights<'a> {
    /// 1 for every sample.
    One,
    /// By sample. Made when the order is done: before that they would be memory for nothing.
    BySample(Box<dyn FnOnce() -> Vec<f32> + 'a>),
}

impl<'a> Draw<'a> {
    /// A draw for the order that was asked for, without guards.
    pub(super) fn new(counts: Vec<u32>, weights: Weights<'a>) -> Self {
        Self { counts, weights, sequence: None, order: None, hit_cap_withheld: 0, covered: 0 }
    }

    /// Each of `samples` samples once.
    pub(super) fn permutation(samples: u32) -> Self {
        Self::new(vec![1; samples as usize], Weights::One)
    }
}

/// 1/λ, the weight of a sample that is expected λ times in the epoch. It is 1 where the sample was
/// not expected at all: then only `cover` can have put it in.
#[expect(clippy::cast_possible_truncation, reason = "weights are f32 in a batch")]
pub(super) fn weight(expected_uses: f64) -> f32 {
    if expected_uses > 0.0 { (1.0 / expected_uses) as f32 } else { 1.0 }
}
