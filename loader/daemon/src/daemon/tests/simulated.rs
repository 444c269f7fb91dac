//! The daemon's life under seeds, without sockets, threads and clocks: what main decides between
//! two events, the core, and the cache's real memory. Around them trainings come, train, validate,
//! save, die and come back, where they were or with other ranks; the store and the tier fail; the
//! cache is resized; the user drains the daemon.
//!
//! Each seed is another life. A seed that fails is printed, and replayed by `SHADE_SEEDS=SEED cargo
//! test -p shade-load --lib simulated`. `SHADE_SEEDS=1000..9000` plays many.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::driver::{Delivery, Driver, Soon, World};
use shade_core::{
    AsideOrder, Attach, Completion, Fault, FaultKind, FillOrder, Filled, ReadOp, Resumed, STAGING_BYTES_MAX,
    SessionId, Ticket, TierEvent, TierMiss, TierOrder, TierPut, block_bytes_for, capacity_bytes,
    staging_bytes,
};
use shade_formats::control::{REFUSE_DRAINING, REFUSE_ENDING};
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::ring::{FLAG_PADDING, Kind};
use shade_formats::{Geometry, SampleId, ShardId};
use shade_job::{
    Capacity, DaemonSpec, Decode, JobSpec, OnError, PlanSpec, Policy, Sampler, Settings, Tables, Tail,
};
use shade_reads::blocks::{Arena, Blocks, FreeList, Lent};

use super::super::cache_memory::CacheMemory;
use super::super::lifecycle::{Lifecycle, Present};
use super::super::settings::{Running, ServeConfig};
use super::super::start::core_config;
use super::super::{Action, Core, Event};
use crate::control::{Asked, ServedDataset};

/// A multiple of all batches of all ranks below.
const SAMPLES: u32 = 48;
/// Most bytes of a record.
const RECORD_BYTES: u32 = 20_000;
const MS: u64 = 1_000_000;
const HEARTBEAT_NS: u64 = 100 * MS;
/// Seeds that each test run plays.
const SEEDS: u64 = 60;
/// No life is longer.
const END_NS: u64 = 600_000 * MS;

/// Store, tier, workers and the thread aside: each answers at a time of its own.
struct Machine {
    random: ChaCha8Rng,
    now_ns: u64,
    /// By time and number.
    answers: BTreeMap<(u64, u64), Event>,
    answered: u64,
    /// Samples whose record cannot be read.
    bad: HashSet<u32>,
    /// Samples that the tier has.
    tier: HashSet<u32>,
    tier_fails: bool,
    /// The last answer of those that come in the order of their orders.
    last_ns: u64,
    accepted: HashSet<SessionId>,
    refused: Vec<SessionId>,
    /// Sessions that the core has ended or failed, and why.
    ended: Vec<(SessionId, String)>,
    taken: Vec<Delivery>,
    /// States that were asked for.
    states: Vec<(SessionId, Vec<u8>)>,
    /// Sessions whose state was loaded.
    loaded: Vec<(SessionId, Resumed)>,
}

impl Machine {
    fn new(random: ChaCha8Rng, bad: HashSet<u32>) -> Self {
        Self {
            random,
            now_ns: 0,
            answers: BTreeMap::new(),
            answered: 0,
            bad,
            tier: HashSet::new(),
            tier_fails: false,
            last_ns: 0,
            accepted: HashSet::new(),
            refused: Vec::new(),
            ended: Vec::new(),
            taken: Vec::new(),
            states: Vec::new(),
            loaded: Vec::new(),
        }
    }

    /// An answer within `ms` milliseconds.
    fn answer(&mut self, ms: u64, event: Event) {
        let at_ns = self.now_ns + self.random.random_range(1..=ms * MS);
        self.answer_at(at_ns, event);
    }

    /// An answer after all earlier ones of its kind.
    fn answer_in_order(&mut self, event: Event) {
        self.last_ns = self.last_ns.max(self.now_ns) + self.random.random_range(1..=MS);
        self.answer_at(self.last_ns, event);
    }

    fn answer_at(&mut self, at_ns: u64, event: Event) {
        self.answered += 1;
        self.answers.insert((at_ns, self.answered), event);
    }

    fn next_ns(&self) -> Option<u64> {
        self.answers.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    fn get(&mut self, op: ReadOp<Blocks>) {
        let outcome = match self.random.random_range(0..10) {
            _ if self.tier_fails => Err(TierMiss::Down),
            _ if !self.tier.contains(&op.sample.0) => Err(TierMiss::Absent),
            0 => Err(TierMiss::Wrong),
            _ => Ok(()),
        };
        self.answer(2, Event::Tier(TierEvent::Got { op, outcome, latency: Duration::from_millis(1) }));
    }
}

impl World<FreeList> for Machine {
    const BURSTS: bool = true;

    fn aside(&mut self, order: AsideOrder, _soon: &mut Soon<FreeList>) {
        self.answer_in_order(Event::Aside(order.carry_out()));
    }

    fn read(&mut self, _now_ns: u64, op: ReadOp<Blocks>, _soon: &mut Soon<FreeList>) {
        let is_bad = self.bad.contains(&op.sample.0);
        let text = || "the record is gone".to_owned();
        let outcome = if is_bad { Err(Fault { kind: FaultKind::Record, text: text() }) } else { Ok(()) };
        let latency = Duration::from_millis(3);
        self.answer(9, Event::Read(Completion { op, outcome, checked: true, latency }));
    }

    fn fill(&mut self, order: FillOrder<Lent>, _soon: &mut Soon<FreeList>) {
        let FillOrder { ticket, output, mut rows, .. } = order;
        rows.iter_mut().for_each(|row| row.keep(Vec::new(), &[]));
        let geometry = vec![Geometry::default(); output.views().len() * rows.len()];
        self.answer(1, Event::Filled(Filled { ticket, rows, faults: Vec::new(), geometry, fill_ns: 1 }));
    }

    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<FreeList>) {
        soon.push_back(Event::Finalized(ticket));
    }

    fn take(&mut self, delivery: Delivery, _soon: &mut Soon<FreeList>) {
        self.taken.push(delivery);
    }

    fn told(&mut self, action: Action) {
        match action {
            Action::Accept(session, _) => drop(self.accepted.insert(session)),
            Action::Refuse(session, _) => self.refused.push(session),
            Action::State(session, bytes) => self.states.push((session, bytes)),
            Action::StateLoaded(session, resumed) => self.loaded.push((session, resumed)),
            Action::Fail(session, text) | Action::Interrupt(session, text) | Action::Close(session, text) => {
                self.ended.push((session, text));
            }
            Action::Tier(TierOrder::Get(ops)) => ops.into_iter().for_each(|op| self.get(op)),
            Action::Tier(TierOrder::Put { sample, record, .. }) => {
                let outcome = if self.tier_fails { TierPut::Failed } else { TierPut::Stored };
                if outcome == TierPut::Stored {
                    self.tier.insert(sample.0);
                }
                self.answer_in_order(Event::Tier(TierEvent::Put { sample, record, outcome }));
            }
            Action::Tier(TierOrder::Drop(samples)) => {
                self.tier.retain(|&id| !samples.contains(&SampleId(id)));
            }
            _ => {}
        }
    }

    fn next(&mut self, _now_ns: u64, soon: &mut Soon<FreeList>) -> Option<u64> {
        let ((at_ns, _), event) = self.answers.pop_first()?;
        self.now_ns = at_ns;
        soon.push_back(event);
        Some(at_ns)
    }
}

/// What somebody does at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// All ranks of a training say hello.
    Hello(usize),
    /// A rank has computed a batch.
    Release(SessionId, u64, u32, u32, u32),
    /// All ranks of a training are killed.
    Kill(usize),
    Resize(u32),
    TierFails(bool),
    Drain,
    Heartbeat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It will say hello.
    Away,
    Attaching,
    /// Its ranks have handed in a state.
    Loading,
    Training,
    /// It is through, or was refused by a daemon that takes no job.
    Over,
}

/// What a training has got of an epoch.
#[derive(Clone, Debug, Default)]
struct Progress {
    epoch: u32,
    /// Deliveries, by sample.
    seen: Vec<u32>,
    skipped: u32,
}

impl Progress {
    fn begin(epoch: u32) -> Self {
        Self { epoch, seen: vec![0; SAMPLES as usize], skipped: 0 }
    }

    fn add(&mut self, batch: &Given) {
        batch.ids.iter().for_each(|&id| self.seen[id] += 1);
        self.skipped += batch.skipped;
    }
}

/// A batch of the epoch under way.
struct Given {
    session: SessionId,
    number: u32,
    ids: Vec<usize>,
    skipped: u32,
}

/// A saved state, with what the training had got of its epoch before.
#[derive(Clone)]
struct Saved {
    bytes: Vec<u8>,
    progress: Progress,
}

/// A training that wants some epochs.
struct Training {
    name: String,
    spec: JobSpec,
    epochs: u32,
    state: State,
    sessions: Vec<SessionId>,
    /// The ranks that have ended the epoch, or loaded the state.
    done: BTreeSet<SessionId>,
    /// What it had got of the epoch when its ranks began it, and their first batch.
    before: Progress,
    first_batch: u32,
    /// What its ranks were given since.
    given: Vec<Given>,
    /// The rank that has asked for a state, and what that state has.
    saving: Option<(SessionId, Progress)>,
    saved: Option<Saved>,
}

impl Training {
    /// The batch before which all ranks have all batches.
    fn next_batch(&self) -> u32 {
        let of_rank = |session: &SessionId| {
            let given = self.given.iter().filter(|given| given.session == *session);
            given.map(|given| given.number + 1).max().unwrap_or(self.first_batch)
        };
        self.sessions.iter().map(of_rank).min().unwrap_or(self.first_batch)
    }

    /// What it has got of the epoch before this batch.
    fn progress(&self, next_batch: u32) -> Progress {
        let mut progress = self.before.clone();
        let before = self.given.iter().filter(|given| given.number < next_batch);
        before.for_each(|given| progress.add(given));
        progress
    }
}

/// One life of a daemon.
struct Life {
    driver: Driver<FreeList, Machine>,
    lifecycle: Lifecycle,
    memory: CacheMemory,
    trainings: Vec<Training>,
    acts: BTreeMap<(u64, u64), Act>,
    planned: u64,
    sessions: u32,
    lived: Lived,
}

/// What came of it.
#[derive(Debug, Default, PartialEq)]
struct Lived {
    /// Epochs that were trained.
    epochs: u32,
    /// Trainings that went on in mid-epoch.
    resumed: u32,
    /// When which session was given which descriptor.
    taken: Vec<(u64, SessionId, u64)>,
}

fn index() -> Arc<Index> {
    let mut builder = IndexBuilder::new();
    builder.push_class(b"class").unwrap();
    let mut offset = 512;
    let entries: Vec<Entry> = (0..SAMPLES)
        .map(|id| {
            let len = 100 + (id * 7919) % RECORD_BYTES;
            let entry = Entry {
                shard: ShardId(0),
                offset,
                stored_len: len,
                raw_len: len,
                crc32c: Some(0),
                label: 0,
                width: 8,
                height: 8,
                codec: Codec::None,
                media: Media::Png,
            };
            offset += u64::from(len).next_multiple_of(512) + 512;
            entry
        })
        .collect();
    let shard = Shard { name: "shard-000000.tar", bytes: offset + 1024, records: SAMPLES, crc32c: 0 };
    builder.push_shard(shard).unwrap();
    for (id, entry) in entries.iter().enumerate() {
        builder.push_sample(entry, format!("class/{id}.png").as_bytes()).unwrap();
    }
    Arc::new(Index::open(builder.finish().unwrap()).unwrap())
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let index = index();
        let settings = DaemonSpec {
            cache: Some(Capacity::Share(f64::from(random.random_range(0..=10)) / 10.0)),
            policy: *Policy::ALL.choose(&mut random).unwrap(),
            linger: f64::from(random.random_range(0..3)),
            hedge: random.random_bool(0.5),
            ..DaemonSpec::default()
        };
        let config = ServeConfig {
            dataset: PathBuf::new(),
            settings: settings.clone(),
            socket: None,
            is_private: random.random_bool(0.7),
            started_by: None,
        };
        let block_bytes =
            block_bytes_for((0..SAMPLES).map(|id| index.entry(SampleId(id)).unwrap().stored_len));
        let cache_bytes = capacity_bytes(settings.cache.expect("a size"), &index, block_bytes);
        let staging = staging_bytes(&index, block_bytes, 16, STAGING_BYTES_MAX);
        let most_bytes = capacity_bytes(Capacity::Share(1.0), &index, block_bytes) + staging;
        let (arena, free) = Arena::create_up_to(cache_bytes + staging, most_bytes, block_bytes).unwrap();
        let memory = CacheMemory::new(Arc::new(arena), Arc::clone(&index), settings.policy, staging);
        let running = Running::new(&config, &index, cache_bytes, block_bytes);
        let served = ServedDataset {
            folder: "dataset".to_owned(),
            address: "@shade".to_owned(),
            samples: SAMPLES,
            classes: 1,
            content_id: index.content_id().0,
            is_private: config.is_private,
        };
        let mut config = core_config(&settings, &index, false, cache_bytes, block_bytes, 2);
        config.reads_max = 16;
        let group = if random.random_bool(0.3) { 7 } else { 0 };
        let trainings =
            (0..random.random_range(1..=4)).map(|nth| training(&mut random, nth, group)).collect();
        let bad = if random.random_bool(0.3) { HashSet::from([3, 17]) } else { HashSet::new() };
        let has_tier = random.random_bool(0.4);
        let machine = Machine::new(random, bad);
        let mut life = Self {
            driver: Driver::new(Core::new(index, free, config), machine),
            lifecycle: Lifecycle::new(served, running),
            memory,
            trainings,
            acts: BTreeMap::new(),
            planned: 0,
            sessions: 0,
            lived: Lived::default(),
        };
        if has_tier {
            let room = TierEvent::Room { bytes: u64::from(SAMPLES * RECORD_BYTES) / 4, get: None };
            life.driver.step(Event::Tier(room));
        }
        life.plan_acts(has_tier);
        life
    }

    /// When who does what, as far as that is known beforehand.
    fn plan_acts(&mut self, has_tier: bool) {
        self.plan(HEARTBEAT_NS, Act::Heartbeat);
        for training in 0..self.trainings.len() {
            let hello_ns = self.draw(3000);
            self.plan(hello_ns, Act::Hello(training));
            for _ in 0..self.draw(3) / MS {
                let at_ns = hello_ns + self.draw(300);
                self.plan(at_ns, Act::Kill(training));
            }
        }
        for _ in 0..self.draw(4) / MS {
            let (at_ns, share) = (self.draw(6000), self.driver.world.random.random_range(0..=100));
            self.plan(at_ns, Act::Resize(share));
        }
        if has_tier {
            let at_ns = self.draw(3000);
            self.plan(at_ns, Act::TierFails(true));
            self.plan(at_ns + 500 * MS, Act::TierFails(false));
        }
        if self.driver.world.random.random_bool(0.2) {
            let at_ns = self.draw(5000);
            self.plan(at_ns, Act::Drain);
        }
    }

    fn draw(&mut self, ms_max: u64) -> u64 {
        self.driver.world.random.random_range(1..=ms_max * MS)
    }

    fn plan(&mut self, at_ns: u64, act: Act) {
        self.planned += 1;
        self.acts.insert((at_ns, self.planned), act);
    }

    /// Lives to the end.
    fn live(mut self) -> Lived {
        loop {
            let now_ns = self.go_on();
            assert!(now_ns < END_NS, "it never ends: {:?}", self.states());
            self.hand_over();
            self.memory.give_back(&mut self.driver.core);
            let has_sessions = self.driver.core.session_count() > 0;
            let is_over = self.trainings.iter().all(|training| training.state == State::Over);
            let stays = self.lifecycle.settings.linger().is_none() && !self.lifecycle.is_draining();
            let now = Duration::from_nanos(now_ns);
            if self.lifecycle.is_unneeded(now, has_sessions) || (is_over && stays && !has_sessions) {
                break;
            }
        }
        let trains = |training: &Training| !matches!(training.state, State::Away | State::Over);
        assert!(!self.trainings.iter().any(trains), "it ended beneath a training: {:?}", self.states());
        self.settle();
        self.lived
    }

    fn states(&self) -> Vec<(State, u32)> {
        self.trainings.iter().map(|training| (training.state, training.before.epoch)).collect()
    }

    /// Whatever comes next. Returns its time.
    fn go_on(&mut self) -> u64 {
        let (&(at_ns, number), &act) = self.acts.first_key_value().expect("a heartbeat");
        if self.driver.world.next_ns().is_some_and(|answer_ns| answer_ns <= at_ns) {
            self.driver.tick();
            return self.driver.world.now_ns;
        }
        self.acts.remove(&(at_ns, number));
        let passed_ns = at_ns - self.driver.world.now_ns;
        self.driver.world.now_ns = at_ns;
        self.driver.wait(Duration::from_nanos(passed_ns));
        self.act(at_ns, act);
        at_ns
    }

    fn act(&mut self, now_ns: u64, act: Act) {
        match act {
            Act::Heartbeat => {
                self.memory.beat();
                self.plan(now_ns + HEARTBEAT_NS, Act::Heartbeat);
            }
            Act::Hello(training) => self.hello(now_ns, training),
            Act::Release(session, seq, epoch, batch, rows) => {
                if self.driver.world.accepted.contains(&session) {
                    let losses = (0..rows).map(|_| self.driver.world.random.random_range(0.0..5.0)).collect();
                    self.driver.step(Event::Report { session, epoch, batch, losses });
                    self.driver.step(Event::Released { session, seqs: vec![seq] });
                    self.may_save(session);
                }
            }
            Act::Kill(training) => {
                if !matches!(self.trainings[training].state, State::Away | State::Over) {
                    self.leave(now_ns, training);
                    self.trainings[training].state = State::Away;
                    let after_ns = now_ns + self.draw(2000);
                    self.plan(after_ns, Act::Hello(training));
                }
            }
            Act::Resize(percent) => {
                let settings = &mut self.lifecycle.settings;
                let cache = Capacity::Share(f64::from(percent) / 100.0);
                let (before_bytes, cache_bytes) = (settings.cache_bytes(), settings.bytes_of(cache));
                let resized = self.memory.resize(&mut self.driver.core, before_bytes, cache_bytes);
                settings.resized(cache, cache_bytes);
                self.driver.step(Event::Resize { cache_bytes, window_bytes: resized.unwrap() });
            }
            Act::TierFails(fails) => self.driver.world.tier_fails = fails,
            Act::Drain => {
                self.lifecycle.drain();
                self.lifecycle.drained();
            }
        }
    }

    /// All ranks of a training say hello.
    fn hello(&mut self, now_ns: u64, nth: usize) {
        let training = &mut self.trainings[nth];
        training.state = State::Attaching;
        training.done.clear();
        // Batches of a few rows may be void where records are bad.
        if training.saved.is_some() && self.driver.world.bad.is_empty() {
            training.spec.world_size = *[1, 2, 4].choose(&mut self.driver.world.random).unwrap();
        }
        let (name, spec) = (training.name.clone(), training.spec.clone());
        for rank in 0..spec.world_size {
            let session = self.sessions;
            self.sessions += 1;
            let asked = Asked {
                samples: SAMPLES,
                content_id: self.lifecycle.served.content_id,
                is_served: true,
                settings: Settings::from_text("{}").unwrap(),
                or_free_name: false,
            };
            let attach = Attach {
                session,
                job: name.clone(),
                rank,
                spec: spec.clone(),
                tables: Tables::default(),
                survives: false,
            };
            let jobs = self.driver.core.jobs().into_iter().map(|job| job.name).collect();
            let present = Present { has_sessions: self.driver.core.session_count() > 0, jobs };
            if let Err(refusal) = self.lifecycle.judge(&attach, &asked, &present) {
                assert!([REFUSE_DRAINING, REFUSE_ENDING].contains(&refusal.code), "{}", refusal.text);
                assert!(self.lifecycle.is_draining(), "{}", refusal.text);
                self.leave(now_ns, nth);
                self.trainings[nth].state = State::Over;
                return;
            }
            self.driver.attach(session, &name, rank, &spec, Tables::default());
            assert!(self.driver.world.refused.is_empty(), "a job that the core takes is refused");
            self.lifecycle.admitted();
            self.trainings[nth].sessions.push(session);
        }
        let training = &mut self.trainings[nth];
        let Some(saved) = training.saved.clone() else {
            let epoch = training.before.epoch;
            return self.start_epoch(nth, Progress::begin(epoch), 0);
        };
        training.state = State::Loading;
        for session in training.sessions.clone() {
            self.driver.step(Event::LoadState { session, strata: 0, bytes: saved.bytes.clone() });
        }
    }

    fn start_epoch(&mut self, nth: usize, before: Progress, first_batch: u32) {
        let training = &mut self.trainings[nth];
        let epoch = before.epoch;
        (training.state, training.before, training.first_batch) = (State::Training, before, first_batch);
        training.given.clear();
        training.done.clear();
        for session in training.sessions.clone() {
            self.driver.start(session, epoch, first_batch);
        }
    }

    /// A rank asks now and then for the state before the first batch that some rank has not been
    /// given.
    fn may_save(&mut self, session: SessionId) {
        let of_session = |training: &&mut Training| training.sessions.contains(&session);
        let Some(training) = self.trainings.iter_mut().find(of_session) else { return };
        if training.state != State::Training || training.saving.is_some() {
            return;
        }
        if self.driver.world.random.random_bool(0.05) {
            let (epoch, batch) = (training.before.epoch, training.next_batch());
            training.saving = Some((session, training.progress(batch)));
            self.driver.step(Event::SaveState { session, epoch, batch });
        }
    }

    /// A state is there. One that came too late for its rank is lost.
    fn has_saved(&mut self, session: SessionId, bytes: Vec<u8>) {
        let of_session =
            |training: &&mut Training| training.saving.as_ref().is_some_and(|of| of.0 == session);
        let Some(training) = self.trainings.iter_mut().find(of_session) else { return };
        let progress = training.saving.take().map(|(_, progress)| progress);
        training.saved = progress.map(|progress| Saved { bytes, progress });
        // Some are killed soon.
        let nth = self.trainings.iter().position(|training| training.sessions.contains(&session));
        if let Some(nth) = nth.filter(|_| self.driver.world.random.random_bool(0.3)) {
            let at_ns = self.driver.world.now_ns + self.draw(60);
            self.plan(at_ns, Act::Kill(nth));
        }
    }

    /// A rank's state is loaded: its training goes on once that is so of all its ranks.
    fn has_loaded(&mut self, session: SessionId, resumed: Resumed) {
        let of_session = |training: &Training| training.sessions.contains(&session);
        let Some(nth) = self.trainings.iter().position(of_session) else { return };
        let training = &mut self.trainings[nth];
        let progress = training.saved.clone().map(|saved| saved.progress).expect("a state that was saved");
        assert_eq!(resumed.epoch, progress.epoch, "it goes on in the epoch that it saved");
        training.done.insert(session);
        if training.done.len() == training.sessions.len() {
            self.lived.resumed += u32::from(progress.seen.iter().any(|&seen| seen > 0));
            self.start_epoch(nth, progress, resumed.first_batch);
        }
    }

    /// All ranks of a training are gone.
    fn leave(&mut self, now_ns: u64, nth: usize) {
        self.trainings[nth].saving = None;
        for session in std::mem::take(&mut self.trainings[nth].sessions) {
            self.driver.world.accepted.remove(&session);
            self.driver.detach(session);
            self.lifecycle.left(Duration::from_nanos(now_ns));
        }
    }

    /// Trainers take what was published.
    fn hand_over(&mut self) {
        while !self.driver.world.taken.is_empty() {
            for delivery in std::mem::take(&mut self.driver.world.taken) {
                self.take(delivery);
            }
        }
        for (session, bytes) in std::mem::take(&mut self.driver.world.states) {
            self.has_saved(session, bytes);
        }
        for (session, resumed) in std::mem::take(&mut self.driver.world.loaded) {
            self.has_loaded(session, resumed);
        }
        for (session, text) in std::mem::take(&mut self.driver.world.ended) {
            let is_here = self.trainings.iter().any(|training| training.sessions.contains(&session));
            assert!(!is_here, "session {session} is ended: {text}");
        }
    }

    fn take(&mut self, delivery: Delivery) {
        let Delivery { session, descriptor, columns, error, is_current } = delivery;
        assert_eq!(error, None, "an epoch failed");
        let now_ns = self.driver.world.now_ns;
        self.lived.taken.push((now_ns, session, descriptor.seq));
        let of_session = |training: &Training| training.sessions.contains(&session);
        let Some(nth) = self.trainings.iter().position(of_session) else { return };
        if descriptor.kind != Kind::Batch || !is_current {
            self.driver.step(Event::Released { session, seqs: vec![descriptor.seq] });
        } else {
            let training = &mut self.trainings[nth];
            assert_eq!(descriptor.epoch, training.before.epoch);
            let delivered = columns.ids.iter().zip(&columns.flags);
            let samples = delivered.filter(|(_, flags)| *flags & FLAG_PADDING == 0);
            let ids = samples.map(|(&id, _)| usize::try_from(id).unwrap()).collect();
            let (number, skipped) = (descriptor.batch, descriptor.skipped);
            training.given.push(Given { session, number, ids, skipped });
            let rows = u32::try_from(columns.ids.len()).unwrap();
            let at_ns = now_ns + self.draw(30);
            self.plan(at_ns, Act::Release(session, descriptor.seq, descriptor.epoch, descriptor.batch, rows));
        }
        if descriptor.kind == Kind::EpochEnd && is_current {
            let training = &mut self.trainings[nth];
            training.done.insert(session);
            if training.done.len() == training.sessions.len() {
                self.end_epoch(now_ns, nth);
            }
        }
    }

    /// As many samples came as there are, each once where the sampler promises that.
    fn end_epoch(&mut self, now_ns: u64, nth: usize) {
        let bad = &self.driver.world.bad;
        let training = &mut self.trainings[nth];
        let Progress { epoch, seen, skipped } = training.progress(u32::MAX);
        assert_eq!(seen.iter().sum::<u32>() + skipped, SAMPLES, "epoch {epoch} of {}", training.name);
        for (id, &seen) in (0..).zip(&seen) {
            let expected = u32::from(!bad.contains(&id));
            let is_permutation = training.spec.plan.sampler == Sampler::Uniform;
            assert!(!is_permutation || seen == expected, "sample {id} came {seen} times");
        }
        self.lived.epochs += 1;
        // A validation, in one rank of them.
        let session = training.sessions[0];
        let score = self.driver.world.random.random_range(0.0..1.0);
        if self.trainings[nth].epochs > epoch + 1 {
            self.driver.step(Event::Validation { session, score });
            self.start_epoch(nth, Progress::begin(epoch + 1), 0);
        } else {
            self.leave(now_ns, nth);
            self.trainings[nth].state = State::Over;
        }
    }

    /// All have left: what is under way ends, and nothing but the cache has memory.
    fn settle(&mut self) {
        while self.driver.tick() {
            self.hand_over();
        }
        for _ in 0..100 {
            self.memory.beat();
            self.memory.give_back(&mut self.driver.core);
        }
        let stats = self.driver.core.stats(0);
        assert!(self.driver.core.is_idle(), "something is under way, and nobody is there");
        assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes, "memory that nobody gives back");
        assert!(stats.cache_used_bytes <= stats.cache_bytes, "more than the cache may have");
        assert_eq!(stats.cache_bytes, self.lifecycle.settings.cache_bytes());
        assert_eq!(self.memory.wait_max(Duration::ZERO), Duration::MAX, "a resize that never ends");
    }
}

fn training(random: &mut ChaCha8Rng, nth: u32, group: u64) -> Training {
    let sampler = *[Sampler::Uniform, Sampler::Pads].choose(random).unwrap();
    let spec = JobSpec {
        plan: PlanSpec {
            sampler,
            group,
            seed: random.random(),
            draw_ahead: random.random(),
            ..PlanSpec::default()
        },
        batch_size: *[3, 4, 6].choose(random).unwrap(),
        world_size: *[1, 2, 4].choose(random).unwrap(),
        tail: Tail::Even,
        decode: Decode::Raw,
        on_error: OnError::Skip,
        bad_max: 1.0,
        admit: random.random_bool(0.9),
        ring_bytes: 1 << 20,
        ..JobSpec::default()
    };
    Training {
        name: format!("job{nth}"),
        spec,
        epochs: random.random_range(1..=4),
        state: State::Away,
        sessions: Vec::new(),
        done: BTreeSet::new(),
        before: Progress::begin(0),
        first_batch: 0,
        given: Vec::new(),
        saving: None,
        saved: None,
    }
}

/// `SHADE_SEEDS`: one seed, or FROM..TO.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SHADE_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("SHADE_SEEDS is a number, or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

#[test]
fn each_life_of_a_daemon_keeps_its_promises() {
    let (mut epochs, mut resumed) = (0, 0);
    for seed in seeds() {
        let life = std::panic::catch_unwind(|| Life::new(seed).live());
        let lived = life.unwrap_or_else(|_| panic!("seed {seed}: SHADE_SEEDS={seed} plays it again"));
        epochs += lived.epochs;
        resumed += lived.resumed;
    }
    assert!(epochs > 0, "nobody trained");
    let are_usual = std::env::var_os("SHADE_SEEDS").is_none();
    assert!(resumed > 0 || !are_usual, "nobody went on in mid-epoch");
}

#[test]
fn equal_seeds_are_equal_lives() {
    for seed in 0..20 {
        assert_eq!(Life::new(seed).live(), Life::new(seed).live(), "seed {seed}");
    }
}
