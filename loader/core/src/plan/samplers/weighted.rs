//! The samplers `weighted`, by the user's table of weights, and `balanced`, by 1 / number of
//! samples of the class. They are one draw from a table that never changes, from the first epoch
//! on.
//!
//! An epoch of N deliveries expects a sample of weight w λ = N·w/Σw times. With replacement there
//! are N draws. Without it a sample comes ⌊λ⌋ or ⌊λ⌋ + 1 times, and λ times on average: the
//! fractions lie end to end in a random order, and each point u + k, with random u and whole k,
//! rounds the fraction up that it meets (systematic sampling). All of it is in whole numbers, in
//! units of 1/Σw. Equal weights then make a permutation.
//!
//! `batch.weights` has 1/λ, which undoes the table: the weighted loss has the mean of a plain pass
//! over the samples of weight above 0. A training that wants the table's own distribution leaves
//! them out. The guard `cover` does not apply: a sample of weight 0 never comes.
//!
//! They need one stratum. Each stratum has as many draws as samples, whatever its weights add up
//! to, so that a heavy sample would come too seldom and its neighbours, too.

use super::chances::draw_by;
use super::draw::{Draw, Weights, weight};
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Draws by the table. Without one, or without any weight in it, all weights count as equal.
pub(super) fn weighted<'a>(inputs: &'a Inputs<'a>) -> Draw<'a> {
    let samples = u64::from(inputs.samples());
    let Some((table, total)) =
        inputs.weights().filter(|&(table, total)| table.len() as u64 == samples && total > 0)
    else {
        return Draw::permutation(inputs.samples());
    };
    let counts = if inputs.spec.replacement {
        draw_by(table.iter().copied(), table.len(), total, &mut inputs.random(Stage::Draw))
    } else {
        rounded(table, total, inputs)
    };
    let uses = samples as f64 / total as f64;
    let weights = move || table.iter().map(|&drawn_by| weight(f64::from(drawn_by) * uses)).collect();
    Draw::new(counts, Weights::BySample(Box::new(weights)))
}

/// λ of each sample by a table with this sum of weights, rounded up or down at random, with the sum
/// of all λ.
fn rounded(table: &[u32], total: u64, inputs: &Inputs<'_>) -> Vec<u32> {
    let samples = table.len() as u64;
    // Below 2⁶⁴: both factors are below 2³².
    let uses = |drawn_by: u32| samples * u64::from(drawn_by);
    let floor = |&drawn_by: &u32| u32::try_from(uses(drawn_by) / total).unwrap_or(u32::MAX);
    let mut counts: Vec<u32> = table.iter().map(floor).collect();
    let mut order: Vec<u32> = (0..).zip(table).map(|(sample, _)| sample).collect();
    inputs.random(Stage::Round).shuffle(&mut order);
    // Where the next fraction begins, counted from the last point.
    let mut from_point = u128::from(inputs.random(Stage::Draw).below(total));
    for sample in order {
        let at = sample as usize;
        let (Some(&drawn_by), Some(count)) = (table.get(at), counts.get_mut(at)) else { continue };
        from_point += u128::from(uses(drawn_by) % total);
        if from_point >= u128::from(total) {
            from_point -= u128::from(total);
            *count += 1;
        }
    }
    counts
}
