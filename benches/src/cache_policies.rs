//! What an access to the cache costs under each policy, over epochs drawn by importance.

use std::time::Duration;

use shade_core::cache::Cache;
use shade_core::importance::Importance;
use shade_core::plan::{Known, Lookahead, in_sight};
use shade_formats::SampleId;
use shade_job::Policy;

use crate::cpu_time::timed;
use crate::figure::{Figure, Unit};
use crate::result::Result;
use crate::training::{Epoch, epochs};

/// About ImageNet's number.
const SAMPLES: u32 = 1_300_000;
/// A fifth of the samples. Each has size 1.
const CAPACITY: u64 = 260_000;
/// The first two epochs, which fill the cache.
const WARM_UP: u32 = 2;
const RUNS: u32 = 3;

/// The policies, with their budgets for an access in ns.
const POLICIES: [(Policy, &str, Option<f64>); 8] = [
    (Policy::Lru, "lru", Some(200.0)),
    (Policy::Fifo, "fifo", None),
    (Policy::Lfu, "lfu", None),
    (Policy::Arc, "arc", None),
    (Policy::App, "app", Some(500.0)),
    (Policy::Lookahead, "lookahead", Some(500.0)),
    (Policy::TopC, "topc", None),
    (Policy::Static, "static", None),
];

/// A row for each policy, and one for the start of an epoch under lookahead.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let epochs = epochs(SAMPLES, WARM_UP + RUNS)?;
    let mut rows: Vec<(Cached, Vec<Timing>)> =
        POLICIES.iter().map(|&(policy, ..)| (Cached::new(policy), Vec::new())).collect();
    for (number, epoch) in (0..).zip(&epochs) {
        for (cached, timings) in &mut rows {
            let timing = cached.epoch(epoch);
            if number >= WARM_UP {
                timings.push(timing);
            }
        }
    }
    let mut figures = Vec::new();
    for ((_, name, budget), (_, timings)) in POLICIES.into_iter().zip(rows) {
        let row = |name: String, time: fn(&Timing) -> Duration| {
            let ns = timings.iter().map(|timing| time(timing).as_nanos() as f64 / f64::from(SAMPLES));
            Figure::new(name, Unit::NsPerAccess, ns.collect())
        };
        let accesses = row(format!("cache {name}"), |timing| timing.accesses);
        figures.push(match budget {
            Some(budget) => accesses.with_budget(budget),
            None => accesses,
        });
        if name == "lookahead" {
            figures.push(row("cache lookahead, an epoch's start".to_owned(), |timing| timing.start));
        }
    }
    Ok(figures)
}

/// Times of one epoch.
struct Timing {
    /// For finding each sample's next use and telling the cache.
    start: Duration,
    accesses: Duration,
}

/// A cache and its scores.
struct Cached {
    policy: Policy,
    cache: Cache<()>,
    importance: Importance,
    evicted: Vec<(SampleId, ())>,
}

impl Cached {
    fn new(policy: Policy) -> Self {
        let (cache, importance) = (Cache::new(policy, CAPACITY, SAMPLES), Importance::new(SAMPLES));
        Self { policy, cache, importance, evicted: Vec::new() }
    }

    /// Serves an epoch. New scores come between the batches, as in a training, outside the time.
    fn epoch(&mut self, epoch: &Epoch) -> Timing {
        let (start, mut lookahead) = timed(|| self.look_ahead(&epoch.ids));
        let mut accesses = Duration::ZERO;
        let mut positions = 0..;
        for (batch, ranked) in epoch.batches() {
            let (time, ()) = timed(|| {
                for (&id, position) in batch.iter().zip(&mut positions) {
                    if let Some(lookahead) = &mut lookahead {
                        let next =
                            lookahead.access(Known::from(epoch.ids.as_slice()), position, |(id, at)| {
                                self.cache.see(0, id, at, &self.importance);
                            });
                        self.cache.use_at(0, id, next);
                    }
                    self.access(id);
                }
            });
            accesses += time;
            for &(id, score) in &ranked.scores {
                self.importance.set_score(id, score);
                self.cache.rescore(id, &self.importance);
            }
        }
        Timing { start, accesses }
    }

    /// The lookahead is the whole epoch, as by default.
    fn look_ahead(&mut self, ids: &[SampleId]) -> Option<Lookahead> {
        if self.policy != Policy::Lookahead {
            return None;
        }
        let known = Known::from(ids);
        let mut lookahead = Lookahead::new(known, SAMPLES, 0, in_sight(1.0, ids.len()));
        self.cache.forget_uses(0);
        lookahead.begin(known, |(id, at)| self.cache.see(0, id, at, &self.importance));
        Some(lookahead)
    }

    fn access(&mut self, id: SampleId) {
        if self.cache.get(id).is_some() {
            self.importance.record_hit(id);
            self.cache.hit(id, &self.importance);
        } else {
            self.evicted.clear();
            self.cache.offer(id, 1, (), &self.importance, |()| false, &mut self.evicted);
        }
    }
}
