//! Finds how many requests to keep in flight at an object store: the knee, within a second.
//!
//! A request takes 5 to 100 ms there, no session has slots, and one in a thousand takes a second
//! more. So the depth begins high where the first answers are slow, and doubles from round to round
//! (one latency each) while that brings more answers a second. Where it does not, rate and latency
//! say by Little's law how many requests the store was busy with, and the depth goes there at once.
//! From then on a quarter more and a quarter less are tried now and then, as in `depth`.
//!
//! Rates are counted by the clock, as a mean latency says little where single answers are late by
//! a second. Latencies say whether requests queue: then more of them bring nothing, whatever noise
//! says. Pure: the same samples give the same depths.

/// First depth: a batch of 256 takes a few latencies.
const START: u32 = 64;
/// Answers by which the depth goes on.
const FIRST_ANSWERS: usize = 16;
/// Answers a second that the depth after the first ones is for, and its limit: on a link of
/// 1 Gbit/s the first batch waits for no more than this many others.
const FIRST_RATE_PER_NS: f64 = 4000.0 / 1e9;
const FIRST_MAX: u32 = 512;
/// Least depth: even a store without parallelism has its next request at hand.
const LEAST: u32 = 4;
/// Rate ratio up to which doubling stops: a quarter of the possible gain.
const DOUBLING_GAIN: f64 = 1.25;
/// Depth over the requests that keep the store busy.
const HEADROOM: f64 = 1.25;
/// Bounds of the number of answers in a window; there are two for each in flight.
const WINDOW_READS: (u32, u32) = (128, 1024);
/// A depth counts as used where this share of it is in flight.
const USED: f64 = 0.9;
/// Factor of a step up or down, large enough to stand out of a window's noise.
const STEP: f64 = 1.25;
/// Factor of further steps down, once one has cost nothing: requests wait in a queue then.
const STRIDE: f64 = 2.0;
/// Rate that a step up must gain, and that a step down must keep.
const STEP_UP_GAIN: f64 = 1.1;
const STEP_DOWN_KEPT: f64 = 0.97;
/// Latency over that of a store without a queue from which on requests queue.
const QUEUES: f64 = 1.6;
/// Mean latency from which on requests queue, whatever was seen before: a machine that was busy
/// when it began has seen no store without a queue.
const QUEUES_NS: f64 = 250e6;
/// A latency counts at most this many times the median: one late answer is not a slower store.
const LATE: f64 = 8.0;
/// Growth of the least latency in each window: a store that became slower is seen in the end.
const LEAST_GROWTH: f64 = 1.01;
/// Most windows between trials, once neither direction pays.
const HOLD_WINDOWS_MAX: u32 = 8;
/// Failed requests in a window that halve the depth.
const FAILURES_MAX: u32 = 8;

/// Chooses the depth at an object store.
#[derive(Clone, Debug)]
pub(crate) struct ObjectsDepth {
    max: u32,
    depth: u32,
    phase: Phase,
    window: Window,
    /// Answers still to skip: their requests began beside others of another depth.
    settling: u32,
    /// Least mean latency of a window, ns; 0 before the first.
    least_ns: f64,
    /// Windows to the next trial.
    hold: u32,
    next_up: bool,
    /// Factor of the next step down.
    down: f64,
}

/// Purpose of the current window.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first answers.
    Greeting,
    /// The rate of a round at a doubled depth, after this rate before; the first has none.
    Doubling(Option<f64>),
    /// The rate at the depth that is kept, for this many windows more.
    Holding(u32),
    /// The rate at a depth on trial, beside this one.
    Trying(Measured),
}

/// A depth and what it gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    depth: u32,
    /// Answers per nanosecond.
    rate: f64,
    /// Mean latency, of late answers only a part.
    latency_ns: f64,
}

/// Answers since a moment.
#[derive(Clone, Debug, Default)]
struct Window {
    began_ns: Option<u64>,
    latencies_ns: Vec<u64>,
    /// Answers beside too few others: the rate was not the store's.
    unsaturated: u32,
    failures: u32,
}

impl Window {
    fn reads(&self) -> u32 {
        u32::try_from(self.latencies_ns.len()).unwrap_or(u32::MAX)
    }

    /// What it has measured, at its end.
    fn measured(&mut self, depth: u32, now_ns: u64) -> Measured {
        let took_ns = now_ns.saturating_sub(self.began_ns.unwrap_or(now_ns)).max(1);
        let rate = f64::from(self.reads()) / took_ns as f64;
        let most_ns = self.median_ns() * LATE;
        let sum_ns: f64 = self.latencies_ns.iter().map(|&ns| (ns as f64).min(most_ns)).sum();
        Measured { depth, rate, latency_ns: (sum_ns / f64::from(self.reads().max(1))).max(1.0) }
    }

    fn median_ns(&mut self) -> f64 {
        let middle = self.latencies_ns.len() / 2;
        if self.latencies_ns.is_empty() {
            return 0.0;
        }
        *self.latencies_ns.select_nth_unstable(middle).1 as f64
    }
}

impl ObjectsDepth {
    /// A controller of a depth up to `max`.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            max,
            depth: START.min(max),
            phase: Phase::Greeting,
            window: Window::default(),
            settling: 0,
            least_ns: 0.0,
            hold: 1,
            next_up: false,
            down: STEP,
        }
    }

    /// Requests to keep in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Takes in an answer that came at `now_ns`, after `latency_ns`, beside `in_flight` requests.
    pub(crate) fn completed(&mut self, in_flight: u32, latency_ns: u64, now_ns: u64) {
        if self.settling > 0 {
            self.settling -= 1;
            if self.settling == 0 {
                self.window = Window { began_ns: Some(now_ns), ..Window::default() };
            }
            return;
        }
        self.window.began_ns.get_or_insert(now_ns.saturating_sub(latency_ns));
        self.window.unsaturated += u32::from(f64::from(in_flight) < f64::from(self.depth) * USED);
        self.window.latencies_ns.push(latency_ns);
        match self.phase {
            Phase::Greeting if self.window.latencies_ns.len() >= FIRST_ANSWERS.min(self.depth as usize) => {
                self.greet(now_ns);
            }
            Phase::Greeting => {}
            Phase::Doubling(before) if self.window.reads() >= self.depth => {
                if let Some(now) = self.end_window(now_ns) {
                    self.judge_round(before, now);
                }
            }
            Phase::Holding(_) | Phase::Trying(_) if self.window.reads() >= self.window_reads() => {
                if let Some(now) = self.end_window(now_ns) {
                    self.judge(now);
                }
            }
            Phase::Doubling(_) | Phase::Holding(_) | Phase::Trying(_) => {}
        }
    }

    /// Takes in a request that failed as at a struggling store. What was in flight when the depth
    /// was halved may fail as well, and counts for that one time.
    pub(crate) fn failed(&mut self) {
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        self.window.failures += 1;
        if self.window.failures >= FAILURES_MAX {
            let before = self.depth;
            self.phase = Phase::Holding(self.hold);
            self.hold = (self.hold * 2).min(HOLD_WINDOWS_MAX);
            // Once the store is well again, the depth must rise.
            self.next_up = true;
            self.go_to(before / 2);
            self.settling = before;
        }
    }

    fn window_reads(&self) -> u32 {
        let (least, most) = WINDOW_READS;
        self.depth.saturating_mul(2).clamp(least, most)
    }

    /// The first answers say how far away the store is.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    fn greet(&mut self, now_ns: u64) {
        let wanted = (self.window.median_ns() * FIRST_RATE_PER_NS) as u32;
        self.phase = Phase::Doubling(None);
        self.go_to(wanted.clamp(START, FIRST_MAX));
        // A round needs no settling: requests that are added now end within one latency, as those
        // do that were there.
        self.settling = 0;
        self.window.began_ns = Some(now_ns);
    }

    /// What the window has measured; `None` if the rate was not the store's.
    fn end_window(&mut self, now_ns: u64) -> Option<Measured> {
        let mut window = std::mem::take(&mut self.window);
        self.window.began_ns = Some(now_ns);
        // In a round the first half of the answers may be to the requests of before.
        let is_round = matches!(self.phase, Phase::Doubling(_));
        let most = if is_round { window.reads().saturating_sub(1) } else { window.reads() / 8 };
        if window.unsaturated > most {
            return None;
        }
        let now = window.measured(self.depth, now_ns);
        let least_ns = if self.least_ns > 0.0 { self.least_ns * LEAST_GROWTH } else { f64::MAX };
        self.least_ns = least_ns.min(now.latency_ns);
        Some(now)
    }

    /// A round: as many answers as requests are in flight.
    fn judge_round(&mut self, before: Option<f64>, now: Measured) {
        let grew = before.is_none_or(|before| now.rate >= before * DOUBLING_GAIN);
        if grew && self.depth < self.max && !self.queues(now) {
            self.phase = Phase::Doubling(Some(now.rate));
            self.go_to(self.depth * 2);
            self.settling = 0;
            return;
        }
        let rate = before.map_or(now.rate, |before| before.max(now.rate));
        self.phase = Phase::Holding(1);
        self.go_to(rounded(rate * self.least_ns * HEADROOM).min(self.depth));
    }

    /// Whether requests waited for others.
    fn queues(&self, now: Measured) -> bool {
        now.latency_ns > (self.least_ns * QUEUES).min(QUEUES_NS)
    }

    fn judge(&mut self, now: Measured) {
        match self.phase {
            Phase::Holding(windows) if windows > 1 => self.phase = Phase::Holding(windows - 1),
            Phase::Trying(kept) => self.judge_trial(kept, now),
            _ => self.try_beside(now),
        }
    }

    /// Goes a step from the depth that gave `kept`, up or down.
    fn try_beside(&mut self, kept: Measured) {
        let up = self.next_up && !self.queues(kept);
        let depth = f64::from(kept.depth);
        self.phase = Phase::Trying(kept);
        self.go_to(rounded(if up { (depth * STEP).ceil() } else { depth / self.down }));
        if self.depth == kept.depth {
            // At a bound: there is nothing to try.
            self.next_up = !self.next_up;
            self.phase = Phase::Holding(self.hold);
        }
    }

    fn judge_trial(&mut self, kept: Measured, tried: Measured) {
        let gain = tried.rate / kept.rate;
        let pays = if tried.depth > kept.depth { gain >= STEP_UP_GAIN } else { gain >= STEP_DOWN_KEPT };
        if pays {
            // On in the same direction at once, compared with this measurement.
            self.hold = 1;
            self.down = if tried.depth > kept.depth { STEP } else { STRIDE };
            return self.try_beside(tried);
        }
        self.down = STEP;
        self.hold = (self.hold * 2).min(HOLD_WINDOWS_MAX);
        self.next_up = !self.next_up;
        self.go_to(kept.depth);
        self.phase = Phase::Holding(self.hold);
    }

    fn go_to(&mut self, depth: u32) {
        self.depth = depth.clamp(LEAST.min(self.max), self.max);
        self.settling = self.depth;
        let began_ns = self.window.began_ns;
        self.window = Window { began_ns, ..Window::default() };
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a depth's multiple: positive; it saturates"
)]
fn rounded(depth: f64) -> u32 {
    depth.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, LogNormal};
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::time::Duration;

    const MS: f64 = 1e6;
    const S: f64 = 1e9;
    /// Spread of the logarithm of latencies, as measured at object stores.
    const SIGMA: f64 = 0.4;
    const DEPTH_MAX: u32 = 4096;

    /// A store with this median latency and this rate of answers a second; one answer in a thousand
    /// takes a second more.
    #[derive(Clone, Copy, Debug)]
    struct Store {
        latency_ms: f64,
        rate: f64,
    }

    impl Store {
        fn mean_ns(self) -> f64 {
            self.latency_ms * MS * (SIGMA * SIGMA / 2.0).exp()
        }

        /// Requests that keep it busy.
        fn knee(self) -> f64 {
            (self.rate * self.mean_ns() / S).max(f64::from(LEAST))
        }

        /// Answers a second that a depth can bring.
        fn best(self) -> f64 {
            self.rate.min(f64::from(DEPTH_MAX) / (self.mean_ns() / S + 0.001))
        }
    }

    /// Requests in virtual time, as many at once as the controller says.
    struct Run {
        now: f64,
        rng: ChaCha8Rng,
        flying: BinaryHeap<Reverse<(u64, u64)>>,
        depth: ObjectsDepth,
        level: u32,
    }

    impl Run {
        fn new(seed: u64) -> Self {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            let depth = ObjectsDepth::new(DEPTH_MAX);
            Self { now: 0.0, rng, flying: BinaryHeap::new(), depth, level: 0 }
        }

        /// Until `end`; at most `wanted` at once. Answers, and the mean depth.
        fn go(&mut self, store: Store, end: f64, wanted: usize) -> (f64, f64) {
            let latency = LogNormal::new((store.latency_ms * MS).ln(), SIGMA).unwrap();
            let (mut answers, mut depths) = (0.0, 0.0);
            while self.now < end {
                while self.flying.len() < (self.depth.depth() as usize).min(wanted) {
                    let late = if self.rng.random_bool(0.001) { S } else { 0.0 };
                    let answered = self.now + latency.sample(&mut self.rng) + late;
                    self.flying.push(Reverse((ns(answered), ns(self.now))));
                    self.level = u32::try_from(self.flying.len()).unwrap();
                }
                // The link sends what was answered first.
                let Reverse((answered, began)) = self.flying.pop().unwrap();
                self.now = self.now.max(answered as f64) + S / store.rate;
                let at = ns(self.now);
                self.depth.completed(self.level, at - began, at);
                answers += 1.0;
                depths += f64::from(self.depth.depth());
            }
            (answers, depths / answers)
        }
    }

    fn ns(time: f64) -> u64 {
        u64::try_from(Duration::from_secs_f64(time / 1e9).as_nanos()).unwrap()
    }

    fn stores() -> impl Iterator<Item = Store> {
        let rates = [300.0, 2_500.0, 10_000.0, 40_000.0];
        [5.0, 30.0, 100.0]
            .into_iter()
            .flat_map(move |latency_ms| rates.map(|rate| Store { latency_ms, rate }))
    }

    #[test]
    fn the_knee_is_found_within_a_second_and_kept() {
        for store in stores() {
            for seed in 0..3 {
                let mut run = Run::new(seed);
                run.go(store, S, usize::MAX);
                let (answers, _) = run.go(store, 2.0 * S, usize::MAX);
                let share = answers / store.best();
                assert!(share > 0.8, "{store:?}, seed {seed}: {share:.2} of the rate in the next second");
                let (answers, _) = run.go(store, 8.0 * S, usize::MAX);
                let share = answers / 6.0 / store.best();
                assert!(share > 0.9, "{store:?}, seed {seed}: {share:.2} of the rate while it looks");
                let (answers, depth) = run.go(store, 16.0 * S, usize::MAX);
                let share = answers / 8.0 / store.best();
                assert!(share > 0.9, "{store:?}, seed {seed}: {share:.2} of the rate later");
                let knee = store.knee();
                let most = (knee * 1.7 + 8.0).min(f64::from(DEPTH_MAX));
                assert!(depth <= most, "{store:?}, seed {seed}: depth {depth:.0}, knee {knee:.0}");
            }
        }
    }

    #[test]
    fn slow_first_answers_make_it_begin_high() {
        for (latency_ms, least, most) in [(5.0, 64, 64), (30.0, 90, 170), (100.0, 300, 512)] {
            let mut depth = ObjectsDepth::new(DEPTH_MAX);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let latency = LogNormal::new(f64::ln(latency_ms * MS), SIGMA).unwrap();
            for _ in 0..FIRST_ANSWERS {
                assert_eq!(depth.depth(), START);
                let took_ns = ns(latency.sample(&mut rng));
                depth.completed(START, took_ns, took_ns);
            }
            let got = depth.depth();
            assert!((least..=most).contains(&got), "{latency_ms} ms: {got}");
        }
    }

    #[test]
    fn a_store_that_changes_is_followed() {
        let store = |rate| Store { latency_ms: 30.0, rate };
        let mut run = Run::new(4);
        run.go(store(1_000.0), 10.0 * S, usize::MAX);
        let (_, narrow) = run.go(store(1_000.0), 12.0 * S, usize::MAX);
        run.go(store(8_000.0), 40.0 * S, usize::MAX);
        let (answers, wide) = run.go(store(8_000.0), 42.0 * S, usize::MAX);
        assert!(answers / 2.0 > 0.85 * 8_000.0, "{answers} in two seconds");
        assert!(narrow < 70.0 && (200.0..500.0).contains(&wide), "{narrow} {wide}");
        run.go(store(1_000.0), 80.0 * S, usize::MAX);
        let (_, narrow) = run.go(store(1_000.0), 82.0 * S, usize::MAX);
        assert!(narrow < 100.0, "{narrow}");
    }

    #[test]
    fn a_machine_that_is_busy_at_first_does_not_make_it_run_away() {
        for seed in 0..8 {
            let store = |rate| Store { latency_ms: 30.0, rate };
            let mut run = Run::new(seed);
            let mut most = 0;
            // Four times as fast after two seconds, and it pauses now and then.
            for step in 0..40 {
                let rate = 300.0 * 1.036_f64.powi(step);
                run.now += if run.rng.random_bool(0.3) { 100.0 * MS } else { 0.0 };
                run.go(store(rate), f64::from(step + 1) * 0.05 * S, usize::MAX);
                most = most.max(run.depth.depth());
            }
            assert!(most <= FIRST_MAX, "seed {seed}: {most}");
            run.go(store(1_200.0), 12.0 * S, usize::MAX);
            let (answers, depth) = run.go(store(1_200.0), 16.0 * S, usize::MAX);
            assert!(answers / 4.0 > 0.9 * 1_200.0, "seed {seed}: {answers} in four seconds");
            assert!(depth < 100.0, "seed {seed}: {depth}, knee {:.0}", store(1_200.0).knee());
        }
    }

    #[test]
    fn a_slow_trainer_teaches_nothing() {
        let mut run = Run::new(5);
        run.go(Store { latency_ms: 30.0, rate: 8_000.0 }, 5.0 * S, 20);
        assert!((START..=FIRST_MAX).contains(&run.depth.depth()), "{}", run.depth.depth());
    }

    #[test]
    fn a_burst_of_refusals_halves_it_once_and_it_rises_again() {
        let store = Store { latency_ms: 30.0, rate: 8_000.0 };
        let mut run = Run::new(6);
        run.go(store, 5.0 * S, usize::MAX);
        let before = run.depth.depth();
        for _ in 0..before {
            run.depth.failed();
        }
        assert_eq!(run.depth.depth(), before / 2);
        run.go(store, 10.0 * S, usize::MAX);
        let (answers, _) = run.go(store, 11.0 * S, usize::MAX);
        assert!(answers > 0.85 * store.rate, "{answers}");
        // A store that refuses everything is left alone.
        (0..20 * before).for_each(|_| run.depth.failed());
        assert_eq!(run.depth.depth(), LEAST);
    }

    #[test]
    fn it_stays_in_its_bounds_whatever_it_is_fed() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for max in [1, 3, 64, 1000] {
            let mut depth = ObjectsDepth::new(max);
            for at in 0..50_000 {
                match rng.random_range(0..20) {
                    0 => depth.failed(),
                    _ => {
                        let near = depth.depth().saturating_sub(2) + rng.random_range(0..5);
                        depth.completed(
                            near,
                            10u64.pow(rng.random_range(0..19)),
                            at * rng.random_range(0..9),
                        );
                    }
                }
                assert!((LEAST.min(max)..=max).contains(&depth.depth()));
            }
        }
    }
}
