//! One node: a core over its own samples, and its ranks. It neither reads nor computes by itself.
//!
//! The node's samples are numbered 0, 1, 2 and so on here, so that all nodes together take the
//! memory of one dataset. Their strata keep their numbers, so the plan is the part of the whole
//! plan that a daemon draws, by other numbers of the samples.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use shade_core::driver::{Delivery, Driver, Soon, World};
use shade_core::importance::Importance;
use shade_core::plan::Strata;
use shade_core::{
    Action, Core, Counts, Event, FillOrder, ReadOp, Refusal, SessionId, Stats, Ticket, TierEvent, TierOrder,
};
use shade_formats::SampleId;
use shade_formats::ring::Kind;
use shade_job::{JobSpec, WeightTable};

use crate::error::SimulateError;
use crate::losses::Losses;
use crate::nodes::seats::Share;
use crate::nodes::tier_servers::answers;
use crate::play::Setup;
use crate::store::{NoMemory, answered, filled};

/// Name of the job.
const JOB: &str = "simulated";

/// A node.
pub(super) struct Node {
    driver: Driver<NoMemory, Machine>,
    /// The sample in the whole dataset, by its number here.
    samples: Vec<u32>,
    /// Its counts when they were taken last.
    counted: Counts,
    /// Those of its ranks are `0..sessions`.
    sessions: SessionId,
    /// Bytes that its tier may hold; 0 without a tier.
    tier_bytes: u64,
}

/// The nodes of a training before one of them was lost.
pub(super) struct Before<'a> {
    nodes: Vec<&'a Node>,
    /// By sample: the node that had it, in this order, and its number there.
    places: HashMap<u32, (usize, SampleId)>,
}

impl<'a> Before<'a> {
    pub(super) fn new(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let nodes: Vec<&Node> = nodes.collect();
        let of = |(at, node): (usize, &&'a Node)| {
            let numbered = node.samples.iter().zip((0..).map(SampleId));
            numbered.map(move |(&sample, id)| (sample, (at, id))).collect::<Vec<_>>()
        };
        let places = nodes.iter().enumerate().flat_map(of).collect();
        Self { nodes, places }
    }

    /// The table that has the sample, and its number there.
    fn learned(&self, sample: u32) -> Option<(&'a Importance, SampleId)> {
        let &(node, id) = self.places.get(&sample)?;
        Some((self.nodes.get(node)?.driver.core.importance(0)?, id))
    }
}

/// A batch that a rank has and has not computed.
pub(super) struct Waiting {
    /// When it came.
    pub(super) since_ns: u64,
    seq: u64,
    epoch: u32,
    number: u32,
    /// The samples, by their numbers here.
    pub(super) ids: Vec<SampleId>,
}

/// A rank.
#[derive(Default)]
struct Rank {
    batches: VecDeque<Waiting>,
    /// It has been given all batches of the epoch.
    ended: bool,
}

impl Node {
    /// A node with this share, and with a tier that may hold `tier_bytes`; 0 is none. `whole` is
    /// what all nodes have together, except for the capacity.
    ///
    /// # Errors
    /// The weights of its samples cannot be used.
    pub(super) fn new(
        whole: &Setup<'_>,
        strata: &Strata,
        share: Share,
        tier_bytes: u64,
    ) -> Result<Self, SimulateError> {
        Self::over(whole, strata, share, tier_bytes, |setup, _| setup.core())
    }

    /// This node with another share: what it has of its samples in cache and tier, and what they
    /// learned of them `before`. The driver's clock begins at 0.
    ///
    /// # Errors
    /// The weights of its samples cannot be used.
    pub(super) fn seated(
        &self,
        whole: &Setup<'_>,
        strata: &Strata,
        share: Share,
        before: &Before<'_>,
    ) -> Result<Self, SimulateError> {
        let (mut table, mut tiered) = (Importance::new(0), Vec::new());
        let mut node = Self::over(whole, strata, share, self.tier_bytes, |setup, samples| {
            table = Importance::new(setup.dataset.samples);
            for (id, sample) in (0..).map(SampleId).zip(samples) {
                if let Some((known, place)) = before.learned(*sample) {
                    table.take_over(id, known, place);
                }
            }
            let places: HashMap<u32, SampleId> = samples.iter().copied().zip((0..).map(SampleId)).collect();
            let mut cache = setup.keeper.cache(setup.capacity, setup.dataset.samples);
            let mut evicted = Vec::new();
            let core = &self.driver.core;
            let here = |id: SampleId| places.get(self.samples.get(id.index())?).copied();
            tiered = core.tiered().filter_map(here).collect();
            for id in core.cached().filter_map(here) {
                let bytes = setup.dataset.sizes.charged(id);
                cache.offer(id, bytes, (), &table, |()| false, &mut evicted);
            }
            setup.core_with(cache)
        })?;
        node.driver.step(Event::Importance(0, Box::new(table)));
        node.driver.step(Event::Tier(TierEvent::Held(tiered)));
        Ok(node)
    }

    fn over(
        whole: &Setup<'_>,
        strata: &Strata,
        share: Share,
        tier_bytes: u64,
        core: impl FnOnce(&Setup<'_>, &[u32]) -> Core<NoMemory>,
    ) -> Result<Self, SimulateError> {
        let Share { held, order, ranks, world_size } = share;
        let (strata, samples) = strata.of_some(held);
        let samples: Vec<u32> = samples.into_iter().map(|id| id.0).collect();
        let sessions = ranks.end - ranks.start;
        let dataset = Arc::new(whole.dataset.part(&samples, strata));
        let weights = whole.weights.map(|weights| part(weights, &samples)).transpose()?;
        let mut setup = Setup { dataset: &dataset, weights: weights.as_ref(), ..*whole };
        setup.plan.weights_digest = weights.as_ref().map_or(0, WeightTable::digest);
        let job = JobSpec { world_size, ranks_here: sessions, ..setup.job()? };
        let machine = Machine {
            has_store: setup.service.is_some(),
            now_ns: 0,
            events: VecDeque::new(),
            reads: Vec::new(),
            tier_orders: Vec::new(),
            ranks: (0..sessions).map(|_| Rank::default()).collect(),
            refused: None,
        };
        let mut driver = Driver::new(core(&setup, &samples), machine);
        for (session, rank) in (0..).zip(ranks) {
            driver.attach(session, JOB, rank, &job, weights.clone());
            driver.step(Event::Seat { session, bytes: order.to_bytes() });
        }
        if tier_bytes > 0 {
            driver.step(Event::Tier(TierEvent::Room { bytes: tier_bytes, get: None }));
        }
        Ok(Self { driver, samples, counted: Counts::default(), sessions, tier_bytes })
    }

    /// All ranks begin an epoch.
    pub(super) fn start(&mut self, now_ns: u64, epoch: u32) {
        // A node that begins later than others has a clock that is behind.
        let behind = now_ns.saturating_sub(self.driver.world.now_ns);
        self.driver.world.now_ns = now_ns;
        self.driver.wait(Duration::from_nanos(behind));
        for session in 0..self.sessions {
            self.driver.start(session, epoch, 0);
        }
        self.driver.run();
    }

    /// These events happen now.
    pub(super) fn take(&mut self, now_ns: u64, events: impl IntoIterator<Item = Event<NoMemory>>) {
        let machine = &mut self.driver.world;
        machine.now_ns = now_ns;
        machine.events.extend(events);
        self.driver.run();
    }

    /// The reads that it has ordered since it was asked last.
    pub(super) fn reads(&mut self) -> Vec<Vec<ReadOp<()>>> {
        std::mem::take(&mut self.driver.world.reads)
    }

    /// The same of its tier.
    pub(super) fn tier_orders(&mut self) -> Vec<TierOrder<NoMemory>> {
        std::mem::take(&mut self.driver.world.tier_orders)
    }

    /// The batch that each rank computes next; `None` if its epoch is over.
    pub(super) fn batches(&self) -> impl Iterator<Item = Option<&Waiting>> {
        self.driver.world.ranks.iter().map(|rank| rank.batches.front())
    }

    /// Whether each rank has a batch, or has no further one in this epoch.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.world.ranks.iter().all(|rank| rank.ended || !rank.batches.is_empty())
    }

    /// All ranks have computed their batches: they report losses, and release the batches. `seen`
    /// is given each rank's samples and losses.
    pub(super) fn end_step(
        &mut self,
        now_ns: u64,
        losses: &mut Losses<'_>,
        mut seen: impl FnMut(usize, &[u32], &[f32]),
    ) {
        let mut events = Vec::with_capacity(2 * self.driver.world.ranks.len());
        for (session, rank) in (0..).zip(&mut self.driver.world.ranks) {
            let Some(Waiting { seq, epoch, number: batch, ids, .. }) = rank.batches.pop_front() else {
                continue;
            };
            let of_whole = |id: &SampleId| self.samples.get(id.index()).copied().unwrap_or(u32::MAX);
            let of_whole: Vec<u32> = ids.iter().map(of_whole).collect();
            let whole_ids: Vec<SampleId> = of_whole.iter().copied().map(SampleId).collect();
            let losses = losses.report(batch, &whole_ids);
            seen(session as usize, &of_whole, &losses);
            if !losses.is_empty() {
                events.push(Event::Report { session, epoch, batch, losses });
            }
            events.push(Event::Released { session, seqs: vec![seq] });
        }
        self.take(now_ns, events);
    }

    /// The epoch is over for all ranks: they may begin another.
    pub(super) fn end_epoch(&mut self) {
        self.driver.world.ranks.iter_mut().for_each(|rank| rank.ended = false);
    }

    /// The figures of this moment.
    pub(super) fn stats(&self) -> Stats {
        self.driver.core.stats(0)
    }

    /// The counts since they were taken last.
    pub(super) fn take_counts(&mut self) -> Counts {
        let now = self.stats().total.counts.counts;
        let before = std::mem::replace(&mut self.counted, now);
        now.since(&before)
    }

    /// Why the core refused the workload, if it did.
    pub(super) fn refused(&mut self) -> Option<String> {
        self.driver.world.refused.take()
    }
}

/// The weights of some samples.
fn part(weights: &WeightTable, samples: &[u32]) -> Result<WeightTable, SimulateError> {
    let of = |&id: &u32| weights.weights().get(id as usize).copied().unwrap_or(0).to_le_bytes();
    let bytes: Vec<u8> = samples.iter().flat_map(of).collect();
    Ok(WeightTable::from_bytes(&bytes, u32::try_from(samples.len()).unwrap_or(u32::MAX))?)
}

/// What is around a node's core.
struct Machine {
    /// Without a store neither reads nor the tier take time.
    has_store: bool,
    now_ns: u64,
    /// What happens at `now_ns`.
    events: VecDeque<Event<NoMemory>>,
    /// Reads that were ordered.
    reads: Vec<Vec<ReadOp<()>>>,
    /// What the tier was ordered to do.
    tier_orders: Vec<TierOrder<NoMemory>>,
    /// By session.
    ranks: Vec<Rank>,
    refused: Option<String>,
}

impl World<NoMemory> for Machine {
    const BURSTS: bool = true;

    fn read(&mut self, now_ns: u64, op: ReadOp<()>, soon: &mut Soon<NoMemory>) {
        self.read_together(now_ns, vec![op], soon);
    }

    fn read_together(&mut self, _now_ns: u64, ops: Vec<ReadOp<()>>, soon: &mut Soon<NoMemory>) {
        if self.has_store {
            self.reads.push(ops);
        } else {
            soon.extend(ops.into_iter().map(|op| Event::Read(answered(op, Duration::ZERO))));
        }
    }

    fn fill(&mut self, order: FillOrder<()>, soon: &mut Soon<NoMemory>) {
        soon.push_back(Event::Filled(filled(order)));
    }

    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<NoMemory>) {
        soon.push_back(Event::Finalized(ticket));
    }

    fn take(&mut self, delivery: Delivery, soon: &mut Soon<NoMemory>) {
        let Delivery { session, descriptor, columns, error, is_current } = delivery;
        self.refused = error.or(self.refused.take());
        let Some(rank) = self.ranks.get_mut(session as usize) else { return };
        rank.ended |= descriptor.kind == Kind::EpochEnd && is_current;
        if descriptor.kind != Kind::Batch || !is_current {
            soon.push_back(Event::Released { session, seqs: vec![descriptor.seq] });
            return;
        }
        // Ids of samples are u32.
        let ids = columns.ids.iter().map(|&id| SampleId(u32::try_from(id).unwrap_or(u32::MAX))).collect();
        let (seq, epoch, number) = (descriptor.seq, descriptor.epoch, descriptor.batch);
        rank.batches.push_back(Waiting { since_ns: self.now_ns, seq, epoch, number, ids });
    }

    fn told(&mut self, action: Action<NoMemory>) {
        match action {
            Action::Refuse(_, Refusal { text, .. })
            | Action::Fail(_, text)
            | Action::Interrupt(_, text)
            | Action::Close(_, text) => self.refused = Some(text),
            Action::Tier(order) if self.has_store => self.tier_orders.push(order),
            Action::Tier(order) => self.events.extend(answers(order).into_iter().map(|(_, answer)| answer)),
            _ => {}
        }
    }

    fn next(&mut self, _now_ns: u64, soon: &mut Soon<NoMemory>) -> Option<u64> {
        (!self.events.is_empty()).then(|| {
            soon.extend(self.events.drain(..));
            self.now_ns
        })
    }
}
