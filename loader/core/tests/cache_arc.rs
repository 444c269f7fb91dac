//! ARC with records of one byte is the algorithm as published, and withstands what it was made for.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::Config;
use shade_core::cache::Cache;
use shade_core::importance::Importance;
use shade_formats::SampleId;
use shade_job::Policy;

/// Megiddo and Modha, FAST 2003, figure 4, line by line. Lists are from LRU to MRU.
struct Published {
    c: usize,
    p: f64,
    t1: VecDeque<u32>,
    t2: VecDeque<u32>,
    b1: VecDeque<u32>,
    b2: VecDeque<u32>,
}

impl Published {
    fn new(c: usize) -> Self {
        let [t1, t2, b1, b2] = Default::default();
        Self { c, p: 0.0, t1, t2, b1, b2 }
    }

    /// Whether the request was a hit.
    fn request(&mut self, x: u32) -> bool {
        let c = self.c;
        // Case I.
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push_back(x);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&x) {
            // Case II.
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(c as f64);
            self.replace(x);
            take(&mut self.b1, x);
            self.t2.push_back(x);
        } else if self.b2.contains(&x) {
            // Case III.
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            self.replace(x);
            take(&mut self.b2, x);
            self.t2.push_back(x);
        } else {
            // Case IV.
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == c {
                // Case A.
                if self.t1.len() < c {
                    self.b1.pop_front();
                    self.replace(x);
                } else {
                    self.t1.pop_front();
                }
            } else if all >= c {
                // Case B.
                if all == 2 * c {
                    self.b2.pop_front();
                }
                self.replace(x);
            }
            self.t1.push_back(x);
        }
        false
    }

    fn replace(&mut self, x: u32) {
        let t1 = self.t1.len() as f64;
        if t1 > 0.0 && (t1 > self.p || (self.b2.contains(&x) && t1 == self.p)) {
            self.b1.extend(self.t1.pop_front());
        } else {
            self.b2.extend(self.t2.pop_front());
        }
    }

    fn residents(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.t1.iter().chain(&self.t2).copied().collect();
        ids.sort_unstable();
        ids
    }
}

/// Takes `x` out of the list; false if it is not there.
fn take(list: &mut VecDeque<u32>, x: u32) -> bool {
    let position = list.iter().position(|&other| other == x);
    position.is_some_and(|position| list.remove(position).is_some())
}

/// Whether the access was a hit.
fn access(cache: &mut Cache<()>, id: u32, bytes: u64, importance: &Importance) -> bool {
    let hit = cache.hit(SampleId(id), importance).is_some();
    if !hit {
        cache.offer(SampleId(id), bytes, (), importance, |()| false, &mut Vec::new());
    }
    hit
}

const SAMPLES: u32 = 80;

/// Stretches of draws, loops and scans over parts of the samples, so that the target moves both
/// ways.
fn traces() -> impl Strategy<Value = Vec<u32>> {
    let part = (0..SAMPLES, 1..40u32);
    let draws = |(from, count): (u32, u32)| {
        prop::collection::vec((from..from + count).prop_map(|id| id % SAMPLES), 1..100)
    };
    let loops = (part.clone(), 1..5usize).prop_map(|((from, count), rounds)| {
        let ids: Vec<u32> = (from..from + count).map(|id| id % SAMPLES).collect();
        ids.repeat(rounds)
    });
    let stretch = prop_oneof![2 => part.prop_flat_map(draws), 1 => loops];
    prop::collection::vec(stretch, 1..20).prop_map(|stretches| stretches.concat())
}

proptest! {
    #![proptest_config(Config { cases: 512, failure_persistence: None, ..Config::default() })]

    /// One size for all records, too: only the ratio of sizes counts.
    #[test]
    fn records_of_one_size_give_the_published_algorithm(c in 1..24u32, trace in traces()) {
        let importance = Importance::new(SAMPLES);
        let mut published = Published::new(c as usize);
        let mut units = Cache::new(Policy::Arc, u64::from(c), SAMPLES);
        let mut blocks = Cache::new(Policy::Arc, u64::from(c) * 16_384, SAMPLES);
        for (step, &id) in trace.iter().enumerate() {
            let hit = published.request(id);
            prop_assert_eq!(access(&mut units, id, 1, &importance), hit, "step {}", step);
            prop_assert_eq!(access(&mut blocks, id, 16_384, &importance), hit, "step {}", step);
            for cache in [&units, &blocks] {
                let mut ids: Vec<u32> = cache.ids().map(|id| id.0).collect();
                ids.sort_unstable();
                prop_assert_eq!(ids, published.residents(), "step {}", step);
            }
        }
    }
}

/// Rounds of 60 samples used twice and 100 used never again, 100 fit: LRU loses the 60 to every
/// scan, ARC keeps them.
#[test]
fn a_scan_does_not_sweep_a_loop() {
    const ROUNDS: u32 = 50;
    let samples = 60 + 100 * ROUNDS;
    let importance = Importance::new(samples);
    let [arc, lru] = [Policy::Arc, Policy::Lru].map(|policy| {
        let mut cache = Cache::new(policy, 100, samples);
        let trace = (0..ROUNDS).flat_map(|round| {
            let scan = 60 + 100 * round;
            (0..60).chain(0..60).chain(scan..scan + 100)
        });
        trace.map(|id| u32::from(access(&mut cache, id, 1, &importance))).sum::<u32>()
    });
    println!("hits of {}: ARC {arc}, LRU {lru}", 220 * ROUNDS);
    assert_eq!(lru, 60 * ROUNDS);
    assert_eq!(arc, 60 * ROUNDS + 60 * (ROUNDS - 1), "all but each sample's first use");
}
