//! A job's trainer: its ranks compute step after step. A step begins when the one before has ended,
//! and ends when the slowest rank has its batch and has computed it.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_formats::SampleId;

use crate::engine::node::Computed;
use crate::engine::outcome::EpochOutcome;
use crate::losses::Losses;
use crate::nodes_args::Straggle;

/// Losses are drawn from stream 0 of the seed, sizes from 1, strata from 2.
const STRAGGLE_STREAM: u64 = 3;

/// See the [module](self).
pub(crate) struct Trainer<'a> {
    pub(crate) losses: Losses<'a>,
    /// How many of its next batches it keeps and never releases, so that the ring has room for
    /// fewer.
    pub(crate) keeps: u64,
    /// Compute time of a sample.
    compute_ns: f64,
    straggle: Option<LogNormal<f64>>,
    random: ChaCha8Rng,
    state: State,
    /// When its last step ended.
    ended_ns: u64,
    /// When the epoch began.
    began_ns: u64,
    epoch: EpochOutcome,
}

/// What a trainer does.
enum State {
    /// Nothing: its epoch is over.
    Idle,
    /// It waits for the batches of ranks on this many nodes.
    Waits(usize),
    /// It computes until this time.
    Computes(u64),
}

/// A step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Step {
    end_ns: u64,
    /// Compute time of its largest batch, without stragglers.
    compute_ns: f64,
    /// Compute time of its slowest rank.
    slowest_ns: f64,
    /// Sum over ranks of the time in which a rank waits for its own batch.
    waits_ns: f64,
    /// Number of ranks that take part.
    ranks: u32,
}

impl<'a> Trainer<'a> {
    pub(crate) fn new(compute: Duration, straggle: Option<Straggle>, seed: u64, losses: Losses<'a>) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STRAGGLE_STREAM);
        // Sigma is finite and not negative, so the distribution exists.
        let straggle = straggle.and_then(|Straggle { sigma }| LogNormal::new(0.0, sigma).ok());
        Self {
            losses,
            keeps: 0,
            compute_ns: compute.as_nanos() as f64,
            straggle,
            random,
            state: State::Idle,
            ended_ns: 0,
            began_ns: 0,
            epoch: EpochOutcome::default(),
        }
    }

    /// An epoch begins when its last step has ended. `missing` nodes have not all batches yet.
    pub(crate) fn start(&mut self, missing: usize) {
        assert!(matches!(self.state, State::Idle), "an epoch begins within another");
        self.began_ns = self.ended_ns;
        self.epoch = EpochOutcome::default();
        self.state = State::Waits(missing);
    }

    /// A node has got the batches of all its ranks.
    pub(crate) fn came(&mut self) {
        if let State::Waits(missing) = &mut self.state {
            *missing -= 1;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether all ranks have their batches, or have no further one.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Waits(0))
    }

    /// When its step ends; `None` if it computes nothing.
    pub(crate) fn step_ends_ns(&self) -> Option<u64> {
        if let State::Computes(end_ns) = self.state { Some(end_ns) } else { None }
    }

    /// Begins the step of these ranks, given as when each had its batch, and its samples. Returns
    /// `false` without any: the epoch is over.
    pub(crate) fn begin_step(&mut self, ranks: impl Iterator<Item = (u64, usize)>) -> bool {
        let Some(step) = self.step(ranks) else { return false };
        let is_first = self.ended_ns == self.began_ns;
        // Ends are whole nanoseconds.
        let stall_ns = ((step.end_ns - self.ended_ns) as f64 - step.slowest_ns).max(0.0);
        self.epoch.compute_ns += step.compute_ns;
        self.epoch.straggle_ns += step.slowest_ns - step.compute_ns;
        self.epoch.stall_ns += stall_ns;
        self.epoch.boundary_ns += if is_first { stall_ns } else { 0.0 };
        self.epoch.rank_wait_ns += step.waits_ns / f64::from(step.ranks);
        self.state = State::Computes(step.end_ns);
        true
    }

    /// Its step has ended. `missing` nodes have not all batches of the next one yet.
    pub(crate) fn end_step(&mut self, missing: usize) {
        let State::Computes(end_ns) = self.state else { unreachable!("a step ends that never began") };
        self.ended_ns = end_ns;
        self.state = State::Waits(missing);
    }

    /// Its epoch is over. The outcome has times only.
    pub(crate) fn end_epoch(&mut self) -> EpochOutcome {
        self.state = State::Idle;
        self.epoch.time_ns = (self.ended_ns - self.began_ns) as f64;
        self.epoch
    }

    /// Leaves out what the epoch has taken so far.
    pub(crate) fn count_from_here(&mut self) {
        self.epoch = EpochOutcome::default();
    }

    /// What becomes of a batch that it has computed.
    pub(crate) fn computed(&mut self, number: u32, ids: &[SampleId]) -> Computed {
        let keeps = self.keeps > 0;
        self.keeps -= u64::from(keeps);
        Computed { losses: self.losses.report(number, ids), keeps }
    }

    /// The step of these ranks; `None` without any.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time after the start")]
    fn step(&mut self, ranks: impl Iterator<Item = (u64, usize)>) -> Option<Step> {
        let before_ns = self.ended_ns;
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

    fn trainer(compute: Duration, straggle: Option<Straggle>) -> Trainer<'static> {
        Trainer::new(compute, straggle, 2, Losses::None)
    }

    #[test]
    fn a_step_ends_with_its_last_rank() {
        let mut trainer = trainer(Duration::from_millis(2), None);
        trainer.ended_ns = 10 * MS;
        // One was there before, one came 3 ms late, one has half of a batch.
        let step = trainer.step([(4 * MS, 10), (13 * MS, 10), (10 * MS, 5)].into_iter()).unwrap();
        assert_eq!(step.end_ns, 33 * MS);
        assert_eq!((step.compute_ns, step.slowest_ns), (20e6, 20e6));
        assert_eq!((step.waits_ns, step.ranks), (3e6, 3));
        assert_eq!(trainer.step(std::iter::empty()), None);
    }

    #[test]
    fn the_slowest_of_many_stragglers_is_as_slow_as_the_normal_distribution_says() {
        let mut trainer = trainer(Duration::from_millis(1), Some(Straggle { sigma: 0.05 }));
        let mut mean = |ranks: usize| {
            let slowest = (0..200).filter_map(|_| trainer.step(std::iter::repeat_n((0, 1), ranks)));
            slowest.map(|step| step.slowest_ns).sum::<f64>() / 200.0 / 1e6
        };
        // The expected greatest of 1,000 normal values is 3.24 standard deviations.
        assert!((mean(1000) - (0.05f64 * 3.24).exp()).abs() < 0.005);
        assert!((mean(1) - 1.0).abs() < 0.02);
    }
}
