//! A mixture has its parts in one ratio in each batch, and goes through each part pass after pass.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::replay::{self, Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::Event;
use shade_core::importance::Importance;
use shade_core::plan::{Origin, Plan, Repeats, SampleFacts, Slices, draw_next_plan, draw_plan};
use shade_formats::SampleId;
use shade_job::{
    EpochLength, JobSpec, OnError, Order, Part, Parts, PlanSpec, Policy, Sampler, Tables, Tail, WeightTable,
};

/// Those that go through a part pass after pass, where nothing is covered.
const IN_PASSES: [Sampler; 6] = [
    Sampler::Uniform,
    Sampler::Sequential,
    Sampler::Replacement,
    Sampler::Echo,
    Sampler::Weighted,
    Sampler::Balanced,
];

/// A mixture, and how its epochs are delivered.
#[derive(Clone, Debug)]
struct Case {
    spec: JobSpec,
    shares: Vec<f64>,
    weights: WeightTable,
}

impl Case {
    fn slices(&self) -> Slices {
        let JobSpec { batch_size, world_size, tail, .. } = self.spec;
        Slices::new(self.spec.positions(0), batch_size, world_size, tail).unwrap()
    }

    fn draw(&self, epoch: u32) -> Plan {
        self.draw_as(&self.spec.plan, epoch, |id| id.is_multiple_of(3))
    }

    fn draw_as(&self, plan: &PlanSpec, epoch: u32, is_resident: impl Fn(u32) -> bool) -> Plan {
        let mut importance = Importance::new(plan.parts.samples());
        for id in (0..plan.parts.samples()).map(SampleId) {
            importance.set_score(id, 2.3 + (id.0 * 7 % 19) as f32 / 10.0);
            (id.0 % 3 == 0).then(|| importance.record_delivery(id, epoch));
        }
        let slices = Some(self.slices());
        let facts = SampleFacts { weights: Some(&self.weights), slices, ..(&importance).into() };
        let drawn = draw_plan(plan, epoch, self.spec.batch_size, facts.clone(), |id| is_resident(id.0), 1.0);
        let is_pure = plan.cover == 0 && plan.samplers().all(|sampler| IN_PASSES.contains(&sampler));
        if let Some(before) = epoch.checked_sub(1).filter(|_| is_pure) {
            let before = Plan { epoch: before, ..drawn.clone() };
            let next =
                draw_next_plan(plan, &before, self.spec.batch_size, facts, |id| is_resident(id.0), 1.0);
            assert_eq!(next, drawn, "an epoch early");
        }
        drawn
    }

    fn part_of(&self, id: u32) -> usize {
        self.spec.plan.parts.ranges().position(|range| range.contains(&id)).unwrap()
    }

    /// How many of these samples are of each part.
    fn counted(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u64> {
        let mut counts = vec![0; self.spec.plan.parts.ranges().count()];
        ids.into_iter().for_each(|id| counts[self.part_of(id)] += 1);
        counts
    }

    /// How far these counts of `rows` rows are from the ratio, in parts of its sum, and the sum.
    fn off(&self, counts: &[u64], rows: u64) -> (u64, u64) {
        let ratio = self.spec.plan.parts.ratio();
        let off =
            counts.iter().zip(&ratio.terms).map(|(count, term)| (count * ratio.sum).abs_diff(term * rows));
        (off.max().unwrap(), ratio.sum)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let share = prop_oneof![(1..10_u32).prop_map(f64::from), 0.001..1.0_f64];
    let parts = prop::collection::vec((1..300_u32, share), 1..6);
    let length = prop_oneof![
        Just(EpochLength::First),
        (1..900_u32).prop_map(EpochLength::Samples),
        Just(EpochLength::Longest)
    ];
    let sizes = (1..40_u32, 1..5_u32, prop::sample::select(vec![Tail::Even, Tail::Pad, Tail::Drop]));
    let sampler = prop::sample::select(Sampler::ALL.to_vec());
    let order = prop::sample::select(Order::ALL.to_vec());
    let others = (any::<u64>(), prop::sample::select(vec![0_u64, 5]), prop::sample::select(vec![0_u32, 2]));
    (parts, length, sizes, sampler, order, others).prop_filter_map(
        "an epoch that is no batch, or is long",
        |(parts, epoch_length, (batch_size, world_size, tail), sampler, order, (seed, group, cover))| {
            let shares = parts.iter().map(|part| part.1).collect();
            let parts = Parts::new(&parts).unwrap();
            let group = if order.asks_for_residents() { 0 } else { group };
            let plan =
                PlanSpec { parts, epoch_length, sampler, order, seed, group, cover, ..PlanSpec::default() };
            let spec = JobSpec { plan, batch_size, world_size, tail, ..JobSpec::default() };
            spec.validate().unwrap();
            let positions = u64::from(spec.positions(0));
            let is_drawn = positions < 3_000 && (tail != Tail::Drop || positions >= spec.global_batch());
            let weights = WeightTable::new((0..parts.samples()).map(|id| f64::from(id % 5 + 1))).unwrap();
            is_drawn.then_some(Case { spec, shares, weights })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_batch_and_all_of_them_together_have_the_ratio(case in cases(), first in prop_oneof![Just(0), 0..30_u32]) {
        let slices = case.slices();
        let sizes = slices.batch_sizes();
        // By size of a batch: rows of each part, and of all.
        let mut all: BTreeMap<u32, (Vec<u64>, u64)> = BTreeMap::new();
        for epoch in first..first + 3 {
            let plan = case.draw(epoch);
            prop_assert_eq!(plan.ids.len(), sizes.iter().sum::<u32>() as usize);
            prop_assert_eq!(plan.ids.len(), plan.weights.len());
            let mut start = 0;
            for &size in &sizes {
                let ids = plan.ids[start..start + size as usize].iter().map(|id| id.0);
                start += size as usize;
                let counts = case.counted(ids);
                let (off, sum) = case.off(&counts, size.into());
                prop_assert!(off < sum, "{counts:?} of {size}");
                let (had, rows) = all.entry(size).or_insert_with(|| (vec![0; counts.len()], 0));
                had.iter_mut().zip(&counts).for_each(|(had, count)| *had += count);
                *rows += u64::from(size);
                // Epochs before these may have been off by as much the other way.
                let (off, sum) = case.off(had, *rows);
                prop_assert!(off < if first == 0 { sum } else { 2 * sum }, "{had:?} of {rows}");
            }
            // The ranks' batches are the plan's.
            for (number, &size) in (0..slices.batches_per_epoch()).zip(&sizes) {
                let of_rank = |rank| slices.batch(number, rank, &plan).into_iter().filter(|slot| !slot.padding);
                let rows = (0..case.spec.world_size).flat_map(of_rank);
                let counts = case.counted(rows.map(|slot| plan.ids[slot.place as usize].0));
                let (off, sum) = case.off(&counts, size.into());
                prop_assert!(off < sum && counts.iter().sum::<u64>() == u64::from(size), "{counts:?} of {size}");
            }
            let mut times: BTreeMap<u32, u32> = BTreeMap::new();
            plan.ids.iter().for_each(|id| *times.entry(id.0).or_default() += 1);
            prop_assert_eq!(plan.summary.distinct as usize, times.len());
            prop_assert_eq!(Some(&plan.summary.repeat_max), times.values().max());
        }
    }

    #[test]
    fn a_part_is_gone_through_pass_after_pass(
        case in cases(), sampler in prop::sample::select(IN_PASSES.to_vec()),
    ) {
        let mut case = case;
        (case.spec.plan.sampler, case.spec.plan.cover) = (sampler, 0);
        let plan = case.spec.plan;
        // The plan of a dataset that is the part alone, by what draws it.
        let alone = |number: usize, pass: u32| {
            let range = plan.parts.ranges().nth(number).unwrap();
            let importance = Importance::new(range.end - range.start);
            let weights = (range.start..range.end).map(|id| f64::from(id % 5 + 1));
            let weights = WeightTable::new(weights).unwrap();
            let facts = SampleFacts { weights: Some(&weights), ..(&importance).into() };
            let order = if plan.order.asks_for_residents() { Order::Shuffled } else { plan.order };
            let spec = PlanSpec { parts: Parts::NONE, order, epoch_length: EpochLength::First, ..plan };
            draw_plan(&spec, pass, case.spec.batch_size, facts, |_| false, 1.0)
        };
        let mut had: Vec<Vec<u32>> = vec![Vec::new(); plan.parts.ranges().count()];
        for epoch in 0..4 {
            let drawn = case.draw(epoch);
            let by_residents = plan.order.asks_for_residents();
            let pure = case.draw_as(&PlanSpec { order: if by_residents { Order::Shuffled } else { plan.order }, ..plan }, epoch, |_| true);
            let sorted = |plan: &Plan| { let mut ids = plan.ids.clone(); ids.sort_unstable(); ids };
            prop_assert_eq!(sorted(&drawn), sorted(&pure), "the same samples whatever is cached");
            prop_assert!(by_residents || drawn == pure, "the cache does not matter");
            pure.ids.iter().for_each(|id| had[case.part_of(id.0)].push(id.0));
        }
        for (number, (had, range)) in had.iter().zip(plan.parts.ranges()).enumerate() {
            for (pass, of_pass) in had.chunks(range.len()).enumerate() {
                if matches!(plan.sampler, Sampler::Uniform | Sampler::Sequential) {
                    let mut ids = of_pass.to_vec();
                    ids.sort_unstable();
                    ids.dedup();
                    prop_assert_eq!(ids.len(), of_pass.len(), "once in a pass");
                }
                if number == 0 && plan.sampler != Sampler::Echo && plan.order != Order::Spaced && plan.group == 0 {
                    let alone = alone(number, u32::try_from(pass).unwrap()).ids;
                    let whole: Vec<u32> = alone.iter().map(|id| id.0 + range.start).collect();
                    let twice = whole.len() > whole.iter().collect::<std::collections::HashSet<_>>().len();
                    // Repeats are moved apart by the rows of a batch, which are fewer of a part.
                    prop_assert!(twice || whole.starts_with(of_pass), "the first part is as a dataset alone");
                }
            }
        }
    }

    #[test]
    fn a_part_with_a_sampler_of_its_own_is_drawn_as_if_all_had_it(
        case in cases(), own in prop::collection::vec(prop::option::of(prop::sample::select(Sampler::ALL.to_vec())), 5),
        epoch in 0..5_u32,
    ) {
        let plan = case.spec.plan;
        let rows = plan.parts.ranges().zip(&case.shares).zip(&own);
        let rows: Vec<Part> = rows.map(|((ids, &share), &sampler)| Part { samples: ids.end - ids.start, share, sampler }).collect();
        let mixed = PlanSpec { parts: Parts::new(&rows).unwrap(), ..plan };
        let mixed = case.draw_as(&mixed, epoch, |id| id.is_multiple_of(3));
        let of_part = |plan: &Plan, part: usize| -> Vec<(SampleId, f32)> {
            let rows = plan.ids.iter().copied().zip(plan.weights.iter().copied());
            rows.filter(|(id, _)| case.part_of(id.0) == part).collect()
        };
        for (number, own) in own.iter().take(rows.len()).enumerate() {
            let all = PlanSpec { sampler: own.unwrap_or(plan.sampler), ..plan };
            let all = case.draw_as(&all, epoch, |id| id.is_multiple_of(3));
            prop_assert_eq!(of_part(&mixed, number), of_part(&all, number), "part {}", number);
        }
        let spec = JobSpec { plan: PlanSpec { parts: Parts::new(&rows).unwrap(), ..plan }, ..case.spec.clone() };
        let repeats = Repeats::new(&spec, plan.parts.samples(), None, Some(&case.weights));
        for (number, own) in own.iter().take(rows.len()).enumerate() {
            let plan = PlanSpec { sampler: own.unwrap_or(plan.sampler), ..plan };
            let all = JobSpec { plan, ..case.spec.clone() };
            let all = Repeats::new(&all, plan.parts.samples(), None, Some(&case.weights));
            let ids = plan.parts.ranges().nth(number).unwrap();
            prop_assert!(ids.map(SampleId).all(|id| repeats.of(id) == all.of(id)));
        }
    }

    #[test]
    fn the_rest_of_an_epoch_goes_to_other_batches_whole(
        case in cases(), at in 0..100_u32, batch_size in 1..40_u32, world_size in 1..5_u32,
    ) {
        let plan = case.draw(1);
        let before = case.slices();
        let position = before.start(at % (before.batches_per_epoch() + 1));
        let slices = Slices::new(1, batch_size, world_size, Tail::Even).unwrap();
        let slices = slices.of_len(u32::try_from(plan.ids.len()).unwrap());
        let slices = slices.from_origin(Origin { position, batch: slices.origin_at(position).batch });
        let batches = slices.origin().batch..slices.batches_per_epoch();
        let rows = batches.flat_map(|batch| (0..world_size).flat_map(move |rank| [(batch, rank)]));
        let mut positions: Vec<u32> = rows
            .flat_map(|(batch, rank)| slices.batch(batch, rank, &plan))
            .filter(|slot| !slot.padding)
            .map(|slot| slot.position)
            .collect();
        positions.sort_unstable();
        prop_assert!(positions.into_iter().eq(position..u32::try_from(plan.ids.len()).unwrap()));
    }
}

const SAMPLES: u32 = 150;

/// A job on a mixture of 100 and 50 samples. The latter may have a sampler of their own.
fn mixed_by(
    plan: PlanSpec,
    shares: [f64; 2],
    own: Option<Sampler>,
    batch_size: u32,
    world_size: u32,
) -> JobSpec {
    let [first, second] = shares;
    let parts = [(100, first).into(), Part { samples: 50, share: second, sampler: own }];
    let parts = Parts::new(&parts).unwrap();
    JobSpec { plan: PlanSpec { parts, cover: 2, ..plan }, ..spec(batch_size, world_size) }
}

fn mixed(plan: PlanSpec, shares: [f64; 2], batch_size: u32, world_size: u32) -> JobSpec {
    mixed_by(plan, shares, None, batch_size, world_size)
}

fn begun(policy: Policy, spec: &JobSpec) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), policy, 40 * 512, 4, 3);
    let weights = (spec.plan.sampler == Sampler::Weighted).then(|| replay::weights(SAMPLES));
    let tables = Tables { weights, subset: None };
    let mut spec = spec.clone();
    tables.name_in(&mut spec.plan);
    for rank in 0..spec.local_ranks() {
        replay.attach_with(rank, rank, &spec, tables.clone());
    }
    assert!(replay.refused.is_empty(), "{:?}", replay.refused);
    replay
}

/// Rows of the first part in each global batch.
fn of_first(taken: &[Taken]) -> BTreeMap<u32, (usize, usize)> {
    let mut batches: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for taken in taken {
        let (first, all) = batches.entry(taken.batch).or_default();
        *first += taken.ids.iter().filter(|&&id| id < 100).count();
        *all += taken.ids.len();
    }
    batches
}

#[test]
fn ranks_are_given_the_ratio_by_every_sampler_order_and_policy() {
    for &sampler in Sampler::ALL {
        for &order in Order::ALL {
            for policy in [Policy::Lookahead, Policy::Lru, Policy::Quiver, Policy::Icache] {
                for world_size in [1, 2] {
                    let plan = PlanSpec { sampler, order, ..PlanSpec::default() };
                    let spec = mixed(plan, [0.75, 0.25], 8, world_size);
                    let mut replay = begun(policy, &spec);
                    for epoch in 0..3 {
                        let taken = replay.epoch(epoch);
                        let batches = of_first(&taken);
                        // 100 / 0.75 samples, rounded up to whole batches.
                        assert_eq!(batches.len(), 17_usize.div_ceil(world_size as usize));
                        let all = 8 * world_size as usize;
                        assert!(
                            batches.values().all(|rows| *rows == (all * 3 / 4, all)),
                            "{spec:?}: {batches:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_state_goes_on_in_this_daemon_and_in_another() {
    let own = [None, Some(Sampler::Uniform), Some(Sampler::Pads), Some(Sampler::Infobatch)];
    for (&sampler, own) in Sampler::ALL.iter().flat_map(|sampler| own.map(|own| (sampler, own))) {
        let plan = PlanSpec { sampler, ..PlanSpec::default() };
        let mixed = |plan, shares, batch_size, ranks| mixed_by(plan, shares, own, batch_size, ranks);
        let spec = mixed(plan, [0.7, 0.3], 6, 2);
        if spec.validate().is_err() {
            continue;
        }
        let mut first = begun(Policy::Lookahead, &spec);
        let taken = first.epoch(0);
        first.report(&taken, |id| (id * 31 % 97) as f32);
        let state_at = |replay: &mut Replay| replay.save(1, 4);
        let whole = first.epoch(1);
        let state = state_at(&mut first);
        let after = first.epoch(2);
        let ids = |taken: &[Taken], from: u32| {
            let mut rows: Vec<_> = taken.iter().filter(|taken| taken.batch >= from).collect();
            rows.sort_by_key(|taken| (taken.batch, taken.rank));
            rows.into_iter().map(|taken| taken.ids.clone()).collect::<Vec<_>>()
        };
        let mut other = begun(Policy::Lookahead, &spec);
        for replay in [&mut first, &mut other] {
            let resumed = replay.load(&state);
            assert_eq!((resumed.epoch, resumed.first_batch), (1, 4));
            replay.taken.clear();
            (0..2).for_each(|rank| replay.start(rank, 1, 4));
            replay.run();
            let rest: Vec<Taken> = replay.taken.drain(..).collect();
            assert_eq!(ids(&rest, 4), ids(&whole, 4), "{sampler}");
            assert_eq!(ids(&replay.epoch(2), 0), ids(&after, 0), "{sampler}: the epoch after it");
        }
        // With other ranks the rest is shared out anew, whatever length their own epochs have.
        let mut alone = begun(Policy::Lookahead, &mixed(plan, [0.7, 0.3], 7, 1));
        let resumed = alone.load(&state);
        alone.taken.clear();
        alone.start(0, 1, resumed.first_batch);
        alone.run();
        let sorted = |taken: &[Taken], from| {
            let mut ids: Vec<u32> = ids(taken, from).concat();
            ids.sort_unstable();
            ids
        };
        let rest: Vec<Taken> = alone.taken.drain(..).collect();
        assert_eq!(sorted(&rest, 0), sorted(&whole, 4), "{sampler}");
        assert_eq!(alone.epoch(2).len(), 21, "100 / 0.7 samples in batches of 7");
        // Not with another ratio.
        let mut other = begun(Policy::Lookahead, &mixed(plan, [0.6, 0.4], 6, 2));
        other.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
        assert!(other.failed[0].contains("the same mixture"), "{:?}", other.failed);
    }
}

/// A plan that was drawn early was drawn for the batches of before.
#[test]
fn the_epoch_behind_a_state_has_the_batches_of_those_who_load_it() {
    for sampler in [Sampler::Uniform, Sampler::Pads, Sampler::Infobatch] {
        let plan = PlanSpec { sampler, draw_ahead: true, ..PlanSpec::default() };
        let mut first = begun(Policy::Lookahead, &mixed(plan, [0.7, 0.3], 6, 2));
        let taken = first.epoch(0);
        first.report(&taken, |id| (id * 31 % 97) as f32);
        first.epoch(1);
        let state = first.save(1, 4);
        let mut other = begun(Policy::Lookahead, &mixed(plan, [0.7, 0.3], 20, 1));
        let resumed = other.load(&state);
        other.start(0, 1, resumed.first_batch);
        other.run();
        for epoch in 2..4 {
            let batches = of_first(&other.epoch(epoch));
            assert_eq!(batches.len(), 8, "{sampler}: 100 / 0.7 samples in batches of 20");
            assert!(batches.values().all(|rows| *rows == (14, 20)), "{sampler} {epoch}: {batches:?}");
        }
    }
}

/// What a sampler leaves out is filled up, and must not weigh for it.
#[test]
fn the_share_of_a_part_in_the_loss_is_that_of_its_rows() {
    for sampler in [Sampler::Pads, Sampler::Iis, Sampler::Cis, Sampler::Infobatch, Sampler::Seta] {
        let parts = [(2_000, 0.5).into(), Part { samples: 3_000, share: 0.5, sampler: Some(sampler) }];
        let plan = PlanSpec {
            sampler: Sampler::Uniform,
            parts: Parts::new(&parts).unwrap(),
            cover: 0,
            ..PlanSpec::default()
        };
        let spec = JobSpec { plan, batch_size: 40, ..JobSpec::default() };
        let weights = WeightTable::new(std::iter::repeat_n(1.0, 5_000)).unwrap();
        let case = Case { spec, shares: vec![0.5; 2], weights };
        for epoch in 6..9 {
            let drawn = case.draw(epoch);
            let of_part = drawn.ids.iter().zip(&drawn.weights).filter(|(id, _)| id.0 >= 2_000);
            let (rows, sum) = of_part.fold((0, 0.0), |(rows, sum), (_, weight)| (rows + 1, sum + weight));
            let mean = sum / rows as f32;
            assert!((mean - 1.0).abs() < 0.06, "{sampler} {epoch}: {mean}");
        }
    }
}

#[test]
fn cover_waits_for_as_many_draws_of_a_part_as_epochs_of_a_dataset() {
    let parts = [(200, 0.5).into(), Part { samples: 4_000, share: 0.5, sampler: Some(Sampler::Infobatch) }];
    let parts = Parts::new(&parts).unwrap();
    let drawn = |cover: u32, epoch: u32| {
        let plan = PlanSpec { sampler: Sampler::Uniform, parts, cover, ..PlanSpec::default() };
        let spec = JobSpec { plan, batch_size: 40, ..JobSpec::default() };
        let slices = Some(Slices::new(spec.positions(0), 40, 1, Tail::Even).unwrap());
        let mut importance = Importance::new(parts.samples());
        for id in (0..parts.samples()).map(SampleId) {
            // Every second one is easy. Each came once in the last 20 epochs, of which each takes a
            // twentieth of the part.
            importance.set_score(id, if id.0 % 2 == 0 { 2.4 } else { 3.9 });
            importance.record_delivery(id, epoch - 1 - id.0 / 2 % 20);
        }
        let facts = SampleFacts { slices, ..(&importance).into() };
        let plan = draw_plan(&plan, epoch, 40, facts, |_| false, 1.0);
        let of_part: Vec<u32> = plan.ids.iter().map(|id| id.0).filter(|&id| id >= 200).collect();
        assert_eq!(of_part.len(), 200);
        (of_part.iter().filter(|&&id| id % 2 == 0).count(), plan.summary.covered)
    };
    // Half of the easy ones are left out, so a third of the rows are easy.
    for cover in [0, 5] {
        let (easy, covered) = drawn(cover, 40);
        assert!((40..=90).contains(&easy) && covered == 0, "{cover}: {easy} easy, {covered} covered");
    }
    // All were delivered longer ago than one draw takes.
    let (_, covered) = drawn(1, 400);
    assert!(covered <= 200, "{covered} of 200 rows");
}

#[test]
fn nodes_draw_one_plan_where_no_cache_is_asked() {
    let plan = PlanSpec { sampler: Sampler::Uniform, ..PlanSpec::default() };
    let one = mixed(plan, [0.7, 0.3], 5, 2);
    let together = begun(Policy::Lookahead, &one).epoch(0);
    let spec = JobSpec { ranks_here: 1, ..one.clone() };
    let apart: Vec<Taken> = [0, 1]
        .into_iter()
        .flat_map(|rank| {
            let mut node = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lookahead, 40 * 512, 4, 3);
            node.attach_with(rank, rank, &spec, Tables::default());
            node.epoch(0)
        })
        .collect();
    let of = |taken: &[Taken]| -> BTreeMap<(u32, u32), Vec<u32>> {
        taken.iter().map(|taken| ((taken.batch, taken.rank), taken.ids.clone())).collect()
    };
    assert_eq!(of(&together), of(&apart));
    // It is named what goes by losses, and not what the others are drawn by.
    let own = mixed_by(plan, [0.7, 0.3], Some(Sampler::Pads), 5, 2);
    let refused = JobSpec { ranks_here: 1, ..own }.validate().unwrap_err().to_string();
    assert!(refused.contains("pads") && !refused.contains("uniform"), "{refused}");
    let by_cache = JobSpec { plan: PlanSpec { order: Order::HitsFirst, ..spec.plan }, ..spec };
    let mut node = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lru, 40 * 512, 4, 3);
    node.attach_with(0, 0, &by_cache, Tables::default());
    let refused =
        "must be one that goes by no losses, deliveries or caches, where ranks are on several nodes";
    assert!(node.refused[0].contains(refused), "{:?}", node.refused);
}

#[test]
fn balanced_balances_within_a_part() {
    let plan = PlanSpec { sampler: Sampler::Balanced, replacement: false, ..PlanSpec::default() };
    let spec = mixed(plan, [0.5, 0.5], 10, 1);
    // Class 0 has 4 of the 100 samples of the first part, and 40 of the 50 of the second.
    let label = |id: u32| u32::from(if id < 100 { !id.is_multiple_of(25) } else { id.is_multiple_of(5) });
    let index = replay::index_of(SAMPLES, 2, |_| 300, |id, entry| entry.label = label(id));
    let mut replay = Replay::new(index, Policy::Lru, 40 * 512, 4, 3);
    replay.attach_all(&spec, 0);
    let ids: Vec<u32> = replay.epoch(0).into_iter().flat_map(|taken| taken.ids).collect();
    assert_eq!(ids.len(), 200);
    for part in [0..100, 100..150] {
        let of_part: Vec<u32> = ids.iter().copied().filter(|id| part.contains(id)).collect();
        let of_class = of_part.iter().filter(|&&id| label(id) == 0).count();
        // By the classes of all it would be 9 and 90. Fractions are rounded sample by sample.
        assert!(of_part.len() == 100 && of_class.abs_diff(50) <= 12, "{part:?}: {of_class}");
    }
}

#[test]
fn a_substitute_is_of_the_same_part() {
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    let spec = mixed(plan, [2.0, 1.0], 30, 1);
    let mut replay = begun(Policy::Lru, &JobSpec { on_error: OnError::Substitute, bad_max: 1.0, ..spec });
    // The last ones of their class in the first part; the next of all are in the second.
    replay.bad.extend(95..100);
    let batches = of_first(&replay.epoch(0));
    assert!(batches.values().all(|rows| *rows == (20, 30)), "{batches:?}");
}

/// The room of a row is that of its class in its own part.
#[test]
fn a_long_record_has_a_substitute_in_its_part() {
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    let spec = JobSpec {
        on_error: OnError::Substitute,
        bad_max: 1.0,
        ring_bytes: 0,
        ..mixed(plan, [2.0, 1.0], 30, 1)
    };
    let index = index(SAMPLES, 5, |id| if id < 100 { 300 } else { 5_000 + 10 * (id - 100) });
    let mut replay = Replay::new(index, Policy::Lru, 1 << 20, 4, 3);
    replay.attach_with(0, 0, &spec, Tables::default());
    // The shortest of their classes there.
    replay.bad.extend(100..105);
    let batches = of_first(&replay.epoch(0));
    assert!(replay.failed.is_empty(), "{:?}", replay.failed);
    assert!(batches.len() == 5 && batches.values().all(|rows| *rows == (20, 30)), "{batches:?}");
}

#[test]
fn a_part_that_is_not_drawn_by_weights_needs_none() {
    let plan = PlanSpec { sampler: Sampler::Weighted, ..PlanSpec::default() };
    let mut spec = mixed_by(plan, [0.5, 0.5], Some(Sampler::Uniform), 5, 1);
    let weights = WeightTable::new((0..SAMPLES).map(|id| if id < 100 { 1.0 } else { 0.0 })).unwrap();
    let tables = Tables { weights: Some(weights), subset: None };
    tables.name_in(&mut spec.plan);
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lru, 20_000, 4, 1);
    replay.attach_with(0, 0, &spec, tables);
    assert!(replay.refused.is_empty(), "{:?}", replay.refused);
    assert_eq!(replay.epoch(0).len(), 40);
}

#[test]
fn parts_of_another_dataset_and_weights_without_a_part_are_refused() {
    let plan = PlanSpec::default();
    let other = Parts::new(&[(100, 0.5), (51, 0.5)]).unwrap();
    let wrong = JobSpec { plan: PlanSpec { parts: other, ..plan }, ..spec(5, 1) };
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lru, 20_000, 4, 1);
    replay.attach_with(0, 0, &wrong, Tables::default());
    let weights = WeightTable::new((0..SAMPLES).map(|id| if id < 100 { 1.0 } else { 0.0 })).unwrap();
    let tables = Tables { weights: Some(weights), subset: None };
    let mut weighted = mixed(PlanSpec { sampler: Sampler::Weighted, ..plan }, [0.5, 0.5], 5, 1);
    tables.name_in(&mut weighted.plan);
    replay.attach_with(1, 0, &weighted, tables);
    let expected = ["have 151 samples, and the dataset has 150", "no sample of dataset 1 of the mixture"];
    assert_eq!(replay.refused.len(), 2, "{:?}", replay.refused);
    for (text, part) in replay.refused.iter().zip(expected) {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_part_shorter_than_a_batch_comes_several_times_in_it() {
    let parts = Parts::new(&[(2, 0.5), (148, 0.5)]).unwrap();
    for &sampler in Sampler::ALL {
        let plan =
            PlanSpec { parts, sampler, cover: 0, epoch_length: EpochLength::Longest, ..PlanSpec::default() };
        // Two long records, for which the ring must have room ten times a batch.
        let index = index(SAMPLES, 5, |id| if id < 2 { 20_000 } else { 300 });
        let mut replay = Replay::new(index, Policy::Lookahead, 1 << 20, 4, 3);
        let weights = (sampler == Sampler::Weighted).then(|| replay::weights(SAMPLES));
        let tables = Tables { weights, subset: None };
        let mut spec = JobSpec { plan, ring_bytes: 0, ..spec(20, 1) };
        tables.name_in(&mut spec.plan);
        replay.attach_with(0, 0, &spec, tables);
        for epoch in 0..2 {
            let taken = replay.epoch(epoch);
            assert_eq!(taken.len(), 15, "{sampler}");
            for taken in taken {
                assert_eq!(taken.ids.iter().filter(|&&id| id < 2).count(), 10, "{sampler}");
            }
        }
    }
}
