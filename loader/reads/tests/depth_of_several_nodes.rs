//! Nodes that read from one store, in virtual time: together they are as fast as one node, and no
//! read takes twice as long. `-- --nocapture` prints the table of decision 004.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, prints its table, and has small positive numbers"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, LogNormal};
use shade_reads::depth::{DEPTH_MAX, DepthController};

const MS: f64 = 1e6;
/// Any time since 1970.
const NOW_NS: u64 = 1_700_000_000_123_456_789;
/// Reads of each node and epoch.
const EPOCH: u32 = 2_520;

/// A store with slots, a latency, and a link that sends one answer after the other.
#[derive(Clone, Copy)]
struct Store {
    name: &'static str,
    slots: usize,
    median_ns: f64,
    /// Standard deviation of the logarithm; `None` for exponential latencies.
    spread: Option<f64>,
    transfer_ns: f64,
}

const fn slots(name: &'static str, slots: usize, median_ms: f64, spread: Option<f64>) -> Store {
    Store { name, slots, median_ns: median_ms * MS, spread, transfer_ns: 0.0 }
}

/// A store for any number of reads at a time, whose answers share a link.
const fn link(name: &'static str, median_ms: f64, transfer_ms: f64) -> Store {
    let transfer_ns = transfer_ms * MS;
    Store { name, slots: 4096, median_ns: median_ms * MS, spread: Some(0.2), transfer_ns }
}

const STORES: [Store; 9] = [
    slots("64 slots of 2 ms", 64, 2.0, Some(0.2)),
    slots("64 slots of 2 ms, always equal", 64, 2.0, Some(0.0)),
    slots("64 slots of 2 ms, spread 1", 64, 2.0, Some(1.0)),
    slots("64 slots of 2 ms, exponential", 64, 2.0, None),
    slots("16 slots of 10 ms, spread 0.5", 16, 10.0, Some(0.5)),
    slots("8 slots of 2 ms", 8, 2.0, Some(0.2)),
    slots("1,000 slots of 20 ms", 1000, 20.0, Some(0.2)),
    link("10 Gbit/s behind 2 ms", 2.0, 0.088),
    link("1 Gbit/s behind 20 ms", 20.0, 0.88),
];

/// When the nodes read.
#[derive(Clone, Copy)]
struct Times {
    /// Whether all wait for each other after each epoch.
    in_epochs: bool,
    /// Between the first reads of two nodes.
    apart_ns: u64,
    /// Between the clocks of two nodes.
    clocks_ns: u64,
    reads_each: u32,
    /// When latencies become ten times as long.
    slower_ns: u64,
}

const TOGETHER: Times =
    Times { in_epochs: false, apart_ns: 0, clocks_ns: 0, reads_each: 8 * EPOCH, slower_ns: u64::MAX };

struct Node {
    depth: DepthController,
    in_flight: u32,
    level: u32,
    left: u32,
    /// From when all nodes have begun.
    latencies_ns: Vec<u64>,
    depths: Vec<u32>,
}

/// What came of it.
struct Outcome {
    per_s: f64,
    /// The worst of the nodes.
    p99_ns: u64,
    /// Mean of each node, in the second half.
    depths: Vec<f64>,
}

/// The store's side of a run.
struct Machine {
    store: Store,
    rng: ChaCha8Rng,
    slots: BinaryHeap<Reverse<u64>>,
    link_free_ns: u64,
    slower_ns: u64,
    /// End, number of the read, node, beginning.
    flying: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    count: u64,
}

impl Machine {
    fn new(store: Store, slower_ns: u64, seed: u64) -> Self {
        let slots = (0..store.slots).map(|_| Reverse(0)).collect();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { store, rng, slots, link_free_ns: 0, slower_ns, flying: BinaryHeap::new(), count: 0 }
    }

    fn begin(&mut self, now_ns: u64, number: usize, node: &mut Node, clock_ns: u64) {
        let slower = if now_ns >= self.slower_ns { 10.0 } else { 1.0 };
        if node.in_flight == 0 && node.left > 0 {
            node.depth.begins(now_ns + clock_ns);
        }
        while node.left > 0 && node.in_flight < node.depth.depth() {
            node.left -= 1;
            node.in_flight += 1;
            node.level = node.in_flight;
            let times = match self.store.spread {
                Some(spread) => LogNormal::new(0.0, spread).unwrap().sample(&mut self.rng),
                None => self.rng.sample::<f64, _>(Exp1),
            };
            let Reverse(free_ns) = self.slots.pop().unwrap();
            let answered_ns = now_ns.max(free_ns) + (self.store.median_ns * times * slower) as u64;
            self.slots.push(Reverse(answered_ns));
            let mut end_ns = answered_ns;
            if self.store.transfer_ns > 0.0 {
                end_ns = end_ns.max(self.link_free_ns) + self.store.transfer_ns as u64;
                self.link_free_ns = end_ns;
            }
            self.count += 1;
            self.flying.push(Reverse((end_ns, self.count, number, now_ns)));
        }
    }
}

fn run(store: Store, nodes: u32, times: Times, seed: u64) -> Outcome {
    let mut machine = Machine::new(store, times.slower_ns, seed);
    let reads = times.reads_each * 8 / nodes;
    let epoch = if times.in_epochs { EPOCH * 8 / nodes } else { u32::MAX };
    let mut all: Vec<Node> = Vec::new();
    for number in 0..nodes {
        let mut depth = DepthController::new();
        depth.share(nodes);
        let (latencies_ns, depths) = (Vec::new(), Vec::new());
        all.push(Node { depth, in_flight: 0, level: 0, left: epoch, latencies_ns, depths });
        // Its first reads.
        machine.flying.push(Reverse((u64::from(number) * times.apart_ns, 0, usize::MAX, u64::from(number))));
    }
    let clock_ns = |number: usize| NOW_NS + number as u64 * times.clocks_ns;
    let all_begun_ns = u64::from(nodes - 1) * times.apart_ns;
    let (mut epochs, mut counted, mut now_ns) = (1, 0, 0);
    while let Some(Reverse((end_ns, _, number, begun_ns))) = machine.flying.pop() {
        now_ns = end_ns;
        if number == usize::MAX {
            let number = begun_ns as usize;
            machine.begin(now_ns, number, &mut all[number], clock_ns(number));
            continue;
        }
        let node = &mut all[number];
        node.in_flight -= 1;
        node.depth.completed(node.level, end_ns - begun_ns, end_ns + clock_ns(number));
        if end_ns >= all_begun_ns {
            node.latencies_ns.push(end_ns - begun_ns);
            node.depths.push(node.depth.depth());
            counted += 1;
        }
        machine.begin(now_ns, number, node, clock_ns(number));
        if !times.in_epochs && counted >= reads * nodes {
            break;
        }
        if times.in_epochs && all.iter().all(|node| node.left == 0 && node.in_flight == 0) {
            if epochs * epoch >= reads {
                break;
            }
            epochs += 1;
            for (number, node) in all.iter_mut().enumerate() {
                node.left = epoch;
                machine.begin(now_ns, number, node, clock_ns(number));
            }
        }
    }
    let p99 = |node: &mut Node| {
        node.latencies_ns.sort_unstable();
        node.latencies_ns.get(node.latencies_ns.len() * 99 / 100).copied().unwrap_or(0)
    };
    let mean = |node: &Node| {
        let half = &node.depths[node.depths.len() / 2..];
        half.iter().map(|&depth| f64::from(depth)).sum::<f64>() / half.len().max(1) as f64
    };
    let depths = all.iter().map(mean).collect();
    let per_s = f64::from(counted) / (now_ns - all_begun_ns) as f64 * 1e9;
    Outcome { per_s, p99_ns: all.iter_mut().map(p99).max().unwrap(), depths }
}

/// Rate and 99th percentile of eight nodes, over those of one that reads as much as all of them.
fn beside_one(store: Store, times: Times, seed: u64) -> (f64, f64) {
    let one = run(store, 1, Times { apart_ns: 0, clocks_ns: 0, ..times }, seed);
    let eight = run(store, 8, times, seed);
    (eight.per_s / one.per_s, eight.p99_ns as f64 / one.p99_ns as f64)
}

fn check(stores: &[Store], what: &str, times: Times) {
    for (store, seed) in stores.iter().flat_map(|store| [(*store, 1), (*store, 2)]) {
        let (rate, p99) = beside_one(store, times, seed);
        println!("{what}, {}: {rate:.3} of one's rate, p99 {p99:.2} x", store.name);
        assert!(rate >= 0.95 && p99 <= 2.0, "{what}, {}: rate {rate:.3}, p99 {p99:.2} x", store.name);
    }
}

#[test]
fn eight_nodes_have_the_rate_of_one_and_wait_no_twice_as_long() {
    check(&STORES, "without end", TOGETHER);
}

#[test]
fn and_so_they_have_where_they_wait_for_each_other() {
    check(&STORES, "in epochs", Times { in_epochs: true, ..TOGETHER });
}

#[test]
fn late_nodes_do_not_take_the_queue_of_the_others_for_the_store() {
    check(&STORES, "2 ms apart", Times { apart_ns: 2_000_000, ..TOGETHER });
    check(&STORES[..1], "1 s apart", Times { apart_ns: 1_000_000_000, ..TOGETHER });
}

#[test]
fn clocks_may_differ_by_some_milliseconds() {
    check(&STORES, "clocks 1 ms apart", Times { clocks_ns: 1_000_000, ..TOGETHER });
}

/// As where a server has the first epoch in memory, and not the next ones.
#[test]
fn a_store_that_becomes_slower_is_learned_anew() {
    let times = Times { slower_ns: 2_000_000_000, reads_each: 24_000, ..TOGETHER };
    for store in STORES {
        let (one, eight) = (run(store, 1, times, 1), run(store, 8, times, 1));
        let rate = eight.per_s / one.per_s;
        println!("slower, {}: {rate:.3} of one's rate", store.name);
        assert!(rate > 0.8, "{}: {rate:.3}", store.name);
    }
}

#[test]
fn depths_become_nearly_equal() {
    for seed in 0..3 {
        // Late nodes begin beside others that have found the depth.
        let times = Times { apart_ns: 100_000_000, reads_each: 40 * EPOCH, ..TOGETHER };
        let depths = run(STORES[0], 8, times, seed).depths;
        println!("depths of eight nodes: {depths:.1?}");
        let most = depths.iter().copied().fold(0.0, f64::max);
        assert!(depths.iter().all(|depth| most < 2.0 * depth), "{depths:.1?}");
    }
}

#[test]
fn one_node_goes_by_rates_whatever_its_clock() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut plain, mut told) = (DepthController::new(), DepthController::new());
    told.share(8);
    told.share(1);
    let mut now_ns = 1 << 40;
    for _ in 0..50_000 {
        now_ns += rng.random_range(0..100_000);
        let latency_ns = rng.random_range(1_000_000..5_000_000);
        let in_flight = plain.depth();
        plain.completed(in_flight, latency_ns, now_ns);
        told.begins(now_ns + NOW_NS);
        told.completed(in_flight, latency_ns, now_ns + NOW_NS);
        assert_eq!(plain.depth(), told.depth());
    }
    assert!(plain.depth() > 32, "{}: it moves", plain.depth());
}

#[test]
fn a_fixed_depth_stays() {
    let mut depth = DepthController::fixed(7);
    depth.share(8);
    assert_eq!(depth.depth(), 7);
}

proptest! {
    #[test]
    fn it_stays_in_its_bounds_whatever_it_is_fed(
        nodes in 2u32..5000,
        fed in prop::collection::vec((0u8..8, any::<u64>(), any::<u64>(), any::<u32>()), 1..2000),
    ) {
        let mut depth = DepthController::new();
        depth.share(nodes);
        for (kind, latency_ns, now_ns, in_flight) in fed {
            match kind {
                0 => depth.failed(),
                1 => depth.begins(now_ns),
                2 => depth.completed(in_flight, latency_ns, now_ns),
                _ => depth.completed(depth.depth(), latency_ns % 10_000_000, now_ns % 10_000_000_000),
            }
            prop_assert!((1..=DEPTH_MAX).contains(&depth.depth()));
        }
    }
}
