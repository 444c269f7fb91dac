//! One training: drawn as it goes, or along a script.

use std::ops::Range;
use std::time::Duration;

use shade_core::RING_BATCHES;
use shade_core::plan::{Part, Plan, PlanSummary, Strata};
use shade_formats::SampleId;
use shade_job::{Order, PlanSpec, Policy, Sampler, StoreModel, group_digest};

use crate::cache_policy::CachePolicy;
use crate::engine::cluster::{Answers, Cluster, Seen};
use crate::engine::node::{Before, Node};
use crate::engine::outcome::{EpochOutcome, Played, Trained};
use crate::engine::recalled::Recalled;
use crate::engine::seats::Seats;
use crate::engine::setup::Setup;
use crate::engine::storage::{Storage, StorageModel};
use crate::engine::trainer::Trainer;
use crate::error::SimulateError;
use crate::losses::Losses;
use crate::nodes_args::{Loss, Straggle};
use crate::script::{Epoch, Repeats, Script};
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// The seeds of two jobs are this far apart.
const JOB_SEEDS: u64 = 1000;

/// What is around the cores.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings<'a> {
    /// `None`: one node with the whole dataset, as it comes.
    pub(crate) nodes: Option<Nodes<'a>>,
    /// `None`: one job.
    pub(crate) jobs: Option<Jobs>,
    /// Compute time of a sample; 0 where nothing takes time.
    pub(crate) compute: Duration,
}

/// Nodes that train together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'a> {
    pub(crate) count: u32,
    pub(crate) ranks_per_node: u32,
    /// Parts of the dataset.
    pub(crate) strata: u32,
    /// One plan for all nodes instead of strata.
    pub(crate) is_global: bool,
    /// Rate of each node's link, bytes a second.
    pub(crate) nic: Option<u64>,
    /// Bytes that a node's tier may hold; 0 without a tier.
    pub(crate) tier_bytes: u64,
    /// How fast it is, where there is a store.
    pub(crate) tier: StoreModel,
    pub(crate) straggle: Option<Straggle>,
    /// Nodes that are lost.
    pub(crate) lose: &'a [Loss],
}

/// Jobs that train at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// One for each job.
    pub(crate) speeds: Vec<f64>,
    /// How alike they find the samples.
    pub(crate) correlation: f64,
    /// Whether they are a group with any system.
    pub(crate) is_group: bool,
}

impl Surroundings<'_> {
    /// Number of jobs.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.as_ref().map_or(1, |jobs| jobs.speeds.len())
    }
}

/// One training: a system at a capacity, with one seed.
pub(crate) struct Training<'a> {
    workload: &'a Workload,
    system: &'a System,
    around: &'a Surroundings<'a>,
    /// What the caches have together.
    capacity: u64,
    nth: u64,
    /// The jobs that take part, by number.
    jobs: Range<usize>,
    /// By job that takes part.
    plans: Vec<PlanSpec>,
    /// The plan of the only job where accesses come from a script: nothing is drawn from it.
    scripted: [PlanSpec; 1],
}

impl<'a> Training<'a> {
    /// The `nth` training of these jobs (from 0; a trace has only the first). All caches together
    /// have `capacity`.
    pub(crate) fn new(
        workload: &'a Workload,
        system: &'a System,
        around: &'a Surroundings<'a>,
        capacity: u64,
        nth: u32,
        jobs: Range<usize>,
    ) -> Self {
        let nth = u64::from(nth);
        let plan = match &workload.accesses {
            Accesses::Training { plan, .. } => system.plan(plan),
            _ => PlanSpec::default(),
        };
        let is_group = around.jobs.as_ref().is_some_and(|jobs| jobs.is_group || system.is_group);
        let group = if is_group { group_digest("simulated").wrapping_add(nth).max(1) } else { plan.group };
        let strata = around.nodes.map_or(plan.strata, |nodes| if nodes.is_global { 1 } else { nodes.strata });
        let of_job = |job| {
            let seed = plan.seed.wrapping_add(nth).wrapping_add(JOB_SEEDS * job as u64);
            PlanSpec { seed, group, strata, ..plan }
        };
        let plans = jobs.clone().map(of_job).collect();
        let scripted =
            [PlanSpec { sampler: Sampler::Uniform, order: Order::Shuffled, ..PlanSpec::default() }];
        Self { workload, system, around, capacity, nth, jobs, plans, scripted }
    }

    /// Plays it.
    ///
    /// # Errors
    /// The core refuses the workload, the strata do not fit the nodes, no daemon can serve such a
    /// job, or Ctrl-C.
    pub(crate) fn play(&self, watch: &Watch) -> Result<Trained, SimulateError> {
        let is_global = self.around.nodes.is_some_and(|nodes| nodes.is_global);
        let all = match &self.workload.accesses {
            Accesses::Training { .. } if is_global => self.play_sliced(watch)?,
            Accesses::Training { .. } if matches!(self.system.policy, CachePolicy::Min { .. }) => {
                self.play_min(watch)?
            }
            Accesses::Training { .. } => {
                let all = self.train(watch, &mut |_, _, _| {})?;
                return Ok(Trained { all, alone: self.train_one_alone(watch)? });
            }
            Accesses::List(script) => {
                // Its sight is in its own epochs, of as many accesses as it has samples. Nothing
                // comes between two accesses, unless there is a store.
                let epochs_in_it =
                    script.accesses.len() as f64 / f64::from(self.workload.dataset.samples.max(1));
                let setup = self.setup_for_script();
                let batch_size = if setup.store.is_some() { setup.batch_size } else { 1 };
                let setup = Setup { lookahead: setup.lookahead / epochs_in_it, batch_size, ..setup };
                self.follow(setup, script, true, |range| script.ids(range), watch)?
            }
            Accesses::Recording(recording) => {
                let script = &recording.script;
                let setup = self.setup_for_script();
                let setup = Setup {
                    batch_size: recording.batch_size,
                    ring: recording.ring,
                    ahead: recording.ahead,
                    recalls: setup.store.is_none(),
                    ..setup
                };
                let to_the_end = setup.lookahead == f64::INFINITY;
                self.follow(setup, script, to_the_end, |range| script.ids(range), watch)?
            }
        };
        Ok(Trained { all, alone: None })
    }

    /// Draws its plans as it goes. `seen` is told what each rank computes.
    pub(super) fn train(&self, watch: &Watch, seen: Seen<'_>) -> Result<Played, SimulateError> {
        let setup = self.setup(&self.plans);
        let Some(around) = &self.around.nodes else {
            let cluster = self.cluster(vec![Node::whole(&setup, 1)?], &setup, watch)?;
            return self.train_on(cluster, &mut |_, _| Ok(0), seen);
        };
        let mut seats = self.seats(around)?;
        let strata = self.strata()?;
        let node = |number| Node::of_strata(&setup, &strata, seats.of(number), around.tier_bytes);
        let nodes = (0..around.count as usize).map(node).collect::<Result<Vec<_>, _>>()?;
        let cluster = self.cluster(nodes, &setup, watch)?;
        let mut seat = |cluster: &mut Cluster<'_>, epoch: u32| {
            let mut moved = 0;
            let lost: Vec<&Loss> = around.lose.iter().filter(|lost| lost.epoch == epoch).collect();
            for lost in lost.iter().map(|lost| lost.node as usize) {
                moved += seats.lose(lost)?;
                cluster.seat(Some(lost), |number, node, before| {
                    node.seated(&setup, &strata, seats.of(number), before)
                })?;
            }
            if lost.is_empty() {
                moved += self.mix(cluster, &setup, &strata, &mut seats, epoch)?;
            }
            Ok(moved)
        };
        self.train_on(cluster, &mut seat, seen)
    }

    /// Plays the first node alone, with its part of the dataset and its part of the store. `None`
    /// without a store, if no slot of it would be left, or if nodes are lost.
    fn train_one_alone(&self, watch: &Watch) -> Result<Option<Played>, SimulateError> {
        let Some(around) = &self.around.nodes else { return Ok(None) };
        let setup = self.setup(&self.plans);
        let Some(store) = setup.store.filter(|_| around.lose.is_empty()) else { return Ok(None) };
        let nodes = around.count;
        let StoreModel { slots, bandwidth_bytes_per_s, .. } = store;
        if slots.is_some_and(|slots| slots < nodes) {
            return Ok(None);
        }
        let store = StoreModel {
            slots: slots.map(|slots| slots.div_ceil(nodes)),
            bandwidth_bytes_per_s: bandwidth_bytes_per_s.map(|rate| rate.div_ceil(u64::from(nodes))),
            ..store
        };
        let setup = Setup { store: Some(store), ..setup };
        let (strata, mut seats) = (self.strata()?, self.seats(around)?);
        let node = Node::of_strata(&setup, &strata, seats.of(0), around.tier_bytes)?;
        let cluster = self.cluster(vec![node], &setup, watch)?;
        let mut mix =
            |cluster: &mut Cluster<'_>, epoch: u32| self.mix(cluster, &setup, &strata, &mut seats, epoch);
        self.train_on(cluster, &mut mix, &mut |_, _, _| {}).map(Some)
    }

    /// Plays all epochs. Before those in which strata change seats, `seat` does that, and returns
    /// how many have changed nodes.
    fn train_on(
        &self,
        mut cluster: Cluster<'_>,
        seat: &mut dyn FnMut(&mut Cluster<'_>, u32) -> Result<u32, SimulateError>,
        seen: Seen<'_>,
    ) -> Result<Played, SimulateError> {
        let lose = self.around.nodes.map_or(&[] as &[Loss], |nodes| nodes.lose);
        let mixes = self.plans.iter().any(|plan| plan.mix > 0.0);
        let changes = |epoch: u32| mixes || lose.iter().any(|lost| lost.epoch == epoch);
        let (mut epoch, end) = (0, self.workload.epochs());
        let mut jobs = vec![Vec::new(); self.plans.len()];
        while epoch < end {
            let strata_moved = if changes(epoch) { seat(&mut cluster, epoch)? } else { 0 };
            let next = (epoch + 1..end).find(|&next| changes(next)).unwrap_or(end);
            for (all, mut played) in jobs.iter_mut().zip(cluster.play(epoch..next, &mut *seen)?) {
                played[0].strata_moved = strata_moved;
                all.append(&mut played);
            }
            epoch = next;
        }
        let skipped = self.workload.skip_epochs as usize;
        let ever_seen_share = Some(cluster.ever_seen_share());
        Ok(Played { jobs, skipped, ever_seen_share, reads: cluster.reads() })
    }

    /// Before an epoch: strata change seats, if the plan has that. Returns how many have changed
    /// nodes.
    fn mix(
        &self,
        cluster: &mut Cluster<'_>,
        setup: &Setup<'_>,
        strata: &Strata,
        seats: &mut Seats,
        epoch: u32,
    ) -> Result<u32, SimulateError> {
        let plan = &self.plans[0];
        if plan.mix <= 0.0 || epoch == 0 {
            return Ok(0);
        }
        let moved = seats.mix(plan, epoch);
        let seat =
            |number, here: &Node, before: &Before<'_>| here.seated(setup, strata, seats.of(number), before);
        cluster.seat(None, seat)?;
        Ok(moved)
    }

    /// Belady's MIN: its plans do not depend on the cache, so all of them are drawn first.
    fn play_min(&self, watch: &Watch) -> Result<Played, SimulateError> {
        let mut scripts = self.drawn(1, 1, watch)?;
        let Some(mut script) = scripts.pop() else { unreachable!("one script was asked for") };
        // MIN goes by no score.
        script.losses = Vec::new();
        let setup = self.setup_for_script();
        let batch_size = shortest(&script).min(setup.batch_size);
        let mut ids = std::mem::take(&mut script.accesses);
        let all = |_| std::mem::take(&mut ids);
        self.follow(Setup { batch_size, ..setup }, &script, true, all, watch)
    }

    /// What strata are compared with: one plan of the whole dataset, whose positions go to the
    /// ranks by turns, whatever their nodes have cached. The plans are drawn first. Then each node
    /// follows its ranks' accesses with a cache of its own. The counts are those of all epochs that
    /// count, together.
    fn play_sliced(&self, watch: &Watch) -> Result<Played, SimulateError> {
        if self.plans[0].depends_on_residents() {
            let what = "--global-plan: these plans depend on what is cached, and each node has other samples \
                        cached; leave out --rep, --pace and orders that go by residents";
            return Err(SimulateError::Usage(what.to_owned()));
        }
        let (nodes, ranks) = self.around.nodes.map_or((1, 1), |nodes| (nodes.count, nodes.ranks_per_node));
        let mut sum = EpochOutcome::default();
        for script in self.drawn(nodes, ranks, watch)? {
            let setup = self.setup_for_script();
            let batch_size = shortest(&script).min(setup.batch_size * ranks);
            let setup = Setup { batch_size, ring: 1, ahead: 1, ..setup };
            let ids = |range| script.ids(range);
            sum += self.follow(setup, &script, false, ids, watch)?.all();
        }
        Ok(Played { jobs: vec![vec![sum]], ..Played::default() })
    }

    /// What the ranks of each node are given if plans do not depend on what is cached.
    fn drawn(&self, nodes: u32, ranks: u32, watch: &Watch) -> Result<Vec<Script>, SimulateError> {
        let setup = Setup {
            policy: CachePolicy::Online(Policy::Static),
            capacity: 0,
            store: None,
            ring: 1,
            ahead: 1,
            ..self.setup(&self.plans)
        };
        let mut cluster = self.cluster(vec![Node::whole(&setup, nodes * ranks)?], &setup, watch)?;
        let mut scripts = vec![Script::default(); nodes as usize];
        let mut counts = vec![0; self.workload.dataset.samples as usize];
        for epoch in 0..self.workload.epochs() {
            let from: Vec<usize> = scripts.iter().map(|script| script.accesses.len()).collect();
            cluster.play(epoch..epoch + 1, &mut |rank, ids, losses| {
                let script = &mut scripts[rank / ranks as usize];
                script.accesses.extend_from_slice(ids);
                script.losses.extend_from_slice(losses);
            })?;
            for (script, from) in scripts.iter_mut().zip(from) {
                let accesses = from..script.accesses.len();
                let repeats = Repeats::of(&script.accesses[from..], &mut counts);
                script.epochs.push(Epoch { accesses, repeats, ..Epoch::default() });
            }
        }
        Ok(scripts)
    }

    /// Plays the accesses of a script, whose samples `ids` gives. Each epoch is known when it
    /// begins, or when the one before does; `to_the_end`: all epochs of a training are, which makes
    /// `lookahead` MIN. The outcome has the epochs that count only.
    pub(super) fn follow<'w>(
        &self,
        setup: Setup<'_>,
        script: &'w Script,
        to_the_end: bool,
        mut ids: impl FnMut(Range<usize>) -> Vec<SampleId>,
        watch: &'w Watch,
    ) -> Result<Played, SimulateError> {
        let Script { losses, back, epochs, .. } = script;
        let answers = match setup.store {
            None if setup.recalls => Answers::Recalled(Recalled::default()),
            store => self.answers(store, 1),
        };
        let mut trainer = Trainer::new(self.around.compute, None, 0, Losses::None);
        trainer.keeps = setup.keeps();
        let mut cluster = Cluster::new(vec![Node::whole(&setup, 1)?], answers, vec![trainer], watch)?;
        let skipped = self.workload.skip_epochs as usize;
        let mut counted = Vec::new();
        let mut first = 0;
        while let Some(epoch) = epochs.get(first) {
            let rest = &epochs[first + 1..];
            let more = if to_the_end { rest.iter().take_while(|epoch| !epoch.begins_job).count() } else { 0 };
            if epoch.begins_job && first > 0 {
                cluster.only_node().begin_job(&setup)?;
                cluster.trainers[0].keeps = setup.keeps();
            }
            let group = first..first + 1 + more;
            let (from, to) = (epoch.accesses.start, epochs[group.end - 1].accesses.end);
            cluster.trainers[0].losses =
                Losses::Recorded(losses.get(from..to).unwrap_or_default(), setup.batch_size);
            if let Answers::Recalled(recalled) = &mut cluster.answers {
                recalled.begin(back.get(epoch.first_batch..).unwrap_or_default(), epoch.first_batch);
            }
            if group.contains(&skipped) && skipped > first {
                let before = (epochs[skipped].accesses.start - from) as u64;
                cluster.count_from = Some(cluster.only_node().taken() + before);
            }
            let number = u32::try_from(first).unwrap_or(u32::MAX);
            let plan = |epoch, ids| {
                let (part, weights, summary) = (Part::WHOLE, Vec::new(), PlanSummary::default());
                Plan { epoch, part, ids, weights, summary }
            };
            let after = epochs.get(group.end).filter(|epoch| epoch.is_known_early);
            let after = after.map(|epoch| plan(number + 1, ids(epoch.accesses.clone())));
            cluster.only_node().plan(plan(number, ids(from..to)), after);
            let played = cluster.play(number..number + 1, &mut |_, _, _| {})?;
            if group.end > skipped {
                let repeats = epochs[group.clone()].iter().skip(skipped.saturating_sub(first));
                let repeats = repeats.map(|epoch| epoch.repeats);
                counted.push(EpochOutcome {
                    distinct: repeats.clone().map(|repeats| u64::from(repeats.distinct)).sum(),
                    repeat_max: repeats.map(|repeats| repeats.most).max().unwrap_or(0),
                    // Nobody has drawn it.
                    position_entropy: 0.0,
                    plans: 0,
                    ..EpochOutcome::sum(played.concat())
                });
            }
            first = group.end;
        }
        let ever_seen_share = Some(cluster.ever_seen_share());
        Ok(Played { jobs: vec![counted], skipped: 0, ever_seen_share, reads: None })
    }

    /// What the only node of a script is given.
    pub(super) fn setup_for_script(&self) -> Setup<'_> {
        self.setup(&self.scripted)
    }

    /// What each node is given, with these plans, except for its share of the dataset.
    fn setup<'s>(&'s self, plans: &'s [PlanSpec]) -> Setup<'s> {
        let &Workload {
            ref dataset,
            ref accesses,
            batch_size,
            lookahead,
            coalesces,
            package_bytes,
            store,
            ..
        } = self.workload;
        let weights = match accesses {
            Accesses::Training { weights, .. } => weights.as_ref(),
            _ => None,
        };
        let store = store.map(|store| StoreModel { seed: store.seed.wrapping_add(self.nth), ..store });
        let nodes = self.around.nodes.map_or(1, |nodes| nodes.count);
        let takes_time = !self.around.compute.is_zero();
        let batches = if takes_time { RING_BATCHES } else { 1 };
        Setup {
            dataset,
            policy: self.system.policy,
            capacity: self.capacity / u64::from(nodes),
            lookahead: self.system.policy.lookahead(lookahead),
            plans,
            weights: weights.filter(|_| plans.iter().any(|plan| plan.weights_digest != 0)),
            batch_size,
            ring: batches,
            ahead: batches,
            store,
            recalls: false,
            coalesces,
            package_bytes,
        }
    }

    fn cluster<'w>(
        &self,
        nodes: Vec<Node>,
        setup: &Setup<'_>,
        watch: &'w Watch,
    ) -> Result<Cluster<'w>, SimulateError>
    where
        'a: 'w,
    {
        let answers = self.answers(setup.store, nodes.len());
        Cluster::new(nodes, answers, self.trainers(setup.keeps()), watch)
    }

    fn answers<'w>(&self, store: Option<StoreModel>, nodes: usize) -> Answers<'w> {
        let Some(store) = store else { return Answers::AtOnce };
        let around = self.around.nodes;
        let model = StorageModel {
            store,
            nic: around.and_then(|around| around.nic),
            tier: around.map(|around| around.tier).unwrap_or_default(),
            finds_depth: around.is_some(),
        };
        Answers::Store(Box::new(Storage::new(model, nodes)))
    }

    /// A trainer for each job, which keeps this many batches.
    fn trainers(&self, keeps: u64) -> Vec<Trainer<'a>> {
        let Accesses::Training { losses, .. } = &self.workload.accesses else { return Vec::new() };
        let samples = self.workload.dataset.samples;
        let straggle = self.around.nodes.and_then(|nodes| nodes.straggle);
        let trainer = |(job, plan): (usize, &PlanSpec)| {
            let (compute, losses) = match &self.around.jobs {
                None => (self.around.compute, Losses::new(losses, plan.seed, samples)),
                Some(jobs) => {
                    let of_all = plan.seed.wrapping_sub(JOB_SEEDS * job as u64);
                    let losses = Losses::of_job(of_all, job as u64, samples, jobs.correlation);
                    (self.around.compute.div_f64(jobs.speeds[job]), losses)
                }
            };
            let mut trainer = Trainer::new(compute, straggle, plan.seed, losses);
            trainer.keeps = keeps;
            trainer
        };
        self.jobs.clone().zip(&self.plans).map(trainer).collect()
    }

    fn seats(&self, around: &Nodes<'_>) -> Result<Seats, SimulateError> {
        Seats::new(around.count, around.ranks_per_node, around.strata, self.workload.dataset.samples)
    }

    /// The strata as a daemon has them, with the seed for a content id: each seed has others.
    fn strata(&self) -> Result<Strata, SimulateError> {
        let PlanSpec { seed, strata, .. } = self.plans[0];
        let samples = self.workload.dataset.samples;
        Strata::new(samples, strata, seed.into()).map_err(|_| {
            SimulateError::Usage(format!("--strata {strata}: give at most one for each of {samples} samples"))
        })
    }
}

/// Accesses of the shortest epoch, at least 1: batches span the ends of epochs, and none may hold
/// more than an epoch.
fn shortest(script: &Script) -> u32 {
    let shortest = script.epochs.iter().map(|epoch| epoch.accesses.len()).min().unwrap_or(1);
    u32::try_from(shortest).unwrap_or(u32::MAX).max(1)
}
