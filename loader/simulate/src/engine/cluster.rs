//! Nodes, store and trainers together: what happens next, happens.

use std::collections::BTreeMap;
use std::ops::Range;

use shade_core::Event;
use shade_formats::SampleId;

use crate::engine::node::{Before, Node, Order};
use crate::engine::outcome::EpochOutcome;
use crate::engine::recalled::Recalled;
use crate::engine::storage::Storage;
use crate::engine::trainer::Trainer;
use crate::error::SimulateError;
use crate::interval::mean;
use crate::watch::Watch;

/// What answers the reads.
pub(crate) enum Answers<'a> {
    /// Reads take no time: each node answers its own.
    AtOnce,
    /// A store.
    Store(Box<Storage>),
    /// A recording, at its times. There is one node.
    Recalled(Recalled<'a>),
}

/// See the [module](self).
pub(crate) struct Cluster<'a> {
    /// By number; nodes that were lost are missing.
    nodes: BTreeMap<usize, Node>,
    pub(crate) answers: Answers<'a>,
    /// By job.
    pub(crate) trainers: Vec<Trainer<'a>>,
    /// With one node and one job: nothing before this many samples counts.
    pub(crate) count_from: Option<u64>,
    /// When the last step ended.
    now_ns: u64,
    watch: &'a Watch,
}

/// What a rank computes in a step: its number, the samples of its batch, and their losses.
pub(crate) type Seen<'s> = &'s mut dyn FnMut(usize, &[SampleId], &[f32]);

impl<'a> Cluster<'a> {
    pub(crate) fn new(
        nodes: Vec<Node>,
        answers: Answers<'a>,
        trainers: Vec<Trainer<'a>>,
        watch: &'a Watch,
    ) -> Result<Self, SimulateError> {
        let nodes = nodes.into_iter().enumerate().collect();
        let mut cluster = Self { nodes, answers, trainers, count_from: None, now_ns: 0, watch };
        cluster.tell_depths()?;
        Ok(cluster)
    }

    /// Each job plays these epochs, each when its last one is over. Returns them by job. `seen` is
    /// told what each rank computes; ranks are numbered by node.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(crate) fn play(
        &mut self,
        epochs: Range<u32>,
        seen: Seen<'_>,
    ) -> Result<Vec<Vec<EpochOutcome>>, SimulateError> {
        let jobs = 0..self.trainers.len();
        let mut played = vec![Vec::new(); jobs.len()];
        let mut next = vec![epochs.clone(); jobs.len()];
        loop {
            for job in jobs.clone() {
                loop {
                    if self.trainers[job].is_idle() {
                        let Some(epoch) = next[job].next() else { break };
                        self.start(job, epoch)?;
                    }
                    let Some(over) = self.begin_step(job) else { break };
                    played[job].push(over);
                }
            }
            self.forget_what_does_not_count();
            if self.trainers.iter().all(Trainer::is_idle) {
                return Ok(played);
            }
            self.go_on(&mut *seen)?;
        }
    }

    /// Between two epochs of the only job: a node is lost, if any, and `seat` makes the others
    /// anew, each from its number, itself and what all had. With none lost nobody knows what others
    /// had.
    ///
    /// # Errors
    /// What `seat` fails with, or the core refuses the workload.
    pub(crate) fn seat(
        &mut self,
        lost: Option<usize>,
        mut seat: impl FnMut(usize, &Node, &Before<'_>) -> Result<Node, SimulateError>,
    ) -> Result<(), SimulateError> {
        // What is read ahead still arrives: another core would not know these reads.
        while let Some(at_ns) = self.answer_ns() {
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
        if let Answers::Store(storage) = &mut self.answers {
            storage.share(self.nodes.len());
        }
        self.tell_depths()
    }

    /// The only node, where there is one.
    pub(crate) fn only_node(&mut self) -> &mut Node {
        assert!(self.nodes.len() == 1, "more than one node");
        self.nodes.values_mut().next().unwrap_or_else(|| unreachable!("no node"))
    }

    /// Samples that a job was given at least once, over all samples: the mean of the jobs.
    pub(crate) fn ever_seen_share(&self) -> f64 {
        let size = |node: &Node| node.len().map_or(1.0, |samples| samples as f64);
        let all: f64 = self.nodes.values().map(size).sum();
        let of =
            |job| self.nodes.values().map(|node| node.ever_seen_share(job) * size(node)).sum::<f64>() / all;
        mean((0..self.trainers.len()).map(of))
    }

    /// Mean depth of the nodes, and the worst 99th percentile of their reads' latencies,
    /// microseconds; `None` where they look for no depth.
    pub(crate) fn reads(&self) -> Option<(f64, f64)> {
        let Answers::Store(storage) = &self.answers else { return None };
        let depths = self.nodes.keys().map(|&number| Some(f64::from(storage.depth(number)?)));
        let depths = depths.collect::<Option<Vec<_>>>()?;
        let p99_us = self.nodes.values().filter_map(Node::read_p99_us).fold(0.0, f64::max);
        Some((mean(depths.into_iter()), p99_us))
    }

    /// Tells cores that have just begun how many reads are in flight.
    fn tell_depths(&mut self) -> Result<(), SimulateError> {
        let Answers::Store(storage) = &self.answers else { return Ok(()) };
        let now_ns = self.now_ns;
        let depths: Vec<_> = self.nodes.keys().map(|&number| (number, storage.depth(number))).collect();
        for (number, depth) in depths {
            if let Some(depth) = depth {
                self.on_node(now_ns, number, |node, _| node.take(now_ns, [Event::Depth(depth)]))?;
            }
        }
        Ok(())
    }

    /// A job begins an epoch on all nodes.
    fn start(&mut self, job: usize, epoch: u32) -> Result<(), SimulateError> {
        let now_ns = self.now_ns;
        self.trainers[job].losses.begin_epoch(epoch);
        for number in self.numbers() {
            self.on_node(now_ns, number, |node, _| node.start(now_ns, job, epoch))?;
        }
        let missing = self.missing(job);
        self.trainers[job].start(missing);
        Ok(())
    }

    /// A job's next step begins if all its ranks have batches. Returns the epoch if it is over
    /// instead.
    fn begin_step(&mut self, job: usize) -> Option<EpochOutcome> {
        let trainer = &mut self.trainers[job];
        if !trainer.is_ready() || trainer.begin_step(self.nodes.values().flat_map(|node| node.batches(job))) {
            return None;
        }
        let mut epoch = trainer.end_epoch();
        self.nodes.values_mut().for_each(|node| node.end_epoch(job, &mut epoch));
        Some(epoch)
    }

    /// Whatever comes next: answers of the store, or the end of a step. Answers come before what a
    /// trainer does at the same time.
    fn go_on(&mut self, seen: Seen<'_>) -> Result<(), SimulateError> {
        let ends = self.trainers.iter().enumerate();
        let step = ends.filter_map(|(job, trainer)| Some((trainer.step_ends_ns()?, job))).min();
        if let Answers::Recalled(recalled) = &mut self.answers {
            // Fewer batches may be open here than in the recording. Then the first reads are
            // answered all the same.
            let events = recalled.answer(step.is_none());
            if !events.is_empty() {
                let now_ns = self.now_ns;
                return self.on_node(now_ns, 0, |node, _| node.take(now_ns, events));
            }
        }
        match (self.answer_ns(), step) {
            (Some(at_ns), step) if step.is_none_or(|(end_ns, _)| at_ns <= end_ns) => self.answer(at_ns),
            (_, Some((end_ns, job))) => self.end_step(end_ns, job, seen),
            (_, None) => {
                let what = "a rank waits for a batch, and nothing is read: please report this";
                Err(SimulateError::Usage(what.to_owned()))
            }
        }
    }

    /// When the store answers next.
    fn answer_ns(&self) -> Option<u64> {
        if let Answers::Store(storage) = &self.answers { storage.next_ns() } else { None }
    }

    /// The store answers.
    fn answer(&mut self, at_ns: u64) -> Result<(), SimulateError> {
        let Answers::Store(storage) = &mut self.answers else { return Ok(()) };
        for (number, events) in storage.answer(at_ns) {
            self.on_node(at_ns, number, |node, _| node.take(at_ns, events))?;
        }
        Ok(())
    }

    /// A job's ranks have computed their batches.
    fn end_step(&mut self, end_ns: u64, job: usize, seen: Seen<'_>) -> Result<(), SimulateError> {
        self.now_ns = end_ns;
        let mut first = 0;
        let mut taken = 0;
        for number in self.numbers() {
            first = self.on_node(end_ns, number, |node, trainers| {
                node.end_step(end_ns, job, |rank, batch, ids| {
                    let computed = trainers[job].computed(batch, ids);
                    taken += ids.len();
                    seen(first + rank, ids, &computed.losses);
                    computed
                });
                first + node.ranks()
            })?;
        }
        let missing = self.missing(job);
        self.trainers[job].end_step(missing);
        self.watch.go_on(taken)
    }

    /// Leaves out what was before [`Cluster::count_from`].
    fn forget_what_does_not_count(&mut self) {
        if let Some(samples) = self.count_from
            && self.only_node().taken() >= samples
        {
            self.count_from = None;
            let _ = self.only_node().take_counts(0);
            self.trainers[0].count_from_here();
        }
    }

    /// The nodes that are there.
    fn numbers(&self) -> Vec<usize> {
        self.nodes.keys().copied().collect()
    }

    /// Number of nodes of which a rank of the job has no batch yet.
    fn missing(&self, job: usize) -> usize {
        self.nodes.values().filter(|node| !node.is_ready(job)).count()
    }

    /// Something happens on a node now: trainers learn which batches came of it, and the store what
    /// was ordered.
    fn on_node<R>(
        &mut self,
        now_ns: u64,
        number: usize,
        what: impl FnOnce(&mut Node, &mut [Trainer<'a>]) -> R,
    ) -> Result<R, SimulateError> {
        let Some(node) = self.nodes.get_mut(&number) else { unreachable!("node {number} is lost") };
        let jobs = self.trainers.len();
        let ready =
            |node: &Node| (0..jobs).fold(0u32, |ready, job| ready | u32::from(node.is_ready(job)) << job);
        let before = ready(node);
        let result = what(node, &mut self.trainers);
        let came = ready(node) & !before;
        (0..jobs).filter(|job| came >> job & 1 == 1).for_each(|job| self.trainers[job].came());
        if let Some(text) = node.refused() {
            return Err(SimulateError::Usage(text));
        }
        for order in node.orders() {
            match (&mut self.answers, order) {
                (Answers::Store(storage), Order::Read(ops)) => storage.order(now_ns, number, ops),
                (Answers::Store(storage), Order::Tier(order)) => {
                    storage.order_from_tier(now_ns, number, order)
                }
                (Answers::Recalled(recalled), Order::Read(ops)) => recalled.send(ops),
                (Answers::Recalled(recalled), Order::Opened(open)) => recalled.opened(&open),
                _ => unreachable!("an order that nobody can carry out"),
            }
        }
        Ok(result)
    }
}
