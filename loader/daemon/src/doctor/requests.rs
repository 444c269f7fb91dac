//! Asks an object store for random records, or for ranges of any objects, at one depth after the
//! other: requests as the daemon's, without its decisions. Nothing is written or changed there.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use shade_dataset::{Answer, Objects, StoreFault};
use shade_formats::index::Index;
use shade_formats::{SampleId, ShardId};

use super::probe::Probe;
use super::sweep::{Tally, knee, store};
use crate::terminal::spinner;

/// The depths, from one request at a time on.
const DEPTHS: [u32; 6] = [1, 4, 16, 64, 256, 1024];
/// Share of a step at its beginning that does not count: connections are made.
const WARM_UP: u32 = 4;
/// Ranges that are chosen, so that caches of the store do not answer.
const TARGETS_MAX: u32 = 50_000;
/// Bytes of a range where no dataset tells the size of records: a photograph.
const RANGE_BYTES: u64 = 110_000;
/// Good answers that a step waits for beyond its time: without one, a depth has no figures, and the
/// probe none of all.
const ANSWERS_MIN: u64 = 4;
/// Bad ones, after which it does not.
const FAULTS_MAX: u64 = 16;
/// How long it waits for more than one of either.
const LATE_MAX: Duration = Duration::from_secs(5);
/// Wait of a task after a bad answer, and the longest that a store can ask for.
const FAULT_WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Interval of checks whether to stop.
const PAUSE: Duration = Duration::from_millis(50);
/// How long nothing is heard before nothing more is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes of an object.
#[derive(Debug)]
struct Target {
    object: usize,
    range: Range<u64>,
}

/// What is asked for, in random order.
#[derive(Debug, Default)]
pub(super) struct Targets {
    objects: Vec<String>,
    targets: Vec<Target>,
}

impl Targets {
    /// Random records of a dataset.
    pub(super) fn of_index(index: &Index) -> Self {
        let name = |id| index.shard(ShardId(id)).map_or_else(String::new, |shard| shard.name.to_owned());
        let mut random = seeded();
        let samples = u64::from(index.len().max(1));
        let target = |_| {
            let id = u32::try_from(random.next_u64() % samples).unwrap_or(0);
            let entry = index.entry(SampleId(id)).filter(|entry| entry.stored_len > 0)?;
            let range = entry.offset..entry.offset.saturating_add(entry.stored_len.into());
            Some(Target { object: entry.shard.0 as usize, range })
        };
        let targets = (0..TARGETS_MAX).filter_map(target).collect();
        Self { objects: (0..index.shard_count()).map(name).collect(), targets }
    }

    /// Random ranges of objects of these lengths.
    pub(super) fn of_objects(objects: Vec<(String, u64)>) -> Self {
        let mut random = seeded();
        let (objects, lens): (Vec<_>, Vec<_>) = objects.into_iter().filter(|(_, bytes)| *bytes > 0).unzip();
        let target = |_| {
            let object = usize::try_from(random.next_u64() % lens.len().max(1) as u64).ok()?;
            let bytes = *lens.get(object)?;
            let from = random.next_u64() % bytes.saturating_sub(RANGE_BYTES).max(1);
            Some(Target { object, range: from..from.saturating_add(RANGE_BYTES).min(bytes) })
        };
        let targets = (0..TARGETS_MAX).filter_map(target).collect();
        Self { objects, targets }
    }

    fn get(&self, at: usize) -> Option<(&str, Range<u64>)> {
        let target = self.targets.get(at % self.targets.len().max(1))?;
        Some((self.objects.get(target.object)?, target.range.clone()))
    }

    /// Whether there is nothing to ask for.
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}

/// Different in each run, so that the store's caches do not answer.
fn seeded() -> ChaCha8Rng {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    ChaCha8Rng::seed_from_u64(now.as_secs() ^ (u64::from(now.subsec_nanos()) << 32))
}

/// What this machine did in a step, and what the store thought of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// CPUs that this process kept busy.
    pub(super) cpus: f64,
    /// Requests that were answered by 429 or 503.
    pub(super) slow_downs: u64,
}

/// What the requests found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) probe: Probe,
    /// One for each step.
    pub(super) loads: Vec<Load>,
    /// All requests that were answered by 429 or 503.
    pub(super) slow_downs: u64,
}

/// One answer.
struct Came {
    /// The object's.
    name: String,
    bytes: u32,
    latency: Duration,
    at: Instant,
    fault: Option<StoreFault>,
}

/// Asks for about `length`, or until `stop` is set.
pub(super) fn ask(objects: Arc<Objects>, targets: Targets, length: Duration, stop: &AtomicBool) -> Found {
    let bar = spinner("probing: one request at a time");
    let probe = Probe { engine: format!("requests of {}", objects.url()), ..Probe::default() };
    let found = Found { probe, ..Found::default() };
    let mut asking = Asking { objects, targets: Arc::new(targets), next: Arc::default(), stop, found };
    let share = length / u32::try_from(DEPTHS.len()).unwrap_or(1);
    for depth in DEPTHS {
        let probe = &asking.found.probe;
        if probe.interrupted || probe.forbidden.is_some() || probe.unanswered > 0 {
            break;
        }
        if let Some(last) = probe.steps.last() {
            bar.set_message(format!("probing: depth {depth} after {:.0} records/s", last.iops));
        }
        asking.step(depth, share);
    }
    bar.finish_and_clear();
    let probe = &mut asking.found.probe;
    if probe.steps.len() == DEPTHS.len() && !probe.interrupted {
        probe.knee_depth = knee(&probe.steps);
        probe.store = store(&probe.steps).map(|store| store.to_string());
    }
    asking.found
}

/// What counts of a step.
#[derive(Debug)]
struct Counted {
    from: Instant,
    /// The step does not end before.
    deadline: Instant,
    /// When it ended.
    until: Option<Instant>,
    /// When an answer came last, whatever it was.
    heard: Instant,
    faults: u64,
    tally: Tally,
    /// CPU time of this process in seconds at its beginning and at its end, or a little later.
    cpu_s: (Option<f64>, Option<f64>),
    seen: (Instant, Instant),
}

impl Counted {
    fn new(begun: Instant, share: Duration) -> Self {
        let (from, deadline) = (begun + share / WARM_UP, begun + share);
        Self {
            from,
            deadline,
            until: None,
            heard: begun,
            faults: 0,
            tally: Tally::default(),
            cpu_s: (None, None),
            seen: (from, deadline),
        }
    }

    fn count(&mut self, came: &Came) {
        self.heard = came.at;
        if came.fault.is_some() {
            self.faults += 1;
        } else if self.from <= came.at && self.until.is_none_or(|until| came.at <= until) {
            self.tally.count(came.bytes, came.latency);
        }
    }

    /// Ends the step when its time is over and enough has come. Returns whether it has ended.
    fn ends(&mut self, now: Instant) -> bool {
        let (reads, late) = (self.tally.reads(), now.saturating_duration_since(self.deadline));
        let is_late = reads + self.faults > 0 && late >= LATE_MAX;
        if now >= self.deadline && (reads >= ANSWERS_MIN || self.faults >= FAULTS_MAX || is_late) {
            self.end(now);
        }
        self.until.is_some()
    }

    /// Whether nothing was heard for so long that nothing is waited for.
    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) > SILENCE_MAX
    }

    fn end(&mut self, now: Instant) {
        self.until.get_or_insert(now);
    }

    /// Notes the CPU time when the time to count begins and when it ends.
    fn look(&mut self, now: Instant) {
        let (first, last) = &mut self.cpu_s;
        if now >= self.from && first.is_none() {
            *first = Some(cpu_s());
            self.seen.0 = now;
        }
        if self.until.is_some() && last.is_none() {
            *last = Some(cpu_s());
            self.seen.1 = now;
        }
    }

    /// The time that counts.
    fn length(&self) -> Duration {
        self.until.unwrap_or(self.deadline).saturating_duration_since(self.from)
    }

    /// CPUs that this process kept busy.
    fn cpus(&self) -> f64 {
        let seconds = self.seen.1.saturating_duration_since(self.seen.0).as_secs_f64();
        let busy = self.cpu_s.0.zip(self.cpu_s.1).map_or(0.0, |(first, last)| last - first);
        if seconds > 0.0 { busy / seconds } else { 0.0 }
    }
}

/// CPU time of this process so far, all threads.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Asking<'a> {
    objects: Arc<Objects>,
    targets: Arc<Targets>,
    next: Arc<AtomicUsize>,
    stop: &'a AtomicBool,
    found: Found,
}

impl Asking<'_> {
    /// Keeps `depth` requests in flight for `share` of the time.
    fn step(&mut self, depth: u32, share: Duration) {
        let mut counted = Counted::new(Instant::now(), share);
        let (sender, answers) = crossbeam_channel::unbounded();
        let ends = Arc::new(AtomicBool::new(false));
        for _ in 0..depth {
            self.spawn(&ends, &sender);
        }
        drop(sender);
        let slow_downs_before = self.found.slow_downs;
        self.gather(&answers, &ends, &mut counted);
        let (length, cpus) = (counted.length(), counted.cpus());
        if let Some(step) = counted.tally.step(depth, length) {
            self.found.probe.steps.push(step);
            self.found.loads.push(Load { cpus, slow_downs: self.found.slow_downs - slow_downs_before });
        }
    }

    /// Takes answers until there are no more.
    fn gather(&mut self, answers: &Receiver<Came>, ends: &AtomicBool, counted: &mut Counted) {
        loop {
            let (probe, now) = (&mut self.found.probe, Instant::now());
            let is_silent = counted.is_silent(now);
            probe.interrupted |= self.stop.load(Ordering::Relaxed);
            if probe.interrupted || probe.forbidden.is_some() || is_silent || counted.ends(now) {
                ends.store(true, Ordering::Relaxed);
            }
            counted.look(now);
            match answers.recv_timeout(PAUSE) {
                Ok(came) => self.take(came, counted),
                Err(RecvTimeoutError::Disconnected) => break,
                // Tasks that are left end with the client.
                Err(RecvTimeoutError::Timeout) if probe.interrupted => break,
                Err(RecvTimeoutError::Timeout) if is_silent => {
                    probe.unanswered += 1;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let now = Instant::now();
        counted.end(now);
        counted.look(now);
    }

    fn take(&mut self, came: Came, counted: &mut Counted) {
        counted.count(&came);
        let Some(fault) = came.fault else { return };
        if fault.answer == Answer::SlowDown {
            self.found.slow_downs += 1;
            return;
        }
        let probe = &mut self.found.probe;
        probe.errors += 1;
        if fault.answer == Answer::Forbidden {
            probe.forbidden.get_or_insert_with(|| fault.to_string());
        }
        probe.first_error.get_or_insert_with(|| format!("{}: {fault}", came.name));
    }

    /// A task that asks for one target after the other. It pauses where the store does not give it.
    fn spawn(&self, ends: &Arc<AtomicBool>, answers: &Sender<Came>) {
        let (objects, targets, next) =
            (Arc::clone(&self.objects), Arc::clone(&self.targets), Arc::clone(&self.next));
        let (ends, answers) = (Arc::clone(ends), answers.clone());
        self.objects.spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                let Some((name, range)) = targets.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                let (bytes, asked) =
                    (u32::try_from(range.end - range.start).unwrap_or(u32::MAX), Instant::now());
                let fault = objects.read(name, range, None, |_| ()).await.err();
                let at = Instant::now();
                let [least, most] = FAULT_WAITS;
                let wait = fault.as_ref().map(|fault| fault.wait.unwrap_or_default().clamp(least, most));
                let name = if wait.is_some() { name.to_owned() } else { String::new() };
                let _ = answers.send(Came { name, bytes, latency: at - asked, at, fault });
                if let Some(wait) = wait {
                    objects.pause(wait).await;
                }
            }
        });
    }
}
