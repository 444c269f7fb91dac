//! Several daemons, each with some of a job's ranks: together they deliver what one daemon with all
//! ranks delivers, and none of them reads what belongs to another.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_core::plan::{Strata, mixed};
use shade_formats::SampleId;
use shade_job::{JobSpec, OnError, Order, PlanSpec, Policy, Sampler, Seats};

const SAMPLES: u32 = 700;
const WORLD_SIZE: u32 = 4;
const STRATA: u32 = 24;
const BATCH_SIZE: u32 = 10;

/// A daemon with these ranks of the job, as sessions of the same numbers.
fn node(policy: Policy, plan: PlanSpec, ranks: &[u32]) -> Replay {
    let ranks_here = u32::try_from(ranks.len()).unwrap();
    let job = JobSpec { plan, ranks_here, ..spec(BATCH_SIZE, WORLD_SIZE) };
    let index = index(SAMPLES, 5, |id| 100 + id % 300);
    // Policies that bring records along do, too.
    let mut node = Replay::packaged(index, policy, 200 * 512, 1 << 14, 3);
    ranks.iter().for_each(|&rank| node.attach(rank, rank, &job));
    node
}

fn loss(id: u32) -> f32 {
    (id * 31 % 97) as f32
}

/// Epoch, rank, batch, its samples, the bits of their weights.
type Given = (u32, u32, u32, Vec<u32>, Vec<u32>);

/// What ranks get, in their order, without what depends on the daemon.
fn given(taken: Vec<Taken>) -> Vec<Given> {
    let bits = |weights: Vec<f32>| weights.into_iter().map(f32::to_bits).collect();
    let of = |t: Taken| (t.epoch, t.rank, t.batch, t.ids, bits(t.weights));
    let mut given: Vec<_> = taken.into_iter().map(of).collect();
    given.sort_unstable();
    given
}

fn run(nodes: &mut [Replay], epochs: u32) -> Vec<Taken> {
    let mut taken = Vec::new();
    for epoch in 0..epochs {
        for node in &mut *nodes {
            let of_node = node.epoch(epoch);
            node.report(&of_node, loss);
            taken.extend(of_node);
        }
    }
    for node in nodes {
        assert!(
            node.failed.is_empty() && node.errors.is_empty() && node.refused.is_empty(),
            "{:?}",
            node.failed
        );
    }
    taken
}

#[test]
fn nodes_deliver_together_what_one_delivers() {
    let groupings: [&[&[u32]]; 4] =
        [&[&[0, 1], &[2, 3]], &[&[0, 3], &[1, 2]], &[&[2], &[0, 1, 3]], &[&[0], &[1], &[2], &[3]]];
    for sampler in [
        Sampler::Uniform,
        Sampler::Pads,
        Sampler::Cis,
        Sampler::Replacement,
        Sampler::Echo,
        Sampler::Weighted,
    ] {
        // Where seats change, so does who knows scores and deliveries.
        let is_known_to_all = matches!(sampler, Sampler::Uniform | Sampler::Echo | Sampler::Weighted);
        // A table is drawn by as a whole, on every node.
        let strata = if sampler == Sampler::Weighted { 1 } else { STRATA };
        for (draw_ahead, mix) in [(false, 0.0), (true, 0.0), (false, 0.3), (true, 0.3)] {
            if mix > 0.0 && !is_known_to_all {
                continue;
            }
            // Left out it would follow from the cache on one node, and not on several.
            let gap = Some(20);
            let plan = PlanSpec { sampler, draw_ahead, strata, mix, gap, cover: 2, ..PlanSpec::default() };
            let mut one = [node(Policy::Lookahead, plan, &[0, 1, 2, 3])];
            let of_one = given(run(&mut one, 4));
            for grouping in groupings {
                let mut nodes: Vec<Replay> =
                    grouping.iter().map(|ranks| node(Policy::Lookahead, plan, ranks)).collect();
                assert_eq!(given(run(&mut nodes, 4)), of_one, "{sampler} {draw_ahead} {mix} {grouping:?}");
            }
        }
    }
}

/// All nodes have each stratum once, at the same seat, also where each draws by scores of its own.
#[test]
fn strata_change_seats_in_step_on_all_nodes() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: STRATA, mix: 0.3, seed: 4, ..PlanSpec::default() };
    let content_id = shade_core::Samples::content_id(&*index(SAMPLES, 5, |id| 100 + id % 300));
    let strata = Strata::new(SAMPLES, STRATA, content_id.0).unwrap();
    let mut nodes: Vec<Replay> =
        [[0, 3], [1, 2]].iter().map(|ranks| node(Policy::Lookahead, plan, ranks)).collect();
    let taken = run(&mut nodes, 5);
    let mut rows = [0; 5];
    for Taken { epoch, rank, batch, ids, .. } in taken {
        let seats = mixed(&plan, SAMPLES, &Seats::IN_ORDER, 0, epoch);
        for (row, id) in (0..).zip(ids) {
            let position = (batch * BATCH_SIZE + row) * WORLD_SIZE + rank;
            assert_eq!(
                strata.of(SampleId(id)),
                seats.stratum(position % STRATA),
                "epoch {epoch}, {position}"
            );
            rows[epoch as usize] += 1;
        }
    }
    assert_eq!(rows, [SAMPLES; 5]);
    // A jump goes by the epoch alone, forward and back.
    let mut fresh = node(Policy::Lookahead, PlanSpec { sampler: Sampler::Uniform, ..plan }, &[0, 3]);
    let ids = |node: &mut Replay, epoch| given(node.epoch(epoch));
    let (fourth, second) = (ids(&mut fresh, 4), ids(&mut fresh, 2));
    let mut other = node(Policy::Lookahead, PlanSpec { sampler: Sampler::Uniform, ..plan }, &[0, 3]);
    assert_eq!((ids(&mut other, 2), ids(&mut other, 4)), (second, fourth));
}

/// Each sample is trained on once an epoch, over all nodes, whatever their caches do.
#[test]
fn a_node_reads_its_own_samples_only() {
    let index = index(SAMPLES, 5, |id| 100 + id % 300);
    let strata = Strata::new(SAMPLES, STRATA, shade_core::Samples::content_id(&*index).0).unwrap();
    for &policy in Policy::ALL {
        for order in [Order::Shuffled, Order::HitsFirst] {
            let plan = PlanSpec { strata: STRATA, order, ..PlanSpec::default() };
            let mut nodes: Vec<Replay> =
                [[0, 2], [1, 3]].iter().map(|ranks| node(policy, plan, ranks)).collect();
            let taken = run(&mut nodes, 3);
            for epoch in 0..3 {
                let of_epoch = taken.iter().filter(|taken| taken.epoch == epoch);
                let mut ids: Vec<u32> = of_epoch.flat_map(|taken| taken.ids.clone()).collect();
                ids.sort_unstable();
                assert!(ids.into_iter().eq(0..SAMPLES), "{policy} {order}");
            }
            for (at, node) in (0..).zip(&nodes) {
                let is_own = |&id: &u32| strata.of(SampleId(id)) % WORLD_SIZE % 2 == at;
                assert!(node.read.iter().all(is_own), "{policy} {order}: node {at} reads another's");
                let own: HashSet<u32> = (0..SAMPLES).filter(is_own).collect();
                assert_eq!(node.read.len(), own.len(), "{policy} {order}: node {at}");
                let stats = node.core().stats(at);
                assert_eq!(stats.epoch.planned, own.len());
                assert!((stats.total.ever_seen_share - 1.0).abs() < 1e-9, "{}", stats.total.ever_seen_share);
            }
        }
    }
}

/// Nodes whose caches hold their own samples read nothing from the second epoch on, and that is no
/// reason for a warning.
#[test]
fn a_cache_of_a_node_s_own_samples_is_enough() {
    let plan = PlanSpec { strata: STRATA, ..PlanSpec::default() };
    let job = JobSpec { plan, ranks_here: 1, ..spec(BATCH_SIZE, WORLD_SIZE) };
    let mut node = Replay::new(index(SAMPLES, 5, |_| 400), Policy::Lookahead, 200 * 512, 6, 1);
    node.attach(0, 2, &job);
    node.epoch(0);
    let reads = node.reads;
    assert!((170..=180).contains(&reads), "a quarter of the samples: {reads}");
    (1..4).for_each(|epoch| assert_eq!(node.epoch(epoch).len(), 18));
    assert_eq!((node.reads, node.warnings.as_slice()), (reads, [].as_slice()));
}

#[test]
fn an_epoch_waits_for_the_ranks_of_its_daemon_alone() {
    let plan = PlanSpec { strata: STRATA, ..PlanSpec::default() };
    let job = JobSpec { plan, ranks_here: 2, ..spec(BATCH_SIZE, WORLD_SIZE) };
    let mut node = node(Policy::Lookahead, plan, &[]);
    node.attach(0, 3, &job);
    node.start(0, 0, 0);
    node.run();
    let stats = node.core().stats(0);
    assert_eq!((node.taken.len(), stats.waiting_for_ranks, stats.ranks_to_attach), (0, vec![], 1));
    node.attach(1, 1, &job);
    let stats = node.core().stats(0);
    assert_eq!((stats.waiting_for_ranks, stats.ranks_to_attach), (vec![1], 0));
    assert_eq!((stats.jobs[0].ranks, stats.jobs[0].ranks_here, stats.jobs[0].world_size), (2, 2, 4));
    node.attach(2, 0, &job);
    assert!(node.refused[0].contains("rank 0 is one too many"), "{:?}", node.refused);
    node.attach(3, 0, &JobSpec { ranks_here: 3, ..job.clone() });
    assert!(node.refused[1].contains("other arguments"), "{:?}", node.refused);
    node.start(1, 0, 0);
    node.run();
    assert_eq!(node.taken.len(), 2 * 18);
    // Another rank takes the place of one that has gone: it has no part of this epoch.
    node.detach(1);
    node.attach(4, 2, &job);
    node.start(4, 0, 9);
    assert!(
        node.failed[0].contains("drawn here for ranks [1, 3] of 4, and rank 2 is on"),
        "{:?}",
        node.failed
    );
    assert_eq!(node.epoch(1).len(), 2 * 18);
}

/// A validation has one stratum: every node knows the plan.
#[test]
fn nodes_validate_each_its_share_of_one_order() {
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    let mut nodes: Vec<Replay> =
        [[0, 1], [2, 3]].iter().map(|ranks| node(Policy::Lookahead, plan, ranks)).collect();
    let taken = run(&mut nodes, 1);
    assert!(taken.iter().all(|taken| taken.ids.iter().all(|id| id % WORLD_SIZE == taken.rank)));
    let mut ids: Vec<u32> = taken.into_iter().flat_map(|taken| taken.ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..SAMPLES));
}

#[test]
fn what_cannot_be_drawn_by_strata_is_refused() {
    let refused = |plan: PlanSpec, table: Option<Vec<f64>>| {
        let mut node = Replay::new(index(SAMPLES, 5, |_| 400), Policy::Lru, 0, 6, 1);
        let table = table.map(|values| shade_job::WeightTable::new(values.into_iter()).unwrap());
        let weights_digest = table.as_ref().map_or(0, shade_job::WeightTable::digest);
        let plan = PlanSpec { weights_digest, ..plan };
        node.attach_with(0, 0, &JobSpec { plan, on_error: OnError::Skip, ..spec(BATCH_SIZE, 1) }, table);
        node.refused.concat()
    };
    let strata = |strata| PlanSpec { strata, ..PlanSpec::default() };
    assert_eq!(refused(strata(700), None), "");
    assert!(
        refused(strata(701), None).contains("strata is 701, but must be 1 to the number of samples, 700")
    );
    let ones = |sampler| (sampler == Sampler::Weighted).then(|| vec![1.0; 700]);
    let drawn_whole = [
        Sampler::Iis,
        Sampler::Infobatch,
        Sampler::Seta,
        Sampler::Sequential,
        Sampler::Weighted,
        Sampler::Balanced,
    ];
    for sampler in drawn_whole {
        let text = refused(PlanSpec { sampler, ..strata(2) }, ones(sampler));
        assert!(text.contains("must be 1 with the sampler"), "{text}");
        assert_eq!(refused(PlanSpec { sampler, ..strata(1) }, ones(sampler)), "");
    }
    assert!(refused(PlanSpec { pace: true, ..strata(2) }, None).contains("must be 1 with pace"));
}

#[test]
fn states_know_whose_plan_they_have() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: STRATA, mix: 0.3, ..PlanSpec::default() };
    let mut first = node(Policy::Lookahead, plan, &[0, 1]);
    let before = run(std::slice::from_mut(&mut first), 2);
    assert_eq!(before.len(), 2 * 2 * 18);
    let state = first.save(2, 0);
    let load = |replay: &mut Replay, session: u32| {
        replay.step(Event::LoadState { strata: 0, session, bytes: state.clone() });
        replay.failed.pop()
    };
    let mut second = node(Policy::Lookahead, plan, &[0, 1]);
    assert_eq!((load(&mut second, 0), load(&mut second, 1)), (None, None));
    assert_eq!(given(run(std::slice::from_mut(&mut second), 0)), []);
    assert_eq!(given(second.epoch(2)), given(first.epoch(2)));
    let mut other = node(Policy::Lookahead, plan, &[2, 3]);
    let text = load(&mut other, 2).unwrap();
    assert!(text.contains("rank 2 of 4 among them, and not of ranks [0, 1] of 4"), "{text}");
    let mut finer = node(Policy::Lookahead, PlanSpec { strata: 2 * STRATA, ..plan }, &[0, 1]);
    assert_eq!((load(&mut finer, 0), load(&mut finer, 1)), (None, None));
    assert_eq!(given(finer.epoch(2)), given(second.taken.clone()), "it keeps the strata of the state");
}
