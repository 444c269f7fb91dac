//! Finds how many reads to keep in flight, the knee of the store, from the latencies of reads
//! alone.
//!
//! By Little's law `n` reads in flight that take `t` each are `n / t` reads a second. So the mean
//! latency at a depth gives the rate at that depth, and two depths can be compared without knowing
//! what limits the store: session slots, bandwidth or a disk's queue. The controller doubles the
//! depth while that pays. Then it stays where a quarter more gains little and a quarter less costs
//! something, and tries both now and then, as stores change. It compares rates and not the shortest
//! latency with the mean one (as TCP Vegas does): a store whose latency merely varies would look
//! full.
//!
//! At the start few reads are in flight, since the first batches wait for the first reads: where
//! bandwidth is short, other reads only delay them. Each round of reads, which takes one latency,
//! doubles the depth as long as it brings more reads a second than the round before.
//!
//! On a store with quick reads no batch waits long for other reads, so the depth is at least 32
//! there. Pure: the same samples give the same depths.
//!
//! A node that shares the store with others of its training goes by another rule: `depth_shared`.
//! So does one that reads from an object store: `depth_objects`.

use shade_formats::limits::READS_DEPTH_MAX;

use crate::depth_objects::ObjectsDepth;
use crate::depth_shared::SharedDepth;

/// Least depth: even a store without parallelism has its next read at hand.
pub const DEPTH_MIN: u32 = 4;
/// Most depth. Servers grant fewer slots, and more than this many waiting records only take memory.
pub const DEPTH_MAX: u32 = 256;
/// Most depth at an object store: no session has slots there, and a request takes 10 to 100 ms.
pub const OBJECTS_DEPTH_MAX: u32 = READS_DEPTH_MAX;
/// First depth: it fills 200 Mbit/s with 10 ms latency and records of 100 KB.
const DEPTH_START: u32 = 8;
/// Depth at which rounds of one latency end and windows begin: the slots that Linux' NFS server
/// grants a client.
const DEPTH_START_MAX: u32 = 32;
/// Latency of a quick read, which delays no batch noticeably.
const QUICK_NS: f64 = 5e6;
/// Least number of reads for a mean: with a coefficient of variation of 1, as on a busy network,
/// the mean is then known to 6 %.
const WINDOW_READS: u32 = 256;
/// A depth within this share of the one in force counts as that depth.
const NEAR: f64 = 0.1;
/// Rate ratio up to which doubling stops: a quarter of the possible gain.
const DOUBLING_GAIN: f64 = 1.25;
/// Factor of a step up or down, large enough to stand out of a window's noise.
const STEP: f64 = 1.25;
/// Share of the possible gain that a step up must bring.
const STEP_UP_SHARE: f64 = 0.4;
/// Share of the rate that a step down must keep.
const STEP_DOWN_KEPT: f64 = 0.97;
/// Most windows between trials, once neither direction pays: trials then cost about 1 %.
const HOLD_WINDOWS_MAX: u32 = 8;
/// Failed reads in a window that halve the depth.
const FAILURES_MAX: u32 = 8;

const _: () =
    assert!(DEPTH_MIN < DEPTH_START && DEPTH_START < DEPTH_START_MAX && DEPTH_START_MAX < DEPTH_MAX);

/// Chooses the depth. Feed it every read that ended.
#[derive(Clone, Debug)]
pub struct DepthController {
    min: u32,
    max: u32,
    depth: u32,
    phase: Phase,
    /// Samples still to skip: they began beside reads of another depth.
    settling: u32,
    window: Window,
    round: Round,
    hold: u32,
    next_up: bool,
    /// In its place at an object store.
    objects: Option<ObjectsDepth>,
    /// In the place of both while other nodes read from the store.
    shared: Option<SharedDepth>,
}

/// Purpose of the current window.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The rate of a round at a doubled depth, after this rate at half of it; the first round has
    /// none to compare with.
    Starting(Option<Measured>),
    /// The rate at a doubled depth, after this rate at half of it; the first window has none to
    /// compare with.
    Doubling(Option<Measured>),
    /// The rate at the depth that is kept, for this many windows more.
    Holding(u32),
    /// The rate at a depth on trial, beside the one that is kept.
    Trying(Measured),
}

/// A depth and the rate that it gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    depth: u32,
    /// Reads per nanosecond.
    rate: f64,
}

impl Measured {
    /// Whether reads are so quick that a lower depth would help no batch.
    fn is_quick(self) -> bool {
        self.depth <= DEPTH_START_MAX && f64::from(self.depth) <= QUICK_NS * self.rate
    }
}

/// A round: as many reads as are in flight at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// When it began: the first with its first read, the others with the end of the one before.
    began_ns: Option<u64>,
    reads: u32,
    /// Most reads in flight beside one of them.
    in_flight_max: u32,
}

/// Sums over the reads of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    reads: u32,
    in_flight: f64,
    latency_ns: f64,
    failures: u32,
    /// Reads beside too few others to count.
    unsaturated: u32,
}

impl DepthController {
    /// A controller within [`DEPTH_MIN`] and [`DEPTH_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self::within(DEPTH_MIN, DEPTH_MAX, DEPTH_START)
    }

    /// A controller for an object store, up to `max`, at most [`OBJECTS_DEPTH_MAX`].
    #[must_use]
    pub fn of_objects(max: u32) -> Self {
        let max = max.clamp(DEPTH_MIN + 1, OBJECTS_DEPTH_MAX);
        Self { objects: Some(ObjectsDepth::new(max)), ..Self::within(DEPTH_MIN, max, DEPTH_MIN) }
    }

    /// A controller with a fixed depth.
    #[must_use]
    pub fn fixed(depth: u32) -> Self {
        Self::within(depth, depth, depth)
    }

    fn within(min: u32, max: u32, depth: u32) -> Self {
        Self {
            min,
            max,
            depth,
            phase: Phase::Starting(None),
            settling: depth,
            window: Window::default(),
            round: Round::default(),
            hold: 1,
            // Doubling may have gone too far.
            next_up: false,
            objects: None,
            shared: None,
        }
    }

    /// Goes on as that of one of `nodes` nodes which read from one store together.
    pub fn share(&mut self, nodes: u32) {
        match &mut self.shared {
            _ if self.min == self.max => {}
            shared if nodes <= 1 => *shared = None,
            Some(shared) => shared.set_nodes(nodes),
            shared => *shared = Some(SharedDepth::new(nodes, self.max)),
        }
    }

    /// Reads to keep in flight.
    #[must_use]
    pub fn depth(&self) -> u32 {
        let alone = || self.objects.as_ref().map_or(self.depth, ObjectsDepth::depth);
        self.shared.as_ref().map_or_else(alone, SharedDepth::depth)
    }

    /// A read begins at `now_ns`, and no other is in flight. The depth may be less from now on.
    pub fn begins(&mut self, now_ns: u64) {
        if let Some(shared) = &mut self.shared {
            shared.begins(now_ns);
        }
    }

    /// Takes in a read that ended well at `now_ns`, after `latency_ns`, beside `in_flight` reads.
    /// Any clock will do for one node; several need the same, such as the time since 1970.
    pub fn completed(&mut self, in_flight: u32, latency_ns: u64, now_ns: u64) {
        if let Some(shared) = &mut self.shared {
            return shared.completed(in_flight, latency_ns, now_ns);
        }
        if let Some(objects) = &mut self.objects {
            return objects.completed(in_flight, latency_ns, now_ns);
        }
        if self.min == self.max {
            return;
        }
        if let Phase::Starting(before) = self.phase {
            return self.completed_in_round(before, in_flight, latency_ns, now_ns);
        }
        let (in_flight, depth) = (f64::from(in_flight), f64::from(self.depth));
        if in_flight < depth * (1.0 - NEAR) {
            // The trainer is slower than the store: this tells nothing about the store.
            self.window.unsaturated += 1;
            if self.window.unsaturated > WINDOW_READS {
                self.window = Window::default();
            }
            return;
        }
        if in_flight > depth * (1.0 + NEAR) {
            return;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        self.window.reads += 1;
        self.window.in_flight += in_flight;
        self.window.latency_ns += latency_ns as f64;
        if self.window.reads >= WINDOW_READS.max(2 * self.depth) {
            let rate = self.window.in_flight / self.window.latency_ns.max(1.0);
            self.window = Window::default();
            self.judge(Measured { depth: self.depth, rate });
        }
    }

    /// Takes in a read that failed as on a struggling server.
    pub fn failed(&mut self) {
        if let Some(shared) = &mut self.shared {
            return shared.failed();
        }
        if let Some(objects) = &mut self.objects {
            return objects.failed();
        }
        self.window.failures += 1;
        if self.window.failures >= FAILURES_MAX && self.min < self.max {
            self.phase = Phase::Holding(HOLD_WINDOWS_MAX);
            // Once the store is well again, the depth must rise.
            self.next_up = true;
            self.go_to(self.depth / 2);
        }
    }

    /// A read has ended, at the start.
    fn completed_in_round(&mut self, before: Option<Measured>, in_flight: u32, latency_ns: u64, now_ns: u64) {
        let round = &mut self.round;
        let began_ns = *round.began_ns.get_or_insert(now_ns.saturating_sub(latency_ns));
        round.reads += 1;
        round.in_flight_max = round.in_flight_max.max(in_flight);
        if round.reads < self.depth {
            return;
        }
        let Round { reads, in_flight_max, .. } = *round;
        *round = Round { began_ns: Some(now_ns), ..Round::default() };
        if f64::from(in_flight_max) < f64::from(self.depth) * (1.0 - NEAR) {
            // Fewer were wanted: the rate is the trainer's.
            return;
        }
        let took_ns = now_ns.saturating_sub(began_ns).max(1);
        let now = Measured { depth: self.depth, rate: f64::from(reads) / took_ns as f64 };
        let kept = before.filter(|before| now.rate < before.rate * DOUBLING_GAIN && !now.is_quick());
        if kept.is_none() && now.depth < DEPTH_START_MAX {
            self.phase = Phase::Starting(Some(now));
            return self.go_to(now.depth * 2);
        }
        // A round is too short to be certain: from here on windows decide.
        self.phase = Phase::Doubling(None);
        self.go_to(kept.map_or(now.depth, |kept| kept.depth));
    }

    fn judge(&mut self, now: Measured) {
        match self.phase {
            // `completed_in_round` judges rounds.
            Phase::Starting(_) => {}
            Phase::Doubling(before) => self.judge_doubling(before, now),
            Phase::Holding(windows) if windows > 1 => self.phase = Phase::Holding(windows - 1),
            Phase::Holding(_) => self.try_beside(now),
            Phase::Trying(kept) => self.judge_trial(kept, now),
        }
    }

    /// Goes a step from the depth that gave `kept`, up or down.
    fn try_beside(&mut self, kept: Measured) {
        let step = if self.next_up {
            f64::from(kept.depth) * STEP
        } else if kept.is_quick() {
            f64::from(kept.depth)
        } else {
            f64::from(kept.depth) / STEP
        };
        self.phase = Phase::Trying(kept);
        self.go_to(rounded(step));
        if self.depth == kept.depth {
            // At a bound: there is nothing to try.
            self.next_up = !self.next_up;
            self.phase = Phase::Holding(self.hold);
        }
    }

    fn judge_doubling(&mut self, before: Option<Measured>, now: Measured) {
        match before {
            Some(before) if now.rate < before.rate * DOUBLING_GAIN => {
                let worth_it = now.rate > before.rate * (1.0 + (DOUBLING_GAIN - 1.0) / 2.0);
                self.phase = Phase::Holding(1);
                self.go_to(if worth_it { now.depth } else { before.depth });
            }
            _ if now.depth == self.max => self.phase = Phase::Holding(1),
            _ => {
                self.phase = Phase::Doubling(Some(now));
                self.go_to(now.depth * 2);
            }
        }
    }

    fn judge_trial(&mut self, kept: Measured, tried: Measured) {
        let gain = tried.rate / kept.rate;
        let pays = if tried.depth > kept.depth {
            let possible = f64::from(tried.depth) / f64::from(kept.depth) - 1.0;
            tried.is_quick() || gain >= 1.0 + STEP_UP_SHARE * possible
        } else {
            gain >= STEP_DOWN_KEPT
        };
        if pays {
            // On in the same direction at once, compared with this measurement.
            self.hold = 1;
            return self.try_beside(tried);
        }
        self.hold = (self.hold * 2).min(HOLD_WINDOWS_MAX);
        self.next_up = !self.next_up;
        self.go_to(kept.depth);
        self.phase = Phase::Holding(self.hold);
    }

    fn go_to(&mut self, depth: u32) {
        self.depth = depth.clamp(self.min, self.max);
        self.settling = self.depth;
        self.window = Window::default();
    }
}

impl Default for DepthController {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a depth's multiple: small and positive"
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

    /// A store with slots, a latency of a given median and spread, and a link that sends one answer
    /// after the other.
    struct Store {
        slots: usize,
        latency: LogNormal<f64>,
        transfer_ns: f64,
    }

    impl Store {
        fn new(slots: usize, median_ns: f64, spread: f64, transfer_ns: f64) -> Self {
            Self { slots, latency: LogNormal::new(median_ns.ln(), spread).unwrap(), transfer_ns }
        }
    }

    /// Reads against a store in virtual time, as many at once as the controller says.
    struct Run {
        now: f64,
        rng: ChaCha8Rng,
        slots: Vec<f64>,
        link_free: f64,
        flying: BinaryHeap<Reverse<(u64, u64, u32)>>,
    }

    impl Run {
        fn new(seed: u64) -> Self {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            Self { now: 0.0, rng, slots: Vec::new(), link_free: 0.0, flying: BinaryHeap::new() }
        }

        /// Reads `reads` records; at most `wanted` at once, however deep. Reads per second.
        fn read(&mut self, store: &Store, depth: &mut DepthController, reads: u32, wanted: usize) -> f64 {
            self.slots.resize(store.slots, self.now);
            let start = self.now;
            for _ in 0..reads {
                while self.flying.len() < (depth.depth() as usize).min(wanted) {
                    self.begin(store);
                }
                let Reverse((end, began, in_flight)) = self.flying.pop().unwrap();
                self.now = self.now.max(end as f64);
                depth.completed(in_flight, end - began, end);
            }
            f64::from(reads) / (self.now - start) * 1e9
        }

        fn begin(&mut self, store: &Store) {
            let (slot, free) =
                self.slots.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            let answered = self.now.max(free) + store.latency.sample(&mut self.rng);
            self.slots[slot] = answered;
            let end = answered.max(self.link_free) + store.transfer_ns;
            self.link_free = if store.transfer_ns > 0.0 { end } else { 0.0 };
            let in_flight = u32::try_from(self.flying.len() + 1).unwrap();
            self.flying.push(Reverse((ns(end), ns(self.now), in_flight)));
        }
    }

    fn ns(time: f64) -> u64 {
        u64::try_from(Duration::from_secs_f64(time / 1e9).as_nanos()).unwrap()
    }

    /// The rate after it has settled, over what `DEPTH_MAX` reads at a time give; and the mean
    /// depth.
    fn settled(store: &Store, seed: u64) -> (f64, f64) {
        let mut depth = DepthController::new();
        let mut run = Run::new(seed);
        run.read(store, &mut depth, 20_000, usize::MAX);
        let (mut rate, mut mean, rounds) = (0.0, 0.0, 50);
        for _ in 0..rounds {
            rate += run.read(store, &mut depth, 500, usize::MAX) / f64::from(rounds);
            mean += f64::from(depth.depth()) / f64::from(rounds);
        }
        let best = Run::new(seed).read(store, &mut DepthController::fixed(DEPTH_MAX), 20_000, usize::MAX);
        (rate / best, mean)
    }

    #[test]
    fn it_settles_at_the_number_of_slots() {
        for slots in [8, 16, 32, 64, 128] {
            for spread in [0.05, 0.5] {
                let (share, depth) = settled(&Store::new(slots, 10.0 * MS, spread, 0.0), 1);
                assert!(share > 0.93, "{slots} slots, spread {spread}: {share:.3} of the rate");
                let slots = slots as f64;
                assert!(
                    (slots * 0.85..slots * 1.7).contains(&depth),
                    "{slots} slots, spread {spread}: {depth}"
                );
            }
        }
    }

    #[test]
    fn a_store_that_takes_everything_gets_the_most() {
        for (spread, least) in [(0.0, 0.95), (0.5, 0.9), (1.0, 0.8)] {
            let (share, depth) = settled(&Store::new(300, 20.0 * MS, spread, 0.0), 2);
            assert!(
                share > least && depth > 200.0,
                "spread {spread}: {share:.3} of the rate at depth {depth}"
            );
        }
    }

    #[test]
    fn a_full_link_is_kept_full_and_no_more() {
        // 110 KB over 1 Gbit/s behind 2 ms: 3.3 reads fill it; behind 20 ms: 24.
        for (latency, least, most) in [(2.0, 4.0, 12.0), (20.0, 20.0, 48.0)] {
            // One run in ten settles a step too low, at nine tenths of the rate.
            let runs = (0..8).map(|seed| settled(&Store::new(300, latency * MS, 0.2, 0.88 * MS), seed));
            let (shares, depths): (Vec<f64>, Vec<f64>) = runs.unzip();
            let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
            assert!(mean(&shares) > 0.95, "{latency} ms: {shares:.3?} of the rate");
            assert!((least..most).contains(&mean(&depths)), "{latency} ms: depths {depths:.1?}");
        }
    }

    #[test]
    fn on_a_quick_store_nobody_waits_for_what_is_in_flight() {
        // A local disk: most of its rate at 8 reads at a time, 1 ms each at 32.
        for seed in 0..4 {
            let (_, depth) = settled(&Store::new(8, 0.25 * MS, 0.5, 0.0), seed);
            assert!(depth >= f64::from(DEPTH_START_MAX), "{depth}");
            let (_, depth) = settled(&Store::new(8, 25.0 * MS, 0.5, 0.0), seed);
            assert!(depth < 16.0, "{depth}");
        }
    }

    #[test]
    fn after_failures_a_quick_store_is_asked_for_as_much_again() {
        let mut depth = DepthController::new();
        let mut run = Run::new(12);
        let store = Store::new(8, 0.25 * MS, 0.5, 0.0);
        run.read(&store, &mut depth, 5_000, usize::MAX);
        (0..2 * FAILURES_MAX).for_each(|_| depth.failed());
        assert!(depth.depth() <= DEPTH_START_MAX / 3, "{}", depth.depth());
        run.read(&store, &mut depth, 20_000, usize::MAX);
        assert!(depth.depth() >= 30, "{}", depth.depth());
    }

    #[test]
    fn a_slow_link_s_first_reads_wait_for_few_others() {
        // 110 KB over 20 Mbit/s behind 2 ms: each read takes 44 ms of the link.
        let mut depth = DepthController::new();
        let mut run = Run::new(10);
        let store = Store::new(300, 2.0 * MS, 0.05, 44.0 * MS);
        let mut most = 0;
        for _ in 0..200 {
            run.read(&store, &mut depth, 1, usize::MAX);
            most = most.max(depth.depth());
        }
        assert!(most <= 2 * DEPTH_START, "{most}");
        assert_eq!(depth.depth(), DEPTH_START);
        run.read(&store, &mut depth, 3_000, usize::MAX);
        assert!(depth.depth() <= 6, "{}", depth.depth());
    }

    #[test]
    fn a_distant_store_gets_its_depth_after_a_few_latencies() {
        for spread in [0.0, 0.2, 0.5] {
            let mut depth = DepthController::new();
            let mut run = Run::new(11);
            let store = Store::new(300, 50.0 * MS, spread, 0.0);
            // As many reads as two rounds have.
            run.read(&store, &mut depth, DEPTH_START + 2 * DEPTH_START, usize::MAX);
            assert_eq!(depth.depth(), DEPTH_START_MAX, "spread {spread}");
            assert!(run.now < 4.0 * 50.0 * MS, "spread {spread}: {} ms", run.now / MS);
        }
    }

    #[test]
    fn a_store_that_changes_is_followed() {
        let (narrow, wide) = (Store::new(16, 5.0 * MS, 0.2, 0.0), Store::new(100, 5.0 * MS, 0.2, 0.0));
        let mut depth = DepthController::new();
        let mut run = Run::new(4);
        run.read(&narrow, &mut depth, 30_000, usize::MAX);
        assert!((13..=26).contains(&depth.depth()), "{}", depth.depth());
        run.read(&wide, &mut depth, 60_000, usize::MAX);
        assert!((80..=170).contains(&depth.depth()), "{}", depth.depth());
        run.read(&narrow, &mut depth, 60_000, usize::MAX);
        assert!((13..=40).contains(&depth.depth()), "{}", depth.depth());
    }

    #[test]
    fn a_slow_trainer_teaches_nothing() {
        let mut depth = DepthController::new();
        let rate = Run::new(5).read(&Store::new(64, 5.0 * MS, 0.2, 0.0), &mut depth, 10_000, 7);
        assert_eq!(depth.depth(), DEPTH_START);
        assert!(rate > 0.0);
    }

    #[test]
    fn it_stays_in_its_bounds_whatever_it_is_fed() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let mut depth = DepthController::new();
        for at in 0..200_000 {
            match rng.random_range(0..20) {
                0 => depth.failed(),
                _ => {
                    let near = depth.depth().saturating_sub(2) + rng.random_range(0..5);
                    depth.completed(near, 10u64.pow(rng.random_range(0..19)), at);
                }
            }
            assert!((DEPTH_MIN..=DEPTH_MAX).contains(&depth.depth()));
        }
    }

    #[test]
    fn a_burst_of_failures_halves_it_down_to_the_least() {
        let mut depth = DepthController::new();
        let mut seen = vec![depth.depth()];
        for _ in 0..5 * FAILURES_MAX {
            depth.failed();
            seen.push(depth.depth());
        }
        seen.dedup();
        assert_eq!(seen, [8, 4]);
    }

    #[test]
    fn a_fixed_depth_stays() {
        let mut depth = DepthController::fixed(7);
        Run::new(8).read(&Store::new(64, 5.0 * MS, 0.2, 0.0), &mut depth, 5_000, usize::MAX);
        (0..100).for_each(|_| depth.failed());
        assert_eq!(depth.depth(), 7);
    }

    #[test]
    fn equal_samples_give_equal_depths() {
        let depths = || {
            let (mut depth, mut run) = (DepthController::new(), Run::new(9));
            let store = Store::new(48, 3.0 * MS, 0.5, 0.0);
            (0..200)
                .map(|_| {
                    run.read(&store, &mut depth, 100, usize::MAX);
                    depth.depth()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(depths(), depths());
    }
}
