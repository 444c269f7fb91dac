//! With buckets a batch of all ranks has one size, and each sample comes as often as without.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::replay::{self, Replay, Taken, index_of_images, spec};
use proptest::prelude::*;
use shade_core::importance::Importance;
use shade_core::plan::{Plan, SampleFacts, Slices, draw_plan};
use shade_formats::SampleId;
use shade_job::{
    Buckets, Decode, JobSpec, Order, PlanSpec, Policy, Sampler, Subset, Tables, Tail, WeightTable,
};

const SAMPLES: u32 = 150;
/// Sizes of three ratios, each of another number of pixels.
const SIZES: [[u32; 2]; 3] = [[14, 8], [10, 10], [8, 12]];

/// A dataset with buckets, and how its epochs are delivered.
#[derive(Clone, Debug)]
struct Case {
    spec: JobSpec,
    /// By sample.
    buckets: Vec<u8>,
}

impl Case {
    fn slices(&self, len: usize) -> Slices {
        let JobSpec { batch_size, world_size, tail, .. } = self.spec;
        let slices = Slices::new(u32::try_from(self.buckets.len()).unwrap(), batch_size, world_size, tail);
        slices.unwrap().of_len(u32::try_from(len).unwrap())
    }

    fn draw(&self, buckets: &[u8], epoch: u32) -> Plan {
        let samples = u32::try_from(self.buckets.len()).unwrap();
        let mut importance = Importance::new(samples);
        for id in (0..samples).map(SampleId) {
            importance.set_score(id, 2.3 + (id.0 * 7 % 19) as f32 / 10.0);
            (id.0 % 3 == 0).then(|| importance.record_delivery(id, epoch));
        }
        let weights = WeightTable::new((0..samples).map(|id| f64::from(id % 5 + 1))).unwrap();
        let slices = Some(self.slices(self.buckets.len()));
        let facts = SampleFacts { weights: Some(&weights), slices, buckets, ..(&importance).into() };
        draw_plan(&self.spec.plan, epoch, self.spec.batch_size, facts, |id| id.0.is_multiple_of(3), 1.0)
    }
}

/// Deliveries, whatever their order.
fn deliveries(plan: &Plan) -> Vec<(u32, u32)> {
    let rows = plan.ids.iter().zip(&plan.weights);
    let mut rows: Vec<_> = rows.map(|(id, weight)| (id.0, weight.to_bits())).collect();
    rows.sort_unstable();
    rows
}

fn cases() -> impl Strategy<Value = Case> {
    let buckets = prop::collection::vec(prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => 2..7_u8], 1..400);
    let sizes = (1..20_u32, 1..4_u32, prop::sample::select(vec![Tail::Even, Tail::Pad, Tail::Drop]));
    let sampler = prop::sample::select(Sampler::ALL.to_vec());
    let order = prop::sample::select(Order::ALL.to_vec());
    (buckets, sizes, sampler, order, any::<u64>()).prop_filter_map(
        "an epoch that is no batch",
        |(buckets, (batch_size, world_size, tail), sampler, order, seed)| {
            let plan = PlanSpec { sampler, order, seed, ..PlanSpec::default() };
            let spec = JobSpec { plan, batch_size, world_size, tail, ..JobSpec::default() };
            let is_drawn = tail != Tail::Drop || buckets.len() as u64 >= spec.global_batch();
            is_drawn.then_some(Case { spec, buckets })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_delivery_comes_once_and_few_batches_are_mixed(case in cases(), epoch in 0..9_u32) {
        let (without, plan) = (case.draw(&[], epoch), case.draw(&case.buckets, epoch));
        prop_assert_eq!(deliveries(&plan), deliveries(&without));
        prop_assert_eq!(plan.summary, without.summary);
        let slices = case.slices(plan.ids.len());
        let rows = |batch| { let rows = slices.positions(batch); rows.start as usize..rows.end as usize };
        let delivered: Vec<_> = (0..slices.batches_per_epoch()).map(rows).collect();
        let end = delivered.last().map_or(0, |last| last.end);
        prop_assert_eq!(&plan.ids[end..], &without.ids[end..], "what is dropped goes by no bucket");

        let bucket = |id: &SampleId| case.buckets[id.index()];
        let global = case.spec.global_batch();
        let full = delivered.iter().filter(|rows| rows.len() as u64 == global).count() as u64;
        let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
        plan.ids[..end].iter().for_each(|id| *counts.entry(bucket(id)).or_default() += 1);
        let is_pure = |rows: &std::ops::Range<usize>| {
            rows.len() as u64 == global && plan.ids[rows.clone()].iter().map(bucket).collect::<BTreeSet<_>>().len() == 1
        };
        let pure = delivered.iter().filter(|rows| is_pure(rows)).count() as u64;
        if plan.summary.repeat_max <= 1 {
            let most = counts.values().map(|count| count / global).sum::<u64>();
            prop_assert!(pure >= most.min(full), "{pure} of {most}");
        }
        if case.spec.plan.sampler == Sampler::Sequential {
            let mut last: BTreeMap<u8, u32> = BTreeMap::new();
            for id in &plan.ids[..end] {
                let before = last.insert(bucket(id), id.0 + 1);
                prop_assert!(before <= Some(id.0), "in the dataset's order within each bucket");
            }
        }
    }
}

/// A bucket with one and a half batches has its batch at any time of an epoch.
#[test]
fn a_rare_bucket_comes_at_any_time() {
    let spec = JobSpec { batch_size: 8, ..JobSpec::default() };
    let buckets: Vec<u8> = (0..160).map(|id| u8::from(id % 16 == 3 || id % 80 == 7)).collect();
    assert_eq!(buckets.iter().filter(|bucket| **bucket == 1).count(), 12);
    let mut sum = 0;
    for epoch in 0..400 {
        let case = Case { spec: spec.clone(), buckets: buckets.clone() };
        let plan = case.draw(&case.buckets, epoch);
        let mut batches = plan.ids.chunks(8);
        sum += batches.position(|batch| batch.iter().all(|id| buckets[id.index()] == 1)).unwrap();
    }
    let mean = f64::from(u32::try_from(sum).unwrap()) / 400.0;
    // Uniform over 0 to 19: standard deviation 5.8, and that of the mean 0.29.
    assert!((mean - 9.5).abs() < 1.5, "{mean}");
}

/// The size of a batch's block, where all ranks have it, by batch; of those with all rows.
fn sizes(taken: &[Taken], what: &str) -> BTreeMap<u32, u64> {
    let mut batches: BTreeMap<u32, BTreeSet<(usize, u64)>> = BTreeMap::new();
    for taken in taken {
        batches.entry(taken.batch).or_default().insert((taken.ids.len(), taken.len));
    }
    let most = taken.iter().map(|taken| taken.ids.len()).max().unwrap();
    let mut sizes = BTreeMap::new();
    for (batch, ranks) in &batches {
        let counts: BTreeSet<_> = ranks.iter().map(|(rows, _)| rows).collect();
        assert_eq!(ranks.len(), counts.len(), "{what}: batch {batch} has {ranks:?}");
        sizes.extend(ranks.iter().find(|(rows, _)| *rows == most).map(|(_, len)| (*batch, *len)));
    }
    sizes
}

fn job(sampler: Sampler, order: Order, batch_size: u32, world_size: u32) -> (JobSpec, Tables) {
    let plan = PlanSpec { bucket: Buckets::new(&SIZES).unwrap(), sampler, order, ..PlanSpec::default() };
    let mut job = JobSpec { plan, decode: Decode::cover(9, 9), ..spec(batch_size, world_size) };
    let weights = (sampler == Sampler::Weighted).then(|| replay::weights(SAMPLES));
    // Ranks of an odd number have two samples of three.
    let subset =
        (world_size == 3).then(|| Subset::new((0..SAMPLES).filter(|id| id % 3 > 0).collect()).unwrap());
    let tables = Tables { weights, subset };
    tables.name_in(&mut job.plan);
    (job, tables)
}

fn begun(policy: Policy, (job, tables): &(JobSpec, Tables)) -> Replay {
    let images = |id: u32| [(30, 40), (32, 31), (40, 30)][(id % 7 % 3) as usize];
    let mut replay = Replay::new(index_of_images(SAMPLES, 5, |_| 300, images), policy, 40 * 512, 4, 3);
    for rank in 0..job.world_size {
        replay.attach_with(rank, rank, job, tables.clone());
    }
    assert!(replay.refused.is_empty(), "{:?}", replay.refused);
    replay
}

/// What ranks of one global batch are given is of one size, whatever else there is.
#[test]
fn all_ranks_have_one_size_by_every_sampler_order_and_policy() {
    for &sampler in Sampler::ALL {
        for &order in Order::ALL {
            for (policy, world_size) in
                [(Policy::Lookahead, 2), (Policy::Lru, 1), (Policy::Quiver, 3), (Policy::Icache, 2)]
            {
                let mut replay = begun(policy, &job(sampler, order, 6, world_size));
                let mut lens = BTreeSet::new();
                for epoch in 0..3 {
                    let taken = replay.epoch(epoch);
                    lens.extend(sizes(&taken, sampler.as_str()).into_values());
                    replay.report(&taken, |id| (id * 31 % 97) as f32);
                }
                assert_eq!(lens.len(), SIZES.len(), "{sampler} {order}: {lens:?}");
            }
        }
    }
}

/// Ranks of another number share out what is left, and agree on each batch's size.
#[test]
fn a_state_goes_on_here_and_with_other_ranks() {
    for &sampler in Sampler::ALL {
        let of_two = job(sampler, Order::Shuffled, 6, 2);
        let mut first = begun(Policy::Lookahead, &of_two);
        let taken = first.epoch(0);
        first.report(&taken, |id| (id * 31 % 97) as f32);
        let whole = first.epoch(1);
        let state = first.save(1, 4);
        let ids = |taken: &[Taken]| {
            let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
            ids.sort_unstable();
            ids
        };
        let rest: Vec<Taken> = whole.into_iter().filter(|taken| taken.batch >= 4).collect();
        for (batch_size, world_size) in [(6, 2), (5, 4), (7, 1)] {
            let mut other = begun(Policy::Lookahead, &job(sampler, Order::Shuffled, batch_size, world_size));
            let resumed = other.load(&state);
            (0..world_size).for_each(|rank| other.start(rank, 1, resumed.first_batch));
            other.run();
            let goes_on: Vec<Taken> = other.taken.drain(..).collect();
            let of_rest = sizes(&goes_on, sampler.as_str());
            assert_eq!(ids(&goes_on), ids(&rest), "{sampler}");
            if world_size == 2 {
                assert_eq!(of_rest, sizes(&rest, sampler.as_str()), "{sampler}");
            }
        }
    }
}
