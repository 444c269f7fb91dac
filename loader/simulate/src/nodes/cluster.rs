//! Nodes that train together: a core each, one store, one step after the other.

use std::collections::BTreeMap;

use shade_core::{Counts, Event};

use crate::error::SimulateError;
use crate::interval::mean;
use crate::losses::Losses;
use crate::nodes::node::{Before, Node};
use crate::nodes::steps::{Step, Steps};
use crate::nodes::storage::{Storage, StorageModel};
use crate::watch::Watch;

/// What an epoch was like, for all nodes together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EpochOutcome {
    pub(super) counts: Counts,
    /// Different samples of the epoch.
    pub(super) distinct: u64,
    pub(super) time_ns: f64,
    /// Compute time of the steps without stragglers and waits.
    pub(super) compute_ns: f64,
    /// What the slowest rank of each step computed longer.
    pub(super) straggle_ns: f64,
    /// What the steps took longer than their slowest rank computed.
    pub(super) stall_ns: f64,
    /// Its part before the first step: nothing is read ahead beyond the end of an epoch.
    pub(super) boundary_ns: f64,
    /// The mean of the ranks' waits for their own batches.
    pub(super) rank_wait_ns: f64,
    /// Strata that changed nodes before it.
    pub(super) strata_moved: u32,
}

impl EpochOutcome {
    /// A step that followed the one that ended at `before_ns`.
    fn add(&mut self, before_ns: u64, step: &Step, is_first: bool) {
        // Ends are whole nanoseconds.
        let stall_ns = (step.end_ns.saturating_sub(before_ns) as f64 - step.slowest_ns).max(0.0);
        self.compute_ns += step.compute_ns;
        self.straggle_ns += step.slowest_ns - step.compute_ns;
        self.stall_ns += stall_ns;
        self.boundary_ns += if is_first { stall_ns } else { 0.0 };
        self.rank_wait_ns += step.waits_ns / f64::from(step.ranks);
    }

    /// The counts of one node.
    pub(super) fn count(&mut self, of_node: &Counts) {
        let sums = [
            (&mut self.counts.accesses, of_node.accesses),
            (&mut self.counts.hits, of_node.hits),
            (&mut self.counts.prefetched, of_node.prefetched),
            (&mut self.counts.exchanged, of_node.exchanged),
            (&mut self.counts.reads, of_node.reads),
            (&mut self.counts.coalesced, of_node.coalesced),
            (&mut self.counts.bytes_read, of_node.bytes_read),
            (&mut self.counts.bytes_between, of_node.bytes_between),
            (&mut self.counts.tier_hits, of_node.tier_hits),
            (&mut self.counts.tier_bytes, of_node.tier_bytes),
            (&mut self.counts.tier_writes, of_node.tier_writes),
        ];
        sums.into_iter().for_each(|(sum, count)| *sum += count);
    }
}

/// The nodes of one training.
pub(super) struct Cluster<'a> {
    /// By number; nodes that were lost are missing.
    nodes: BTreeMap<usize, Node>,
    storage: Option<Storage>,
    steps: Steps,
    losses: Losses<'a>,
    now_ns: u64,
    watch: &'a Watch,
}

/// What a rank computes in a step: its number, the samples of its batch, and their losses.
pub(super) type Seen<'s> = &'s mut dyn FnMut(usize, &[u32], &[f32]);

impl<'a> Cluster<'a> {
    pub(super) fn new(
        nodes: Vec<Node>,
        storage: Option<StorageModel>,
        steps: Steps,
        losses: Losses<'a>,
        watch: &'a Watch,
    ) -> Self {
        let storage = storage.map(|model| Storage::new(model, nodes.len()));
        let nodes = nodes.into_iter().enumerate().collect();
        let mut cluster = Self { nodes, storage, steps, losses, now_ns: 0, watch };
        cluster.tell_depths();
        cluster
    }

    /// Between two epochs: a node is lost, if any, and `seat` makes the others anew, each from its
    /// number, itself and what all had. With none lost nobody knows what others had.
    ///
    /// # Errors
    /// Those of `seat`, or the core refuses the workload.
    pub(super) fn seat(
        &mut self,
        lost: Option<usize>,
        mut seat: impl FnMut(usize, &Node, &Before<'_>) -> Result<Node, SimulateError>,
    ) -> Result<(), SimulateError> {
        // What is read ahead still arrives: another core would not know these reads.
        while let Some(at_ns) = self.storage.as_ref().and_then(Storage::next_ns) {
            self.answer(at_ns)?;
        }
        let nodes = std::mem::take(&mut self.nodes);
        let all = lost.map(|_| Before::new(nodes.values()));
        for (&number, node) in nodes.iter().filter(|&(&number, _)| Some(number) != lost) {
            let own = all.is_none().then(|| Before::new(std::iter::once(node)));
            if let Some(before) = all.as_ref().or(own.as_ref()) {
                self.nodes.insert(number, seat(number, node, before)?);
            }
        }
        if let Some(storage) = &mut self.storage {
            storage.share(self.nodes.len());
        }
        self.tell_depths();
        Ok(())
    }

    /// Tells cores that have just begun how many reads are in flight.
    fn tell_depths(&mut self) {
        let Some(storage) = &self.storage else { return };
        for (&number, node) in &mut self.nodes {
            node.take(self.now_ns, [Event::Depth(storage.depth(number))]);
        }
    }

    /// Plays an epoch. `seen` is told what each rank computes; ranks are numbered by node.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn epoch(&mut self, epoch: u32, seen: Seen<'_>) -> Result<EpochOutcome, SimulateError> {
        let begun_ns = self.now_ns;
        let mut outcome = EpochOutcome::default();
        self.losses.begin_epoch(epoch);
        for number in self.numbers() {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.start(begun_ns, epoch);
            }
            self.order_reads(number)?;
        }
        let mut is_first = true;
        loop {
            self.wait_for_batches()?;
            let batches = self.nodes.values().flat_map(Node::batches).flatten();
            let batches = batches.map(|batch| (batch.since_ns, batch.ids.len()));
            let Some(step) = self.steps.step(self.now_ns, batches) else { break };
            outcome.add(self.now_ns, &step, is_first);
            is_first = false;
            self.end_step(step.end_ns, seen)?;
        }
        outcome.time_ns = (self.now_ns - begun_ns) as f64;
        for node in self.nodes.values_mut() {
            outcome.distinct += u64::from(node.stats().epoch.plan.distinct);
            outcome.count(&node.take_counts());
            node.end_epoch();
        }
        Ok(outcome)
    }

    /// The nodes that are there.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.nodes.keys().copied().collect()
    }

    /// Mean depth of the nodes, and the worst 99th percentile of their reads' latencies,
    /// microseconds; `None` without a store.
    pub(super) fn reads(&self) -> Option<(f64, f64)> {
        let storage = self.storage.as_ref()?;
        let depths = self.nodes.keys().map(|&number| f64::from(storage.depth(number)));
        let depth = mean(depths.collect::<Vec<_>>().into_iter());
        let latencies = self.nodes.values().filter_map(|node| node.stats().read_latency);
        Some((depth, latencies.map(|latency| latency.p99_us).fold(0.0, f64::max)))
    }

    /// Goes on until each rank has its next batch, or has none left.
    fn wait_for_batches(&mut self) -> Result<(), SimulateError> {
        let mut missing = self.nodes.values().filter(|node| !node.is_ready()).count();
        while missing > 0 {
            let Some(at_ns) = self.storage.as_ref().and_then(Storage::next_ns) else {
                let what = "a rank waits for a batch, and nothing is read: please report this";
                return Err(SimulateError::Usage(what.to_owned()));
            };
            // Batches come ready while a step is computed, whose end is `self.now_ns`.
            missing -= self.answer(at_ns)?;
        }
        Ok(())
    }

    /// The store answers. Returns the number of nodes that are ready now and were not.
    fn answer(&mut self, at_ns: u64) -> Result<usize, SimulateError> {
        let answers = self.storage.as_mut().map(|storage| storage.answer(at_ns)).unwrap_or_default();
        let mut ready = 0;
        for (number, events) in answers {
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            let was_ready = node.is_ready();
            node.take(at_ns, events);
            ready += usize::from(!was_ready && node.is_ready());
            self.order_reads_at(at_ns, number)?;
        }
        Ok(ready)
    }

    /// The step's batches are computed at `end_ns`; the store answers until then.
    fn end_step(&mut self, end_ns: u64, seen: Seen<'_>) -> Result<(), SimulateError> {
        while let Some(at_ns) = self.storage.as_ref().and_then(Storage::next_ns).filter(|&at| at <= end_ns) {
            self.answer(at_ns)?;
        }
        self.now_ns = end_ns;
        let mut first = 0;
        let mut taken = 0;
        for number in self.numbers() {
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            node.end_step(end_ns, &mut self.losses, |rank, ids, losses| {
                taken += ids.len();
                seen(first + rank, ids, losses);
            });
            first += node.batches().count();
            self.order_reads(number)?;
        }
        self.watch.go_on(taken)
    }

    fn order_reads(&mut self, number: usize) -> Result<(), SimulateError> {
        self.order_reads_at(self.now_ns, number)
    }

    /// Takes what a node has ordered to the store.
    fn order_reads_at(&mut self, now_ns: u64, number: usize) -> Result<(), SimulateError> {
        let Some(node) = self.nodes.get_mut(&number) else { return Ok(()) };
        if let Some(text) = node.refused() {
            return Err(SimulateError::Usage(text));
        }
        let (reads, orders) = (node.reads(), node.tier_orders());
        if let Some(storage) = &mut self.storage {
            storage.order(now_ns, number, reads);
            storage.order_from_tier(now_ns, number, orders);
        }
        Ok(())
    }
}
