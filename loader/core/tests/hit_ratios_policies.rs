//! Hit ratios of all policies where the answer is known: on uniform draws and on permutations. All
//! records have size 1, all samples the same score. Accesses count once the cache is full.

#![expect(clippy::print_stdout, reason = "shows the figures under --nocapture")]
#![expect(clippy::cast_possible_truncation, reason = "shares of small numbers of samples")]

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shade_core::cache::Cache;
use shade_core::importance::Importance;
use shade_formats::SampleId;
use shade_job::Policy;

const ALL: [Policy; 7] =
    [Policy::App, Policy::TopC, Policy::Lfu, Policy::Lru, Policy::Fifo, Policy::Arc, Policy::Static];

/// Hits per access in percent over the `counted` part of the trace, of a cache that holds `share`
/// of the samples.
fn hit_ratio(policy: Policy, samples: u32, share: f64, warm_up: &[u32], counted: &[u32]) -> f64 {
    let mut importance = Importance::new(samples);
    let mut cache = Cache::new(policy, (f64::from(samples) * share) as u64, samples);
    let mut access = |&id: &u32| {
        let id = SampleId(id);
        if cache.get(id).is_some() {
            importance.record_hit(id);
            return cache.hit(id, &importance).is_some();
        }
        cache.offer(id, 1, (), &importance, |()| false, &mut Vec::new());
        false
    };
    for id in warm_up {
        access(id);
    }
    let hits = counted.iter().filter(|id| access(id)).count();
    assert_eq!(cache.used_bytes(), cache.capacity_bytes());
    let ratio = 100.0 * hits as f64 / counted.len() as f64;
    println!("{policy:?} c {share}: {ratio:.2} %");
    ratio
}

fn assert_near(policy: Policy, got: f64, expected: f64, tolerance: f64) {
    let near = (got - expected).abs() <= tolerance;
    assert!(near, "{policy:?}: hit ratio {got:.2} %, expected {expected} ± {tolerance} points");
}

/// The next draw does not depend on what is resident, so no policy is better than another. The
/// standard error is below 0.08 points.
#[test]
fn uniform_draws_hit_as_often_as_the_share_that_is_resident() {
    const SAMPLES: u32 = 2000;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let draws: Vec<u32> = (0..450_000).map(|_| random.random_range(0..SAMPLES)).collect();
    let (warm_up, counted) = draws.split_at(50_000);
    for share in [0.1, 0.2, 0.4] {
        for policy in ALL {
            let ratio = hit_ratio(policy, SAMPLES, share, warm_up, counted);
            assert_near(policy, ratio, 100.0 * share, 0.3);
        }
    }
}

/// `epochs` permutations of all samples, one after the other.
fn permutations(samples: u32, epochs: usize, seed: u64) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut ids: Vec<u32> = (0..samples).collect();
    let mut epoch = || {
        ids.shuffle(&mut random);
        ids.clone()
    };
    (0..epochs).flat_map(|_| epoch()).collect()
}

#[test]
fn static_on_permutations_is_c_exactly() {
    let trace = permutations(2000, 6, 1);
    let (warm_up, counted) = trace.split_at(2000);
    for share in [0.05, 0.1, 0.2, 0.4] {
        let ratio = hit_ratio(Policy::Static, 2000, share, warm_up, counted);
        assert_near(Policy::Static, ratio, 100.0 * share, 1e-9);
    }
}

/// From an independent simulation: N = 10,000, epochs 1 to 11.
#[test]
fn permutations_as_simulated_elsewhere() {
    let expected = [(0.05, 0.1, 0.6), (0.1, 0.5, 2.6), (0.2, 2.4, 10.5), (0.3, 5.9, 15.0), (0.5, 19.3, 17.6)];
    let trace = permutations(10_000, 12, 1);
    let (warm_up, counted) = trace.split_at(10_000);
    for (share, fifo, arc) in expected {
        for (policy, expected) in [(Policy::Fifo, fifo), (Policy::Arc, arc)] {
            let ratio = hit_ratio(policy, 10_000, share, warm_up, counted);
            assert_near(policy, ratio, expected, 1.0);
        }
    }
}
