//! The steps of all ranks: each begins when the one before has ended, and ends when the slowest
//! rank has its batch and has computed it.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};

use crate::nodes::args::Straggle;

/// Losses are drawn from stream 0 of the seed, sizes from 1, strata from 2.
const STRAGGLE_STREAM: u64 = 3;

/// How long steps take.
pub(super) struct Steps {
    /// Compute time of a sample.
    compute_ns: f64,
    straggle: Option<LogNormal<f64>>,
    random: ChaCha8Rng,
}

/// A step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    pub(super) end_ns: u64,
    /// Compute time of its largest batch, without stragglers.
    pub(super) compute_ns: f64,
    /// Compute time of its slowest rank.
    pub(super) slowest_ns: f64,
    /// Sum over ranks of the time in which a rank waits for its own batch.
    pub(super) waits_ns: f64,
    /// Number of ranks that take part.
    pub(super) ranks: u32,
}

impl Steps {
    pub(super) fn new(compute: Duration, straggle: Option<Straggle>, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STRAGGLE_STREAM);
        // Sigma is finite and not negative, so the distribution exists.
        let straggle = straggle.and_then(|Straggle { sigma }| LogNormal::new(0.0, sigma).ok());
        Self { compute_ns: compute.as_nanos() as f64, straggle, random }
    }

    /// The step of these ranks, given as when each had its batch, and its samples; `None` without
    /// any. The step before ended at `before_ns`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time after the start")]
    pub(super) fn step(&mut self, before_ns: u64, ranks: impl Iterator<Item = (u64, usize)>) -> Option<Step> {
        let mut step = Step { end_ns: before_ns, ..Step::default() };
        for (since_ns, samples) in ranks {
            let compute_ns = self.compute_ns * samples as f64;
            let random = &mut self.random;
            let takes_ns =
                compute_ns * self.straggle.as_ref().map_or(1.0, |straggle| straggle.sample(random));
            let begin_ns = before_ns.max(since_ns);
            step.end_ns = step.end_ns.max(begin_ns.saturating_add(takes_ns as u64));
            step.compute_ns = step.compute_ns.max(compute_ns);
            step.slowest_ns = step.slowest_ns.max(takes_ns);
            step.waits_ns += (begin_ns - before_ns) as f64;
            step.ranks += 1;
        }
        (step.ranks > 0).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_step_ends_with_its_last_rank() {
        let mut steps = Steps::new(Duration::from_millis(2), None, 1);
        // One was there before, one came 3 ms late, one has half of a batch.
        let step = steps.step(10 * MS, [(4 * MS, 10), (13 * MS, 10), (10 * MS, 5)].into_iter()).unwrap();
        assert_eq!(step.end_ns, 33 * MS);
        assert_eq!((step.compute_ns, step.slowest_ns), (20e6, 20e6));
        assert_eq!((step.waits_ns, step.ranks), (3e6, 3));
        assert_eq!(steps.step(MS, std::iter::empty()), None);
    }

    #[test]
    fn the_slowest_of_many_stragglers_is_as_slow_as_the_normal_distribution_says() {
        let mut steps = Steps::new(Duration::from_millis(1), Some(Straggle { sigma: 0.05 }), 2);
        let mean = |steps: &mut Steps, ranks: usize| {
            let slowest = (0..200).filter_map(|_| steps.step(0, std::iter::repeat_n((0, 1), ranks)));
            slowest.map(|step| step.slowest_ns).sum::<f64>() / 200.0 / 1e6
        };
        // The expected greatest of 1,000 normal values is 3.24 standard deviations.
        assert!((mean(&mut steps, 1000) - (0.05f64 * 3.24).exp()).abs() < 0.005);
        assert!((mean(&mut steps, 1) - 1.0).abs() < 0.02);
    }
}
