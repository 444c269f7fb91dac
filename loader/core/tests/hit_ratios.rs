//! Hit ratios against closed forms and an independent simulation, from whole synthetic trainings.
//!
//! A training here is what the daemon does without its I/O: draw a plan, serve it batch by batch
//! through a cache, rank the batch's losses, re-key. Loss of sample i in epoch e: hᵢ·exp(-0.15
//! e)·LN(0, 0.5), hᵢ ~ LN(0, 1). All accesses count, cold misses included; the epochs that count
//! are named at each test. Seeds differ in losses and in plans.
//!
//! The reference's figures for N = 50 k without replication come out (all four within 0.15 points)
//! if epoch 0 is drawn as the published code draws it (`Start::Published`): with replacement, a
//! sample never trained having the score 1 against 2.3 and more. Such samples are starved, the
//! plans are more skewed for some epochs, and hit ratios are higher. After a permutation, our rule
//! (`Start::Permutation`), they are 0.3 to 1.0 points lower. That test's expected values are this
//! implementation's own, so it guards against change and proves nothing; all other expected values
//! are closed forms or the reference's.

#![expect(clippy::print_stdout, reason = "shows the figures under --nocapture")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_core::cache::Cache;
use shade_core::importance::{Importance, rank};
use shade_core::plan::{Known, Lookahead, draw_plan};
use shade_formats::SampleId;
use shade_job::{Order, PlanSpec, Policy, Sampler};

const BATCH_SIZE: u32 = 64;

/// What the first epoch is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// Our rule: each sample once, and a sample never trained has the highest score.
    Permutation,
    /// The published code: drawn with replacement, and a sample never trained has the score 1.
    Published,
}

struct Training {
    start: Start,
    spec: PlanSpec,
    samples: u32,
    /// Share of the samples that fits into a cache; every sample has size 1.
    share: f64,
    epochs: u32,
    counted_from: u32,
}

/// Hits per access in percent. The trace is that of a training with APP, whose residents the plan
/// knows; LRU, and lookahead to the end of the epoch, serve the same trace.
#[derive(Clone, Copy, Debug, Default)]
struct HitRatios {
    app: f64,
    lru: f64,
    lookahead: f64,
}

impl Training {
    /// The mean of `seeds` trainings, over the epochs that count.
    fn hit_ratios(&self, seeds: u64) -> HitRatios {
        let mut mean = HitRatios::default();
        for seed in 1..=seeds {
            let ratios = self.run(seed);
            mean.app += ratios.app / seeds as f64;
            mean.lru += ratios.lru / seeds as f64;
            mean.lookahead += ratios.lookahead / seeds as f64;
        }
        println!("c {} {:?} {:?}: {mean:.2?}", self.share, self.start, self.spec);
        mean
    }

    fn run(&self, seed: u64) -> HitRatios {
        let spec = PlanSpec { seed, ..self.spec };
        let mut losses = Losses::new(seed, self.samples);
        let mut importance = Importance::new(self.samples);
        if self.start == Start::Published {
            (0..self.samples).for_each(|id| importance.set_score(SampleId(id), 1.0));
        }
        let capacity = (f64::from(self.samples) * self.share) as u64;
        let mut app = Cache::new(Policy::App, capacity, self.samples);
        let mut lru = Cache::new(Policy::Lru, capacity, self.samples);
        let mut clairvoyant = Cache::new(Policy::Lookahead, capacity, self.samples);
        let (mut hits_app, mut hits_lru, mut hits_lookahead, mut accesses) = (0, 0, 0, 0);
        for epoch in 0..self.epochs {
            // The planner makes epoch 0 a permutation; to have it drawn, start with epoch 1.
            let planned = epoch + u32::from(self.start == Start::Published);
            let is_resident = |id| app.get(id).is_some();
            let plan = draw_plan(&spec, planned, BATCH_SIZE, &importance, is_resident, spec.rep);
            let counts = u32::from(epoch >= self.counted_from);
            clairvoyant.forget_uses(0);
            let known = Known::from(plan.ids.as_slice());
            let mut lookahead = Lookahead::new(known, self.samples, 0, u32::MAX);
            lookahead.begin(known, |(id, at)| clairvoyant.see(0, id, at, &importance));
            let mut positions = 0..;
            for batch in plan.ids.chunks(BATCH_SIZE as usize) {
                accesses += counts * u32::try_from(batch.len()).unwrap();
                for &id in batch {
                    hits_lru += counts * u32::from(access(id, &mut lru, &importance));
                    clairvoyant.use_at(0, id, lookahead.access(known, positions.next().unwrap(), |_| {}));
                    hits_lookahead += counts * u32::from(access(id, &mut clairvoyant, &importance));
                    if app.get(id).is_some() {
                        importance.record_hit(id);
                    }
                    hits_app += counts * u32::from(access(id, &mut app, &importance));
                    importance.record_delivery(id, epoch);
                }
                for (id, score) in rank(batch, &losses.of(batch, epoch)).scores {
                    importance.set_score(id, score);
                    app.rescore(id, &importance);
                    clairvoyant.rescore(id, &importance);
                }
            }
        }
        let percent = |hits| 100.0 * f64::from(hits) / f64::from(accesses);
        HitRatios { app: percent(hits_app), lru: percent(hits_lru), lookahead: percent(hits_lookahead) }
    }
}

/// Whether the access was a hit.
fn access(id: SampleId, cache: &mut Cache<()>, importance: &Importance) -> bool {
    let hit = cache.hit(id, importance).is_some();
    if !hit {
        cache.offer(id, 1, (), importance, |()| false, &mut Vec::new());
    }
    hit
}

/// The loss model.
struct Losses {
    random: ChaCha8Rng,
    hardness: Vec<f64>,
    noise: LogNormal<f64>,
}

impl Losses {
    fn new(seed: u64, samples: u32) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let hardness =
            LogNormal::new(0.0, 1.0).unwrap().sample_iter(&mut random).take(samples as usize).collect();
        Self { random, hardness, noise: LogNormal::new(0.0, 0.5).unwrap() }
    }

    fn of(&mut self, batch: &[SampleId], epoch: u32) -> Vec<f32> {
        let easier = (-0.15 * f64::from(epoch)).exp();
        let mut loss =
            |id: &SampleId| self.hardness[id.index()] * easier * self.noise.sample(&mut self.random);
        batch.iter().map(|id| loss(id) as f32).collect()
    }
}

fn assert_near(got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance,
        "hit ratio {got:.2} %, expected {expected} ± {tolerance} points"
    );
}

/// `cover` and `hit_cap` are off: the reference simulation has neither.
fn pads(rep: f64, order: Order) -> PlanSpec {
    PlanSpec { sampler: Sampler::Pads, order, rep, hit_cap: 1.0, cover: 0, ..PlanSpec::default() }
}

/// Epochs from 1 on of trainings on 10,000 samples.
fn small(start: Start, spec: PlanSpec, share: f64) -> Training {
    Training { start, spec, samples: 10_000, share, epochs: 12, counted_from: 1 }
}

/// The last 8 of 12 epochs of trainings on 50,000 samples without replication.
fn large(start: Start, share: f64) -> Training {
    Training { start, spec: pads(1.0, Order::Shuffled), samples: 50_000, share, epochs: 12, counted_from: 4 }
}

#[test]
fn lru_on_permutations_is_the_closed_form() {
    let spec = PlanSpec { sampler: Sampler::Uniform, ..PlanSpec::default() };
    for share in [0.1f64, 0.2, 0.4] {
        let training = Training { epochs: 6, ..small(Start::Permutation, spec, share) };
        assert_near(training.hit_ratios(5).lru, 100.0 * (share + (1.0 - share) * (1.0 - share).ln()), 0.3);
    }
}

/// `explore` 1 makes PADS draw uniformly with replacement. Its order moves repeats a batch apart,
/// which costs LRU the hits at distances below a batch, about B/N: 0.3 points of 20 k samples.
#[test]
fn lru_on_uniform_draws_with_replacement_is_c() {
    let spec = PlanSpec { explore: 1.0, ..pads(1.0, Order::Shuffled) };
    for share in [0.1f64, 0.2, 0.4] {
        let training = Training { samples: 20_000, epochs: 6, ..small(Start::Permutation, spec, share) };
        assert_near(training.hit_ratios(5).lru, 100.0 * share, 0.3);
    }
}

#[test]
fn pads_without_replication_as_published() {
    // The last column is the reference's "epoch-Belady with importance tail".
    for (share, lru, app, lookahead) in [(0.2, 21.1, 24.6, 50.3), (0.1, 10.5, 12.5, 36.6)] {
        let ratios = large(Start::Published, share).hit_ratios(5);
        assert_near(ratios.lru, lru, 0.5);
        assert_near(ratios.app, app, 0.5);
        assert_near(ratios.lookahead, lookahead, 1.0);
    }
}

/// Measured here; see the top of this file.
#[test]
fn pads_without_replication_after_a_permutation() {
    for (share, lru, app) in [(0.2, 20.4, 23.6), (0.1, 10.2, 12.0)] {
        let ratios = large(Start::Permutation, share).hit_ratios(5);
        assert_near(ratios.lru, lru, 0.3);
        assert_near(ratios.app, app, 0.3);
    }
}

#[test]
fn replication_with_hits_first_after_a_permutation() {
    for (share, app) in [(0.1, 39.2), (0.2, 71.7)] {
        let ratios = small(Start::Permutation, pads(3.0, Order::HitsFirst), share).hit_ratios(5);
        assert_near(ratios.app, app, 1.0);
    }
}

#[test]
fn replication_with_hits_first_as_published() {
    let ratios = small(Start::Published, pads(3.0, Order::HitsFirst), 0.1).hit_ratios(5);
    assert_near(ratios.app, 44.1, 1.0);
    // This is the trace that APP's residents shaped. A plan shaped by LRU's own residents gives LRU
    // 41.5 %.
    assert_near(ratios.lru, 40.3, 1.0);
}

/// The reference's 11.9 % without replication is of the shuffled order: residents first would give
/// 17.2 % (measured here).
#[test]
fn the_row_without_replication_is_shuffled() {
    for (order, app) in [(Order::Shuffled, 11.9), (Order::HitsFirst, 17.2)] {
        assert_near(small(Start::Permutation, pads(1.0, order), 0.1).hit_ratios(5).app, app, 1.0);
    }
}
