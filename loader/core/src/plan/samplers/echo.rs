//! The sampler `echo` (data echoing, Choi et al. 2019): each sample that an epoch reads comes e
//! times in it.
//!
//! An epoch is as long as the dataset, so it reads N/e samples. Who is read rotates: the epochs go
//! through one permutation after another, each epoch where the one before it stopped. So the reads
//! of any two samples never differ by more than one, and every sample is expected equally often:
//! the weights are 1. Where e is no whole number, some samples come once more than others, chosen
//! at random. Repeats are some batches apart (the order `spaced`, whatever order the job asks for)
//! and augmented anew, since every position has a crop of its own.

use shade_job::Order;

use super::draw::{Draw, Weights};
use crate::plan::inputs::Inputs;
use crate::plan::random::{Select, Stage};

/// A factor of 1, in units of 2⁻¹⁶: from here on there are only whole numbers.
const ONE: u128 = 1 << 16;

/// Delivers e times what is read.
pub(super) fn echo<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let samples = u64::from(inputs.samples());
    let mut counts = vec![0; inputs.samples() as usize];
    let factor = quantised(inputs.spec.echo);
    let read_before = |epoch| u128::from(samples) * u128::from(epoch) * ONE / factor;
    let (start, end) = (read_before(u64::from(inputs.epoch)), read_before(u64::from(inputs.epoch) + 1));
    // A factor beyond the number of samples still reads one of them.
    let end = end.max(start + u128::from(samples.min(1)));
    let reads = u64::try_from(end - start).unwrap_or(u64::MAX);
    let (times, more) = (samples.checked_div(reads).unwrap_or(0), samples.checked_rem(reads).unwrap_or(0));
    let mut extra = Select::new(more, reads);
    let mut random = inputs.random(Stage::Draw);
    let mut at = start;
    while at < end {
        let pass = at / u128::from(samples);
        let first = at % u128::from(samples);
        let last = u128::from(samples).min(first + end - at);
        let order = permutation(inputs, u32::try_from(pass).unwrap_or(u32::MAX));
        let read = usize::try_from(first).and_then(|first| Ok(first..usize::try_from(last)?));
        for &sample in read.ok().and_then(|read| order.get(read)).unwrap_or_default() {
            if let Some(count) = counts.get_mut(sample as usize) {
                *count += u32::try_from(times).unwrap_or(u32::MAX) + extra.next(1, &mut random);
            }
        }
        at += last - first;
    }
    Draw { order: Some(Order::Spaced), ..Draw::new(counts, Weights::One) }
}

/// The `pass`-th permutation of all samples.
fn permutation(inputs: &Inputs<'_>, pass: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..inputs.samples()).collect();
    inputs.random_of(pass, Stage::Rotate).shuffle(&mut order);
    order
}

/// The factor in units of 2⁻¹⁶, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped, and the cast saturates"
)]
fn quantised(factor: f64) -> u128 {
    ((factor * ONE as f64).round() as u128).max(ONE)
}
