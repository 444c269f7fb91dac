//! A life: daemons, one after the other, and what people do to them, by a seed.
//!
//! Trainings come, train, validate, save, are killed and come back, where they were or with other
//! ranks; the store and the tier fail; the cache is resized; the user drains or stops the daemon;
//! and the daemon is killed, before any of its actions.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::rc::Rc;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::SessionId;
use shade_job::{Capacity, DaemonSpec, Policy};

use super::super::super::Event;
use super::job::Job;
use super::lived::Lived;
use super::machine::{Fate, MS, Machine, Outside};
use super::process::{Process, Setup};
use super::training::{State, Training};
use super::undisturbed::Undisturbed;

const HEARTBEAT_NS: u64 = 100 * MS;
/// No life is longer.
const END_NS: u64 = 6_000_000 * MS;
/// Jobs that are drawn until one is served.
const DRAWS_MAX: u32 = 100;
/// Most deaths of a life.
const DEATHS_MAX: u32 = 40;
/// Most actions between two deaths. Half of them have another limit, any power of two below.
const GAP_MAX: u64 = 512;

/// A rank of a training, the way it came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) training: usize,
    pub(super) rank: usize,
    pub(super) run: u32,
}

/// What somebody does at some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// A training comes.
    Come(usize),
    /// A rank says hello, to its first daemon or to a successor.
    Hello(Who),
    /// A rank goes over to the successor that it has found.
    GoOver(Who),
    /// A rank has computed its batch, and wants the next.
    Turn(Who),
    /// A rank begins its next epoch.
    Start(Who),
    /// All ranks of a training are killed.
    Kill(usize),
    Leave(Who),
    Resize(u32),
    TierFails(bool),
    StoreFails(bool),
    Drain,
    Stop,
    /// Those of this daemon.
    Heartbeat(u32),
}

/// See the [module](self).
pub(super) struct Life {
    pub(super) random: ChaCha8Rng,
    pub(super) now_ns: u64,
    pub(super) setup: Setup,
    outside: Rc<RefCell<Outside>>,
    /// `None` until somebody needs one.
    pub(super) process: Option<Process>,
    /// Daemons that have begun.
    begun: u32,
    /// Deaths that are still to come.
    pub(super) deaths_left: u32,
    pub(super) trainings: Vec<Training>,
    acts: BTreeMap<(u64, u64), Act>,
    planned: u64,
    sessions: u32,
    pub(super) lived: Lived,
    is_told: bool,
}

impl Life {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let settings = DaemonSpec {
            cache: Some(Capacity::Share(f64::from(random.random_range(0..=10)) / 10.0)),
            policy: *Policy::ALL.choose(&mut random).unwrap(),
            linger: f64::from(random.random_range(0..3)),
            ..DaemonSpec::default()
        };
        let has_tier = random.random_bool(0.4);
        let policy = settings.policy;
        let setup = Setup { settings, is_private: random.random_bool(0.7), has_tier };
        let bad = if random.random_bool(0.3) { HashSet::from([3, 17]) } else { HashSet::new() };
        let group = if random.random_bool(0.3) { 7 } else { 0 };
        let count = random.random_range(1..=4);
        let trainings = (0..count).map(|nth| training(&mut random, nth, group, policy, &bad)).collect();
        let deaths = if random.random_bool(0.2) { 0 } else { random.random_range(1..=DEATHS_MAX) };
        let outside = Rc::new(RefCell::new(Outside { bad, ..Outside::default() }));
        let mut life = Self {
            random,
            now_ns: 0,
            setup,
            outside,
            process: None,
            begun: 0,
            deaths_left: deaths,
            trainings,
            acts: BTreeMap::new(),
            planned: 0,
            sessions: 0,
            lived: Lived { lives: 1, ..Lived::default() },
            is_told: std::env::var_os("SHADE_TELL").is_some(),
        };
        life.plan_acts();
        life
    }

    /// When who does what, as far as that is known beforehand.
    fn plan_acts(&mut self) {
        for nth in 0..self.trainings.len() {
            let come_ns = self.draw(3000);
            self.plan(come_ns, Act::Come(nth));
            for _ in 0..self.draw(3) / MS {
                let after_ns = come_ns + self.draw(300);
                self.plan(after_ns, Act::Kill(nth));
            }
        }
        for _ in 0..self.draw(4) / MS {
            let (after_ns, share) = (self.draw(6000), self.random.random_range(0..=100));
            self.plan(after_ns, Act::Resize(share));
        }
        if self.setup.has_tier {
            let after_ns = self.draw(3000);
            self.plan(after_ns, Act::TierFails(true));
            self.plan(after_ns + 500 * MS, Act::TierFails(false));
        }
        for (act, share) in [(Act::Drain, 0.2), (Act::Stop, 0.1), (Act::StoreFails(true), 0.1)] {
            if self.random.random_bool(share) {
                let after_ns = self.draw(5000);
                self.plan(after_ns, act);
            }
        }
    }

    /// A time of up to this many milliseconds.
    pub(super) fn draw(&mut self, ms_max: u64) -> u64 {
        self.random.random_range(1..=ms_max * MS)
    }

    /// Somebody will do this, after a time.
    pub(super) fn plan(&mut self, after_ns: u64, act: Act) {
        self.planned += 1;
        self.acts.insert((self.now_ns + after_ns, self.planned), act);
    }

    /// A new session's number.
    pub(super) fn next_session(&mut self) -> SessionId {
        self.sessions += 1;
        self.sessions
    }

    /// The daemon, which begins if there is none.
    pub(super) fn process(&mut self) -> &mut Process {
        if self.process.is_none() {
            self.begun += 1;
            let most = if self.random.random() {
                GAP_MAX
            } else {
                1 << self.random.random_range(0..GAP_MAX.ilog2())
            };
            let gap = self.random.random_range(0..most);
            let fate = Fate::new((self.deaths_left > 0).then_some(gap));
            let random = ChaCha8Rng::seed_from_u64(self.random.random());
            let machine = Machine::new(random, self.now_ns, fate, &self.outside);
            self.process = Some(Process::begin(&self.setup, machine));
            self.plan(HEARTBEAT_NS, Act::Heartbeat(self.begun));
        }
        self.process.as_mut().expect("it has begun")
    }

    /// Tells of a life what happens in it, if `SHADE_TELL` is set.
    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        if self.is_told {
            println!("{:>12.3} ms, daemon {}: {what}", self.now_ns as f64 / MS as f64, self.begun);
        }
    }

    /// Tells the daemon, if it lives.
    pub(super) fn tell(&mut self, event: Event) {
        if let Some(process) = &mut self.process {
            process.step(event);
        }
    }

    /// Lives to the end.
    pub(super) fn live(mut self) -> Lived {
        while self.go_on() {
            assert!(self.now_ns < END_NS, "it never ends: {:?}", self.states());
            self.hear();
            // It may die of that, too.
            self.process.iter_mut().for_each(Process::give_back);
            if self.process.as_ref().is_some_and(Process::is_dead) {
                self.bury();
                continue;
            }
            self.process.iter().for_each(Process::check_memory);
            let is_over = self.trainings.iter().all(|training| training.state == State::Over);
            let ends = |process: &mut Process| {
                process.is_unneeded() || (is_over && process.stays() && !process.has_sessions())
            };
            if let Some(process) = self.process.take_if(ends) {
                self.lived.actions += process.driver.world.fate.lived;
                process.end();
            }
            if is_over && self.process.is_none() {
                break;
            }
        }
        let is_over = self.trainings.iter().all(|training| training.state == State::Over);
        assert!(is_over, "it ended beneath a training: {:?}", self.states());
        self.lived
    }

    fn states(&self) -> Vec<(State, u32)> {
        let place = |training: &Training| training.ranks.first().map_or(0, |rank| rank.place.epoch);
        self.trainings.iter().map(|training| (training.state, place(training))).collect()
    }

    /// Whatever comes next. Returns whether there is anything.
    fn go_on(&mut self) -> bool {
        let answer_ns = self.process.as_ref().and_then(|process| process.driver.world.next_ns());
        let next = self.acts.first_key_value().map(|(&at, &act)| (at, act));
        match (next, &mut self.process) {
            (Some(((at_ns, number), act)), process)
                if answer_ns.is_none_or(|answer_ns| answer_ns > at_ns) =>
            {
                self.acts.remove(&(at_ns, number));
                self.now_ns = at_ns;
                if let Some(process) = process {
                    process.wait_until(at_ns);
                }
                self.act(act);
                true
            }
            (_, Some(process)) if answer_ns.is_some() => {
                process.driver.tick();
                self.now_ns = process.driver.world.now_ns;
                true
            }
            _ => false,
        }
    }

    fn act(&mut self, act: Act) {
        if !matches!(act, Act::Heartbeat(_)) {
            self.note(format_args!("{act:?}"));
        }
        match act {
            Act::Heartbeat(begun) => {
                if let Some(process) = self.process.as_mut().filter(|_| begun == self.begun) {
                    process.beat();
                    self.plan(HEARTBEAT_NS, Act::Heartbeat(begun));
                }
            }
            Act::Come(nth) => self.come(nth),
            Act::Hello(who) => self.hello(who),
            Act::GoOver(who) => self.go_over(who),
            Act::Turn(who) => self.turn(who),
            Act::Start(who) => self.start_next(who),
            Act::Kill(nth) => self.kill(nth, false),
            Act::Leave(who) => self.leave(who),
            Act::Resize(percent) => {
                if let Some(process) = &mut self.process
                    && process.driver.world.fate.goes_on("resize")
                {
                    process.resize(percent);
                }
            }
            Act::TierFails(fails) => self.outside.borrow_mut().tier_fails = fails,
            Act::StoreFails(fails) => {
                self.outside.borrow_mut().store_fails = fails;
                if fails {
                    let after_ns = self.draw(300);
                    self.plan(after_ns, Act::StoreFails(false));
                }
            }
            Act::Drain => {
                if let Some(process) = &mut self.process {
                    process.lifecycle.drain();
                    process.lifecycle.drained();
                }
            }
            Act::Stop => self.stop(),
        }
    }
}

impl fmt::Display for Life {
    /// Its daemons and its jobs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.setup)?;
        for Training { job, is_comparable, reports, .. } in &self.trainings {
            let (name, ranks, epochs) = (&job.name, &job.ranks, job.epochs);
            let (seats, plan) = (&job.seats, job.spec.to_text());
            writeln!(
                f,
                "{name}: is compared {is_comparable}, ranks {ranks:?}, {epochs} epochs, reports {reports}, seats {seats:?}: {plan}"
            )?;
        }
        Ok(())
    }
}

/// Draws a training of a job that is served.
fn training(random: &mut ChaCha8Rng, nth: u32, group: u64, policy: Policy, bad: &HashSet<u32>) -> Training {
    let draw = |_| {
        let mut job = Job::draw(random, nth, group, policy);
        // The plan behind a state may have a batch of bad records alone, which ends the epoch.
        if !bad.is_empty() && (job.is_of_any_length() || job.departs_with_a_state()) {
            job.train_alone();
        }
        let undisturbed = Undisturbed::of(&job, bad)?;
        Some((job, undisturbed))
    };
    let (job, undisturbed) = (0..DRAWS_MAX).find_map(draw).expect("a job that is served");
    let undisturbed = job.is_comparable(policy).then_some(undisturbed);
    let mut training = Training::new(job, undisturbed, bad);
    training.reports = training.job.spec.plan.sampler.is_by_importance() || random.random_bool(0.5);
    training
}
