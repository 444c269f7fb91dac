//! Finds how many reads a node keeps in flight where several nodes of a training share a store.
//!
//! A node that compares rates goes ever deeper there, since on a full store it gains what the
//! others lose. Latency is what all nodes have in common. So a node goes by the latency of its
//! reads beside the *base*, the latency of a store without a queue. Where reads take the base, the
//! depth grows, and where they take longer it shrinks by the same factor in all nodes. What is
//! added grows less than the depth does. So unequal depths become nearly equal.
//!
//! The base shows only while no node queues. So all nodes rest at the same times: at multiples of a
//! power of two of nanoseconds of the clock on the wall, and when reads begin after a pause, as in
//! a new epoch. A node that rests keeps a little fewer reads in flight than it needs to read as
//! fast as before without a queue. Nodes whose clocks differ by more than a few latencies take the
//! queue of the others for the base. The rate stays, but latencies grow.
//!
//! Pure: the same samples give the same depths.

/// First depth of all nodes together: reads of a new training find no queue.
const START: f64 = 8.0;
/// Bounds of the number of reads for a mean, which is known to [`KNOWN`] before, or there are as
/// many reads as the depth.
const WINDOW_READS: (u32, u32) = (8, 32);
/// Standard error of a mean, relative to it, with which it is known.
const KNOWN: f64 = 0.1;
/// Latency over base up to which the depth does not shrink.
const SLACK: f64 = 1.1;
/// Reads that all nodes together add to their depths where each has a depth of 1.
const ADDED: f64 = 10.0;
/// A depth counts as used where this share of it is in flight.
const USED: f64 = 0.9;
/// Share of the reads that keep the store busy which are in flight in a rest.
const REST: f64 = 0.8;
/// Latencies after which a new depth shows.
const SETTLING: f64 = 2.0;
/// Latencies between rests, at least: they cost 1 % of the rate.
const BETWEEN_RESTS: f64 = 64.0;
/// Bounds of the time between rests. With the least one, clocks may differ by some milliseconds.
const BETWEEN_RESTS_NS: (f64, f64) = (5e8, 1e12);
/// Most reads that the base is a mean of: older ones count less and less.
const BASE_READS: f64 = 256.0;
/// Most that one mean counts, relative to the base: a rest beside nodes that do not rest.
const BASE_GROWTH: f64 = 1.25;
/// Latency over base in this many rests in a row by which the store has become another one.
const CHANGED: f64 = 2.0;
const RESTS_OF_A_CHANGE: u32 = 4;
/// Windows that the usual depth is a mean of.
const USUAL_WINDOWS: f64 = 128.0;
/// Failed reads in a window that halve the depth.
const FAILURES_MAX: u32 = 8;

/// Chooses the depth of one of several nodes.
#[derive(Clone, Debug)]
pub(crate) struct SharedDepth {
    nodes: u32,
    most: f64,
    depth: f64,
    /// The depth of the last windows: after the end of an epoch, when few nodes still read, it is
    /// a better one than the last.
    usual: f64,
    /// Mean latency of the last window and of a store without a queue; 0 before the first window.
    latency_ns: f64,
    base_ns: f64,
    /// Reads that the base is a mean of.
    base_reads: f64,
    /// Rests in a row that took much longer than the base.
    slow_rests: u32,
    /// The depth before the rest, if it rests.
    resting: Option<f64>,
    window: Window,
    /// Reads that end before this began beside reads of another depth.
    settled_ns: u64,
    /// When the last read ended; 0 before the first.
    ended_ns: u64,
}

/// Sums over the reads of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    reads: u32,
    in_flight: f64,
    latency_ns: f64,
    /// Sum of the squared latencies.
    squares: f64,
    failures: u32,
}

impl Window {
    /// Whether its mean latency is known well enough.
    fn is_known(&self) -> bool {
        let reads = f64::from(self.reads);
        let mean_ns = self.latency_ns / reads;
        let variance = self.squares / reads - mean_ns * mean_ns;
        self.reads >= WINDOW_READS.1 || variance <= reads * (KNOWN * mean_ns).powi(2)
    }
}

impl SharedDepth {
    /// A controller of one of `nodes` nodes, with a depth of 1 to `most`.
    pub(crate) fn new(nodes: u32, most: u32) -> Self {
        let depth = (START / f64::from(nodes)).clamp(1.0, f64::from(most));
        Self {
            nodes,
            most: f64::from(most),
            depth,
            usual: depth,
            latency_ns: 0.0,
            base_ns: 0.0,
            base_reads: 0.0,
            slow_rests: 0,
            resting: None,
            window: Window::default(),
            settled_ns: 0,
            ended_ns: 0,
        }
    }

    /// Changes the number of nodes, and keeps what was learned.
    pub(crate) fn set_nodes(&mut self, nodes: u32) {
        self.nodes = nodes;
    }

    /// Reads to keep in flight.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to the most")]
    pub(crate) fn depth(&self) -> u32 {
        self.depth as u32
    }

    /// A read begins at `now_ns`, and no other is in flight.
    pub(crate) fn begins(&mut self, now_ns: u64) {
        let pause_ns = now_ns.saturating_sub(self.ended_ns) as f64;
        if self.base_ns > 0.0 && pause_ns > self.latency_ns / 2.0 {
            self.rest(now_ns, self.depth.min(self.usual));
        }
    }

    /// Takes in a read that ended well at `now_ns` of the clock on the wall.
    pub(crate) fn completed(&mut self, in_flight: u32, latency_ns: u64, now_ns: u64) {
        let before_ns = std::mem::replace(&mut self.ended_ns, now_ns);
        if self.resting.is_none() && self.base_ns > 0.0 {
            let between_ns = self.between_rests_ns();
            if before_ns / between_ns != now_ns / between_ns {
                self.rest(now_ns, self.depth);
            }
        }
        if now_ns < self.settled_ns {
            return;
        }
        self.window.reads += 1;
        self.window.in_flight += f64::from(in_flight);
        self.window.latency_ns += latency_ns as f64;
        self.window.squares += (latency_ns as f64).powi(2);
        if self.window.reads >= WINDOW_READS.0.max(self.depth()) && self.window.is_known() {
            let Window { reads, in_flight, latency_ns, .. } = std::mem::take(&mut self.window);
            let reads = f64::from(reads);
            self.judge(reads, in_flight / reads, (latency_ns / reads).max(1.0), now_ns);
        }
    }

    /// Takes in a read that failed as on a struggling server.
    pub(crate) fn failed(&mut self) {
        self.window.failures += 1;
        if self.window.failures >= FAILURES_MAX {
            self.window = Window::default();
            self.resting = None;
            self.depth = (self.depth / 2.0).max(1.0);
        }
    }

    /// The means of a window.
    fn judge(&mut self, reads: f64, in_flight: f64, latency_ns: f64, now_ns: u64) {
        if self.base_ns == 0.0 {
            (self.base_ns, self.base_reads) = (latency_ns, reads);
        } else if let Some(depth) = self.resting.take() {
            self.slow_rests = if latency_ns > CHANGED * self.base_ns { self.slow_rests + 1 } else { 0 };
            if self.slow_rests == RESTS_OF_A_CHANGE {
                (self.base_ns, self.base_reads, self.slow_rests) = (latency_ns, reads, 0);
            } else {
                self.base_reads = (self.base_reads + reads).min(BASE_READS);
                let counted_ns = latency_ns.min(self.base_ns * BASE_GROWTH);
                self.base_ns += (counted_ns - self.base_ns) * reads / self.base_reads;
            }
            self.depth = depth;
            return self.settle(now_ns, 1.0);
        }
        self.latency_ns = latency_ns;
        let kept = (SLACK * self.base_ns / latency_ns).min(1.0);
        let added = (ADDED / f64::from(self.nodes) * self.depth).sqrt();
        let used = in_flight >= USED * self.depth.floor();
        // The trainer may be slower than the store: more depth would bring nothing.
        let most = if used { (self.depth * 2.0).min(self.most) } else { self.depth };
        self.depth = (self.depth * kept + added).max(self.depth / 2.0).min(most).max(1.0);
        self.usual += (self.depth - self.usual) / USUAL_WINDOWS;
    }

    /// Rests, and has this depth later.
    fn rest(&mut self, now_ns: u64, depth: f64) {
        let depth = *self.resting.get_or_insert(depth);
        self.depth = (depth * REST * (self.base_ns / self.latency_ns).min(1.0)).max(1.0);
        self.window = Window::default();
        self.settle(now_ns, SETTLING);
    }

    /// Leaves out the reads that end within this many latencies.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; it saturates")]
    fn settle(&mut self, now_ns: u64, latencies: f64) {
        self.settled_ns = now_ns.saturating_add((self.latency_ns * latencies) as u64);
    }

    /// A power of two, so that nodes which measure different latencies still rest together.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
    fn between_rests_ns(&self) -> u64 {
        let (least, most) = BETWEEN_RESTS_NS;
        ((self.latency_ns * BETWEEN_RESTS).clamp(least, most) as u64).next_power_of_two()
    }
}
