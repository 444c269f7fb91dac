//! A training that was saved in the middle of an epoch goes on with another number of ranks, and of
//! samples in a batch: what is delivered before and after, together, is the plan.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};

use crate::replay::{Replay, Taken, index, spec, weights};
use proptest::prelude::*;
use shade_core::Event;
use shade_core::plan::{Part, Plan, PlanSummary, Slices, Slot};
use shade_formats::SampleId;
use shade_formats::ring::FLAG_PADDING;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler, Tail};

const SAMPLES: u32 = 240;
const TAILS: [Tail; 3] = [Tail::Even, Tail::Pad, Tail::Drop];

/// A daemon with all ranks of a job, as sessions of the same numbers.
fn daemon(plan: PlanSpec, batch_size: u32, world_size: u32, tail: Tail) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lookahead, 60 * 512, 4, 7);
    replay.attach_all(&JobSpec { plan, tail, ..spec(batch_size, world_size) }, 0);
    replay
}

fn loss(id: u32) -> f32 {
    (id * 31 % 97) as f32
}

/// How often each sample was delivered in `epoch`, without padding.
fn ledger<'a>(taken: impl IntoIterator<Item = &'a Taken>, epoch: u32) -> BTreeMap<u32, u32> {
    let mut ledger = BTreeMap::new();
    for taken in taken.into_iter().filter(|taken| taken.epoch == epoch) {
        for (&id, flags) in taken.ids.iter().zip(&taken.flags) {
            *ledger.entry(id).or_default() += u32::from(flags & FLAG_PADDING == 0);
        }
    }
    ledger.retain(|_, times| *times > 0);
    ledger
}

/// Takes an epoch from `first_batch` on, up to batch `end` of each rank. Later batches may be
/// delivered, too; they are not kept.
fn take(replay: &mut Replay, world_size: u32, epoch: u32, (first_batch, end): (u32, u32)) -> Vec<Taken> {
    replay.taken.clear();
    (0..world_size).for_each(|rank| replay.start(rank, epoch, first_batch));
    replay.run();
    let taken: Vec<Taken> = replay.taken.iter().filter(|taken| taken.batch < end).cloned().collect();
    for rank in 0..world_size {
        let batches = taken.iter().filter(|taken| taken.rank == rank);
        assert!(batches.clone().all(|taken| !taken.ids.is_empty()));
        assert_eq!(batches.count(), (end - first_batch) as usize, "rank {rank} of {world_size}");
    }
    replay.report(&taken, loss);
    taken
}

/// Three daemons, each with another number of ranks and samples in a batch, deliver an epoch.
fn three_worlds(plan: PlanSpec, tail: Tail, worlds: [(u32, u32); 3]) {
    let what = format!("{plan:?} {tail:?} {worlds:?}");
    let (batch, world) = worlds[0];
    let mut first = daemon(plan, batch, world, tail);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    let mut delivered = take(&mut first, world, 1, (0, 3));
    let mut state = first.save(1, 3);
    // The same again is the same as going on.
    let mut again = daemon(plan, batch, world, tail);
    let resumed = again.load(&state);
    assert_eq!((resumed.epoch, resumed.first_batch), (1, 3), "{what}");
    let rest = take(&mut again, world, 1, (3, resumed.batches));
    let planned = planned(&state);
    if tail != Tail::Drop {
        assert_eq!(ledger(delivered.iter().chain(&rest), 1), planned, "{what}");
    }

    for (at, (batch, world)) in worlds.into_iter().enumerate().skip(1) {
        let mut replay = daemon(plan, batch, world, tail);
        let resumed = replay.load(&state);
        let end = if at == 1 { resumed.first_batch + 2 } else { resumed.batches };
        delivered.extend(take(&mut replay, world, 1, (resumed.first_batch, end)));
        // An epoch that begins again begins where it was resumed.
        if at == 2 {
            let again = take_from_first(&mut replay, world);
            assert_eq!(again, resumed.batches - resumed.first_batch, "{what}");
        }
        state = replay.save(1, end);
        // The epochs after it are whole.
        let next = replay.epoch(2);
        if plan.sampler == Sampler::Uniform && tail != Tail::Drop {
            assert_eq!(ledger(&next, 2).len(), SAMPLES as usize, "{what}");
        }
        assert!(replay.errors.is_empty(), "{:?}", replay.errors);
    }
    let all = ledger(&delivered, 1);
    if tail == Tail::Drop {
        let count = |ledger: &BTreeMap<u32, u32>| ledger.values().sum::<u32>();
        assert!(
            all.iter().all(|(id, times)| planned.get(id).is_some_and(|of_plan| times <= of_plan)),
            "{what}"
        );
        let (batch, world) = worlds[2];
        assert!(count(&planned) - count(&all) < batch * world, "{what}: more is dropped than a tail");
    } else {
        assert_eq!(all, planned, "{what}");
    }
}

/// How often each sample is in the plan of a saved state.
fn planned(state: &[u8]) -> BTreeMap<u32, u32> {
    let mut planned = BTreeMap::new();
    assert_eq!(word(state, 80), 0, "seats");
    for place in 0..word(state, 84) as usize {
        *planned.entry(word(state, 116 + 4 * place)).or_default() += 1;
    }
    planned
}

fn word(state: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(state[at..at + 4].try_into().unwrap())
}

/// Asks for the epoch from batch 0 on, and returns how many batches rank 0 has got.
fn take_from_first(replay: &mut Replay, world_size: u32) -> u32 {
    replay.taken.clear();
    (0..world_size).for_each(|rank| replay.start(rank, 1, 0));
    replay.run();
    u32::try_from(replay.taken.iter().filter(|taken| taken.rank == 0).count()).unwrap()
}

#[test]
fn the_rest_is_shared_out_anew() {
    for tail in TAILS {
        for (sampler, strata, rep) in [
            (Sampler::Uniform, 1, 1.0),
            (Sampler::Uniform, 12, 1.0),
            (Sampler::Pads, 1, 2.0),
            (Sampler::Pads, 12, 2.0),
            (Sampler::Echo, 1, 1.0),
        ] {
            let plan = PlanSpec { sampler, strata, rep, ..PlanSpec::default() };
            three_worlds(plan, tail, [(7, 4), (7, 2), (7, 6)]);
            three_worlds(plan, tail, [(5, 1), (5, 5), (3, 4)]);
        }
    }
}

#[test]
fn an_epoch_that_is_all_delivered_ends_at_once() {
    let mut first = daemon(PlanSpec::default(), 7, 4, Tail::Even);
    let taken = first.epoch(0);
    // A loop that counts batches does not ask for the epoch's end.
    let state = first.save(0, 9);
    assert_eq!(taken.len(), 9 * 4);
    let mut second = daemon(PlanSpec::default(), 7, 6, Tail::Even);
    let resumed = second.load(&state);
    assert_eq!((resumed.epoch, resumed.first_batch, resumed.batches), (0, 5, 5));
    assert_eq!(take(&mut second, 6, 0, (5, 5)), []);
    assert_eq!(ledger(&second.epoch(1), 1).len(), SAMPLES as usize);
}

/// The strata of a state stay where each rank has as many; else they end with its epoch.
#[test]
fn a_state_brings_its_strata() {
    let of = |strata| PlanSpec { sampler: Sampler::Pads, strata, ..PlanSpec::default() };
    let mut first = daemon(of(12), 6, 4, Tail::Even);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    let before = take(&mut first, 4, 1, (0, 4));
    let state = first.save(1, 4);
    for (world_size, strata) in [(6, 12), (5, 1)] {
        let mut replay = daemon(of(1), 6, world_size, Tail::Even);
        let resumed = replay.load(&state);
        let rest = take(&mut replay, world_size, 1, (resumed.first_batch, resumed.batches));
        assert_eq!(ledger(before.iter().chain(&rest), 1), planned(&state));
        replay.epoch(2);
        let next = replay.save(2, 1);
        assert_eq!(word(&next, 44), strata, "{world_size} ranks");
    }
}

/// A node with these ranks of a job, as sessions of the same numbers.
fn node(plan: PlanSpec, world_size: u32, ranks: &[u32]) -> Replay {
    node_with(Policy::Lookahead, plan, world_size, ranks)
}

fn node_with(policy: Policy, plan: PlanSpec, world_size: u32, ranks: &[u32]) -> Replay {
    let ranks_here = u32::try_from(ranks.len()).unwrap();
    let job = JobSpec { plan, ranks_here, ..spec(6, world_size) };
    let mut node = Replay::new(index(SAMPLES, 5, |_| 300), policy, 60 * 512, 4, 7);
    let table = (plan.sampler == Sampler::Weighted).then(|| weights(SAMPLES));
    ranks.iter().for_each(|&rank| node.attach_with(rank, rank, &job, table.clone()));
    node
}

/// Nodes go on from a state, each with the ranks that it is given, to the end of the epoch after
/// it. What the epoch's rest reads is what its ranks are given.
fn go_on(policy: Policy, plan: PlanSpec, (world_size, nodes): Grouping, state: &[u8]) -> Vec<Taken> {
    let mut all = Vec::new();
    let (strata, repeat_max) = (word(state, 44), word(state, 96));
    for ranks in nodes {
        let mut node = node_with(policy, plan, world_size, ranks);
        let resumed = node.load(state);
        ranks.iter().for_each(|&rank| node.start(rank, resumed.epoch, resumed.first_batch));
        node.run();
        let count = ranks.len() * (resumed.batches - resumed.first_batch) as usize;
        assert_eq!(node.taken.len(), count, "ranks {ranks:?} of {world_size}");
        let given: HashSet<u32> = node.taken.iter().flat_map(|taken| taken.ids.clone()).collect();
        // Else repeats are dealt to other ranks.
        if strata > 1 || repeat_max == 1 {
            assert!(node.read.is_subset(&given), "ranks {ranks:?} of {world_size} of {strata} strata");
        }
        node.epoch(resumed.epoch + 1);
        assert!(node.failed.is_empty() && node.errors.is_empty(), "{:?}", node.failed);
        all.append(&mut node.taken);
    }
    let next = ledger(&all, word(state, 48) + 1);
    assert_eq!(next.values().sum::<u32>(), SAMPLES, "{plan:?}");
    all
}

/// The number of all ranks, and those of each node.
type Grouping<'a> = (u32, &'a [&'a [u32]]);

/// Where a stratum is not one rank's, too, and whatever policy the nodes have: an exchange of
/// samples would lose some.
#[test]
fn several_nodes_go_on_with_the_plan_of_one() {
    for (sampler, strata) in
        [(Sampler::Uniform, 1), (Sampler::Uniform, 4), (Sampler::Pads, 1), (Sampler::Pads, 4)]
    {
        let of = |strata| PlanSpec { sampler, strata, ..PlanSpec::default() };
        let mut one = daemon(of(strata), 6, 2, Tail::Even);
        let taken = one.epoch(0);
        one.report(&taken, loss);
        let delivered = take(&mut one, 2, 1, (0, 5));
        let state = one.save(1, 5);
        let groupings: [Grouping; 2] = [(4, &[&[0, 1], &[2, 3]]), (6, &[&[0, 4], &[3, 5], &[1, 2]])];
        for (grouping, policy) in
            groupings.into_iter().flat_map(|of| [(of, Policy::Lookahead), (of, Policy::Quiver)])
        {
            let rest = go_on(policy, of(12), grouping, &state);
            let all = ledger(delivered.iter().chain(&rest), 1);
            assert_eq!(all, planned(&state), "{sampler} {strata} {grouping:?} {policy}");
        }
    }
}

/// Where plans follow from their parameters alone, one node's state is enough for any others.
#[test]
fn the_state_of_one_node_of_several_goes_on_anywhere() {
    for sampler in [Sampler::Uniform, Sampler::Echo, Sampler::Weighted, Sampler::Balanced] {
        let table = (sampler == Sampler::Weighted).then(|| weights(SAMPLES));
        let weights_digest = table.map_or(0, |table| table.digest());
        for draw_ahead in [false, true] {
            // A table is drawn by as a whole, on every node.
            let strata = if matches!(sampler, Sampler::Weighted | Sampler::Balanced) { 1 } else { 12 };
            let plan = PlanSpec { sampler, draw_ahead, strata, weights_digest, ..PlanSpec::default() };
            let (mut delivered, mut states) = (Vec::new(), Vec::new());
            for ranks in [[0, 3], [1, 2]] {
                let mut node = node(plan, 4, &ranks);
                node.epoch(0);
                node.taken.clear();
                ranks.iter().for_each(|&rank| node.start(rank, 1, 0));
                node.run();
                delivered.extend(node.taken.iter().filter(|taken| taken.batch < 4).cloned());
                states.push(node.save(1, 4));
            }
            let mut one = node(plan, 4, &[0, 1, 2, 3]);
            one.epoch(0);
            one.epoch(1);
            let planned = planned(&one.save(1, 4));
            let groupings: [Grouping; 7] = [
                (4, &[&[0, 3], &[1, 2]]),
                (4, &[&[0, 1], &[2, 3]]),
                (4, &[&[0, 1, 2, 3]]),
                (1, &[&[0]]),
                (2, &[&[0], &[1]]),
                (6, &[&[0, 1], &[2, 5], &[3, 4]]),
                (5, &[&[0, 1, 2, 3], &[4]]),
            ];
            for grouping in groupings {
                for state in &states {
                    let rest = go_on(Policy::Lookahead, plan, grouping, state);
                    let all = ledger(delivered.iter().chain(&rest), 1);
                    assert_eq!(all, planned, "{plan:?} {grouping:?}");
                }
            }
            // After an epoch's end, too.
            let mut next = node(plan, 2, &[1]);
            assert_eq!(next.load(&states[0]).first_batch, 8);
            assert!(!next.epoch(2).is_empty());
        }
    }
}

/// Nobody has what the other nodes' losses made of their lists.
#[test]
fn a_part_of_a_plan_by_losses_is_refused_elsewhere() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: 12, ..PlanSpec::default() };
    let mut first = node(plan, 4, &[0, 1]);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    first.epoch(1);
    let state = first.save(1, 4);
    for (world_size, ranks) in [(2, [0, 1]), (4, [2, 3])] {
        let mut other = node(plan, world_size, &ranks);
        other.step(Event::LoadState { strata: 0, session: ranks[0], bytes: state.clone() });
        let text = other.failed.pop().unwrap();
        assert!(text.contains("it depends on what their node has seen"), "{text}");
    }
}

/// The positions that a rank has in a batch.
fn positions(slots: &[Slot]) -> Vec<u32> {
    slots.iter().filter(|slot| !slot.padding).map(|slot| slot.position).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any number of worlds, one after the other, deliver each position once, in equally many
    /// batches for each of their ranks.
    #[test]
    fn worlds_take_one_plan_in_turns(
        ids in prop::collection::vec(0..60u32, 1..300),
        strata in prop::sample::select(&[1u32, 2, 3, 6, 12][..]),
        worlds in prop::collection::vec((1..9u32, 1..8u32, 0..6u32), 1..5),
        tail in prop::sample::select(&TAILS[..]),
    ) {
        let plan_len = u32::try_from(ids.len()).unwrap();
        let repeat_max = if ids.iter().collect::<std::collections::HashSet<_>>().len() == ids.len() { 1 } else { 2 };
        let (ids, weights) = (ids.into_iter().map(SampleId).collect(), vec![1.0; plan_len as usize]);
        let summary = PlanSummary { repeat_max, ..PlanSummary::default() };
        let plan = Plan { epoch: 0, part: Part::WHOLE, ids, weights, summary };
        let mut done = 0;
        let last = worlds.len() - 1;
        for (at, (batch_size, world_size, most)) in worlds.into_iter().enumerate() {
            let Ok(slices) = Slices::new(plan_len, batch_size, world_size, tail) else {
                prop_assert!(tail == Tail::Drop && plan_len < batch_size * world_size);
                return Ok(());
            };
            let slices = slices.of_strata(strata);
            let origin = slices.origin_at(done);
            prop_assert!(origin.batch * batch_size * world_size <= done);
            let slices = slices.from_origin(origin);
            let end = slices.batches_per_epoch();
            let begins = if end > origin.batch { done } else { plan_len };
            prop_assert_eq!((slices.start(origin.batch), slices.start(end)), (begins, plan_len));
            let stop = if at == last { end } else { end.min(origin.batch + most) };
            for k in origin.batch..stop {
                let mut of_batch = Vec::new();
                for rank in 0..world_size {
                    let slots = slices.batch(k, rank, &plan);
                    prop_assert!(!slots.is_empty(), "batch {} of rank {}", k, rank);
                    // Padding, too, may give a rank a sample twice.
                    let may_be_dealt = strata == 1 && (repeat_max > 1 || tail == Tail::Pad && k + 1 == end);
                    prop_assert!(may_be_dealt
                        || positions(&slots).iter().all(|position| position % world_size == rank));
                    of_batch.extend(positions(&slots));
                }
                of_batch.sort_unstable();
                let until = if tail == Tail::Drop { done + batch_size * world_size } else { slices.start(k + 1) };
                prop_assert_eq!(of_batch, (done..until).collect::<Vec<_>>());
                done = until;
            }
            prop_assert!(slices.batch(stop.max(end), 0, &plan).is_empty());
        }
        if tail != Tail::Drop {
            prop_assert_eq!(done, plan_len);
        }
    }
}
