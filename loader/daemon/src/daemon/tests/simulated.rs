//! The daemon's life under seeds, without sockets, threads and clocks: what main decides between
//! two events, the core, and the cache's real memory. Around them trainings come, train, die and
//! come back; the store and the tier fail; the cache is resized; the user drains the daemon.
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
    AsideOrder, Attach, Completion, Fault, FaultKind, FillOrder, Filled, ReadOp, SessionId, Ticket,
    TierEvent, TierMiss, TierOrder, TierPut, block_bytes_for, capacity_bytes, staging_bytes,
};
use shade_formats::control::{REFUSE_DRAINING, REFUSE_ENDING};
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::ring::Kind;
use shade_formats::{Geometry, SampleId, ShardId};
use shade_job::{
    Capacity, DaemonSpec, Decode, JobSpec, OnError, PlanSpec, Policy, Sampler, Settings, Tables,
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
}

impl Machine {
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
    Training,
    /// It is through, or was refused by a daemon that takes no job.
    Over,
}

/// A training that wants some epochs.
struct Training {
    name: String,
    spec: JobSpec,
    epochs: u32,
    /// The epoch under way.
    epoch: u32,
    state: State,
    sessions: Vec<SessionId>,
    ended: BTreeSet<SessionId>,
    /// Deliveries of the epoch, by sample.
    seen: Vec<u32>,
    skipped: u32,
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
                crc32c: 0,
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
            cache: Capacity::Share(f64::from(random.random_range(0..=10)) / 10.0),
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
        let cache_bytes = capacity_bytes(settings.cache, &index, block_bytes);
        let staging = staging_bytes(&index, block_bytes, 16);
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
        let mut config = core_config(&settings, &index, cache_bytes, block_bytes, 2);
        config.reads_max = 16;
        let group = if random.random_bool(0.3) { 7 } else { 0 };
        let trainings =
            (0..random.random_range(1..=4)).map(|nth| training(&mut random, nth, group)).collect();
        let bad = if random.random_bool(0.3) { HashSet::from([3, 17]) } else { HashSet::new() };
        let has_tier = random.random_bool(0.4);
        let machine = Machine {
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
        };
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
            let at_ns = self.draw(3000);
            self.plan(at_ns, Act::Hello(training));
        }
        for _ in 0..self.draw(4) / MS {
            let (at_ns, share) = (self.draw(6000), self.driver.world.random.random_range(0..=100));
            self.plan(at_ns, Act::Resize(share));
        }
        for _ in 0..self.draw(4) / MS {
            let (at_ns, training) =
                (self.draw(6000), self.driver.world.random.random_range(0..self.trainings.len()));
            self.plan(at_ns, Act::Kill(training));
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
        let trains = |training: &Training| matches!(training.state, State::Attaching | State::Training);
        assert!(!self.trainings.iter().any(trains), "it ended beneath a training: {:?}", self.states());
        self.settle();
        self.lived
    }

    fn states(&self) -> Vec<(State, u32)> {
        self.trainings.iter().map(|training| (training.state, training.epoch)).collect()
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
                }
            }
            Act::Kill(training) => {
                if matches!(self.trainings[training].state, State::Training | State::Attaching) {
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
        training.ended.clear();
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
            let attach =
                Attach { session, job: name.clone(), rank, spec: spec.clone(), tables: Tables::default() };
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
        self.start_epoch(nth);
    }

    fn start_epoch(&mut self, nth: usize) {
        let training = &mut self.trainings[nth];
        training.state = State::Training;
        training.seen = vec![0; SAMPLES as usize];
        training.skipped = 0;
        training.ended.clear();
        for session in training.sessions.clone() {
            self.driver.start(session, self.trainings[nth].epoch, 0);
        }
    }

    /// All ranks of a training are gone.
    fn leave(&mut self, now_ns: u64, nth: usize) {
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
            assert_eq!(descriptor.epoch, training.epoch);
            columns.ids.iter().for_each(|&id| training.seen[usize::try_from(id).unwrap()] += 1);
            training.skipped += descriptor.skipped;
            let rows = u32::try_from(columns.ids.len()).unwrap();
            let at_ns = now_ns + self.draw(30);
            self.plan(at_ns, Act::Release(session, descriptor.seq, descriptor.epoch, descriptor.batch, rows));
        }
        if descriptor.kind == Kind::EpochEnd && is_current {
            let training = &mut self.trainings[nth];
            training.ended.insert(session);
            if training.ended.len() == training.sessions.len() {
                self.end_epoch(now_ns, nth);
            }
        }
    }

    /// As many samples came as there are, each once where the sampler promises that.
    fn end_epoch(&mut self, now_ns: u64, nth: usize) {
        let bad = &self.driver.world.bad;
        let training = &mut self.trainings[nth];
        let delivered: u32 = training.seen.iter().sum();
        assert_eq!(delivered + training.skipped, SAMPLES, "epoch {} of {}", training.epoch, training.name);
        for (id, &seen) in (0..).zip(&training.seen) {
            let expected = u32::from(!bad.contains(&id));
            let is_permutation = training.spec.plan.sampler == Sampler::Uniform;
            assert!(!is_permutation || seen == expected, "sample {id} came {seen} times");
        }
        self.lived.epochs += 1;
        training.epoch += 1;
        if training.epoch < training.epochs {
            self.start_epoch(nth);
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
        epoch: 0,
        state: State::Away,
        sessions: Vec::new(),
        ended: BTreeSet::new(),
        seen: Vec::new(),
        skipped: 0,
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
    let mut epochs = 0;
    for seed in seeds() {
        let life = std::panic::catch_unwind(|| Life::new(seed).live());
        let lived = life.unwrap_or_else(|_| panic!("seed {seed}: SHADE_SEEDS={seed} plays it again"));
        epochs += lived.epochs;
    }
    assert!(epochs > 0, "nobody trained");
}

#[test]
fn equal_seeds_are_equal_lives() {
    for seed in 0..20 {
        assert_eq!(Life::new(seed).live(), Life::new(seed).live(), "seed {seed}");
    }
}
