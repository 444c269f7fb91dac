//! The cache beside others with as many entries, on the usual traces for caches.

use quick_cache::DefaultHashBuilder;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, Zipf};
use shade_core::cache::Cache;
use shade_core::importance::Importance;
use shade_formats::SampleId;
use shade_job::Policy;

use crate::cpu_time::timed;
use crate::figure::{Figure, Unit};
use crate::result::Result;

const KEYS: u32 = 1_000_000;
/// Entries that each cache may hold.
const CAPACITY: u32 = 200_000;
/// Accesses per run. The first run fills the caches and does not count.
const ACCESSES: usize = 2_000_000;
const RUNS: usize = 3;
/// Budget: an access's time, as a multiple of the faster rival's.
const TIMES_MAX: f64 = 1.5;

/// Serves accesses one after the other; returns how many were hits.
type Serve = Box<dyn FnMut(&[u32]) -> usize>;

/// Time and hit ratio of each cache on each trace.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut figures = Vec::new();
    for exponent in [0.9, 1.1] {
        figures.extend(measure(&format!("zipf {exponent}"), &zipf(exponent, &mut random)?));
    }
    figures.extend(measure("loop", &round_and_round(&mut random)));
    Ok(figures)
}

fn measure(trace: &str, accesses: &[u32]) -> Vec<Figure> {
    let mut contenders = [
        ("lru", ours(Policy::Lru)),
        ("arc", ours(Policy::Arc)),
        ("quick-cache", quick_cache()),
        ("moka", moka()),
    ]
    .map(|(name, serve)| (name, serve, Vec::new(), Vec::new()));
    for (run, accesses) in accesses.chunks(ACCESSES).enumerate() {
        for (_, serve, times, ratios) in &mut contenders {
            let (time, hits) = timed(|| serve(accesses));
            if run > 0 {
                times.push(time.as_nanos() as f64 / accesses.len() as f64);
                ratios.push(100.0 * hits as f64 / accesses.len() as f64);
            }
        }
    }
    let [lru, arc, quick_cache, moka] = contenders.map(|(name, _, times, ratios)| {
        let time = Figure::new(format!("{name}, {trace}"), Unit::NsPerAccess, times);
        (time, Figure::new(format!("{name}, {trace}, hits"), Unit::Percent, ratios))
    });
    let faster = if quick_cache.0.median < moka.0.median { &quick_cache.0 } else { &moka.0 };
    let [lru, arc] = [lru, arc].map(|(time, hits)| [time.within(TIMES_MAX, faster), hits]);
    [lru, arc, quick_cache.into(), moka.into()].concat()
}

fn ours(policy: Policy) -> Serve {
    let mut cache = Cache::new(policy, u64::from(CAPACITY), KEYS);
    let importance = Importance::new(KEYS);
    let mut evicted = Vec::new();
    Box::new(move |accesses| {
        let mut hits = 0;
        for &key in accesses {
            if cache.hit(SampleId(key), &importance).is_some() {
                hits += 1;
            } else {
                evicted.clear();
                cache.offer(SampleId(key), 1, (), &importance, |()| false, &mut evicted);
            }
        }
        hits
    })
}

/// The one for a single thread.
fn quick_cache() -> Serve {
    let mut cache = quick_cache::unsync::Cache::new(CAPACITY as usize);
    Box::new(move |accesses| {
        let mut hits = 0;
        for &key in accesses {
            if cache.get(&key).is_some() {
                hits += 1;
            } else {
                cache.insert(key, ());
            }
        }
        hits
    })
}

/// With quick-cache's hash function, which is faster than the standard library's.
fn moka() -> Serve {
    let builder = moka::sync::Cache::builder().max_capacity(u64::from(CAPACITY));
    let cache = builder.build_with_hasher(DefaultHashBuilder::default());
    Box::new(move |accesses| {
        let mut hits = 0;
        for &key in accesses {
            if cache.get(&key).is_some() {
                hits += 1;
            } else {
                cache.insert(key, ());
            }
        }
        // moka delays evictions and does them in batches. The last ones belong to this run, too.
        cache.run_pending_tasks();
        hits
    })
}

/// Independent accesses. The k-th most popular key has a probability in proportion to 1/k^exponent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are 1 to the number of keys"
)]
fn zipf(exponent: f64, random: &mut ChaCha8Rng) -> Result<Vec<u32>> {
    let keys = shuffled_keys(random);
    let ranks = Zipf::new(f64::from(KEYS), exponent)?;
    let key = |rank: f64| keys.get(rank as usize - 1).copied().unwrap_or(0);
    Ok(ranks.sample_iter(random).take(ACCESSES * (1 + RUNS)).map(key).collect())
}

/// A fifth more keys than there is room for, in the same order again and again.
fn round_and_round(random: &mut ChaCha8Rng) -> Vec<u32> {
    let keys = shuffled_keys(random).into_iter().take(CAPACITY as usize * 6 / 5);
    keys.collect::<Vec<u32>>().into_iter().cycle().take(ACCESSES * (1 + RUNS)).collect()
}

/// Scatters popular keys over the table.
fn shuffled_keys(random: &mut ChaCha8Rng) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..KEYS).collect();
    keys.shuffle(random);
    keys
}
