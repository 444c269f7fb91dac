//! Kills daemons with SIGKILL at seeded moments: before and after calls of the client, while it
//! waits, and in the hand-over, again.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use shade_client::Session;
use shade_tests::is_gone;

/// How long a successor is looked for. The training's own patience is longer.
const HUNT: Duration = Duration::from_secs(30);

/// Where a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    BeforeEpoch,
    EpochStarted,
    BeforeBatch,
    BatchTaken,
    BeforeReport,
    Reported,
    /// Any, also in the middle of a call.
    Anywhere,
}

/// How far a successor has come when it is killed as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its process is there.
    Begun,
    /// It listens.
    Listens,
    /// A rank has attached to it.
    Attached,
}

/// A store that can be killed and started again.
pub(crate) trait Mortal: Send {
    fn kill(&mut self);
    fn start(&mut self);
}

/// A daemon's place: the node, or the dataset, that it serves.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A word of the command line of its processes, and of nobody else's.
    pub(crate) word: String,
}

/// What the killer knows of a rank.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) place: usize,
    /// The daemon whose batch it has taken last.
    pub(crate) daemon: AtomicU32,
    pub(crate) session: Mutex<Option<Arc<Session>>>,
}

/// What comes next.
#[derive(Debug)]
struct Plan {
    moment: Moment,
    /// How often the moment passes before.
    after: u32,
    /// The successor is killed, too.
    again: Option<Stage>,
    /// The daemons of all places at once.
    all: bool,
    /// The killer's caller goes on when it is dead.
    waits: bool,
    /// The store, too.
    store: bool,
}

/// A successor that is to die at this place, or none.
#[derive(Debug)]
struct Hunt {
    place: usize,
    stage: Stage,
}

struct State {
    random: StdRng,
    plan: Plan,
    dead: BTreeSet<u32>,
    kills: usize,
    hunt: Option<Hunt>,
    /// The store is dead since.
    store_died: Option<Instant>,
}

/// Moments that a killer chooses from.
pub(crate) struct Habits {
    pub(crate) seed: u64,
    pub(crate) kills: usize,
    pub(crate) has_reports: bool,
    /// Daemons of several places die at once: always, or at every third time.
    pub(crate) all_at_once: bool,
}

pub(crate) struct Killer {
    places: Vec<Place>,
    pub(crate) ranks: Vec<Seen>,
    habits: Habits,
    store: Mutex<Option<Box<dyn Mortal>>>,
    state: Mutex<State>,
    is_over: AtomicBool,
}

impl Plan {
    fn draw(random: &mut StdRng, habits: &Habits, has_store: bool) -> Self {
        let mut moments = vec![
            Moment::BeforeEpoch,
            Moment::EpochStarted,
            Moment::BeforeBatch,
            Moment::BatchTaken,
            Moment::Anywhere,
            Moment::Anywhere,
        ];
        if habits.has_reports {
            moments.extend([Moment::BeforeReport, Moment::Reported]);
        }
        let moment = moments[random.random_range(0..moments.len())];
        let after = match moment {
            Moment::BeforeEpoch | Moment::EpochStarted => 0,
            _ => random.random_range(0..12),
        };
        let stages = [Stage::Begun, Stage::Listens, Stage::Attached];
        let again = random.random_bool(0.4).then(|| stages[random.random_range(0..stages.len())]);
        let all = habits.all_at_once || random.random_bool(0.33);
        Self { moment, after, again, all, waits: random.random(), store: has_store }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Killer {
    /// `store`: it dies with daemons.
    pub(crate) fn new(
        places: Vec<Place>,
        ranks: Vec<Seen>,
        habits: Habits,
        store: Option<Box<dyn Mortal>>,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(habits.seed);
        let plan = Plan::draw(&mut random, &habits, store.is_some());
        let dead = BTreeSet::new();
        let state = State { random, plan, dead, kills: 0, hunt: None, store_died: None };
        let (store, state) = (Mutex::new(store), Mutex::new(state));
        Self { places, ranks, habits, store, state, is_over: AtomicBool::new(false) }
    }

    /// Daemons that were killed.
    pub(crate) fn kills(&self) -> usize {
        lock(&self.state).kills
    }

    /// A rank is at this moment of its loop.
    pub(crate) fn at(&self, rank: usize, moment: Moment) {
        if self.habits.kills == 0 {
            return;
        }
        let mut state = lock(&self.state);
        let place = self.ranks[rank].place;
        if state.plan.moment != moment || !self.may_kill(&state, place) {
            return;
        }
        if state.plan.after > 0 {
            state.plan.after -= 1;
            return;
        }
        let died = self.strike(&mut state, place);
        let waits = state.plan.waits;
        self.next_plan(&mut state);
        drop(state);
        if waits {
            until(|| died.iter().all(|&pid| is_gone(pid)));
        }
    }

    /// The daemon of a place, once every rank there has a batch of it, so that none waits for the
    /// batch before which the last one died.
    fn daemon_of(&self, state: &State, place: usize) -> Option<u32> {
        let mut daemons = self.ranks.iter().filter(|rank| rank.place == place);
        let daemon = daemons.next()?.daemon.load(Ordering::Relaxed);
        let is_same = |rank: &Seen| rank.daemon.load(Ordering::Relaxed) == daemon;
        (daemon != 0 && daemons.all(is_same) && !state.dead.contains(&daemon)).then_some(daemon)
    }

    fn may_kill(&self, state: &State, place: usize) -> bool {
        let all = || (0..self.places.len()).all(|place| self.daemon_of(state, place).is_some());
        let are_there = if state.plan.all { all() } else { self.daemon_of(state, place).is_some() };
        are_there && state.kills < self.habits.kills && state.hunt.is_none() && state.store_died.is_none()
    }

    /// Kills now. Returns the process ids.
    fn strike(&self, state: &mut State, place: usize) -> Vec<u32> {
        let places = if state.plan.all { (0..self.places.len()).collect() } else { vec![place] };
        let store_first = state.random.random();
        if state.plan.store && store_first {
            self.kill_store(state);
        }
        let died: Vec<u32> = places.iter().filter_map(|&place| self.daemon_of(state, place)).collect();
        for &pid in &died {
            kill(pid);
            state.dead.insert(pid);
            state.kills += 1;
        }
        if state.plan.store && !store_first {
            self.kill_store(state);
        }
        state.hunt = state.plan.again.map(|stage| Hunt { place, stage });
        died
    }

    fn kill_store(&self, state: &mut State) {
        if let Some(store) = lock(&self.store).as_mut() {
            store.kill();
            state.store_died = Some(Instant::now());
        }
    }

    fn next_plan(&self, state: &mut State) {
        let has_store = lock(&self.store).is_some();
        state.plan = Plan::draw(&mut state.random, &self.habits, has_store);
    }

    /// Kills in the middle of calls and in the hand-over, and starts the store again, until all
    /// kills are done.
    pub(crate) fn run(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut state = lock(&self.state);
            let pause = Duration::from_micros(state.random.random_range(200..4000));
            if state.store_died.is_some() {
                let pause = Duration::from_millis(state.random.random_range(50..700));
                drop(state);
                std::thread::sleep(pause);
                lock(&self.store).as_mut().unwrap().start();
                lock(&self.state).store_died = None;
                continue;
            }
            if let Some(Hunt { place, stage }) = state.hunt.take() {
                drop(state);
                self.hunt(place, stage);
                continue;
            }
            if state.kills >= self.habits.kills {
                return;
            }
            let place = state.random.random_range(0..self.places.len());
            if state.plan.moment == Moment::Anywhere && self.may_kill(&state, place) {
                if state.plan.after > 0 {
                    state.plan.after -= 1;
                } else {
                    self.strike(&mut state, place);
                    self.next_plan(&mut state);
                }
            }
            drop(state);
            std::thread::sleep(pause);
        }
    }

    /// The training has ended by itself.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Kills the successor at a place.
    fn hunt(&self, place: usize, stage: Stage) {
        let started = Instant::now();
        while started.elapsed() < HUNT && !self.is_over.load(Ordering::Relaxed) {
            let dead = lock(&self.state).dead.clone();
            let found = match stage {
                Stage::Begun => {
                    processes(&self.places[place].word).into_iter().find(|pid| !dead.contains(pid))
                }
                Stage::Listens => processes(&self.places[place].word)
                    .into_iter()
                    .find(|pid| !dead.contains(pid) && listens(*pid)),
                Stage::Attached => self.attached(place).into_iter().find(|pid| !dead.contains(pid)),
            };
            if let Some(pid) = found {
                kill(pid);
                let mut state = lock(&self.state);
                state.dead.insert(pid);
                state.kills += 1;
                return;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn attached(&self, place: usize) -> Vec<u32> {
        let ranks = self.ranks.iter().filter(|rank| rank.place == place);
        ranks.filter_map(|rank| lock(&rank.session).as_ref().map(|session| session.daemon_pid())).collect()
    }
}

pub(crate) fn kill(pid: u32) {
    // It may be dead already.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
}

fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() && started.elapsed() < HUNT {
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Living processes that execute `shade-load serve` with this word among their arguments.
pub(crate) fn processes(word: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&b"serve".as_slice()) && words.contains(&word.as_bytes()) && !is_gone(*pid)
    };
    pids.filter(is_daemon).collect()
}

/// Whether a process has a local socket that listens.
fn listens(pid: u32) -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let listening: Vec<PathBuf> = sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        // Flags, and the inode: `SO_ACCEPTCON` is 0x10000.
        .filter(|line| line.get(3) == Some(&"00010000"))
        .filter_map(|line| Some(PathBuf::from(format!("socket:[{}]", line.get(6)?))))
        .collect();
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|file| listening.contains(&file))
}
