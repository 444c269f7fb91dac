//! Nodes tell each other their scores once an epoch. Then a state that any of them saves in the
//! middle of an epoch by losses goes on anywhere: what is delivered before and after is the plan.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::replay::{GivenBase, Replay, Taken, index, spec};
use proptest::prelude::*;
use shade_core::{BaseVersion, Event};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::control::{RedoRow, Scores, Step, redo_to_bytes};
use shade_job::{JobSpec, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 240;

/// A node with these ranks of a job, as sessions of the same numbers.
fn node(plan: PlanSpec, world_size: u32, ranks: &[u32]) -> Replay {
    let ranks_here = u32::try_from(ranks.len()).unwrap();
    let job = JobSpec { plan, ranks_here, ..spec(6, world_size) };
    let mut node = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lookahead, 60 * 512, 4, 7);
    node.survive();
    ranks.iter().for_each(|&rank| node.attach(rank, rank, &job));
    node
}

fn nodes(plan: PlanSpec, groups: &[Vec<u32>]) -> Vec<Replay> {
    let world_size = groups.iter().map(|ranks| u32::try_from(ranks.len()).unwrap()).sum();
    groups.iter().map(|ranks| node(plan, world_size, ranks)).collect()
}

fn lowest(ranks: &[u32]) -> u32 {
    *ranks.iter().min().unwrap()
}

/// What a node tells once it has drawn the epoch.
fn told(node: &mut Replay, ranks: &[u32], epoch: u32) -> Vec<u8> {
    node.step(Event::TellScores { session: lowest(ranks), epoch });
    node.states.pop().unwrap()
}

/// All nodes tell all others.
fn tell_all(nodes: &mut [Replay], groups: &[Vec<u32>], epoch: u32) {
    let told: Vec<Vec<u8>> = nodes.iter_mut().zip(groups).map(|(node, of)| told(node, of, epoch)).collect();
    for (at, node) in nodes.iter_mut().enumerate() {
        for (_, scores) in told.iter().enumerate().filter(|&(from, told)| from != at && !told.is_empty()) {
            node.step(Event::TakeScores { session: lowest(&groups[at]), bytes: scores.clone() });
        }
        assert!(node.failed.is_empty(), "{:?}", node.failed);
    }
}

/// Each sample has a loss of its own in each epoch.
fn loss(id: u32, epoch: u32) -> f32 {
    ((id * 31 + epoch * 57) % 97) as f32
}

/// All nodes deliver an epoch from a batch on. What was told meanwhile does not change that.
fn run(nodes: &mut [Replay], groups: &[Vec<u32>], (epoch, first_batch): (u32, u32)) -> Vec<Taken> {
    for (node, ranks) in nodes.iter_mut().zip(groups) {
        node.taken.clear();
        ranks.iter().for_each(|&rank| node.start(rank, epoch, first_batch));
        node.run();
        assert!(node.errors.is_empty(), "{:?}", node.errors);
    }
    let taken: Vec<Vec<Taken>> = nodes.iter_mut().map(|node| std::mem::take(&mut node.taken)).collect();
    for (node, taken) in nodes.iter_mut().zip(&taken) {
        node.report(taken, |id| loss(id, epoch));
    }
    taken.into_iter().flatten().collect()
}

fn ledger<'a>(taken: impl IntoIterator<Item = &'a Taken>) -> BTreeMap<u32, u32> {
    let mut ledger = BTreeMap::new();
    taken.into_iter().flat_map(|taken| &taken.ids).for_each(|&id| *ledger.entry(id).or_default() += 1);
    ledger
}

/// Ranks 0.. in nodes of these sizes.
fn groups(sizes: &[u32]) -> Vec<Vec<u32>> {
    let mut next = 0..;
    sizes.iter().map(|&size| next.by_ref().take(size as usize).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_node_s_state_goes_on_anywhere(
        sampler in prop::sample::select(&[Sampler::Pads, Sampler::Cis, Sampler::Replacement][..]),
        strata in prop::sample::select(&[12_u32, 24][..]),
        cover in prop::sample::select(&[0_u32, 2][..]),
        before in prop::sample::select(vec![vec![2, 2], vec![1, 2, 1], vec![3, 1], vec![1, 1]]),
        after in prop::sample::select(vec![vec![2, 2], vec![4], vec![1], vec![1, 1], vec![2, 4], vec![3, 2]]),
        epochs in 0..4_u32,
        late in any::<bool>(),
    ) {
        let plan = PlanSpec { sampler, strata, cover, ..PlanSpec::default() };
        let old = groups(&before);
        let mut first = nodes(plan, &old);
        for epoch in 0..epochs {
            let taken = run(&mut first, &old, (epoch, 0));
            tell_all(&mut first, &old, epoch);
            // A report that comes after the next epoch was drawn is told with that after it.
            if late && epoch + 1 < epochs {
                let (node, of) = (&mut first[0], taken.iter().find(|taken| taken.rank == old[0][0]).unwrap());
                old[0].iter().for_each(|&rank| node.start(rank, epoch + 1, 0));
                let losses = of.ids.iter().map(|&id| loss(id, 77)).collect();
                node.step(Event::Report { session: of.session, epoch, batch: of.batch, losses });
            }
        }
        let delivered = run(&mut first, &old, (epochs, 0));
        let bound = first[0].save(epochs, 3);
        tell_all(&mut first, &old, epochs);
        let planned = ledger(&delivered);
        let delivered: Vec<Taken> = delivered.into_iter().filter(|taken| taken.batch < 3).collect();
        let new = groups(&after);
        for (at, ranks) in old.iter().enumerate() {
            let state = first[at].save(epochs, 3);
            let strata = u32::try_from(new.iter().flatten().count()).unwrap() * 4;
            let mut second = nodes(PlanSpec { strata, ..plan }, &new);
            let resumed: Vec<_> = second.iter_mut().map(|node| node.load(&state)).collect();
            prop_assert!(resumed.iter().all(|other| *other == resumed[0]), "{ranks:?}");
            let rest = run(&mut second, &new, (epochs, resumed[0].first_batch));
            prop_assert_eq!(ledger(delivered.iter().chain(&rest)), planned.clone(), "the state of {:?}", ranks);
            // They go on, and so do their states.
            let next = run(&mut second, &new, (epochs + 1, 0));
            prop_assert_eq!(next.iter().map(|taken| taken.ids.len()).sum::<usize>(), SAMPLES as usize);
            tell_all(&mut second, &new, epochs + 1);
            let state = second[0].save(epochs + 1, 1);
            let mut third = nodes(plan, &groups(&[1]));
            let first_batch = third[0].load(&state).first_batch;
            let rest = run(&mut third, &groups(&[1]), (epochs + 1, first_batch));
            let before = next.iter().filter(|taken| taken.batch < 1);
            prop_assert_eq!(ledger(before.chain(&rest)), ledger(&next), "{:?} after the state of {:?}", after, ranks);
        }
        // Before the others had told, a state is bound to its node.
        let mut other = node(plan, 1, &[0]);
        other.step(Event::LoadState { strata: 0, session: 0, bytes: bound });
        let depends = sampler != Sampler::Replacement || cover > 0;
        let text = other.failed.pop();
        prop_assert_eq!(text.is_some_and(|text| text.contains("before the other nodes had told")), depends);
    }
}

/// A node whose scores are not those of the others is found out.
#[test]
fn a_list_that_was_drawn_from_other_scores_is_refused() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: 12, ..PlanSpec::default() };
    let groups = groups(&[2, 2]);
    let mut two = nodes(plan, &groups);
    run(&mut two, &groups, (0, 0));
    run(&mut two, &groups, (1, 0));
    let mut scores = Scores::from_bytes(&told(&mut two[1], &groups[1], 1), SAMPLES).unwrap();
    for member in scores.of.iter_mut().flat_map(|of| &mut of.members) {
        member.score = member.score.map(|score| u16::MAX - score);
    }
    two[0].step(Event::TakeScores { session: 0, bytes: scores.to_bytes() });
    let state = two[0].save(1, 1);
    let mut other = node(plan, 1, &[0]);
    other.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
    let text = other.failed.pop().unwrap();
    assert!(text.contains("are not those by which another node drew stratum"), "{text}");
    // Its own node takes it.
    let mut same = node(plan, 4, &[0, 1]);
    assert_eq!(same.load(&state).first_batch, 1);
}

/// What nobody heard is told again with the next epoch.
#[test]
fn an_exchange_that_was_given_up_is_made_up_for() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: 12, cover: 0, ..PlanSpec::default() };
    let groups = groups(&[2, 2]);
    let mut two = nodes(plan, &groups);
    run(&mut two, &groups, (0, 0));
    run(&mut two, &groups, (1, 0));
    run(&mut two, &groups, (2, 0));
    tell_all(&mut two, &groups, 2);
    let state = two[0].save(2, 1);
    let mut other = node(plan, 1, &[0]);
    other.load(&state);
    assert!(other.failed.is_empty(), "{:?}", other.failed);
}

/// What was told before a state was loaded is not of that state.
#[test]
fn scores_that_come_after_a_state_was_loaded_change_nothing() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: 12, ..PlanSpec::default() };
    let groups = groups(&[2, 2]);
    let mut two = nodes(plan, &groups);
    run(&mut two, &groups, (0, 0));
    tell_all(&mut two, &groups, 0);
    let early = two[0].save(0, 1);
    run(&mut two, &groups, (1, 0));
    let late = told(&mut two[1], &groups[1], 1);
    let mut restored = node(plan, 4, &[0, 1]);
    restored.load(&early);
    let before = restored.save(0, 1);
    restored.step(Event::TakeScores { session: 0, bytes: late });
    assert!(restored.failed.is_empty());
    assert_eq!(restored.save(0, 1), before);
}

#[test]
fn scores_that_do_not_fit_are_refused_and_change_nothing() {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: 12, ..PlanSpec::default() };
    let groups = groups(&[2, 2]);
    let mut two = nodes(plan, &groups);
    run(&mut two, &groups, (0, 0));
    run(&mut two, &groups, (1, 0));
    let good = told(&mut two[1], &groups[1], 1);
    assert!(told(&mut two[1], &groups[1], 5).is_empty(), "not drawn yet");
    let scores = Scores::from_bytes(&good, SAMPLES).unwrap();
    let before = two[0].save(1, 0);
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    let mut longer = good[..good.len() - 4].to_vec();
    longer.push(0);
    longer.extend(crc32c(&longer).to_le_bytes());
    for (bad, why) in [
        (flipped, "checksum"),
        (longer, "the message's end"),
        (Scores { content_id: 1, ..scores.clone() }.to_bytes(), "another plan or dataset"),
        (Scores { plan_digest: 1, ..scores.clone() }.to_bytes(), "another plan or dataset"),
        (told(&mut two[0], &groups[0], 1), "which is this node's"),
    ] {
        two[0].step(Event::TakeScores { session: 0, bytes: bad });
        let text = two[0].failed.pop().unwrap();
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(two[0].save(1, 0), before);
    // A job that needs none.
    let mut uniform = node(PlanSpec { sampler: Sampler::Uniform, ..plan }, 4, &[0, 1]);
    uniform.step(Event::TakeScores { session: 0, bytes: good });
    assert!(uniform.failed[0].contains("has no use for"), "{:?}", uniform.failed);
}

/// A node whose daemon may die, and what its ranks keep for the next one.
struct Mortal {
    node: Replay,
    ranks: Vec<u32>,
    base: Option<GivenBase>,
    steps: BTreeMap<u32, Vec<Step>>,
    /// By rank: its next batch.
    next: BTreeMap<u32, u32>,
    taken: Vec<Taken>,
}

impl Mortal {
    fn new(plan: PlanSpec, world_size: u32, ranks: &[u32]) -> Self {
        let node = node(plan, world_size, ranks);
        let steps = ranks.iter().map(|&rank| (rank, Vec::new())).collect();
        Self { node, ranks: ranks.to_vec(), base: None, steps, next: BTreeMap::new(), taken: Vec::new() }
    }

    fn say(&mut self, rank: u32, step: Step) {
        self.steps.get_mut(&rank).unwrap().push(step);
    }

    /// Ranks take what has come.
    fn take(&mut self) {
        if let Some(base) = self.node.bases.drain(..).next_back() {
            for steps in self.steps.values_mut() {
                let start = Step::Started { epoch: base.epoch };
                steps.drain(..steps.iter().rposition(|step| *step == start).unwrap());
            }
            self.base = Some(base);
        }
        for taken in std::mem::take(&mut self.node.taken) {
            let row = |(&id, &flags): (&u32, &u32)| RedoRow { sample: SampleId(id), flags };
            let rows = taken.ids.iter().zip(&taken.flags).map(row).collect();
            let (rank, epoch, batch) = (taken.rank, taken.epoch, taken.batch);
            self.say(rank, Step::Delivered { epoch, batch, rows });
            self.next.insert(rank, batch + 1);
            self.taken.push(taken);
        }
    }

    /// The daemon dies, and another one takes its place.
    fn die(&mut self, plan: PlanSpec, world_size: u32, epoch: u32) {
        self.take();
        self.node = node(plan, world_size, &self.ranks);
        for &rank in &self.ranks {
            let GivenBase { epoch: of, bytes, .. } = self.base.as_ref().unwrap();
            let version = BaseVersion { loads: 0, begun: of + 1 };
            self.node.step(Event::TakeBase { session: rank, version, bytes: Vec::clone(bytes) });
            let bytes = redo_to_bytes(&self.steps[&rank]);
            self.node.step(Event::TakeRedo { session: rank, bytes });
            self.node.go_on(rank, epoch, self.next.get(&rank).copied().unwrap_or(0));
        }
    }

    /// An epoch, in which the daemon dies after each of these numbers of batches.
    fn run(&mut self, plan: PlanSpec, world_size: u32, epoch: u32, deaths: &[usize]) {
        self.next.clear();
        for rank in self.ranks.clone() {
            self.say(rank, Step::Started { epoch });
            self.node.start(rank, epoch, 0);
        }
        self.take();
        let before = self.taken.len();
        for &after in deaths {
            while self.taken.len() < before + after && self.node.tick() {
                self.take();
            }
            self.die(plan, world_size, epoch);
        }
        self.node.run();
        self.take();
        for taken in self.taken.split_off(before) {
            let (rank, batch) = (taken.rank, taken.batch);
            let losses: Vec<f32> = taken.ids.iter().map(|&id| loss(id, epoch)).collect();
            self.say(rank, Step::Reported { epoch, batch, losses: losses.clone() });
            self.node.step(Event::Report { session: rank, epoch, batch, losses });
            self.taken.push(taken);
        }
    }
}

/// What a rank was given in a batch of an epoch.
type Given = (u32, u32, u32, Vec<u32>);

/// Nodes train three epochs, and tell each other their scores. Returns what each rank was given,
/// and all scores as the first node has them.
fn train_nodes(
    plan: PlanSpec,
    groups: &[Vec<u32>],
    deaths: &dyn Fn(usize, u32) -> Vec<usize>,
) -> (Vec<Given>, Vec<f32>) {
    let world_size = u32::try_from(groups.iter().flatten().count()).unwrap();
    let mut nodes: Vec<Mortal> = groups.iter().map(|ranks| Mortal::new(plan, world_size, ranks)).collect();
    for epoch in 0..3 {
        for (at, node) in nodes.iter_mut().enumerate() {
            node.run(plan, world_size, epoch, &deaths(at, epoch));
        }
        let told: Vec<Vec<u8>> = nodes
            .iter_mut()
            .zip(groups)
            .enumerate()
            .map(|(at, (mortal, ranks))| {
                // Also after an epoch, before others are told of it.
                if deaths(at, epoch).len() % 2 == 1 {
                    mortal.die(plan, world_size, epoch);
                }
                told(&mut mortal.node, ranks, epoch)
            })
            .collect();
        for (at, node) in nodes.iter_mut().enumerate() {
            for (_, scores) in told.iter().enumerate().filter(|&(from, told)| from != at && !told.is_empty())
            {
                let session = lowest(&groups[at]);
                node.say(session, Step::Heard { scores: scores.clone() });
                node.node.step(Event::TakeScores { session, bytes: scores.clone() });
            }
            if deaths(at, epoch).len() > 1 {
                node.die(plan, world_size, epoch);
            }
            assert!(node.node.failed.is_empty(), "{:?}", node.node.failed);
        }
    }
    let mut given: Vec<Given> = Vec::new();
    for node in &nodes {
        let of_node =
            node.taken.iter().map(|taken| (taken.epoch, taken.batch, taken.rank, taken.ids.clone()));
        given.extend(of_node);
    }
    given.sort();
    let first = lowest(&groups[0]);
    let node = &nodes[0].node;
    assert!(node.refused.is_empty(), "{plan:?}: {:?}", node.refused);
    (given, node.core().importance(first).unwrap().scores().to_vec())
}

/// The daemon of one of several nodes dies: its successor has the part of the plan that it had, and
/// tells the others what it would have told.
#[test]
fn a_node_s_daemon_is_succeeded_and_the_others_notice_nothing() {
    for sampler in [Sampler::Pads, Sampler::Cis, Sampler::Replacement] {
        for sizes in [vec![2, 2], vec![1, 1], vec![3, 1]] {
            let plan = PlanSpec { sampler, strata: 12, cover: 2, ..PlanSpec::default() };
            let groups = groups(&sizes);
            let undisturbed = train_nodes(plan, &groups, &|_, _| Vec::new());
            for seed in 0..6_usize {
                let deaths = |node: usize, epoch: u32| match (seed + 3 * node + 5 * epoch as usize) % 6 {
                    0 => vec![0],
                    1 => vec![3],
                    2 => vec![2, 9],
                    3 => vec![7],
                    _ => Vec::new(),
                };
                let disturbed = train_nodes(plan, &groups, &deaths);
                assert_eq!(undisturbed, disturbed, "{sampler} {sizes:?} seed {seed}");
            }
        }
    }
}
