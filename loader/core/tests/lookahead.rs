//! The lookahead policy at its two ends: seeing nothing it is APP, seeing everything it is MIN with
//! bypass, hit for hit.

#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and traces here are short"
)]

use proptest::prelude::*;
use shade_core::cache::Cache;
use shade_core::importance::Importance;
use shade_core::plan::{Known, Lookahead};
use shade_formats::SampleId;
use shade_job::Policy;

const SAMPLES: u32 = 20;

/// Serves the trace with `ahead` accesses in sight; records of one byte. Says of each access
/// whether it was a hit.
fn lookahead(trace: &[SampleId], importance: &Importance, capacity: u64, ahead: u32) -> Vec<bool> {
    let mut cache = Cache::new(Policy::Lookahead, capacity, SAMPLES);
    let known = Known::from(trace);
    let mut lookahead = Lookahead::new(known, SAMPLES, 0, ahead);
    lookahead.begin(known, |(id, at)| cache.see(0, id, at, importance));
    let access = |(at, &id): (usize, &SampleId)| {
        let next = lookahead.access(known, at as u32, |(id, at)| cache.see(0, id, at, importance));
        cache.use_at(0, id, next);
        serve(&mut cache, id, importance)
    };
    trace.iter().enumerate().map(access).collect()
}

fn serve(cache: &mut Cache<()>, id: SampleId, importance: &Importance) -> bool {
    let hit = cache.hit(id, importance).is_some();
    if !hit {
        cache.offer(id, 1, (), importance, |()| false, &mut Vec::new());
    }
    hit
}

/// Belady's MIN with bypass, straight from its definition: the sample used last makes room, the
/// newcomer included. One that is used no more is never kept.
fn min(trace: &[SampleId], capacity: usize) -> Vec<bool> {
    let next_use = |id: SampleId, from: usize| {
        trace[from..].iter().position(|&other| other == id).map_or(usize::MAX, |ahead| from + ahead)
    };
    let mut resident: Vec<SampleId> = Vec::new();
    let mut hits = Vec::new();
    for (at, &id) in trace.iter().enumerate() {
        hits.push(resident.contains(&id));
        if !resident.contains(&id) {
            resident.push(id);
        }
        if resident.len() > capacity {
            let last = (0..resident.len()).max_by_key(|&place| next_use(resident[place], at + 1));
            last.map(|place| resident.swap_remove(place));
        }
    }
    hits
}

fn scored(scores: &[u8]) -> Importance {
    let mut importance = Importance::new(SAMPLES);
    for (id, &score) in (0..).zip(scores) {
        importance.set_score(SampleId(id), 2.5 + f32::from(score) / 200.0);
    }
    importance
}

fn traces() -> impl Strategy<Value = Vec<SampleId>> {
    prop::collection::vec((0..SAMPLES).prop_map(SampleId), 0..300)
}

proptest! {
    #[test]
    fn seeing_everything_it_is_min(
        trace in traces(), capacity in 0..12usize,
        scores in prop::collection::vec(any::<u8>(), SAMPLES as usize)
    ) {
        let importance = scored(&scores);
        let hits = lookahead(&trace, &importance, capacity as u64, u32::MAX);
        prop_assert_eq!(hits, min(&trace, capacity));
    }

    #[test]
    fn seeing_nothing_it_is_app(
        trace in traces(), capacity in 0..12u64, scores in prop::collection::vec(any::<u8>(), SAMPLES as usize)
    ) {
        let importance = scored(&scores);
        let mut app = Cache::new(Policy::App, capacity, SAMPLES);
        let expected: Vec<bool> = trace.iter().map(|&id| serve(&mut app, id, &importance)).collect();
        prop_assert_eq!(lookahead(&trace, &importance, capacity, 0), expected);
    }

    #[test]
    fn nobody_has_more_hits_than_min(
        trace in traces(), capacity in 0..12usize, ahead in 0..300u32
    ) {
        let importance = Importance::new(SAMPLES);
        let count = |hits: Vec<bool>| hits.into_iter().filter(|hit| *hit).count();
        let best = count(min(&trace, capacity));
        prop_assert!(count(lookahead(&trace, &importance, capacity as u64, ahead)) <= best);
        let mut lru = Cache::new(Policy::Lru, capacity as u64, SAMPLES);
        prop_assert!(count(trace.iter().map(|&id| serve(&mut lru, id, &importance)).collect()) <= best);
    }
}
