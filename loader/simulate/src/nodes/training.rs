//! One training on several nodes: what each node has, and what one of them alone would take.

use std::time::Duration;

use shade_core::RING_BATCHES;
use shade_core::plan::Strata;
use shade_job::{JobSpec, PlanSpec, StoreModel, WeightTable};

use crate::error::SimulateError;
use crate::losses::{LossSource, Losses};
use crate::nodes::args::{Loss, Straggle};
use crate::nodes::cluster::{Cluster, EpochOutcome, Seen};
use crate::nodes::node::{Before, Node};
use crate::nodes::seats::Seats;
use crate::nodes::steps::Steps;
use crate::nodes::storage::StorageModel;
use crate::play::Setup;
use crate::store::Service;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// One training: a policy at a capacity, with one seed.
#[derive(Clone, Copy)]
pub(super) struct Training<'a> {
    /// What a node has, except for its share; the capacity is that of one node.
    pub(super) node: Setup<'a>,
    pub(super) losses: &'a LossSource,
    pub(super) epochs: u32,
    pub(super) nodes: u32,
    pub(super) ranks_per_node: u32,
    nic: Option<u64>,
    tier: Tier,
    straggle: Option<Straggle>,
    lose: &'a [Loss],
    compute: Duration,
}

/// Memory of other machines behind each node's cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tier {
    /// Bytes that a node may fill; 0 without a tier.
    pub(super) bytes: u64,
    /// How fast it is, where there is a store.
    pub(super) model: StoreModel,
}

/// The nodes and their surroundings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) nodes: u32,
    pub(super) ranks_per_node: u32,
    pub(super) strata: u32,
    pub(super) nic: Option<u64>,
    pub(super) tier: Tier,
    pub(super) straggle: Option<Straggle>,
    /// Nodes that are lost.
    pub(super) lose: &'a [Loss],
    /// Compute time of a sample.
    pub(super) compute: Duration,
}

/// What came of a training.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) epochs: Vec<EpochOutcome>,
    /// Mean depth of the nodes' reads, and the worst 99th percentile of their latencies,
    /// microseconds; `None` without a store.
    pub(super) reads: Option<(f64, f64)>,
}

impl<'a> Training<'a> {
    /// The `nth` training. All caches together have `capacity`.
    ///
    /// # Errors
    /// The accesses are those of a trace.
    pub(super) fn new(
        workload: &'a Workload,
        system: &System,
        capacity: u64,
        nth: u64,
        around: Surroundings<'a>,
    ) -> Result<Self, SimulateError> {
        let Accesses::Training { plan, weights, epochs, losses, .. } = &workload.accesses else {
            return Err(SimulateError::Usage("--nodes: a trace has its own ranks".to_owned()));
        };
        let plan = system.plan(plan);
        let service = workload.service.map(|mut service| {
            service.store.seed = service.store.seed.wrapping_add(nth);
            service
        });
        let Surroundings { nodes, ranks_per_node, strata, nic, tier, straggle, lose, compute } = around;
        let node = Setup {
            dataset: &workload.dataset,
            keeper: system.keeper,
            capacity: capacity / u64::from(nodes),
            lookahead: system.keeper.lookahead(workload.lookahead),
            plan: PlanSpec { seed: plan.seed.wrapping_add(nth), strata, ..plan },
            weights: weights.as_ref().filter(|_: &&WeightTable| plan.weights_digest != 0),
            batch_size: workload.batch_size,
            ring: RING_BATCHES,
            ahead: RING_BATCHES,
            recalls: false,
            service,
            skip_epochs: workload.skip_epochs,
            coalesces: workload.coalesces,
            package_bytes: workload.package_bytes,
        };
        let epochs = *epochs;
        Ok(Self { node, losses, epochs, nodes, ranks_per_node, nic, tier, straggle, lose, compute })
    }

    /// Plays it on all nodes. `seen` is told what each rank computes.
    ///
    /// # Errors
    /// The strata do not fit the nodes, no daemon can serve such a job, or Ctrl-C.
    pub(super) fn play(&self, watch: &Watch, seen: Seen<'_>) -> Result<Played, SimulateError> {
        let mut seats = self.seats()?;
        self.job().validate()?;
        let strata = self.strata()?;
        let nodes = (0..self.nodes as usize)
            .map(|number| Node::new(&self.node, &strata, seats.of(number), self.tier.bytes));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let mut cluster = self.cluster(nodes, self.node.service, watch);
        let mut epochs = Vec::new();
        for epoch in 0..self.epochs {
            let mut strata_moved = 0;
            let lost: Vec<usize> =
                self.lose.iter().filter(|lost| lost.epoch == epoch).map(|lost| lost.node as usize).collect();
            for &lost in &lost {
                strata_moved += seats.lose(lost)?;
                cluster.seat(Some(lost), |number, node, before| {
                    node.seated(&self.node, &strata, seats.of(number), before)
                })?;
            }
            if lost.is_empty() {
                strata_moved += mix(&mut cluster, &self.node, &strata, &mut seats, epoch)?;
            }
            let outcome = cluster.epoch(epoch, seen)?;
            epochs.push(EpochOutcome { strata_moved, ..outcome });
        }
        Ok(Played { epochs, reads: cluster.reads() })
    }

    /// Plays the first node alone, with its part of the dataset and its part of the store. `None`
    /// without a store, if no slot of it would be left, or if nodes are lost.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn play_one_alone(&self, watch: &Watch) -> Result<Option<Played>, SimulateError> {
        let nodes = self.nodes;
        let Some(service) = self.node.service.filter(|_| self.lose.is_empty()) else { return Ok(None) };
        let StoreModel { slots, bandwidth_bytes_per_s, .. } = service.store;
        if slots.is_some_and(|slots| slots < nodes) {
            return Ok(None);
        }
        let store = StoreModel {
            slots: slots.map(|slots| slots.div_ceil(nodes)),
            bandwidth_bytes_per_s: bandwidth_bytes_per_s.map(|rate| rate.div_ceil(u64::from(nodes))),
            ..service.store
        };
        let service = Some(Service { store, ..service });
        let (strata, mut seats) = (self.strata()?, self.seats()?);
        let setup = Setup { service, ..self.node };
        let node = Node::new(&setup, &strata, seats.of(0), self.tier.bytes)?;
        let mut cluster = self.cluster(vec![node], service, watch);
        let play = |epoch| {
            mix(&mut cluster, &setup, &strata, &mut seats, epoch)?;
            cluster.epoch(epoch, &mut |_, _, _| {})
        };
        let epochs = (0..self.epochs).map(play).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Played { epochs, reads: cluster.reads() }))
    }

    fn seats(&self) -> Result<Seats, SimulateError> {
        Seats::new(self.nodes, self.ranks_per_node, self.node.plan.strata, self.node.dataset.samples)
    }

    /// What a rank asks its daemon for.
    fn job(&self) -> JobSpec {
        JobSpec {
            plan: self.node.plan,
            batch_size: self.node.batch_size,
            world_size: self.nodes * self.ranks_per_node,
            ranks_here: self.ranks_per_node,
            ..JobSpec::default()
        }
    }

    /// The strata as a daemon has them, with the seed for a content id: each seed has others.
    fn strata(&self) -> Result<Strata, SimulateError> {
        let PlanSpec { seed, strata, .. } = self.node.plan;
        let samples = self.node.dataset.samples;
        Strata::new(samples, strata, seed.into()).map_err(|_| {
            SimulateError::Usage(format!("--strata {strata}: give at most one for each of {samples} samples"))
        })
    }

    fn cluster<'w>(&self, nodes: Vec<Node>, service: Option<Service>, watch: &'w Watch) -> Cluster<'w>
    where
        'a: 'w,
    {
        let storage = service.map(|service| StorageModel {
            store: service.store,
            nic: self.nic,
            tier: self.tier.model,
        });
        Cluster::new(nodes, storage, self.steps(), self.losses(), watch)
    }

    pub(super) fn steps(&self) -> Steps {
        Steps::new(self.compute, self.straggle, self.node.plan.seed)
    }

    pub(super) fn losses(&self) -> Losses<'a> {
        Losses::new(self.losses, self.node.plan.seed, self.node.dataset.samples)
    }
}

/// Before an epoch: strata change seats, if the plan has that. Returns how many have changed nodes.
fn mix(
    cluster: &mut Cluster<'_>,
    node: &Setup<'_>,
    strata: &Strata,
    seats: &mut Seats,
    epoch: u32,
) -> Result<u32, SimulateError> {
    if node.plan.mix <= 0.0 || epoch == 0 {
        return Ok(0);
    }
    let moved = seats.mix(&node.plan, epoch);
    let seat = |number, here: &Node, before: &Before<'_>| here.seated(node, strata, seats.of(number), before);
    cluster.seat(None, seat)?;
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shade_job::{Policy, Sampler};

    use super::*;
    use crate::keeper::Keeper;
    use crate::sizes::Sizes;
    use crate::store::SizesOnly;

    const STRATA: u32 = 24;
    const EPOCHS: u32 = 4;

    /// By rank: all samples that it has computed.
    fn played(sampler: Sampler, mix: f64, nodes: u32, ranks_per_node: u32, lose: &[Loss]) -> Vec<Vec<u32>> {
        let (samples, labels, places) = (STRATA * 40 + 7, Vec::new(), Vec::new());
        let dataset = Arc::new(SizesOnly { samples, sizes: Sizes::Unit, labels, places, strata: None });
        let node = Setup {
            dataset: &dataset,
            keeper: Keeper::Policy(Policy::Lookahead),
            capacity: 30,
            lookahead: 1.0,
            plan: PlanSpec { sampler, strata: STRATA, mix, seed: 9, ..PlanSpec::default() },
            weights: None,
            batch_size: 8,
            ring: RING_BATCHES,
            ahead: RING_BATCHES,
            recalls: false,
            service: None,
            skip_epochs: 0,
            coalesces: false,
            package_bytes: Some(0),
        };
        let (losses, compute) = (&LossSource::Model, Duration::from_millis(1));
        let (nic, straggle) = (None, None);
        let tier = Tier { bytes: 0, model: StoreModel::default() };
        let training = Training {
            node,
            losses,
            epochs: EPOCHS,
            nodes,
            ranks_per_node,
            nic,
            tier,
            straggle,
            lose,
            compute,
        };
        let mut seen = vec![Vec::new(); (nodes * ranks_per_node) as usize];
        let played = training.play(&Watch::unseen(), &mut |rank, ids, _| seen[rank].extend_from_slice(ids));
        assert_eq!(played.unwrap().epochs.len(), EPOCHS as usize);
        seen
    }

    #[test]
    fn ranks_have_the_same_samples_on_any_number_of_nodes() {
        for plan in [(Sampler::Pads, 0.0), (Sampler::Uniform, 0.3)] {
            let one = played(plan.0, plan.1, 1, 4, &[]);
            assert!(one.iter().all(|of_rank| of_rank.len() >= (EPOCHS * STRATA * 10) as usize));
            assert!(
                played(plan.0, plan.1, 4, 1, &[]) == one && played(plan.0, plan.1, 2, 2, &[]) == one,
                "{plan:?}"
            );
        }
    }

    #[test]
    fn each_epoch_has_each_sample_when_nodes_are_lost() {
        let lose = [Loss { node: 1, epoch: 1 }, Loss { node: 3, epoch: 2 }];
        let mut counts = vec![0; (STRATA * 40 + 7) as usize];
        for id in played(Sampler::Uniform, 0.2, 4, 1, &lose).into_iter().flatten() {
            counts[id as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count == EPOCHS), "{counts:?}");
    }
}
