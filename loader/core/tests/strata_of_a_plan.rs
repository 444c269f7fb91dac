//! What a plan of several strata promises: nodes that draw their own part have one plan together.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;

use proptest::prelude::*;
use shade_core::importance::{Importance, rank_portably};
use shade_core::plan::{Part, Plan, SampleFacts, Slices, Slot, Strata, draw_next_plan, draw_plan};
use shade_formats::SampleId;
use shade_job::{Order, PlanSpec, Sampler, Seats, Tail, WeightTable};

const KEY: u128 = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe;
const TAILS: [Tail; 3] = [Tail::Drop, Tail::Pad, Tail::Even];
/// Those that can be drawn by strata.
const SAMPLERS: [Sampler; 5] =
    [Sampler::Uniform, Sampler::Pads, Sampler::Cis, Sampler::Replacement, Sampler::Echo];

/// Scores of batches of 50 by losses that belong to the samples; every 17th was never delivered.
fn table(samples: u32) -> Importance {
    let mut importance = Importance::new(samples);
    let ids: Vec<SampleId> = (0..samples).map(SampleId).collect();
    for batch in ids.chunks(50) {
        let losses: Vec<f32> = batch.iter().map(|id| (id.0 * 7919 % 1009) as f32).collect();
        for (id, score) in rank_portably(batch, &losses).scores {
            importance.set_score(id, score);
        }
    }
    ids.iter().filter(|id| id.0 % 17 != 3).for_each(|&id| importance.record_delivery(id, 6));
    importance
}

/// Any weights, none of them 0.
fn weights(samples: u32) -> WeightTable {
    WeightTable::new((0..samples).map(|id| f64::from(id * 31 % 11 + 1))).unwrap()
}

/// Everything that epoch 7 is drawn from, except whose part it is.
struct Case {
    spec: PlanSpec,
    importance: Importance,
    weights: WeightTable,
    strata: Strata,
    seats: Seats,
    batch_size: u32,
}

impl Case {
    fn new(spec: PlanSpec, samples: u32) -> Self {
        let strata = Strata::new(samples, spec.strata, KEY).unwrap();
        let seats = Seats::IN_ORDER;
        Self { spec, importance: table(samples), weights: weights(samples), strata, seats, batch_size: 8 }
    }

    /// The same with any seats.
    fn seated(self, seed: u64) -> Self {
        let (strata, samples) = (self.spec.strata, self.importance.len());
        let (mut longer, mut others): (Vec<u32>, Vec<u32>) =
            (0..strata).partition(|stratum| *stratum < samples % strata);
        for strata in [&mut longer, &mut others] {
            strata.sort_by_key(|&stratum| (u64::from(stratum) + 1).wrapping_mul(seed) >> 32);
        }
        let seats = Seats::new([longer, others].concat(), samples).unwrap();
        Self { seats, ..self }
    }

    fn facts<'a>(&'a self, part: &'a Part) -> SampleFacts<'a> {
        let Self { importance, weights, strata, seats, .. } = self;
        SampleFacts {
            importance,
            weights: Some(weights),
            strata: strata.clone(),
            seats,
            part,
            slices: None,
            buckets: &[],
        }
    }

    fn draw(&self, part: &Part) -> Plan {
        draw_plan(&self.spec, 7, self.batch_size, self.facts(part), |_| false, 1.0)
    }
}

/// By node, its ranks: rank r is on node `node_of[r]`.
fn parts(node_of: &[u8], world_size: u32) -> Vec<Part> {
    let nodes: HashSet<u8> = node_of.iter().copied().collect();
    let ranks_of =
        |node: u8| (0..).zip(node_of).filter(|&(_, &of)| of == node).map(|(rank, _)| rank).collect();
    nodes.into_iter().map(|node| Part::of(ranks_of(node), world_size)).collect()
}

fn slices(samples: u32, batch_size: u32, world_size: u32, tail: Tail, strata: u32) -> Option<Slices> {
    Slices::new(samples, batch_size, world_size, tail).ok().map(|slices| slices.of_strata(strata))
}

fn ids(slots: &[Slot], plan: &Plan) -> Vec<SampleId> {
    slots.iter().map(|slot| plan.ids[slot.place as usize]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants 1 to 3: the parts are the whole, bit for bit; no two have a sample in common; all
    /// ranks have equally many batches, and no empty one.
    #[test]
    fn the_parts_of_all_nodes_are_the_plan_of_one(
        node_of in prop::collection::vec(0..4_u8, 1..9),
        strata_per_rank in 1..6_u32,
        more in 0..300_u32,
        batch_size in 1..12_u32,
        sampler in prop::sample::select(&SAMPLERS[..]),
        order in prop::sample::select(&[Order::Shuffled, Order::Spaced][..]),
        group in prop::sample::select(&[0, 9_u64][..]),
        tail in prop::sample::select(&TAILS[..]),
        seed: u64,
        seats: u64,
    ) {
        let world_size = u32::try_from(node_of.len()).unwrap();
        let strata = world_size * strata_per_rank;
        let samples = strata * 3 + more;
        let spec = PlanSpec { sampler, order, seed, group, strata, ..PlanSpec::default() };
        let case = Case { batch_size, ..Case::new(spec, samples) }.seated(seats);
        let whole = case.draw(&Part::WHOLE);
        prop_assert_eq!((whole.ids.len(), whole.weights.len()), (samples as usize, samples as usize));
        for (position, &id) in (0..).zip(&whole.ids) {
            prop_assert_eq!(case.strata.of(id), case.seats.stratum(position % strata), "position {}", position);
        }
        let Some(slices) = slices(samples, batch_size, world_size, tail, strata) else { return Ok(()) };
        let mut owner = vec![None; samples as usize];
        for (node, part) in parts(&node_of, world_size).iter().enumerate() {
            let own = case.draw(part);
            prop_assert_eq!(own.ids.len(), own.weights.len());
            prop_assert_eq!(own.ids.len(), part.places_before(samples) as usize);
            for position in 0..samples {
                let Some(place) = part.place(position) else { continue };
                prop_assert_eq!(own.ids[place as usize], whole.ids[position as usize]);
                let weights = (own.weights[place as usize], whole.weights[position as usize]);
                prop_assert_eq!(weights.0.to_bits(), weights.1.to_bits());
            }
            for id in &own.ids {
                prop_assert_eq!(*owner[id.index()].get_or_insert(node), node, "sample {}", id);
            }
            for k in 0..slices.batches_per_epoch() {
                for rank in (0..world_size).filter(|&rank| part.has(rank)) {
                    let (here, of_whole) = (slices.batch(k, rank, &own), slices.batch(k, rank, &whole));
                    prop_assert!(!here.is_empty());
                    prop_assert_eq!(ids(&here, &own), ids(&of_whole, &whole));
                    let positions = |slots: &[Slot]| slots.iter().map(|s| (s.position, s.padding)).collect::<Vec<_>>();
                    prop_assert_eq!(positions(&here), positions(&of_whole));
                }
            }
            for rank in (0..world_size).filter(|&rank| !part.has(rank)) {
                prop_assert_eq!(slices.batch(0, rank, &own), []);
            }
        }
    }

    /// A simulated node numbers its samples anew, and draws what a daemon draws.
    #[test]
    fn a_part_is_the_same_if_nobody_knows_the_other_samples(
        world_size in 2..9_u32, here in 1..5_u32, strata_per_rank in 1..6_u32, more in 0..300_u32,
        sampler in prop::sample::select(&SAMPLERS[..]), draws_ahead: bool, seed: u64, seats: u64,
    ) {
        let strata = world_size * strata_per_rank;
        let spec = PlanSpec { sampler, seed, strata, ..PlanSpec::default() };
        let case = Case::new(spec, strata * 3 + more).seated(seats);
        let part = Part::of((0..here.min(world_size - 1)).collect(), world_size);
        let held = (0..strata).filter(|seat| part.has(seat % world_size)).map(|seat| case.seats.stratum(seat));
        let (some, samples) = case.strata.of_some(held.collect());
        let mut importance = Importance::new(u32::try_from(samples.len()).unwrap());
        for (number, &id) in (0..).map(SampleId).zip(&samples) {
            importance.take_over(number, &case.importance, id);
            prop_assert_eq!(some.of(number), case.strata.of(id));
        }
        let weights = samples.iter().flat_map(|id| case.weights.weights()[id.index()].to_le_bytes());
        let weights = WeightTable::from_bytes(&weights.collect::<Vec<_>>(), importance.len()).unwrap();
        let alone = SampleFacts { importance: &importance, weights: Some(&weights), strata: some, ..case.facts(&part) };
        let draw = |facts: SampleFacts<'_>| {
            let plan = draw_plan(&spec, 7, 8, facts.clone(), |_| false, 1.0);
            if draws_ahead { draw_next_plan(&spec, &plan, 8, facts, |_| false, 1.0) } else { plan }
        };
        let (drawn, expected) = (draw(alone), draw(case.facts(&part)));
        let ids: Vec<SampleId> = drawn.ids.iter().map(|number| samples[number.index()]).collect();
        prop_assert_eq!((ids, drawn.weights, drawn.summary), (expected.ids, expected.weights, expected.summary));
    }

    /// Seats move strata and nothing else: each is delivered whole, in its own order.
    #[test]
    fn a_stratum_s_list_is_the_same_at_any_seat(
        strata in 1..40_u32, more in 0..200_u32, seed: u64, seats: u64, draws_ahead: bool,
        sampler in prop::sample::select(&SAMPLERS[..]), group in prop::sample::select(&[0, 9_u64][..]),
    ) {
        let samples = strata * 2 + more;
        let spec = PlanSpec { sampler, seed, group, strata, ..PlanSpec::default() };
        let draw = |case: &Case| {
            let plan = case.draw(&Part::WHOLE);
            if !draws_ahead {
                return plan;
            }
            draw_next_plan(&spec, &plan, 8, case.facts(&Part::WHOLE), |_| false, 1.0)
        };
        let in_order = draw(&Case::new(spec, samples));
        let case = Case::new(spec, samples).seated(seats);
        let plan = draw(&case);
        prop_assert_eq!(plan.summary, in_order.summary);
        for seat in 0..strata {
            let list = |plan: &Plan, seat: u32| -> Vec<(SampleId, u32)> {
                let of_seat = (seat as usize..).step_by(strata as usize);
                of_seat.map_while(|at| Some((*plan.ids.get(at)?, plan.weights.get(at)?.to_bits()))).collect()
            };
            prop_assert_eq!(list(&plan, seat), list(&in_order, case.seats.stratum(seat)));
        }
    }

    /// Every position is delivered as the tail says, and padding stays with the rank that has its
    /// sample.
    #[test]
    fn tails_are_delivered_by_the_ranks_that_own_them(
        world_size in 1..7_u32, strata_per_rank in 1..5_u32, more in 0..60_u32, batch_size in 1..9_u32,
        tail in prop::sample::select(&TAILS[..]), seats: u64,
    ) {
        let strata = world_size * strata_per_rank;
        let samples = strata + more;
        let case = Case::new(PlanSpec { strata, ..PlanSpec::default() }, samples).seated(seats);
        let plan = case.draw(&Part::WHOLE);
        let of_rank = |slot: &Slot| case.seats.seat(case.strata.of(plan.ids[slot.place as usize])) % world_size;
        let global = batch_size * world_size;
        let Some(slices) = slices(samples, batch_size, world_size, tail, strata) else { return Ok(()) };
        let mut real: Vec<u32> = Vec::new();
        for k in 0..slices.batches_per_epoch() {
            for rank in 0..world_size {
                let slots = slices.batch(k, rank, &plan);
                prop_assert!(slots.iter().all(|slot| slot.position % world_size == rank && of_rank(slot) == rank));
                prop_assert!(tail != Tail::Pad || slots.len() == batch_size as usize);
                real.extend(slots.iter().filter(|slot| !slot.padding).map(|slot| slot.position));
            }
        }
        real.sort_unstable();
        let delivered = if tail == Tail::Drop { samples - samples % global } else { samples };
        prop_assert_eq!(real, (0..delivered).collect::<Vec<_>>());
    }

    /// Invariant 4: global batch k is the same set for all numbers of ranks with the same global
    /// batch, also where they do not divide the number of strata.
    #[test]
    fn global_batches_are_the_same_sets_for_every_world_size(
        strata in 2..40_u32, more in 0..300_u32, rows in 1..4_u32, seed: u64, seats: u64,
        sampler in prop::sample::select(&[Sampler::Uniform, Sampler::Pads, Sampler::Replacement][..]),
        tail in prop::sample::select(&[Tail::Drop, Tail::Pad][..]),
    ) {
        let samples = strata.max(60) + more;
        let spec = PlanSpec { sampler, strata, seed, ..PlanSpec::default() };
        let global = |world_size: u32| -> Vec<Vec<Slot>> {
            let batch_size = rows * (60 / world_size);
            let plan = Case { batch_size, ..Case::new(spec, samples) }.seated(seats).draw(&Part::WHOLE);
            let Some(slices) = slices(samples, batch_size, world_size, tail, strata) else { return Vec::new() };
            let of_batch = |k| {
                let mut slots: Vec<Slot> = (0..world_size).flat_map(|rank| slices.batch(k, rank, &plan)).collect();
                slots.sort_unstable();
                slots
            };
            (0..slices.batches_per_epoch()).map(of_batch).collect()
        };
        for world_size in [2, 3, 4, 5, 6, 12] {
            prop_assert_eq!(global(1), global(world_size), "{} ranks", world_size);
        }
        let of_batch_size = |batch_size| Case { batch_size, ..Case::new(spec, samples) }.draw(&Part::WHOLE);
        prop_assert_eq!(of_batch_size(1), of_batch_size(64));
    }

    /// Invariant 5, for what the recorded digests of `plan_draws` do not have.
    #[test]
    fn one_stratum_is_a_plan_without_strata(
        samples in 1..400_u32, seed: u64, group in prop::sample::select(&[0, 9_u64][..]),
        sampler in prop::sample::select(Sampler::ALL), order in prop::sample::select(&[Order::Shuffled, Order::Spaced][..]),
    ) {
        let spec = PlanSpec { sampler, order, seed, group, ..PlanSpec::default() };
        let case = Case::new(spec, samples);
        let plain = SampleFacts { weights: Some(&case.weights), ..(&case.importance).into() };
        let without = draw_plan(&spec, 7, case.batch_size, plain, |_| false, 1.0);
        prop_assert_eq!(case.draw(&Part::WHOLE), without);
    }

    /// What is drawn early does not depend on the part either.
    #[test]
    fn plans_drawn_ahead_have_the_same_parts(
        samples in 40..400_u32, seed: u64, seats: u64,
        sampler in prop::sample::select(&[Sampler::Pads, Sampler::Replacement][..]),
    ) {
        let spec = PlanSpec { sampler, seed, strata: 12, cover: 1, ..PlanSpec::default() };
        let case = Case::new(spec, samples).seated(seats);
        let next = |part: &Part| draw_next_plan(&spec, &case.draw(part), 8, case.facts(part), |_| false, 1.0);
        let whole = next(&Part::WHOLE);
        for rank in 0..4 {
            let part = Part::of(vec![rank], 4);
            let own = next(&part);
            let expected: Vec<SampleId> = whole.ids.iter().skip(rank as usize).step_by(4).copied().collect();
            prop_assert_eq!(own.ids, expected);
        }
    }
}

/// Invariant 6. Pearson's statistic over all epochs, 10⁶ draws: its mean is the degrees of freedom,
/// one less in each stratum, its variance twice that.
#[test]
fn draws_follow_the_scores_of_their_stratum() {
    let (samples, strata, epochs) = (500, 4, 2000);
    let spec = PlanSpec { sampler: Sampler::Pads, strata, cover: 0, ..PlanSpec::default() };
    let case = Case::new(spec, samples);
    let score = |id: SampleId| f64::from(case.importance.score(id));
    let mut drawn = vec![0_u32; samples as usize];
    let mut of_loss = 0.0;
    for epoch in 1..=epochs {
        let plan = draw_plan(&spec, epoch, 8, case.facts(&Part::WHOLE), |_| false, 1.0);
        plan.ids.iter().for_each(|id| drawn[id.index()] += 1);
        // The weighted mean of any loss is that of a plain pass.
        of_loss += plan.ids.iter().zip(&plan.weights).map(|(id, &w)| f64::from(w) * score(*id)).sum::<f64>();
    }
    let mut statistic = 0.0;
    for stratum in 0..strata {
        let members = case.strata.members(stratum);
        let sum: f64 = members.iter().map(|&id| score(id)).sum();
        for &id in &members {
            let expected = score(id) / sum * members.len() as f64 * f64::from(epochs);
            statistic += (f64::from(drawn[id.index()]) - expected).powi(2) / expected;
        }
    }
    let freedom = f64::from(samples - strata);
    assert!((statistic - freedom).abs() < 4.0 * (2.0 * freedom).sqrt(), "{statistic}");
    let plain: f64 = (0..samples).map(SampleId).map(score).sum::<f64>() * f64::from(epochs);
    assert!((of_loss / plain - 1.0).abs() < 0.003, "{of_loss} against {plain}");
}

/// A rank's batch has no sample twice for any number of ranks that divides the strata, if a global
/// batch is no longer than that: repeats are 65,536 positions apart, or a 64th of the epoch.
#[test]
fn repeats_are_far_apart() {
    let (samples, strata) = (60_000, 12);
    let case = Case::new(PlanSpec { sampler: Sampler::Pads, strata, ..PlanSpec::default() }, samples);
    let plan = case.draw(&Part::WHOLE);
    let mut last = vec![None; samples as usize];
    for (position, id) in plan.ids.iter().enumerate() {
        if let Some(before) = last[id.index()].replace(position) {
            assert!(position - before >= 900, "{id} at {before} and {position}");
        }
    }
    assert!(plan.summary.repeat_max > 3, "{:?}", plan.summary);
}

/// In order and with the gaps that are asked for, each stratum by itself.
#[test]
fn echoed_samples_are_some_batches_apart() {
    let (samples, strata, batch_size) = (60_000, 24, 100);
    let spec = PlanSpec { sampler: Sampler::Echo, echo: 3.0, strata, ..PlanSpec::default() };
    let plan = Case { batch_size, ..Case::new(spec, samples) }.draw(&Part::WHOLE);
    let mut last = vec![None; samples as usize];
    let mut gaps = Vec::new();
    for (position, id) in plan.ids.iter().enumerate() {
        if let Some(before) = last[id.index()].replace(position) {
            gaps.push((position - before) as f64 / f64::from(batch_size));
        }
    }
    // In each stratum 833 or 834 samples are read.
    assert!(gaps.len().abs_diff(40_000) <= 24, "{}", gaps.len());
    let right = gaps.iter().filter(|&&gap| (19.0..=66.0).contains(&gap)).count();
    assert!(right as f64 >= 0.9 * gaps.len() as f64, "{right} of {}", gaps.len());
    assert!(gaps.iter().all(|&gap| gap >= 1.0));
}
