//! Losses that say nothing, datasets of one sample, caches that hold nothing or everything: every
//! policy and every plan goes on.

use crate::replay::{Replay, index, spec, weights};
use shade_core::cache::{Admission, Cache};
use shade_core::importance::{Importance, SCORE_MAX, SCORE_MIN, rank};
use shade_core::plan::{Known, Lookahead, Plan, SampleFacts, draw_plan, may_leave_out};
use shade_formats::SampleId;
use shade_formats::ring::FLAG_PADDING;
use shade_job::{JobSpec, OnError, Order, PlanSpec, Policy, Sampler, Tail};

const EPOCHS: u32 = 4;
const BATCH_SIZE: u32 = 8;
/// No record fits into 1 byte.
const RECORD_BYTES: u64 = 2;

/// A loss that all samples share, and one that they do not.
const LOSSES: [fn(u32) -> f32; 7] = [
    |_| f32::NAN,
    |_| f32::INFINITY,
    |_| f32::NEG_INFINITY,
    |_| -0.0,
    |_| 0.7,
    |_| f32::MAX,
    |id| if id.is_multiple_of(2) { f32::NAN } else { f32::MIN_POSITIVE },
];

fn specs() -> impl Iterator<Item = PlanSpec> {
    let of = |sampler| move |order| PlanSpec { sampler, order, rep: 2.0, ..PlanSpec::default() };
    Sampler::ALL.iter().flat_map(move |&sampler| Order::ALL.iter().copied().map(of(sampler)))
}

/// A training without a core.
struct Training {
    samples: u32,
    capacity_bytes: u64,
    importance: Importance,
    cache: Cache<()>,
    delivered: usize,
    hits: u32,
    misses: u32,
    evicted: Vec<(SampleId, ())>,
}

impl Training {
    fn new(policy: Policy, samples: u32, capacity_bytes: u64) -> Self {
        Self {
            samples,
            capacity_bytes,
            importance: Importance::new(samples),
            cache: Cache::new(policy, capacity_bytes, samples),
            delivered: 0,
            hits: 0,
            misses: 0,
            evicted: Vec::new(),
        }
    }

    fn epoch(&mut self, spec: &PlanSpec, epoch: u32, loss: fn(u32) -> f32) {
        let is_resident = |id| self.cache.get(id).is_some();
        let weights = weights(self.samples);
        let facts = SampleFacts { weights: Some(&weights), ..(&self.importance).into() };
        let plan = draw_plan(spec, epoch, BATCH_SIZE, facts, is_resident, spec.rep);
        self.check(spec, &plan);
        self.delivered += plan.ids.len();
        let mut lookahead = Lookahead::new(Known::from(plan.ids.as_slice()), self.samples, 0, u32::MAX);
        self.cache.forget_uses(0);
        lookahead
            .begin(Known::from(plan.ids.as_slice()), |(id, at)| self.cache.see(0, id, at, &self.importance));
        let mut positions = 0..;
        for batch in plan.ids.chunks(BATCH_SIZE as usize) {
            for (&id, position) in batch.iter().zip(&mut positions) {
                let see = |(id, at)| self.cache.see(0, id, at, &self.importance);
                let next = lookahead.access(Known::from(plan.ids.as_slice()), position, see);
                self.cache.use_at(0, id, next);
                self.access(id, epoch);
            }
            let losses: Vec<f32> = batch.iter().map(|id| loss(id.0)).collect();
            for (id, score) in rank(batch, &losses).scores {
                assert!((SCORE_MIN..=SCORE_MAX).contains(&score), "{score}");
                self.importance.set_score(id, score);
                self.cache.rescore(id, &self.importance);
            }
        }
    }

    fn check(&self, spec: &PlanSpec, plan: &Plan) {
        let whole = self.samples as usize;
        let is_whole = !may_leave_out(spec.sampler);
        assert!(if is_whole { plan.ids.len() == whole } else { (1..=whole).contains(&plan.ids.len()) });
        assert!(plan.ids.iter().all(|id| id.0 < self.samples));
        assert!(plan.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0));
        assert!((1..=self.samples).contains(&plan.summary.distinct));
    }

    fn access(&mut self, id: SampleId, epoch: u32) {
        if self.cache.get(id).is_some() {
            self.importance.record_hit(id);
            assert!(self.cache.hit(id, &self.importance).is_some());
            self.hits += 1;
        } else {
            self.misses += 1;
            let evicted = &mut self.evicted;
            let admission = self.cache.offer(id, RECORD_BYTES, (), &self.importance, |()| false, evicted);
            let fits = self.cache.get(id).is_some();
            assert_eq!(admission, if fits { Admission::Admitted } else { Admission::Bypassed(()) });
        }
        self.importance.record_delivery(id, epoch);
        assert!(self.cache.used_bytes() <= self.capacity_bytes);
        assert_eq!(self.cache.used_bytes(), RECORD_BYTES * self.cache.len() as u64);
    }
}

/// iCACHE's two regions lend each other no room, so that it is full before its bytes are used.
fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.iter().copied().filter(|&policy| policy != Policy::Icache)
}

fn for_all(samples: u32, capacity_bytes: u64, then: impl Fn(&Training, &str)) {
    for policy in policies() {
        for (spec, loss) in specs().flat_map(|spec| LOSSES.map(|loss| (spec, loss))) {
            let mut training = Training::new(policy, samples, capacity_bytes);
            (0..EPOCHS).for_each(|epoch| training.epoch(&spec, epoch, loss));
            let what = format!("{policy:?} {} {}, {samples} samples", spec.sampler, spec.order);
            assert_eq!((training.hits + training.misses) as usize, training.delivered, "{what}");
            then(&training, &what);
        }
    }
}

#[test]
fn a_cache_without_room_for_a_record_bypasses_all() {
    for (samples, capacity_bytes) in [(1, 0), (1, 1), (50, 0), (50, 1)] {
        for_all(samples, capacity_bytes, |training, what| {
            assert_eq!((training.hits, training.cache.len()), (0, 0), "{what}");
        });
    }
}

#[test]
fn a_cache_as_large_as_the_dataset_keeps_all_that_it_saw() {
    for samples in [1, 50] {
        let dataset_bytes = u64::from(samples) * RECORD_BYTES;
        for capacity_bytes in [dataset_bytes, dataset_bytes + 1, u64::MAX] {
            for_all(samples, capacity_bytes, |training, what| {
                let seen = training.importance.seen();
                assert_eq!((training.misses, training.evicted.len()), (seen, 0), "{what}");
                assert_eq!(training.cache.used_bytes(), RECORD_BYTES * u64::from(seen), "{what}");
            });
        }
    }
}

#[test]
fn a_cache_for_one_record_or_for_all_but_one_is_full_and_no_more() {
    for (samples, resident) in [(50, 1), (50, 49), (2, 1)] {
        // A byte more than they need: no record fits.
        for_all(samples, resident * RECORD_BYTES + 1, |training, what| {
            let seen = u64::from(training.importance.seen());
            assert_eq!(training.cache.len() as u64, resident.min(seen), "{what}");
            assert!(training.misses >= training.importance.seen(), "{what}");
        });
    }
}

#[test]
fn the_core_trains_on_one_sample_with_any_cache_and_any_loss() {
    for (policy, loss) in policies().flat_map(|policy| LOSSES.map(|loss| (policy, loss))) {
        for (cache_bytes, world_size) in
            [0, 1, 512, 1 << 20].into_iter().flat_map(|bytes| [(bytes, 1), (bytes, 3)])
        {
            let plan = PlanSpec { sampler: Sampler::Pads, rep: 2.0, ..PlanSpec::default() };
            let job = JobSpec { plan, tail: Tail::Even, on_error: OnError::Raise, ..spec(4, world_size) };
            let mut replay = Replay::new(index(1, 1, |_| 300), policy, cache_bytes, 2, 1);
            replay.attach_all(&job, 0);
            for epoch in 0..EPOCHS {
                let taken = replay.epoch(epoch);
                assert_eq!(taken.len(), world_size as usize, "{policy:?}, {cache_bytes} bytes");
                assert!(taken.iter().all(|taken| taken.ids == [0]));
                let padding =
                    taken.iter().flat_map(|taken| &taken.flags).filter(|flags| **flags & FLAG_PADDING > 0);
                assert_eq!(padding.count(), world_size as usize - 1);
                replay.report(&taken, loss);
            }
            let stats = replay.core().stats(0);
            let counts = stats.total.counts.counts;
            assert_eq!(counts.accesses, u64::from(EPOCHS * world_size));
            let reads = if cache_bytes < 512 { EPOCHS } else { 1 };
            assert_eq!((counts.misses, replay.reads), (u64::from(reads), u64::from(reads)), "{policy:?}");
            assert_eq!(stats.resident, u64::from(cache_bytes >= 512));
            assert!(replay.core().is_idle() && replay.errors.is_empty() && replay.failed.is_empty());
        }
    }
}

#[test]
fn the_core_goes_on_when_no_loss_is_a_number() {
    for &policy in Policy::ALL {
        let plan = PlanSpec { sampler: Sampler::Pads, rep: 2.0, ..PlanSpec::default() };
        let mut replay = Replay::new(index(100, 5, |_| 300), policy, 20 * 512, 4, 1);
        replay.attach_all(&JobSpec { plan, tail: Tail::Even, ..spec(8, 2) }, 0);
        for epoch in 0..EPOCHS {
            let taken = replay.epoch(epoch);
            assert_eq!(taken.iter().map(|taken| taken.ids.len()).sum::<usize>(), 100, "{policy:?}");
            assert!(taken.iter().flat_map(|taken| &taken.weights).all(|weight| weight.is_finite()));
            replay.report(&taken, |_| f32::NAN);
        }
        let counts = replay.core().stats(0).total.counts.counts;
        assert_eq!(counts.nonfinite_losses, counts.accesses, "each is counted");
        assert!(counts.hits > 0, "{policy:?}");
    }
}
