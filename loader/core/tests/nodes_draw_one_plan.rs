//! Nodes that pool their scores draw one plan together: ranks are given what they are given where
//! all of them are on one node. Daemons may die meanwhile, and reports come late.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::replay::{GivenBase, Replay, Taken, index_of_images, spec};
use proptest::prelude::*;
use shade_core::{BaseVersion, Event};
use shade_formats::SampleId;
use shade_formats::control::{PlacedScore, Pooled, RedoRow, Step, redo_to_bytes};
use shade_job::{Buckets, Decode, JobSpec, Order, Part, Parts, PlanSpec, Policy, Sampler, Subset, Tables};

const SAMPLES: u32 = 150;
const EPOCHS: u32 = 4;

/// What is drawn as a whole.
#[derive(Clone, Copy, Debug)]
enum Whole {
    Dataset,
    Subset,
    Mixture,
    /// One part alone is drawn by losses.
    MixtureOfOne,
    Buckets,
}

/// A training, and what disturbs it.
#[derive(Clone, Debug)]
struct Case {
    job: JobSpec,
    tables: Tables,
    /// Which ranks are on which node.
    groups: Vec<Vec<u32>>,
    /// By node and epoch, by turns: batches after which its daemon dies.
    deaths: Vec<Vec<usize>>,
    /// Daemons die between what they tell and what they hear, too.
    dies_at_the_start: bool,
    /// Epochs in which ranks report again, after they have asked for the next one.
    late: Vec<bool>,
    /// By rank and epoch, by turns: the rank does not report.
    silent: Vec<bool>,
    /// Ranks leave each epoch after as many batches; what was published of the rest is delivered.
    leaves_after: u32,
}

fn case(sampler: Sampler, whole: Whole, draw_ahead: bool, batch_size: u32, groups: Vec<Vec<u32>>) -> Case {
    let parts = |own| {
        let second = Part { samples: 50, share: 0.3, sampler: own };
        Parts::new(&[(100, 0.7).into(), second]).unwrap()
    };
    let mut plan = PlanSpec { sampler, draw_ahead, cover: 2, gap: Some(9), ..PlanSpec::default() };
    let mut tables = Tables::default();
    let mut decode = Decode::Raw;
    match whole {
        Whole::Dataset => {}
        Whole::Subset => {
            tables.subset = Some(Subset::new((0..SAMPLES).filter(|id| id % 3 != 1).collect()).unwrap());
        }
        Whole::Mixture => plan.parts = parts(None),
        Whole::MixtureOfOne => {
            plan = PlanSpec { sampler: Sampler::Echo, parts: parts(Some(sampler)), ..plan };
        }
        Whole::Buckets => {
            plan.bucket = Buckets::new(&[[14, 8], [10, 10], [8, 12]]).unwrap();
            decode = Decode::cover(8, 8);
        }
    }
    tables.name_in(&mut plan);
    let world_size = u32::try_from(groups.iter().flatten().count()).unwrap();
    let job =
        JobSpec { plan, decode, pool_scores: true, ring_bytes: 1 << 20, ..spec(batch_size, world_size) };
    let (deaths, late, silent) = (vec![Vec::new()], vec![false], vec![false]);
    let (dies_at_the_start, leaves_after) = (false, u32::MAX);
    Case { job, tables, groups, deaths, dies_at_the_start, late, silent, leaves_after }
}

fn cases() -> impl Strategy<Value = Case> {
    let sampler = prop::sample::select(vec![
        Sampler::Pads,
        Sampler::Cis,
        Sampler::Iis,
        Sampler::Infobatch,
        Sampler::Seta,
        Sampler::Replacement,
    ]);
    let whole = prop::sample::select(vec![
        Whole::Dataset,
        Whole::Subset,
        Whole::Mixture,
        Whole::MixtureOfOne,
        Whole::Buckets,
    ]);
    let order = prop::sample::select(vec![Order::Shuffled, Order::Spaced]);
    let groups = prop::sample::select(vec![
        vec![vec![0, 1], vec![2, 3]],
        vec![vec![0, 2], vec![1]],
        vec![vec![1], vec![0], vec![2]],
    ]);
    let deaths = prop::collection::vec(prop::collection::vec(0..12_usize, 0..2), 1..7);
    let disturbed = (deaths, any::<bool>(), prop::collection::vec(any::<bool>(), 1..5));
    let silent = prop::collection::vec(prop::bool::weighted(0.5), 1..6);
    let silent = (silent, prop_oneof![Just(u32::MAX), 1..6_u32], 0..4_u32);
    (sampler, whole, order, any::<bool>(), 3..9_u32, groups, disturbed, silent).prop_filter_map(
        "a mixture that no sampler suits",
        |(sampler, whole, order, draw_ahead, batch_size, groups, disturbed, silent)| {
            let mut case = case(sampler, whole, draw_ahead, batch_size, groups);
            (case.deaths, case.dies_at_the_start, case.late) = disturbed;
            case.job.plan.order = order;
            (case.silent, case.leaves_after, case.job.plan.cover) = silent;
            if sampler == Sampler::Replacement {
                // Without it nobody needs what others know.
                case.job.plan.cover += 1;
            }
            case.job.validate().is_ok().then_some(case)
        },
    )
}

/// A node whose daemon may die, and what its ranks keep for the next one.
struct Node {
    replay: Replay,
    ranks: Vec<u32>,
    job: JobSpec,
    tables: Tables,
    base: Option<GivenBase>,
    steps: BTreeMap<u32, Vec<Step>>,
    /// By rank: its next batch.
    next: BTreeMap<u32, u32>,
    taken: Vec<Taken>,
    leaves_after: u32,
}

impl Node {
    fn new(case: &Case, ranks: &[u32]) -> Self {
        let ranks_here = u32::try_from(ranks.len()).unwrap();
        let job = JobSpec { ranks_here, ..case.job.clone() };
        let steps = ranks.iter().map(|&rank| (rank, Vec::new())).collect();
        let (ranks, tables) = (ranks.to_vec(), case.tables.clone());
        let (base, next, taken) = (None, BTreeMap::new(), Vec::new());
        let replay = Self::daemon(&job, &tables, &ranks);
        let leaves_after = case.leaves_after;
        Self { replay, ranks, job, tables, base, steps, next, taken, leaves_after }
    }

    fn daemon(job: &JobSpec, tables: &Tables, ranks: &[u32]) -> Replay {
        let index = index_of_images(SAMPLES, 5, |_| 300, |id| [(8, 8), (16, 9), (8, 12)][id as usize % 3]);
        let mut replay = Replay::opening_ahead(index, Policy::Lookahead, 40 * 512, 4, 7);
        replay.survive();
        ranks.iter().for_each(|&rank| replay.attach_with(rank, rank, job, tables.clone()));
        assert!(replay.refused.is_empty(), "{:?}", replay.refused);
        replay
    }

    fn leader(&self) -> u32 {
        *self.ranks.iter().min().unwrap()
    }

    fn say(&mut self, rank: u32, step: Step) {
        self.steps.get_mut(&rank).unwrap().push(step);
    }

    /// Ranks take what has come.
    fn take(&mut self) {
        if let Some(base) = self.replay.bases.drain(..).next_back() {
            for steps in self.steps.values_mut() {
                let start = Step::Started { epoch: base.epoch };
                let rest = steps.split_off(steps.iter().rposition(|step| *step == start).unwrap());
                // Losses of the epoch before may still come.
                let is_before =
                    |step: &Step| matches!(step, Step::Delivered { epoch, .. } if epoch + 1 == base.epoch);
                steps.retain(is_before);
                steps.extend(rest);
            }
            self.base = Some(base);
        }
        let taken = std::mem::take(&mut self.replay.taken);
        let leaves_after = self.leaves_after;
        for taken in taken.into_iter().filter(|taken| taken.batch < leaves_after) {
            let row = |(&id, &flags): (&u32, &u32)| RedoRow { sample: SampleId(id), flags };
            let rows = taken.ids.iter().zip(&taken.flags).map(row).collect();
            let (rank, epoch, batch) = (taken.rank, taken.epoch, taken.batch);
            self.say(rank, Step::Delivered { epoch, batch, rows });
            self.next.insert(rank, batch + 1);
            self.taken.push(taken);
        }
    }

    /// The daemon dies, and another one takes its place.
    fn die(&mut self, epoch: u32) {
        self.take();
        self.replay = Self::daemon(&self.job, &self.tables, &self.ranks);
        for &rank in &self.ranks {
            if let Some(GivenBase { epoch: of, bytes, .. }) = &self.base {
                let version = BaseVersion { loads: 0, begun: of + 1 };
                self.replay.step(Event::TakeBase { session: rank, version, bytes: Vec::clone(bytes) });
            }
            let steps = &self.steps[&rank];
            if self.base.is_some() || steps.iter().any(|step| !matches!(step, Step::Started { .. })) {
                self.replay.step(Event::TakeRedo { session: rank, bytes: redo_to_bytes(steps) });
            }
            match self.next.get(&rank) {
                Some(&next) => self.replay.go_on(rank, epoch, next),
                None => self.replay.start(rank, epoch, 0),
            }
        }
    }

    fn start(&mut self, epoch: u32) {
        self.next.clear();
        for rank in self.ranks.clone() {
            self.say(rank, Step::Started { epoch });
            self.replay.start(rank, epoch, 0);
        }
    }

    fn told(&mut self, epoch: u32) -> Vec<u8> {
        let session = self.leader();
        self.replay.step(Event::TellScores { session, epoch });
        let told = self.replay.states.pop().unwrap();
        // The next daemon may not know of all that was published.
        if !told.is_empty() {
            self.say(session, Step::Heard { scores: told.clone() });
        }
        told
    }

    fn hear(&mut self, scores: &[u8]) {
        let session = self.leader();
        self.say(session, Step::Heard { scores: scores.to_vec() });
        self.replay.step(Event::TakeScores { session, bytes: scores.to_vec() });
        assert!(self.replay.failed.is_empty(), "{:?}", self.replay.failed);
    }

    fn report(&mut self, taken: &Taken, loss: impl Fn(u32) -> f32) {
        let (rank, epoch, batch) = (taken.rank, taken.epoch, taken.batch);
        let losses: Vec<f32> = taken.ids.iter().map(|&id| loss(id)).collect();
        self.say(rank, Step::Reported { epoch, batch, losses: losses.clone() });
        self.replay.step(Event::Report { session: rank, epoch, batch, losses });
    }

    /// The rest of an epoch, in which the daemon dies after each of these numbers of batches. All
    /// that came of it is returned: some may have come as it began.
    fn run(&mut self, epoch: u32, deaths: &[usize]) -> Vec<Taken> {
        self.take();
        let before = self.taken.len();
        for &after in deaths {
            while self.taken.len() < before + after && self.replay.tick() {
                self.take();
            }
            self.die(epoch);
        }
        self.replay.run();
        self.take();
        assert!(self.replay.errors.is_empty() && self.replay.failed.is_empty(), "{:?}", self.replay.failed);
        self.taken.iter().filter(|taken| taken.epoch == epoch).cloned().collect()
    }
}

/// Each sample has a loss of its own in each epoch.
fn loss(id: u32, epoch: u32) -> f32 {
    ((id * 31 + epoch * 57) % 97) as f32
}

/// All nodes tell all others.
fn pool(nodes: &mut [Node], case: &Case, epoch: u32) {
    let told: Vec<Vec<u8>> = nodes.iter_mut().map(|node| node.told(epoch)).collect();
    let is_pooled = nodes.len() > 1;
    assert!(told.iter().all(|told| told.is_empty() != is_pooled), "one node tells nobody");
    for (at, node) in nodes.iter_mut().enumerate() {
        node.take();
        assert!(!is_pooled || node.taken.iter().all(|taken| taken.epoch != epoch), "not heard yet");
        let dies = case.dies_at_the_start && is_pooled;
        for (_, scores) in told.iter().enumerate().filter(|&(from, _)| is_pooled && from != at) {
            if dies && (at + epoch as usize) % 2 == 1 {
                node.die(epoch);
            }
            node.hear(scores);
        }
        if dies && (at + epoch as usize).is_multiple_of(3) {
            node.die(epoch);
        }
    }
}

/// By sample: its score, and the epoch in which it was delivered last.
type Table = Vec<(f32, Option<u32>)>;

/// What a rank was given in a batch of an epoch: ids and weights.
type Given = (u32, u32, u32, Vec<u32>, Vec<u32>);

/// Trains on these nodes. Returns what each rank was given, and each node's table.
fn train(case: &Case, groups: &[Vec<u32>]) -> (Vec<Given>, Vec<Table>) {
    let mut nodes: Vec<Node> = groups.iter().map(|ranks| Node::new(case, ranks)).collect();
    let of = |flags: &[bool], epoch: u32| flags[epoch as usize % flags.len()];
    let mut before: Vec<Taken> = Vec::new();
    for epoch in 0..EPOCHS {
        nodes.iter_mut().for_each(|node| node.start(epoch));
        // What comes now counts from the next epoch on, whatever daemons die.
        if of(&case.late, epoch) {
            for taken in before.iter().filter(|taken| taken.batch % 2 == 0) {
                let node = nodes.iter_mut().find(|node| node.ranks.contains(&taken.rank)).unwrap();
                node.report(taken, |id| loss(id, 77));
            }
        }
        pool(&mut nodes, case, epoch);
        before.clear();
        for (at, node) in nodes.iter_mut().enumerate() {
            let none = Vec::new();
            let deaths = match groups.len() {
                1 => &none,
                _ => &case.deaths[(at + 2 * epoch as usize) % case.deaths.len()],
            };
            before.extend(node.run(epoch, deaths));
        }
        for taken in before.iter().filter(|taken| !of(&case.silent, 2 * taken.rank + 3 * epoch)) {
            let node = nodes.iter_mut().find(|node| node.ranks.contains(&taken.rank)).unwrap();
            node.report(taken, |id| loss(id, epoch));
        }
    }
    // All know what all have learned.
    nodes.iter_mut().for_each(|node| node.start(EPOCHS));
    pool(&mut nodes, case, EPOCHS);
    let tables = tables(&nodes);
    let bits = |weights: &[f32]| weights.iter().map(|weight| weight.to_bits()).collect();
    let given =
        |taken: &Taken| (taken.epoch, taken.batch, taken.rank, taken.ids.clone(), bits(&taken.weights));
    let mut given: Vec<Given> = nodes.iter().flat_map(|node| &node.taken).map(given).collect();
    given.retain(|given| given.0 < EPOCHS);
    given.sort();
    (given, tables)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_nodes_train_on_what_one_trains_on(case in cases()) {
        let all = vec![case.groups.concat()];
        let (expected, of_one) = train(&case, &all);
        let (given, of_each) = train(&case, &case.groups);
        prop_assert_eq!(given, expected);
        // On one node the next epoch has begun.
        let scores = |table: &[(f32, Option<u32>)]| table.iter().map(|row| row.0).collect::<Vec<_>>();
        prop_assert_eq!(scores(&of_each[0]), scores(&of_one[0]));
        prop_assert!(of_each.iter().all(|table| *table == of_each[0]));
    }

    /// Any node's state goes on with other ranks on other nodes, and then they pool their scores.
    #[test]
    fn any_node_s_state_goes_on_anywhere(case in cases(), after in 0..3_usize, at in 0..5_u32) {
        let after = [vec![vec![0], vec![1, 2]], vec![vec![0]], vec![vec![3, 0], vec![2, 1]]][after].clone();
        let case = Case { leaves_after: u32::MAX, ..case };
        let mut nodes = after_two_epochs(&case);
        let epoch_of = |nodes: &[Node], epoch| -> Vec<u32> {
            let rows = nodes.iter().flat_map(|node| &node.taken).filter(|taken| taken.epoch == epoch);
            let mut ids: Vec<u32> = rows.flat_map(|taken| taken.ids.iter().copied()).collect();
            ids.sort_unstable();
            ids
        };
        let planned = epoch_of(&nodes, 1);
        for from in 0..nodes.len() {
            let state = nodes[from].replay.save(1, at);
            let world_size = u32::try_from(after.iter().flatten().count()).unwrap();
            let job = JobSpec { world_size, ..case.job.clone() };
            let other = Case { job, groups: after.clone(), deaths: vec![Vec::new()], ..case.clone() };
            let mut second: Vec<Node> = after.iter().map(|ranks| Node::new(&other, ranks)).collect();
            let resumed: Vec<_> = second.iter_mut().map(|node| node.replay.load(&state)).collect();
            prop_assert!(resumed.iter().all(|other| *other == resumed[0]));
            for node in &mut second {
                let ranks = node.ranks.clone();
                ranks.into_iter().for_each(|rank| node.replay.start(rank, 1, resumed[0].first_batch));
                prop_assert!(node.told(1).is_empty(), "nothing is drawn");
                node.replay.run();
                node.taken.append(&mut node.replay.taken);
                assert!(node.replay.failed.is_empty(), "{:?}", node.replay.failed);
            }
            let mut rest = epoch_of(&second, 1);
            let first = nodes.iter().flat_map(|node| &node.taken);
            let first = first.filter(|taken| taken.epoch == 1 && taken.batch < at);
            rest.extend(first.flat_map(|taken| taken.ids.iter().copied()));
            rest.sort_unstable();
            prop_assert_eq!(&rest, &planned);
            // The next epoch is one plan again, of all of it.
            nodes_go_on(&mut second, &other);
        }
    }
}

/// Nodes that have loaded one state draw the same next epoch.
fn nodes_go_on(nodes: &mut [Node], case: &Case) {
    for node in nodes.iter_mut() {
        node.base = None;
        for taken in node.taken.clone() {
            let losses = taken.ids.iter().map(|&id| loss(id, 5)).collect();
            let (session, epoch, batch) = (taken.rank, taken.epoch, taken.batch);
            node.replay.step(Event::Report { session, epoch, batch, losses });
        }
        node.start(2);
    }
    let undisturbed = Case { dies_at_the_start: false, ..case.clone() };
    pool(nodes, &undisturbed, 2);
    assert!(tables(nodes).windows(2).all(|pair| pair[0] == pair[1]), "one table");
    nodes.iter_mut().for_each(|node| drop(node.run(2, &[])));
}

/// The scores and last epochs of all samples, as each node has them.
fn tables(nodes: &[Node]) -> Vec<Table> {
    let of_node = |node: &Node| {
        let table = node.replay.core().importance(node.leader()).unwrap();
        (0..SAMPLES).map(SampleId).map(|id| (table.score(id), table.last_epoch(id))).collect()
    };
    nodes.iter().map(of_node).collect()
}

/// The nodes of a training after two epochs.
fn after_two_epochs(case: &Case) -> Vec<Node> {
    let mut nodes: Vec<Node> = case.groups.iter().map(|ranks| Node::new(case, ranks)).collect();
    for epoch in 0..2 {
        nodes.iter_mut().for_each(|node| node.start(epoch));
        pool(&mut nodes, case, epoch);
        for node in &mut nodes {
            for taken in node.run(epoch, &[]) {
                node.report(&taken, |id| loss(id, epoch));
            }
        }
    }
    nodes
}

fn two_nodes() -> (Case, Vec<Node>) {
    let mut case = case(Sampler::Pads, Whole::Mixture, false, 5, vec![vec![0, 1], vec![2, 3]]);
    // Nothing is put in for being forgotten: plans follow from scores alone.
    case.job.plan.cover = 0;
    let mut nodes = after_two_epochs(&case);
    nodes.iter_mut().for_each(|node| node.start(2));
    (case, nodes)
}

/// Until others were heard nothing is drawn, and the figures say for whom it waits.
#[test]
fn an_epoch_waits_for_the_other_nodes() {
    let (_, mut nodes) = two_nodes();
    let told = nodes[1].told(2);
    let node = &mut nodes[0];
    assert!(node.told(7).is_empty(), "another epoch");
    node.replay.run();
    node.take();
    assert!(node.taken.iter().all(|taken| taken.epoch < 2));
    assert_eq!(node.replay.core().stats(0).waiting_for_scores_of, [2, 3]);
    // A state can be saved meanwhile, and an epoch that goes on is not told of.
    assert!(!node.replay.save(1, 3).is_empty());
    node.hear(&told);
    node.hear(&told);
    assert!(node.replay.core().stats(0).waiting_for_scores_of.is_empty());
    let taken = node.run(2, &[]);
    assert!(!taken.is_empty() && node.told(2).is_empty());
    // What was told of it before changes nothing any more.
    let before = node.replay.save(2, 0);
    node.hear(&told);
    assert_eq!(node.replay.save(2, 0), before);
}

#[test]
fn pooled_scores_that_do_not_fit_are_refused_and_change_nothing() {
    let (_, mut nodes) = two_nodes();
    let good = nodes[1].told(2);
    let own = nodes[0].told(2);
    let pooled = Pooled::from_bytes(&good, SAMPLES).unwrap();
    let node = &mut nodes[0];
    let before = node.replay.save(1, 0);
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    let mut wild = pooled.clone();
    wild.samples[3].scored = Some(PlacedScore { place: 1, score: f32::NAN });
    for (bad, why) in [
        (flipped, "checksum"),
        (Pooled { content_id: 1, ..pooled.clone() }.to_bytes(), "another plan or dataset"),
        (Pooled { plan_digest: 1, ..pooled.clone() }.to_bytes(), "another plan or dataset"),
        (Pooled { ranks: vec![2, 4], ..pooled.clone() }.to_bytes(), "for rank 4"),
        (Pooled { list_crc32c: Some(1), ..pooled.clone() }.to_bytes(), "has drawn another plan of epoch 1"),
        (wild.to_bytes(), "with the score NaN"),
        (Pooled { ranks: vec![0], ..pooled.clone() }.to_bytes(), "for rank 0"),
    ] {
        node.replay.step(Event::TakeScores { session: 0, bytes: bad });
        let text = node.replay.failed.pop().unwrap();
        assert!(text.contains(why), "{text}");
    }
    // What was told after another state was loaded, and what it has told itself.
    for known in [Pooled { state: 5, ..pooled }.to_bytes(), own] {
        node.replay.step(Event::TakeScores { session: 0, bytes: known });
        assert!(node.replay.failed.is_empty(), "{:?}", node.replay.failed);
    }
    assert_eq!(node.replay.save(1, 0), before);
    // A job that draws alone.
    let alone = JobSpec { ranks_here: 0, world_size: 1, ..node.job.clone() };
    let mut replay = Node::daemon(&alone, &Tables::default(), &[0]);
    replay.step(Event::TakeScores { session: 0, bytes: good });
    assert!(replay.failed[0].contains("has no use for"), "{:?}", replay.failed);
}

/// Ranks ask for another epoch when one node has heard all and begun, and the other has not.
#[test]
fn an_epoch_that_is_given_up_leaves_one_table() {
    for is_heard in [false, true] {
        let (case, mut nodes) = two_nodes();
        let told: Vec<Vec<u8>> = nodes.iter_mut().map(|node| node.told(2)).collect();
        if is_heard {
            nodes[0].hear(&told[1]);
            assert_eq!(nodes[0].replay.core().stats(0).epoch.epoch, Some(2));
        }
        nodes.iter_mut().for_each(|node| node.start(9));
        if is_heard {
            nodes[1].hear(&told[0]);
        }
        pool(&mut nodes, &case, 9);
        assert_eq!(tables(&nodes)[0], tables(&nodes)[1]);
        for epoch in 9..11 {
            for node in &mut nodes {
                for taken in node.run(epoch, &[]) {
                    node.report(&taken, |id| loss(id, epoch));
                }
            }
            nodes.iter_mut().for_each(|node| node.start(epoch + 1));
            // They compare the lists that they have drawn.
            pool(&mut nodes, &case, epoch + 1);
            assert_eq!(tables(&nodes)[0], tables(&nodes)[1]);
        }
    }
}

/// Ranks go back to the epoch that they had left, before others were heard: what they report there
/// is told, too.
#[test]
fn ranks_that_go_back_are_heard_again() {
    let (case, mut nodes) = two_nodes();
    let first: Vec<Vec<u8>> = nodes.iter_mut().map(|node| node.told(2)).collect();
    let of_one = |node: &Node| node.taken.iter().rfind(|taken| taken.epoch == 1).unwrap().clone();
    for node in &mut nodes {
        node.start(1);
        let taken = of_one(node);
        node.report(&taken, |id| loss(id, 50));
        node.start(2);
    }
    let again: Vec<Vec<u8>> = nodes.iter_mut().map(|node| node.told(2)).collect();
    assert!(first.iter().zip(&again).all(|(first, again)| first != again));
    pool(&mut nodes, &case, 2);
    assert_eq!(tables(&nodes)[0], tables(&nodes)[1]);
}
