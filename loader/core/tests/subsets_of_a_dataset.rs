//! A job on a subset of the dataset delivers its samples and no others, whatever draws and caches.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use crate::replay::{self, Replay, Taken, index, spec};
use shade_core::Event;
use shade_core::importance::Importance;
use shade_core::plan::{Plan, SampleFacts, Strata, draw_plan};
use shade_formats::SampleId;
use shade_job::{JobSpec, OnError, Order, PlanSpec, Policy, Sampler, Subset, Tables, WeightTable};

const SAMPLES: u32 = 120;
const RECORD_BYTES: u32 = 300;

/// Every third sample but the first.
fn thirds() -> Vec<u32> {
    (1..SAMPLES / 3).map(|number| 3 * number).collect()
}

fn tables(sampler: Sampler, ids: &[u32]) -> Tables {
    let weights = (sampler == Sampler::Weighted).then(|| replay::weights(SAMPLES));
    Tables { weights, subset: Some(Subset::new(ids.to_vec()).unwrap()) }
}

fn job(mut spec: JobSpec, tables: &Tables) -> JobSpec {
    tables.name_in(&mut spec.plan);
    spec
}

fn begun(policy: Policy, cache_records: u64, spec: &JobSpec, tables: &Tables) -> Replay {
    let index = index(SAMPLES, 5, |_| RECORD_BYTES);
    let mut replay = Replay::new(index, policy, cache_records * 512, 4, 1);
    for rank in 0..spec.world_size {
        replay.attach_with(rank, rank, spec, tables.clone());
    }
    assert!(replay.refused.is_empty(), "{:?}", replay.refused);
    replay
}

fn delivered(taken: &[Taken]) -> Vec<u32> {
    taken.iter().flat_map(|taken| taken.ids.iter().copied()).collect()
}

fn loss(id: u32) -> f32 {
    f32::from(u16::try_from(id * 7 % 11).unwrap())
}

#[test]
fn every_sampler_delivers_samples_of_the_subset_only() {
    let ids = thirds();
    let all: BTreeSet<u32> = ids.iter().copied().collect();
    for &sampler in Sampler::ALL {
        for world_size in [1, 2] {
            let tables = tables(sampler, &ids);
            let plan = PlanSpec { sampler, cover: 2, ..PlanSpec::default() };
            let spec = job(JobSpec { plan, ..spec(5, world_size) }, &tables);
            let mut replay = begun(Policy::Lookahead, 20, &spec, &tables);
            assert_eq!(replay.accepted[0].batches_per_epoch, 39_u32.div_ceil(5 * world_size), "{sampler}");
            let mut seen = BTreeSet::new();
            for epoch in 0..4 {
                let taken = replay.epoch(epoch);
                let delivered = delivered(&taken);
                assert!(delivered.iter().all(|id| all.contains(id)), "{sampler}: {delivered:?}");
                let may_be_shorter = matches!(sampler, Sampler::Iis | Sampler::Infobatch | Sampler::Seta);
                assert!(delivered.len() == ids.len() || may_be_shorter, "{sampler}: {}", delivered.len());
                if matches!(sampler, Sampler::Uniform | Sampler::Sequential) {
                    let mut sorted = delivered.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, ids, "{sampler}");
                    assert_eq!(delivered == ids, sampler == Sampler::Sequential && world_size == 1);
                }
                seen.extend(delivered);
                replay.report(&taken, loss);
            }
            let stats = replay.core().stats(0);
            assert!(stats.epoch.distinct_share > 0.3 && stats.epoch.distinct_share <= 1.0, "{sampler}");
            let share = seen.len() as f64 / ids.len() as f64;
            assert!((stats.total.ever_seen_share - share).abs() < 1e-9, "{sampler}: {share}");
            assert!(replay.read.iter().all(|id| all.contains(id)), "{sampler}: {:?}", replay.read);
        }
    }
}

#[test]
fn the_expected_uses_are_those_of_a_dataset_of_the_subset_s_size() {
    // λ follows from the subset alone: its plan is that of a dataset that has its samples only.
    let ids = thirds();
    let subset = Subset::new(ids.clone()).unwrap();
    let small = Importance::new(subset.len());
    let large = Importance::new(SAMPLES);
    let all_weights: Vec<f64> = (0..SAMPLES).map(|id| f64::from(id % 7 + 1)).collect();
    let of_all = WeightTable::new(all_weights.iter().copied()).unwrap();
    let of_subset = WeightTable::new(ids.iter().map(|&id| all_weights[id as usize])).unwrap();
    for &sampler in Sampler::ALL.iter().filter(|&&sampler| sampler != Sampler::Balanced) {
        for order in [Order::Shuffled, Order::Spaced] {
            let plan = PlanSpec { sampler, order, ..PlanSpec::default() };
            let is_weighted = sampler == Sampler::Weighted;
            let facts = SampleFacts {
                weights: is_weighted.then_some(&of_all),
                strata: Strata::of_subset(subset.clone()),
                ..(&large).into()
            };
            let of_large = draw_plan(&plan, 3, 4, facts, |_| false, 1.0);
            let facts = SampleFacts { weights: is_weighted.then_some(&of_subset), ..(&small).into() };
            let of_small = draw_plan(&plan, 3, 4, facts, |_| false, 1.0);
            let renamed: Vec<SampleId> = of_small.ids.iter().map(|id| SampleId(ids[id.index()])).collect();
            assert_eq!(of_large, Plan { ids: renamed, ..of_small }, "{sampler} {order}");
        }
    }
}

#[test]
fn balanced_draws_the_classes_of_the_subset_equally_often() {
    // Class 0 has 24 samples of the dataset, and one of the subset.
    let ids: Vec<u32> = std::iter::once(0).chain((0..SAMPLES).filter(|id| id % 5 == 1)).collect();
    let tables = tables(Sampler::Balanced, &ids);
    let plan = PlanSpec { sampler: Sampler::Balanced, replacement: false, ..PlanSpec::default() };
    let spec = job(JobSpec { plan, ..spec(5, 1) }, &tables);
    let mut replay = begun(Policy::Lru, 20, &spec, &tables);
    let of_class_0 = delivered(&replay.epoch(0)).iter().filter(|&&id| id == 0).count();
    assert!((12..=13).contains(&of_class_0), "{of_class_0} of 25");
}

#[test]
fn a_state_goes_on_with_the_same_subset_only() {
    let ids = thirds();
    for sampler in [Sampler::Uniform, Sampler::Pads, Sampler::Weighted] {
        let tables_of = |ids: &[u32]| tables(sampler, ids);
        let plan = PlanSpec { sampler, ..PlanSpec::default() };
        let begin = |tables: &Tables| {
            let spec = job(JobSpec { plan, ..spec(5, 1) }, tables);
            begun(Policy::Lookahead, 20, &spec, tables)
        };
        let mut first = begin(&tables_of(&ids));
        let taken = first.epoch(0);
        first.report(&taken, loss);
        let whole = delivered(&first.epoch(1));
        let state = first.save(1, 3);
        let mut same = begin(&tables_of(&ids.iter().rev().copied().collect::<Vec<_>>()));
        let resumed = same.load(&state);
        assert_eq!((resumed.epoch, resumed.first_batch, resumed.batches), (1, 3, 8));
        same.start(0, 1, 3);
        same.run();
        let rest: Vec<Taken> = same.taken.drain(..).collect();
        assert_eq!(delivered(&rest), whole[15..], "{sampler}");
        for other in [&ids[1..], &(0..SAMPLES).collect::<Vec<_>>()] {
            let mut other = begin(&tables_of(other));
            other.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
            assert!(
                other.failed[0].contains("the same plan arguments, weights and indices"),
                "{:?}",
                other.failed
            );
        }
    }
}

#[test]
fn no_cache_takes_or_prefers_what_no_job_can_use() {
    let (even, odd): (Vec<u32>, Vec<u32>) = (0..SAMPLES).partition(|id| id % 2 == 0);
    for policy in [Policy::Lookahead, Policy::App, Policy::TopC, Policy::Quiver, Policy::Icache] {
        let before = tables(Sampler::Uniform, &even);
        let of = |tables: &Tables| job(spec(5, 1), tables);
        let mut replay = begun(policy, 40, &of(&before), &before);
        replay.epoch(0);
        replay.detach(0);
        assert!(replay.core().cached().all(|id| id.0 % 2 == 0));
        // Another training, on the other half: its records displace those of the first.
        let after = tables(Sampler::Uniform, &odd);
        replay.attach_with(1, 0, &of(&after), after.clone());
        for epoch in 0..3 {
            replay.epoch(epoch);
        }
        let useless = replay.core().cached().filter(|id| id.0 % 2 == 0).count();
        let resident = replay.core().cached().count();
        assert!(resident >= 35 && useless <= 2, "{policy}: {useless} of {resident}");
    }
}

#[test]
fn packages_bring_only_what_some_job_can_use() {
    // More batches than the ring has room for: packages are read after the first one.
    const MANY: u32 = 3000;
    let ids: Vec<u32> = (0..MANY).filter(|id| id % 4 == 0).collect();
    let tables = tables(Sampler::Uniform, &ids);
    let spec = job(spec(5, 1), &tables);
    let index = index(MANY, 5, |_| RECORD_BYTES);
    let mut replay = Replay::packaged(index, Policy::Lookahead, 300 * 512, 16 << 10, 1);
    replay.attach_with(0, 0, &spec, tables);
    for epoch in 0..3 {
        let mut delivered = delivered(&replay.epoch(epoch));
        delivered.sort_unstable();
        assert_eq!(delivered, ids);
    }
    assert!(replay.core().stats(0).total.counts.counts.prefetches > 0, "packages were read");
    assert!(replay.core().cached().all(|id| id.0 % 4 == 0));
}

#[test]
fn two_jobs_share_the_cache_with_a_subset_each() {
    let (low, high): (Vec<u32>, Vec<u32>) = (0..SAMPLES).partition(|id| *id < 80);
    let [of_low, of_high] = [low, high].map(|ids| tables(Sampler::Uniform, &ids));
    let mut replay = Replay::new(index(SAMPLES, 5, |_| RECORD_BYTES), Policy::Lookahead, 512 * 130, 4, 1);
    replay.attach_job_with(0, "low", &job(spec(5, 1), &of_low), of_low.clone());
    replay.attach_job_with(1, "high", &job(spec(5, 1), &of_high), of_high.clone());
    for epoch in 0..2 {
        replay.start(0, epoch, 0);
        replay.start(1, epoch, 0);
        replay.run();
        let taken: Vec<Taken> = replay.taken.drain(..).collect();
        for (session, subset) in [(0, &of_low), (1, &of_high)] {
            let own: Vec<Taken> = taken.iter().filter(|taken| taken.session == session).cloned().collect();
            let mut ids = delivered(&own);
            ids.sort_unstable();
            assert_eq!(ids, subset.subset.as_ref().unwrap().ids());
        }
    }
    assert_eq!(replay.core().cached().count(), SAMPLES as usize);
}

/// Whose epoch began last does not decide for the others what is important.
#[test]
fn icache_keeps_what_is_important_to_each_job() {
    let (low, high): (Vec<u32>, Vec<u32>) = (0..SAMPLES).partition(|id| *id < 60);
    let mut replay = Replay::new(index(SAMPLES, 5, |_| RECORD_BYTES), Policy::Icache, 512 * 40, 4, 1);
    for (session, ids) in [(0, low), (1, high)] {
        let tables = tables(Sampler::Uniform, &ids);
        replay.attach_job_with(session, &session.to_string(), &job(spec(5, 1), &tables), tables);
    }
    for epoch in 0..3 {
        (0..2).for_each(|session| replay.start(session, epoch, 0));
        replay.run();
    }
    let hits = [0, 1].map(|session| replay.core().stats(session).epoch.counts.counts.hits);
    assert!(hits.iter().all(|&hits| hits >= 10), "a high region of 36: {hits:?}");
}

#[test]
fn a_substitute_is_of_the_subset() {
    let ids: Vec<u32> = vec![0, 5, 50, 55, 100, 101];
    let tables = tables(Sampler::Sequential, &ids);
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    let spec = job(JobSpec { plan, on_error: OnError::Substitute, bad_max: 1.0, ..spec(6, 1) }, &tables);
    let mut replay = begun(Policy::Lru, 20, &spec, &tables);
    replay.bad.extend([5, 100]);
    // The next samples of class 0 by id are 10 and 105.
    assert_eq!(delivered(&replay.epoch(0)), [0, 50, 50, 55, 0, 101]);
}

#[test]
fn a_job_without_its_list_or_with_another_one_is_refused() {
    let (right, other) = (tables(Sampler::Uniform, &thirds()), tables(Sampler::Uniform, &[1, 2]));
    let spec = job(spec(5, 2), &right);
    let mut replay = Replay::new(index(SAMPLES, 1, |_| RECORD_BYTES), Policy::Lru, 20_000, 4, 1);
    replay.attach_with(0, 0, &spec, Tables::default());
    replay.attach_with(1, 0, &spec, other.clone());
    let beyond = tables(Sampler::Uniform, &[3, SAMPLES]);
    replay.attach_with(2, 0, &job(spec.clone(), &beyond), beyond);
    let strata = JobSpec { plan: PlanSpec { strata: 2, ..spec.plan }, ..spec.clone() };
    replay.attach_with(3, 0, &strata, right.clone());
    let light = Tables {
        weights: Some(WeightTable::new((0..SAMPLES).map(|id| f64::from(id % 3))).unwrap()),
        ..right.clone()
    };
    let weighted = JobSpec { plan: PlanSpec { sampler: Sampler::Weighted, ..spec.plan }, ..spec.clone() };
    replay.attach_with(4, 0, &job(weighted, &light), light);
    replay.attach_with(5, 0, &spec, right);
    replay.attach_with(6, 1, &job(spec, &other), other);
    let expected = [
        "a job on a subset needs its sample ids",
        "the list of indices has the digest",
        "indices is 120, but must be the id of one of the dataset's 120 samples",
        "strata is 2, but must be 1 with indices",
        "no sample of indices has a weight above 0",
        "other arguments",
    ];
    assert_eq!(replay.refused.len(), expected.len(), "{:?}", replay.refused);
    for (text, part) in replay.refused.iter().zip(expected) {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn nodes_share_a_subset_where_no_losses_are_needed() {
    let ids = thirds();
    let tables_of = |sampler| tables(sampler, &ids);
    for sampler in [Sampler::Uniform, Sampler::Sequential, Sampler::Echo] {
        let tables = tables_of(sampler);
        let plan = PlanSpec { sampler, ..PlanSpec::default() };
        let spec = job(JobSpec { plan, ranks_here: 1, ..spec(5, 2) }, &tables);
        let mut delivered_by_node = [0, 1].map(|rank| {
            let mut node =
                Replay::new(index(SAMPLES, 5, |_| RECORD_BYTES), Policy::Lookahead, 20 * 512, 4, 1);
            node.attach_with(rank, rank, &spec, tables.clone());
            delivered(&node.epoch(0))
        });
        assert!(delivered_by_node.iter().all(|of_node| of_node.len().abs_diff(ids.len() / 2) <= 5));
        let mut all: Vec<u32> = delivered_by_node.iter_mut().flat_map(std::mem::take).collect();
        all.sort_unstable();
        assert_eq!(all.len(), ids.len(), "{sampler}");
        assert!(all == ids || sampler == Sampler::Echo, "{sampler}: {all:?}");
    }
    let tables = tables_of(Sampler::Pads);
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let by_losses = job(JobSpec { plan, ranks_here: 1, ..spec(5, 2) }, &tables);
    let mut node = Replay::new(index(SAMPLES, 5, |_| RECORD_BYTES), Policy::Lru, 20_000, 4, 1);
    node.attach_with(0, 0, &by_losses, tables);
    assert!(node.refused[0].contains("sampler is pads, but must be one that goes by no losses"));
}
