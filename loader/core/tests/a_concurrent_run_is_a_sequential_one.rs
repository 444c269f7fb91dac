//! Several ranks whose reads end late and in any order: the core's cache does the same as a cache
//! that is asked for one sample after the other.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and datasets here are small"
)]

use std::collections::{BTreeMap, BTreeSet};

use crate::replay::journal::{Journal, Moment, Step};
use crate::replay::{Replay, index, spec};
use proptest::prelude::*;
use proptest::test_runner::Config;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::Counts;
use shade_core::cache::{Admission, Cache};
use shade_core::importance::{Importance, rank};
use shade_core::plan::{Known, Lookahead, Plan, Slices, draw_next_plan, draw_plan, in_sight, spec_now};
use shade_core::{block_bytes_for, charged_bytes};
use shade_formats::SampleId;
use shade_job::{Decode, JobSpec, Order, PlanSpec, Policy, Sampler, Tail};

const EPOCHS: u32 = 3;

/// What is replayed.
#[derive(Clone, Debug)]
struct Setup {
    samples: u32,
    job: JobSpec,
    policy: Policy,
    cache_bytes: u64,
}

fn stored_len(id: u32) -> u32 {
    1 + id * 9_773 % 30_000
}

/// The accesses and offers, one after the other, in the order in which the core made them.
struct Sequence {
    setup: Setup,
    block_bytes: u32,
    cache: Cache<u32>,
    importance: Importance,
    plans: Vec<Plan>,
    /// The one after them, where it is drawn early.
    next_plan: Option<Plan>,
    lookahead: Option<Lookahead>,
    /// Ranks that want the next epoch.
    waiting: BTreeSet<u32>,
    /// By rank: its next batch.
    next_batch: Vec<u32>,
    /// Samples that are being read.
    reading: BTreeSet<u32>,
    /// By sample: which report scored it, as its epoch and its place in the plan.
    scored_at: BTreeMap<u32, (u32, u32)>,
    /// Losses were reported since the last plan was drawn.
    has_reports: bool,
    counts: Counts,
}

impl Sequence {
    fn new(setup: Setup) -> Self {
        let Setup { samples, job, policy, cache_bytes } = setup.clone();
        Self {
            setup,
            block_bytes: block_bytes_for((0..samples).map(stored_len)),
            cache: Cache::new(policy, cache_bytes, samples),
            importance: Importance::new(samples),
            plans: Vec::new(),
            next_plan: None,
            lookahead: None,
            waiting: BTreeSet::new(),
            next_batch: vec![0; job.world_size as usize],
            reading: BTreeSet::new(),
            scored_at: BTreeMap::new(),
            has_reports: false,
            counts: Counts::default(),
        }
    }

    /// Repeats what the core did, and compares the results.
    fn follow(&mut self, step: &Step) {
        let batch_size = u64::from(self.setup.job.batch_size);
        let batches = (step.counts.accesses - self.counts.accesses) / batch_size;
        match &step.moment {
            // Sessions are numbered as their ranks are.
            &Moment::Start(rank, epoch) => {
                self.waiting.insert(rank);
                if self.waiting.len() == self.next_batch.len() {
                    self.waiting.clear();
                    self.draw(epoch);
                    // All rings are as empty: each rank has as many batches, and they are opened in
                    // the plan's order.
                    for _ in 0..batches / self.next_batch.len() as u64 {
                        (0..self.setup.job.world_size).for_each(|rank| self.open_batch(rank));
                    }
                }
            }
            &Moment::Released(rank) => (0..batches).for_each(|_| self.open_batch(rank)),
            Moment::Report(rank, epoch, batch, losses) => self.report(*rank, *epoch, *batch, losses),
            Moment::Read(sample) => self.offer(*sample, &step.pinned),
            Moment::Other => {}
        }
        let of_cache = |counts: &Counts| {
            let &Counts { accesses, hits, joined, misses, admitted, evicted, bypassed, .. } = counts;
            [accesses, hits, joined, misses, admitted, evicted, bypassed]
        };
        assert_eq!(of_cache(&self.counts), of_cache(&step.counts), "after {:?}", step.moment);
        assert_eq!(self.cache.used_bytes(), step.used_bytes);
        let residents: BTreeSet<u32> = self.cache.ids().map(|id| id.0).collect();
        assert_eq!(residents, step.residents, "after {:?}", step.moment);
    }

    fn draw(&mut self, epoch: u32) {
        let PlanSpec { rep, .. } = self.setup.job.plan;
        let is_resident = |id| self.cache.get(id).is_some();
        let JobSpec { plan, batch_size, .. } = self.setup.job;
        let spec = spec_now(&plan, std::mem::take(&mut self.has_reports));
        let (importance, next) = (&self.importance, self.next_plan.take());
        let plan = next.unwrap_or_else(|| draw_plan(&spec, epoch, batch_size, importance, is_resident, rep));
        let next_plan =
            spec.draw_ahead.then(|| draw_next_plan(&spec, &plan, batch_size, importance, is_resident, rep));
        self.next_batch.fill(0);
        let ahead = in_sight(1.0, plan.ids.len());
        self.plans.push(plan);
        self.next_plan = next_plan;
        let known = known(&self.plans, &self.next_plan);
        let mut lookahead = Lookahead::new(known, self.setup.samples, 0, ahead);
        self.cache.forget_uses(0);
        lookahead.begin(known, |(id, at)| self.cache.see(0, id, at, &self.importance));
        self.lookahead = Some(lookahead);
    }

    /// The positions of a batch.
    fn batch(&self, rank: u32, epoch: u32, batch: u32) -> Vec<u32> {
        let plan = &self.plans[epoch as usize];
        let JobSpec { batch_size, world_size, tail, .. } = self.setup.job;
        let slices = Slices::new(plan.ids.len() as u32, batch_size, world_size, tail).unwrap();
        slices.batch(batch, rank, plan).iter().map(|slot| slot.position).collect()
    }

    fn open_batch(&mut self, rank: u32) {
        let epoch = self.plans.len() - 1;
        let positions = self.batch(rank, epoch as u32, self.next_batch[rank as usize]);
        self.next_batch[rank as usize] += 1;
        for position in positions {
            let id = self.plans[epoch].ids[position as usize];
            let known = known(&self.plans, &self.next_plan);
            let see = |(id, at)| self.cache.see(0, id, at, &self.importance);
            let next = self.lookahead.as_mut().unwrap().access(known, position, see);
            self.cache.use_at(0, id, next);
            self.access(id);
        }
    }

    fn access(&mut self, id: SampleId) {
        self.counts.accesses += 1;
        if self.cache.get(id).is_some() {
            self.importance.record_hit(id);
            self.cache.hit(id, &self.importance);
            self.counts.hits += 1;
        } else if self.reading.insert(id.0) {
            self.counts.misses += 1;
        } else {
            self.counts.hits += 1;
            self.counts.joined += 1;
        }
    }

    fn offer(&mut self, sample: u32, pinned: &BTreeSet<u32>) {
        assert!(self.reading.remove(&sample), "{sample} was read for nobody");
        let bytes = charged_bytes(stored_len(sample), self.block_bytes);
        let mut evicted = Vec::new();
        let is_pinned = |id: &u32| pinned.contains(id);
        let id = SampleId(sample);
        match self.cache.offer(id, bytes, sample, &self.importance, is_pinned, &mut evicted) {
            Admission::Admitted => self.counts.admitted += 1,
            Admission::Bypassed(_) => self.counts.bypassed += 1,
        }
        self.counts.evicted += evicted.len() as u64;
    }

    /// The report of the latest place in the latest plan wins, whenever it comes.
    fn report(&mut self, rank_: u32, epoch: u32, batch: u32, losses: &[f32]) {
        let place = (epoch, batch * self.setup.job.world_size + rank_);
        let ids = &self.plans[epoch as usize].ids;
        let batch = self.batch(rank_, epoch, batch);
        self.has_reports = true;
        let delivered: Vec<SampleId> = batch.iter().map(|&position| ids[position as usize]).collect();
        for (id, score) in rank(&delivered, losses).scores {
            if place >= self.scored_at.get(&id.0).copied().unwrap_or_default() {
                self.scored_at.insert(id.0, place);
                self.importance.set_score(id, score);
                self.cache.rescore(id, &self.importance);
            }
        }
    }
}

/// The known accesses.
fn known<'a>(plans: &'a [Plan], next: &'a Option<Plan>) -> Known<'a> {
    Known { plan: &plans.last().unwrap().ids, next: next.as_ref().map_or(&[], |plan| &plan.ids) }
}

/// Policies under which a batch's samples do not depend on what is resident when it is opened.
fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.iter().copied().filter(|policy| !matches!(policy, Policy::Icache | Policy::Quiver))
}

/// Trains with trainers that hold batches back now and then, and whose reports are late and not in
/// order.
fn run(setup: Setup, depth: u32, seed: u64) -> Journal {
    let Setup { samples, job, policy, cache_bytes } = setup.clone();
    let mut replay = Replay::on_demand(index(samples, 3, stored_len), policy, cache_bytes, depth, seed);
    replay.journal = Some(Journal::default());
    replay.attach_all(&job, 0);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut unreported = Vec::new();
    for epoch in 0..EPOCHS {
        (0..job.world_size).for_each(|rank| replay.start(rank, epoch, 0));
        loop {
            let busy = replay.tick();
            unreported.append(&mut replay.taken);
            if !unreported.is_empty() && random.random_ratio(1, 8) {
                let late = unreported.swap_remove(random.random_range(0..unreported.len()));
                replay.report(&[late], |id| (id * 31 % 97) as f32);
            }
            if !busy && !replay.hold {
                break;
            }
            if !busy || random.random_ratio(1, 16) {
                replay.hold = busy && !replay.hold;
                if !replay.hold {
                    (0..job.world_size).for_each(|rank| replay.release_all(rank));
                }
            }
        }
        // A report after the next epoch is none.
        unreported.retain(|taken| taken.epoch == epoch);
    }
    assert!(replay.core().is_idle());
    assert_eq!(replay.ended.len() as u32, EPOCHS * job.world_size);
    replay.journal.take().unwrap()
}

fn compare(setup: Setup, depth: u32, seed: u64) -> Counts {
    let journal = run(setup.clone(), depth, seed);
    let mut sequence = Sequence::new(setup);
    journal.steps.iter().for_each(|step| sequence.follow(step));
    sequence.counts
}

fn job(batch_size: u32, world_size: u32, plan: PlanSpec) -> JobSpec {
    // Decoded rows are of one size, so that all batches take as much of a ring.
    let decode = Decode::cover(8, 8);
    JobSpec { plan, decode, tail: Tail::Drop, ..spec(batch_size, world_size) }
}

#[test]
fn runs_have_what_makes_them_hard() {
    let plan = PlanSpec { sampler: Sampler::Pads, rep: 1.5, ..PlanSpec::default() };
    for policy in policies() {
        let setup = Setup { samples: 200, job: job(5, 3, plan), policy, cache_bytes: 400_000 };
        let counts = compare(setup, 4, 1);
        assert_eq!(counts.accesses, 3 * 195);
        assert!(counts.hits > 50 && counts.joined > 5, "{policy:?}: {counts:?}");
        assert!(policy == Policy::Static || counts.evicted > 20, "{policy:?}: {counts:?}");
    }
}

proptest! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_policy_is_that_of_one_sequence(
        samples in 30..120u32, batch_size in 1..9u32, world_size in 1..4u32, cache_bytes in 0..1_000_000u64,
        depth in 1..9u32, pads: bool, order in prop::sample::select(Order::ALL), seed: u64,
    ) {
        let sampler = if pads { Sampler::Pads } else { Sampler::Uniform };
        let plan = PlanSpec { sampler, order, rep: 1.5, seed, gap: Some(24), ..PlanSpec::default() };
        for policy in policies() {
            compare(Setup { samples, job: job(batch_size, world_size, plan), policy, cache_bytes }, depth, seed);
        }
    }
}
