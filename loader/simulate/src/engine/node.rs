//! One node: a core over its samples, and the ranks of each job there. It neither reads nor
//! computes by itself.
//!
//! Where nodes share the strata of a dataset, each numbers its samples 0, 1, 2 and so on, so that
//! all nodes together take the memory of one dataset. Their strata keep their numbers, so the plan
//! is the part of the whole plan that a daemon draws, by other numbers of the samples.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use shade_core::driver::{Delivery, Driver, Soon, World};
use shade_core::importance::Importance;
use shade_core::plan::{Plan, Strata};
use shade_core::{
    Action, Core, Counts, Event, FillOrder, ReadOp, Refusal, SessionId, Ticket, TierEvent, TierOrder,
};
use shade_formats::SampleId;
use shade_formats::ring::Kind;
use shade_formats::trace::{Line, Open};
use shade_job::{PlanSpec, Seats, WeightTable};

use crate::engine::outcome::EpochOutcome;
use crate::engine::seats::Share;
use crate::engine::setup::Setup;
use crate::engine::tier_servers::answers;
use crate::error::SimulateError;
use crate::store::{NoMemory, answered, filled};

/// The session that is told of each batch, where a recording is played.
const OBSERVER: SessionId = SessionId::MAX;

/// A node.
pub(crate) struct Node {
    driver: Driver<NoMemory, Machine>,
    /// The sample in the whole dataset, by its number here; `None` if the node has them all.
    samples: Option<Vec<u32>>,
    /// Ranks of each job here. Rank `r` of job `j` has session `j * ranks + r`.
    ranks: u32,
    /// By job: its counts when they were taken last.
    counted: Vec<Counts>,
    /// Bytes that its tier may hold; 0 without a tier.
    tier_bytes: u64,
}

/// What a node does in the world.
pub(crate) enum Order {
    /// A read: of one record, or of neighbours.
    Read(Vec<ReadOp<()>>),
    /// To its tier.
    Tier(TierOrder<NoMemory>),
    /// A batch is opened. Told where a recording is played.
    Opened(Box<Open>),
}

/// The nodes of a training before their strata changed.
pub(crate) struct Before<'a> {
    nodes: Vec<&'a Node>,
    /// By sample: the node that had it, in this order, and its number there.
    places: HashMap<u32, (usize, SampleId)>,
}

impl<'a> Before<'a> {
    pub(crate) fn new(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let nodes: Vec<&Node> = nodes.collect();
        let mut places = HashMap::new();
        for (at, node) in nodes.iter().enumerate() {
            let samples = node.samples.iter().flatten().copied().zip((0..).map(SampleId));
            places.extend(samples.map(|(sample, id)| (sample, (at, id))));
        }
        Self { nodes, places }
    }

    /// The table that has the sample, and its number there.
    fn learned(&self, sample: u32) -> Option<(&'a Importance, SampleId)> {
        let &(node, id) = self.places.get(&sample)?;
        Some((self.nodes[node].driver.core.importance(0)?, id))
    }
}

/// A batch that a rank has and has not computed.
struct Waiting {
    /// When it came.
    since_ns: u64,
    seq: u64,
    epoch: u32,
    number: u32,
    /// The samples, by their numbers here.
    ids: Vec<SampleId>,
}

/// A rank.
#[derive(Default)]
struct Rank {
    batches: VecDeque<Waiting>,
    /// It has been given all batches of the epoch.
    ended: bool,
    /// Samples that it was given so far.
    taken: u64,
}

impl Rank {
    /// Whether it has a batch, or no further one in this epoch.
    fn is_ready(&self) -> bool {
        self.ended || !self.batches.is_empty()
    }
}

/// What a trainer does with a batch that it has computed.
pub(crate) struct Computed {
    /// The loss of each sample, or nothing.
    pub(crate) losses: Vec<f32>,
    /// It keeps the batch's room in the ring.
    pub(crate) keeps: bool,
}

impl Node {
    /// A node with the whole dataset and all ranks.
    ///
    /// # Errors
    /// No daemon can serve the jobs.
    pub(crate) fn whole(setup: &Setup<'_>, ranks: u32) -> Result<Self, SimulateError> {
        Self::begin(setup, setup.core(setup.cache()), None, 0..ranks, ranks, None)
    }

    /// A node with this share, and with a tier that may hold `tier_bytes`; 0 is none. `whole` is
    /// what all nodes have together, except for the capacity.
    ///
    /// # Errors
    /// No daemon can serve the jobs, or the weights of its samples cannot be used.
    pub(crate) fn of_strata(
        whole: &Setup<'_>,
        strata: &Strata,
        share: Share,
        tier_bytes: u64,
    ) -> Result<Self, SimulateError> {
        Self::over(whole, strata, share, tier_bytes, |setup, _| setup.core(setup.cache()))
    }

    /// This node with another share: what it has of its samples in cache and tier, and what they
    /// learned of them `before`. The driver's clock begins at 0. It has one job.
    ///
    /// # Errors
    /// The weights of its samples cannot be used.
    pub(crate) fn seated(
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
            let mut cache = setup.cache();
            let mut evicted = Vec::new();
            let core = &self.driver.core;
            let here = |id: SampleId| places.get(&self.in_whole(id).0).copied();
            tiered = core.tiered().filter_map(here).collect();
            for id in core.cached().filter_map(here) {
                let bytes = setup.dataset.sizes.charged(id);
                cache.offer(id, bytes, (), &table, |()| false, &mut evicted);
            }
            setup.core(cache)
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
        let dataset = Arc::new(whole.dataset.part(&samples, strata));
        let weights = whole.weights.map(|weights| part(weights, &samples)).transpose()?;
        let weights_digest = weights.as_ref().map_or(0, WeightTable::digest);
        let plans: Vec<PlanSpec> =
            whole.plans.iter().map(|plan| PlanSpec { weights_digest, ..*plan }).collect();
        let setup = Setup { dataset: &dataset, weights: weights.as_ref(), plans: &plans, ..*whole };
        let core = core(&setup, &samples);
        let mut node = Self::begin(&setup, core, Some(&order), ranks, world_size, Some(samples))?;
        if tier_bytes > 0 {
            node.tier_bytes = tier_bytes;
            node.driver.step(Event::Tier(TierEvent::Room { bytes: tier_bytes, get: None }));
        }
        Ok(node)
    }

    /// All ranks of all jobs attach.
    fn begin(
        setup: &Setup<'_>,
        core: Core<NoMemory>,
        order: Option<&Seats>,
        ranks: Range<u32>,
        world_size: u32,
        samples: Option<Vec<u32>>,
    ) -> Result<Self, SimulateError> {
        let ranks_here = ranks.end - ranks.start;
        let sessions = setup.plans.len() * ranks_here as usize;
        let machine = Machine {
            takes_time: setup.store.is_some() || setup.recalls,
            now_ns: 0,
            events: VecDeque::new(),
            orders: Vec::new(),
            ranks: (0..sessions).map(|_| Rank::default()).collect(),
            refused: None,
        };
        let mut driver = Driver::new(core, machine);
        // The trace tells which batch has which reads.
        if setup.recalls {
            driver.step(Event::Observe { session: OBSERVER, job: Some(job_name(0)) });
        }
        let mut session = 0;
        for (job, plan) in setup.plans.iter().enumerate() {
            let spec = setup.job(plan, world_size, ranks_here)?;
            for rank in ranks.clone() {
                driver.attach(session, &job_name(job), rank, &spec, setup.weights.cloned());
                if let Some(order) = order {
                    driver.step(Event::Seat { session, bytes: order.to_bytes() });
                }
                session += 1;
            }
        }
        let counted = vec![Counts::default(); setup.plans.len()];
        Ok(Self { driver, samples, ranks: ranks_here, counted, tier_bytes: 0 })
    }

    /// The only rank of the only job leaves, with nothing in hand, and another training begins over
    /// the same cache.
    pub(crate) fn begin_job(&mut self, setup: &Setup<'_>) -> Result<(), SimulateError> {
        self.driver.detach(0);
        self.driver.world.ranks[0] = Rank::default();
        self.counted[0] = Counts::default();
        let spec = setup.job(&setup.plans[0], 1, 1)?;
        self.driver.attach(0, &job_name(0), 0, &spec, None);
        Ok(())
    }

    /// Number of samples here.
    pub(crate) fn len(&self) -> Option<usize> {
        self.samples.as_ref().map(Vec::len)
    }

    /// Number of ranks of a job here.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks as usize
    }

    fn in_whole(&self, id: SampleId) -> SampleId {
        self.samples.as_ref().map_or(id, |samples| SampleId(samples[id.index()]))
    }

    fn ranks_of(&self, job: usize) -> Range<usize> {
        let ranks = self.ranks as usize;
        job * ranks..(job + 1) * ranks
    }

    fn first_session(&self, job: usize) -> SessionId {
        SessionId::try_from(self.ranks_of(job).start).unwrap_or_else(|_| unreachable!("ranks beyond 32 bits"))
    }

    /// The next epoch of the only job is this plan. The one after it may be known, too.
    pub(crate) fn plan(&mut self, plan: Plan, after: Option<Plan>) {
        self.driver.step(Event::Plan(0, Box::new(plan), after.map(Box::new)));
    }

    /// All ranks of a job begin an epoch.
    pub(crate) fn start(&mut self, now_ns: u64, job: usize, epoch: u32) {
        // A node that begins later than others has a clock that is behind.
        let behind = now_ns.saturating_sub(self.driver.world.now_ns);
        self.driver.world.now_ns = now_ns;
        self.driver.wait(Duration::from_nanos(behind));
        for session in (self.first_session(job)..).take(self.ranks as usize) {
            self.driver.start(session, epoch, 0);
        }
        self.driver.run();
    }

    /// Takes in events that happen now.
    pub(crate) fn take(&mut self, now_ns: u64, events: impl IntoIterator<Item = Event<NoMemory>>) {
        let machine = &mut self.driver.world;
        machine.now_ns = now_ns;
        machine.events.extend(events);
        self.driver.run();
    }

    /// What it has ordered since it was asked last.
    pub(crate) fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.driver.world.orders)
    }

    /// When each rank of a job had its next batch, and the number of its samples. Ranks whose epoch
    /// is over are left out.
    pub(crate) fn batches(&self, job: usize) -> impl Iterator<Item = (u64, usize)> {
        let batches =
            self.driver.world.ranks[self.ranks_of(job)].iter().filter_map(|rank| rank.batches.front());
        batches.map(|batch| (batch.since_ns, batch.ids.len()))
    }

    /// Whether each rank of a job has a batch, or no further one in this epoch.
    pub(crate) fn is_ready(&self, job: usize) -> bool {
        self.driver.world.ranks[self.ranks_of(job)].iter().all(Rank::is_ready)
    }

    /// Samples that the first rank was given so far.
    pub(crate) fn taken(&self) -> u64 {
        self.driver.world.ranks[0].taken
    }

    /// All ranks of a job have computed their batches. `computed` says what becomes of each: it is
    /// given the rank among those here, the batch's number and its samples in the whole dataset.
    pub(crate) fn end_step(
        &mut self,
        now_ns: u64,
        job: usize,
        mut computed: impl FnMut(usize, u32, &[SampleId]) -> Computed,
    ) {
        let mut events = Vec::with_capacity(2 * self.ranks as usize);
        let sessions = self.first_session(job)..;
        let of_job = self.ranks_of(job);
        for (rank, session) in of_job.clone().zip(sessions) {
            let Some(batch) = self.driver.world.ranks[rank].batches.pop_front() else { continue };
            let Waiting { seq, epoch, number, ids, .. } = batch;
            let ids = match &self.samples {
                None => Cow::Borrowed(ids.as_slice()),
                Some(_) => Cow::Owned(ids.iter().map(|&id| self.in_whole(id)).collect()),
            };
            let Computed { losses, keeps } = computed(rank - of_job.start, number, &ids);
            if !losses.is_empty() {
                events.push(Event::Report { session, epoch, batch: number, losses });
            }
            if !keeps {
                events.push(Event::Released { session, seqs: vec![seq] });
            }
        }
        self.take(now_ns, events);
    }

    /// A job's epoch is over here: adds what the node had of it to `outcome`.
    pub(crate) fn end_epoch(&mut self, job: usize, outcome: &mut EpochOutcome) {
        let of_job = self.ranks_of(job);
        self.driver.world.ranks[of_job].iter_mut().for_each(|rank| rank.ended = false);
        let epoch = self.driver.core.stats(self.first_session(job)).epoch;
        outcome.counts = outcome.counts + self.take_counts(job);
        outcome.distinct += u64::from(epoch.plan.distinct);
        outcome.repeat_max = outcome.repeat_max.max(epoch.plan.repeat_max);
        outcome.position_entropy += epoch.position_entropy;
        outcome.plans += 1;
    }

    /// A job's counts since they were taken last.
    pub(crate) fn take_counts(&mut self, job: usize) -> Counts {
        let now = self.driver.core.stats(self.first_session(job)).total.counts.counts;
        now - std::mem::replace(&mut self.counted[job], now)
    }

    /// Share of the node's samples that a job was given at least once.
    pub(crate) fn ever_seen_share(&self, job: usize) -> f64 {
        self.driver.core.stats(self.first_session(job)).total.ever_seen_share
    }

    /// 99th percentile of the latencies of reads, microseconds; `None` before the first.
    pub(crate) fn read_p99_us(&self) -> Option<f64> {
        Some(self.driver.core.stats(0).read_latency?.p99_us)
    }

    /// Why the core refused the workload, if it did.
    pub(crate) fn refused(&mut self) -> Option<String> {
        self.driver.world.refused.take()
    }
}

/// Name of a job of this number.
fn job_name(job: usize) -> String {
    job.to_string()
}

/// The weights of some samples.
fn part(weights: &WeightTable, samples: &[u32]) -> Result<WeightTable, SimulateError> {
    let of = |&id: &u32| weights.weights()[id as usize].to_le_bytes();
    let bytes: Vec<u8> = samples.iter().flat_map(of).collect();
    Ok(WeightTable::from_bytes(&bytes, u32::try_from(samples.len()).unwrap_or(u32::MAX))?)
}

/// What is around a node's core.
struct Machine {
    /// Else neither reads nor the tier take time.
    takes_time: bool,
    now_ns: u64,
    /// What happens at `now_ns`.
    events: VecDeque<Event<NoMemory>>,
    /// What was ordered.
    orders: Vec<Order>,
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
        if self.takes_time {
            self.orders.push(Order::Read(ops));
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
        let rank = &mut self.ranks[session as usize];
        rank.ended |= descriptor.kind == Kind::EpochEnd && is_current;
        if descriptor.kind != Kind::Batch || !is_current {
            soon.push_back(Event::Released { session, seqs: vec![descriptor.seq] });
            return;
        }
        // Ids of samples are u32.
        let ids: Vec<SampleId> =
            columns.ids.iter().map(|&id| SampleId(u32::try_from(id).unwrap_or(u32::MAX))).collect();
        rank.taken += ids.len() as u64;
        let (seq, epoch, number) = (descriptor.seq, descriptor.epoch, descriptor.batch);
        rank.batches.push_back(Waiting { since_ns: self.now_ns, seq, epoch, number, ids });
    }

    fn told(&mut self, action: Action<NoMemory>) {
        match action {
            Action::Refuse(_, Refusal { text, .. })
            | Action::Fail(_, text)
            | Action::Interrupt(_, text)
            | Action::Close(_, text) => self.refused = Some(text),
            Action::Tier(order) if self.takes_time => self.orders.push(Order::Tier(order)),
            Action::Tier(order) => self.events.extend(answers(order).into_iter().map(|(_, answer)| answer)),
            Action::Trace(_, line) => {
                if let Line::Open(open) = *line {
                    self.orders.push(Order::Opened(Box::new(open)));
                }
            }
            // Warnings are for a training.
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
