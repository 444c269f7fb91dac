//! The world of the core's tests: reads, fills and finalizations end one by one, in a seeded random
//! order, and trainers take what is published. `simulate` drives its core by the same driver.

#![allow(dead_code, reason = "the program that counts allocations uses a part of it")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fixture fails by panicking"
)]

pub(crate) mod counted;
pub(crate) mod journal;
mod tiering;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use counted::{Counted, Record, Room};
use journal::{Before, Journal};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::driver::{Delivery, Driver, Soon, World};
use shade_core::{
    Accepted, AsideOrder, CoreConfig, Fault, FaultKind, GAP_BYTES_MAX, PREFETCHES_MAX, Pixels, Resumed,
    SessionId, Ticket, block_bytes_for, capacity_bytes, row_bytes, window_bytes,
};
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::ring::Kind;
use shade_formats::trace::Line;
use shade_formats::{DrawnRow, Dtype, EpochDraws, Geometry, SampleId, ShardId, Size};
use shade_job::{
    Capacity, DECODED_BYTES, Decode, Fields, JobSpec, OnError, Output, PlanSpec, Policy, Sampler, Tables,
    Tail, WeightTable,
};
use tiering::Tiering;

type Core = shade_core::Core<Counted>;
type Event = shade_core::Event<Counted>;
type Action = shade_core::Action<Counted>;
type ReadOp = shade_core::ReadOp<Room>;
type Completion = shade_core::Completion<Room>;
type FillOrder = shade_core::FillOrder<Arc<Record>>;
type Filled = shade_core::Filled<Arc<Record>>;
type Row = shade_core::FillRow<Arc<Record>>;

/// A dataset of `samples` records of `len(sample)` bytes in `classes` classes, in one shard.
pub(crate) fn index(samples: u32, classes: u32, len: impl Fn(u32) -> u32) -> Arc<Index> {
    index_of_images(samples, classes, len, |_| (8, 8))
}

/// The same, of images that are (width, height) large.
pub(crate) fn index_of_images(
    samples: u32,
    classes: u32,
    len: impl Fn(u32) -> u32,
    size: impl Fn(u32) -> (u16, u16),
) -> Arc<Index> {
    index_of(samples, classes, len, |id, entry| (entry.width, entry.height) = size(id))
}

/// The same, with entries changed by `change`.
pub(crate) fn index_of(
    samples: u32,
    classes: u32,
    len: impl Fn(u32) -> u32,
    change: impl Fn(u32, &mut Entry),
) -> Arc<Index> {
    let mut builder = IndexBuilder::new();
    for class in 0..classes {
        builder.push_class(format!("class{class}").as_bytes()).unwrap();
    }
    let mut offset = 512;
    let mut entries = Vec::new();
    for id in 0..samples {
        let len = len(id);
        let mut entry = Entry {
            shard: ShardId(0),
            offset,
            stored_len: len,
            raw_len: len,
            crc32c: Some(id),
            label: id % classes,
            width: 8,
            height: 8,
            codec: Codec::None,
            media: Media::Png,
        };
        change(id, &mut entry);
        entries.push(entry);
        offset += u64::from(len).next_multiple_of(512) + 512;
    }
    builder
        .push_shard(Shard { name: "shard-000000.tar", bytes: offset + 1024, records: samples, crc32c: 0 })
        .unwrap();
    for (id, entry) in entries.iter().enumerate() {
        builder.push_sample(entry, format!("class{}/{id}.png", entry.label).as_bytes()).unwrap();
    }
    Arc::new(Index::open(builder.finish().unwrap()).unwrap())
}

/// A job of `world_size` ranks with batches of `batch_size`, raw records, everything else by
/// default.
pub(crate) fn spec(batch_size: u32, world_size: u32) -> JobSpec {
    JobSpec {
        plan: PlanSpec::default(),
        batch_size,
        world_size,
        ranks_here: 0,
        pool_scores: false,
        tail: Tail::Even,
        decode: Decode::Raw,
        channels_last: false,
        dtype: Dtype::Uint8,
        normalize: None,
        exact: false,
        fields: Fields::default(),
        on_error: OnError::Raise,
        admit: true,
        bad_max: 0.01,
        // Eight batches or so of small records.
        ring_bytes: 64 << 10,
    }
}

/// Weights from 1 to 5, all above 0.
pub(crate) fn weights(samples: u32) -> WeightTable {
    WeightTable::new((0..samples).map(|id| f64::from(id % 5 + 1))).unwrap()
}

/// A batch as a trainer got it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Taken {
    pub session: SessionId,
    pub rank: u32,
    pub epoch: u32,
    pub batch: u32,
    pub ids: Vec<u32>,
    pub weights: Vec<f32>,
    pub flags: Vec<u32>,
    pub skipped: u32,
    pub substituted: u32,
    /// For images of their own sizes: first byte, height and width of each.
    pub places: Vec<(u64, u32, u32)>,
    /// What the images of each view show, view after view.
    pub crops: Vec<[f32; 4]>,
    pub flipped: Vec<u8>,
    /// Length of the batch's block.
    pub len: u64,
}

/// The base of an epoch.
#[derive(Clone, Debug)]
pub(crate) struct GivenBase {
    pub sessions: Vec<SessionId>,
    pub epoch: u32,
    pub bytes: Arc<Vec<u8>>,
}

/// The core and everything around it.
pub(crate) struct Replay {
    driver: Driver<Counted, Around>,
}

/// The core's world.
pub(crate) struct Around {
    index: Arc<Index>,
    /// Samples whose record cannot be read.
    pub bad: HashSet<u32>,
    /// Samples with a wrong checksum, and how many times more workers will find it.
    pub spoilt: HashMap<u32, u32>,
    /// Flights whose answers do not come.
    pub stuck: HashSet<u64>,
    /// Latency of every read.
    pub latency: Duration,
    pub warnings: Vec<String>,
    pub informed: Vec<String>,
    /// What an observer is told.
    pub traced: Vec<Line>,
    /// Trainers do not release what they take while this is set.
    pub hold: bool,
    /// Numbers of descriptors that trainers never release.
    pub kept: HashSet<u64>,
    pub taken: Vec<Taken>,
    pub errors: Vec<String>,
    pub refused: Vec<String>,
    pub failed: Vec<String>,
    pub states: Vec<Vec<u8>>,
    /// Bases that sessions were given.
    pub bases: Vec<GivenBase>,
    pub resumed: Vec<Resumed>,
    pub ended: Vec<(u32, u32)>,
    /// The same by session.
    pub ended_sessions: Vec<(SessionId, u32)>,
    pub reads: u64,
    /// Samples whose records were read.
    pub read: HashSet<u32>,
    /// Rows that workers decoded or copied from a record, and rows copied from decoded ones.
    pub made: u64,
    pub copied: u64,
    /// The epoch and the number of each row that workers made or copied.
    pub drawn: Vec<(EpochDraws, DrawnRow)>,
    /// Records that came along with a neighbour's read.
    pub together: u64,
    pub reads_at_once_max: usize,
    pub accepted: Vec<Accepted>,
    /// Plans are drawn at once; else each takes its time, as reads do.
    pub aside_at_once: bool,
    aside: VecDeque<AsideOrder>,
    /// Kept if it is there.
    pub journal: Option<Journal>,
    before: Option<Before>,
    ranks: HashMap<SessionId, u32>,
    published: HashMap<SessionId, u64>,
    /// What trainers have taken and not released.
    in_hand: HashMap<SessionId, Vec<u64>>,
    pub reading: Vec<ReadOp>,
    pub tier: Tiering,
    pub filling: Vec<FillOrder>,
    finalizing: Vec<Ticket>,
    rng: ChaCha8Rng,
}

impl Deref for Replay {
    type Target = Around;

    fn deref(&self) -> &Around {
        &self.driver.world
    }
}

impl DerefMut for Replay {
    fn deref_mut(&mut self) -> &mut Around {
        &mut self.driver.world
    }
}

impl Replay {
    /// A core over `index` with `cache_bytes` of cache and `depth` reads in flight, which reads
    /// each record on its own.
    pub(crate) fn new(index: Arc<Index>, policy: Policy, cache_bytes: u64, depth: u32, seed: u64) -> Self {
        let config =
            CoreConfig { prefetches_max: PREFETCHES_MAX, ..Self::config(policy, cache_bytes, depth) };
        Self::with(index, config, seed)
    }

    /// The same, where nothing is read before a batch wants it.
    pub(crate) fn on_demand(
        index: Arc<Index>,
        policy: Policy,
        cache_bytes: u64,
        depth: u32,
        seed: u64,
    ) -> Self {
        Self::with(index, Self::config(policy, cache_bytes, depth), seed)
    }

    /// The same, reading neighbours up to `gap_bytes_max` apart together.
    pub(crate) fn reading(
        index: Arc<Index>,
        policy: Policy,
        cache_bytes: u64,
        depth: u32,
        seed: u64,
        gap_bytes_max: u32,
    ) -> Self {
        let config = CoreConfig { gap_bytes_max, ..Self::config(policy, cache_bytes, depth) };
        Self::with(index, config, seed)
    }

    /// A cache of the whole dataset, into which small records bring along what lies around them.
    pub(crate) fn around(index: Arc<Index>, depth: u32, seed: u64) -> Self {
        let block_bytes =
            block_bytes_for((0..index.len()).map(|id| index.entry(SampleId(id)).unwrap().stored_len));
        let cache_bytes = capacity_bytes(Capacity::Share(1.0), &*index, block_bytes);
        let window_bytes = window_bytes(&*index, cache_bytes, block_bytes, Policy::Lookahead);
        let gap_bytes_max = GAP_BYTES_MAX;
        let config = Self::config(Policy::Lookahead, cache_bytes, depth);
        Self::with(index, CoreConfig { window_bytes, gap_bytes_max, ..config }, seed)
    }

    /// Reads on demand, neighbours together, where a miss brings along `package_bytes` of its
    /// shard.
    pub(crate) fn packaged(
        index: Arc<Index>,
        policy: Policy,
        cache_bytes: u64,
        package_bytes: u32,
        seed: u64,
    ) -> Self {
        let gap_bytes_max = GAP_BYTES_MAX;
        let config = CoreConfig { gap_bytes_max, package_bytes, ..Self::config(policy, cache_bytes, 16) };
        Self::with(index, config, seed)
    }

    fn config(policy: Policy, cache_bytes: u64, depth: u32) -> CoreConfig {
        CoreConfig {
            cache_bytes,
            policy,
            lookahead: 1.0,
            reads_max: depth,
            gap_bytes_max: 0,
            window_bytes: 0,
            package_bytes: 0,
            prefetches_max: 0,
            opens_ahead: false,
            block_bytes: 0,
            orders_max: 6,
            decoded_bytes: DECODED_BYTES,
        }
    }

    /// As [`new`](Self::new), where the next epoch's first batches are filled before it begins.
    pub(crate) fn opening_ahead(
        index: Arc<Index>,
        policy: Policy,
        cache_bytes: u64,
        depth: u32,
        seed: u64,
    ) -> Self {
        let config = Self::config(policy, cache_bytes, depth);
        Self::with(index, CoreConfig { prefetches_max: PREFETCHES_MAX, opens_ahead: true, ..config }, seed)
    }

    /// As [`on_demand`](Self::on_demand), with this limit of the decoded rows that a group shares.
    pub(crate) fn decoding_once(index: Arc<Index>, cache_bytes: u64, decoded_bytes: u64, seed: u64) -> Self {
        let config = Self::config(Policy::Lookahead, cache_bytes, 8);
        Self::with(index, CoreConfig { decoded_bytes, ..config }, seed)
    }

    fn with(index: Arc<Index>, config: CoreConfig, seed: u64) -> Self {
        let block_bytes =
            block_bytes_for((0..index.len()).map(|id| index.entry(SampleId(id)).unwrap().stored_len));
        let staging =
            shade_core::staging_bytes(&*index, block_bytes, config.reads_max, shade_core::STAGING_BYTES_MAX);
        let memory = Counted::new(config.cache_bytes + staging, block_bytes);
        let config = CoreConfig { block_bytes, ..config };
        let core = Core::new(Arc::clone(&index), memory, config);
        let around = Around {
            index,
            bad: HashSet::new(),
            spoilt: HashMap::new(),
            stuck: HashSet::new(),
            latency: Duration::ZERO,
            warnings: Vec::new(),
            informed: Vec::new(),
            traced: Vec::new(),
            hold: false,
            kept: HashSet::new(),
            taken: Vec::new(),
            errors: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            states: Vec::new(),
            bases: Vec::new(),
            resumed: Vec::new(),
            ended: Vec::new(),
            ended_sessions: Vec::new(),
            reads: 0,
            read: HashSet::new(),
            made: 0,
            copied: 0,
            drawn: Vec::new(),
            together: 0,
            reads_at_once_max: 0,
            accepted: Vec::new(),
            aside_at_once: true,
            aside: VecDeque::new(),
            journal: None,
            before: None,
            ranks: HashMap::new(),
            published: HashMap::new(),
            in_hand: HashMap::new(),
            reading: Vec::new(),
            tier: Tiering::default(),
            filling: Vec::new(),
            finalizing: Vec::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        Self { driver: Driver::new(core, around) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.driver.core
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.driver.core
    }

    /// Attaches all ranks of `spec`, with sessions `first ..`.
    pub(crate) fn attach_all(&mut self, spec: &JobSpec, first: SessionId) {
        for rank in 0..spec.world_size {
            self.attach(first + rank, rank, spec);
        }
    }

    /// With the sampler `weighted`, the table is [`weights`].
    pub(crate) fn attach(&mut self, session: SessionId, rank: u32, spec: &JobSpec) {
        let mut spec = spec.clone();
        let table = (spec.plan.sampler == Sampler::Weighted).then(|| weights(self.index.len()));
        spec.plan.weights_digest = table.as_ref().map_or(0, WeightTable::digest);
        self.attach_with(session, rank, &spec, table);
    }

    /// Attaches the only rank of the job of this name.
    pub(crate) fn attach_job(&mut self, session: SessionId, name: &str, spec: &JobSpec) {
        self.attach_job_with(session, name, spec, Tables::default());
    }

    /// The same, with these tables.
    pub(crate) fn attach_job_with(&mut self, session: SessionId, name: &str, spec: &JobSpec, tables: Tables) {
        self.ranks.insert(session, 0);
        self.driver.attach(session, name, 0, spec, tables);
    }

    /// With these tables, whatever `spec` says.
    pub(crate) fn attach_with(
        &mut self,
        session: SessionId,
        rank: u32,
        spec: &JobSpec,
        tables: impl Into<Tables>,
    ) {
        self.ranks.insert(session, rank);
        self.driver.attach(session, "job", rank, spec, tables);
    }

    pub(crate) fn start(&mut self, session: SessionId, epoch: u32, first_batch: u32) {
        self.driver.start(session, epoch, first_batch);
    }

    /// Ranks that attach from now on go on with a successor.
    pub(crate) fn survive(&mut self) {
        self.driver.survives = true;
    }

    /// A rank that has taken batches of a core that died goes on.
    pub(crate) fn go_on(&mut self, session: SessionId, epoch: u32, first_batch: u32) {
        self.driver.go_on(session, epoch, first_batch);
    }

    /// The state before this batch, by the first session.
    pub(crate) fn save(&mut self, epoch: u32, batch: u32) -> Vec<u8> {
        let session = *self.ranks.keys().min().unwrap();
        self.step(Event::SaveState { session, epoch, batch });
        self.states.pop().unwrap()
    }

    /// All sessions load a state. Returns where it goes on.
    pub(crate) fn load(&mut self, state: &[u8]) -> Resumed {
        let mut sessions: Vec<SessionId> = self.ranks.keys().copied().collect();
        sessions.sort_unstable();
        self.resumed.clear();
        for &session in &sessions {
            self.step(Event::LoadState { strata: 0, session, bytes: state.to_vec() });
        }
        assert!(self.failed.is_empty(), "{:?}", self.failed);
        assert_eq!(self.resumed.len(), sessions.len());
        let resumed = self.resumed.pop().unwrap();
        assert!(self.resumed.iter().all(|other| *other == resumed));
        resumed
    }

    /// One epoch of all ranks, to its end; returns what was taken in it.
    pub(crate) fn epoch(&mut self, epoch: u32) -> Vec<Taken> {
        let before = self.taken.len();
        let sessions: Vec<_> = self.ranks.keys().copied().collect();
        for session in sessions {
            self.start(session, epoch, 0);
        }
        self.run();
        self.taken[before..].to_vec()
    }

    /// Reports `loss(id)` for everything in `taken`.
    pub(crate) fn report(&mut self, taken: &[Taken], loss: impl Fn(u32) -> f32) {
        for taken in taken {
            let session = *self.ranks.iter().find(|(_, rank)| **rank == taken.rank).unwrap().0;
            let losses = taken.ids.iter().map(|&id| loss(id)).collect();
            self.step(Event::Report { session, epoch: taken.epoch, batch: taken.batch, losses });
        }
    }

    /// The trainer lets go of all that it was given, except what it keeps.
    pub(crate) fn release_all(&mut self, session: SessionId) {
        let released = self.released(session);
        self.step(released);
    }

    pub(crate) fn detach(&mut self, session: SessionId) {
        self.ranks.remove(&session);
        self.driver.detach(session);
    }

    /// Feeds one event and carries out what follows at once; reads and fills stay pending until
    /// [`Replay::run`].
    pub(crate) fn step(&mut self, event: Event) {
        self.driver.step(event);
    }

    /// Completes reads, fills and finalizations in random order until nothing is left to do.
    pub(crate) fn run(&mut self) {
        self.driver.run();
    }

    /// Completes one read, fill or finalization; `false` when there is none.
    pub(crate) fn tick(&mut self) -> bool {
        self.driver.tick()
    }

    /// Lets time pass in which nothing happens, a heartbeat at its end.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.driver.wait(time);
    }
}

impl Around {
    fn released(&mut self, session: SessionId) -> Event {
        let mut seqs = self.in_hand.remove(&session).unwrap_or_default();
        seqs.retain(|seq| !self.kept.contains(seq));
        Event::Released { session, seqs }
    }

    /// Workers fill the rows of `order`.
    fn filled(&mut self, order: FillOrder) -> Filled {
        let mut rows = order.rows;
        self.drawn.extend(rows.iter().map(|row| (order.draws, row.drawn)));
        let (mut faults, mut geometry) = (Vec::new(), Vec::new());
        for (at, row) in rows.iter_mut().enumerate() {
            let of_row = shown(&order.output, row);
            geometry.extend_from_slice(&of_row);
            let times = self.spoilt.get_mut(&row.sample.0).filter(|times| **times > 0);
            let outcome = match times {
                Some(times) if row.record.as_ref().is_some_and(|record| !record.is_checked()) => {
                    *times -= 1;
                    Err(Fault { kind: FaultKind::Checksum, text: "checksum mismatch".to_owned() })
                }
                _ => written(&order.output, row, &self.index.entry(row.sample).unwrap()),
            };
            match outcome {
                Ok(_) if let Pixels::Decoded { row: decoded, .. } = &row.pixels => {
                    assert_eq!(
                        decoded.bytes,
                        pixels(&order.output, order.draws, row),
                        "another row's pixels"
                    );
                    assert_eq!(decoded.geometry, of_row);
                    self.copied += 1;
                    row.size = decoded.size;
                }
                Ok(size) => {
                    row.record.as_ref().expect("a record to decode").set_checked();
                    row.size = size;
                    self.made += 1;
                    row.keep(pixels(&order.output, order.draws, row), &of_row);
                }
                Err(fault) => faults.push((at, fault)),
            }
        }
        Filled { ticket: order.ticket, rows, faults, geometry, fill_ns: 1 }
    }
}

/// What a worker says that each view of a row shows: numbers that tell sample and view.
pub(crate) fn shown(output: &Output, row: &Row) -> Vec<Geometry> {
    (0..output.views().len()).map(|view| shown_of(row.sample.0, view)).collect()
}

/// The same for one view of a sample.
pub(crate) fn shown_of(sample: u32, view: usize) -> Geometry {
    let (sample, view) = (u16::try_from(sample).unwrap(), u8::try_from(view).unwrap());
    Geometry { crop: [sample.into(), view.into(), 1.0, 2.0], flipped: (sample % 2 == 0).into() }
}

/// Bytes that tell a row's output, sample and random numbers.
fn pixels(output: &Output, draws: EpochDraws, row: &Row) -> Vec<u8> {
    format!("{output:?} {:?} {draws:?} {:?}", row.sample, row.drawn).into_bytes()
}

impl World<Counted> for Around {
    const BURSTS: bool = false;

    fn aside(&mut self, order: AsideOrder, soon: &mut Soon<Counted>) {
        if self.aside_at_once {
            return soon.push_front(Event::Aside(order.carry_out()));
        }
        self.aside.push_back(order);
    }

    fn read(&mut self, now_ns: u64, op: ReadOp, soon: &mut Soon<Counted>) {
        self.read_together(now_ns, vec![op], soon);
    }

    fn read_together(&mut self, _now_ns: u64, ops: Vec<ReadOp>, _soon: &mut Soon<Counted>) {
        self.reads += 1;
        self.together += ops.len() as u64 - 1;
        self.read.extend(ops.iter().map(|op| op.sample.0));
        self.reading.extend(ops);
        self.reads_at_once_max = self.reads_at_once_max.max(self.reading.len());
    }

    fn fill(&mut self, order: FillOrder, _soon: &mut Soon<Counted>) {
        self.filling.push(order);
    }

    fn finalize(&mut self, ticket: Ticket, _soon: &mut Soon<Counted>) {
        self.finalizing.push(ticket);
    }

    /// A trainer keeps what is of its generation, and releases it.
    fn take(&mut self, delivery: Delivery, soon: &mut Soon<Counted>) {
        let Delivery { session, descriptor, columns, error, is_current } = delivery;
        let Some(&rank) = self.ranks.get(&session) else { return };
        let published = self.published.entry(session).or_default();
        assert_eq!(descriptor.seq, *published, "descriptors are published in order");
        *published += 1;
        self.in_hand.entry(session).or_default().push(descriptor.seq);
        match descriptor.kind {
            _ if !is_current => {}
            Kind::Batch => {
                assert_eq!(columns.ids.len(), descriptor.records as usize);
                let sides = columns.heights.into_iter().zip(columns.widths);
                let places =
                    columns.offsets.iter().zip(sides).map(|(&at, (height, width))| (at, height, width));
                self.taken.push(Taken {
                    session,
                    rank,
                    epoch: descriptor.epoch,
                    batch: descriptor.batch,
                    ids: columns.ids.iter().map(|&id| u32::try_from(id).unwrap()).collect(),
                    weights: columns.weights,
                    flags: columns.flags,
                    skipped: descriptor.skipped,
                    substituted: descriptor.substituted,
                    places: places.collect(),
                    crops: columns.crops,
                    flipped: columns.flipped,
                    len: descriptor.len,
                });
            }
            Kind::EpochEnd => {
                self.ended.push((rank, descriptor.epoch));
                self.ended_sessions.push((session, descriptor.epoch));
            }
            Kind::Error => self.errors.push(error.expect("an error carries its text")),
        }
        if !self.hold {
            soon.push_back(self.released(session));
        }
    }

    fn told(&mut self, action: Action) {
        match action {
            Action::Accept(_, accepted) => self.accepted.push(accepted),
            Action::Refuse(session, text) => {
                self.ranks.remove(&session);
                self.refused.push(text.text);
            }
            Action::State(_, bytes) => self.states.push(bytes),
            Action::Base(sessions, epoch, bytes) => self.bases.push(GivenBase { sessions, epoch, bytes }),
            Action::StateLoaded(_, resumed) => self.resumed.push(resumed),
            Action::Inform(text) => self.informed.push(text),
            Action::Warn(text) | Action::BadRecord(text) => self.warnings.push(text),
            Action::Tier(order) => self.tier.take(order),
            Action::Trace(_, line) => self.traced.push(*line),
            Action::Fail(_, text) | Action::Interrupt(_, text) | Action::Close(_, text) => {
                self.failed.push(text);
            }
            _ => {}
        }
    }

    fn next(&mut self, now_ns: u64, soon: &mut Soon<Counted>) -> Option<u64> {
        let stuck = &self.stuck;
        self.reading.sort_by_key(|op| stuck.contains(&op.flight));
        let reading = self.reading.iter().filter(|op| !stuck.contains(&op.flight)).count();
        let done_here = reading + self.filling.len() + self.finalizing.len();
        let total = done_here + self.tier.pending() + usize::from(!self.aside.is_empty());
        if total == 0 {
            return None;
        }
        let pick = self.rng.random_range(0..total);
        if pick == done_here + self.tier.pending() {
            // In the order of the orders.
            let result = self.aside.pop_front().map(|order| order.carry_out());
            soon.extend(result.map(Event::Aside));
            return Some(now_ns + 1000);
        }
        if pick >= done_here {
            soon.extend(self.tier.answer(pick - done_here));
            return Some(now_ns + 1000);
        }
        soon.push_back(if pick < reading {
            let op = self.reading.remove(pick);
            let is_bad = self.bad.contains(&op.sample.0);
            let outcome = if is_bad { Err(bad("the index has no such shard")) } else { Ok(()) };
            Event::Read(Completion { op, outcome, checked: false, latency: self.latency })
        } else if pick < reading + self.filling.len() {
            let order = self.filling.swap_remove(pick - reading);
            Event::Filled(self.filled(order))
        } else {
            Event::Finalized(self.finalizing.swap_remove(pick - reading - self.filling.len()))
        });
        Some(now_ns + 1000)
    }

    fn before(&mut self, event: &Event) {
        // What is done aside at once belongs to the event before.
        let is_aside = matches!(event, Event::Aside(_));
        self.before = self.journal.as_mut().filter(|_| !is_aside).map(|journal| journal.before(event));
    }

    fn after(&mut self, core: &Core, actions: &[Action]) {
        if let Some(journal) = &mut self.journal {
            journal.after(self.before.take(), core, actions);
        }
    }
}

/// The fault of a bad record.
fn bad(text: impl ToString) -> Fault {
    Fault { kind: FaultKind::Record, text: text.to_string() }
}

/// The answer of a worker for a row whose record is as in the index.
fn written(output: &Output, row: &Row, entry: &Entry) -> Result<Size, Fault> {
    assert_eq!(row_bytes(output, entry).map_err(bad)?, row.len, "the room of sample {}", row.sample);
    Ok(match output {
        Output::Ragged { .. } => Size { width: entry.width.into(), height: entry.height.into() },
        Output::Raw | Output::Decoded(_) => Size::default(),
    })
}
