//! The cache on traces small enough to follow by hand.

use shade_core::cache::{Admission, Cache};
use shade_core::importance::{Importance, SCORE_MAX};
use shade_formats::SampleId;
use shade_job::Policy;

const A: SampleId = SampleId(0);
const B: SampleId = SampleId(1);
const C: SampleId = SampleId(2);
const D: SampleId = SampleId(3);
const E: SampleId = SampleId(4);

/// True for a hit; a miss is offered with the given size.
fn access(id: SampleId, bytes: u64, cache: &mut Cache<()>, importance: &mut Importance) -> bool {
    if cache.get(id).is_some() {
        importance.record_hit(id);
        return cache.hit(id, importance).is_some();
    }
    cache.offer(id, bytes, (), importance, |()| false, &mut Vec::new());
    false
}

fn residents(cache: &Cache<()>) -> Vec<SampleId> {
    let mut ids: Vec<SampleId> = cache.ids().collect();
    ids.sort_unstable();
    ids
}

/// Scores c > b > d > a > e.
fn paper_importance() -> Importance {
    let mut importance = Importance::new(5);
    for (id, score) in [(C, 4.0), (B, 3.75), (D, 3.5), (A, 3.25), (E, 3.0)] {
        importance.set_score(id, score);
    }
    importance
}

#[test]
fn the_papers_workflow_figure() {
    let mut importance = Importance::new(5);
    let mut cache = Cache::new(Policy::App, 2, 5);
    for id in [A, B] {
        assert!(!access(id, 1, &mut cache, &mut importance));
    }
    importance = paper_importance();
    for id in [A, B, C, D, E] {
        cache.rescore(id, &importance);
    }
    assert_eq!(residents(&cache), [A, B], "a new score changes no membership");
    let hits = [C, C, B, B, D].map(|id| access(id, 1, &mut cache, &mut importance));
    assert_eq!(hits, [false, true, true, true, false]);
    assert_eq!(residents(&cache), [B, C]);
}

#[test]
fn equal_scores_go_by_uses_and_then_by_the_smaller_id() {
    let mut importance = Importance::new(5);
    let mut cache = Cache::new(Policy::App, 2, 5);
    for id in [D, B] {
        access(id, 1, &mut cache, &mut importance);
    }
    // Key -id: a newcomer must have a smaller id to be worth more, and the greatest id goes first.
    access(E, 1, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [B, D]);
    access(A, 1, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [A, B]);
    // One use protects b from c, the ghost remembers d's.
    access(B, 1, &mut cache, &mut importance);
    importance.record_hit(D);
    access(C, 1, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [A, B]);
    access(D, 1, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [B, D]);
}

#[test]
fn a_large_newcomer_needs_every_victim_to_be_worth_less() {
    let mut importance = paper_importance();
    let mut cache = Cache::new(Policy::App, 3, 5);
    for id in [E, A, B] {
        access(id, 1, &mut cache, &mut importance);
    }
    // d is worth more than e and a, not than b: two units are free for it, three are not.
    access(D, 3, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [A, B, E]);
    access(D, 2, &mut cache, &mut importance);
    assert_eq!(residents(&cache), [B, D]);
    assert_eq!(cache.used_bytes(), 3);
}

#[test]
fn pinned_residents_are_skipped_and_a_bypass_gives_the_value_back() {
    let importance = paper_importance();
    for policy in [Policy::App, Policy::TopC, Policy::Lfu, Policy::Lru, Policy::Fifo, Policy::Arc] {
        let mut cache = Cache::new(policy, 2, 5);
        let mut evicted = Vec::new();
        let mut offer = |id, value, pinned: &[&str]| {
            let is_pinned = |value: &&'static str| pinned.contains(value);
            let admission = cache.offer(id, 1, value, &importance, is_pinned, &mut evicted);
            (admission, std::mem::take(&mut evicted))
        };
        assert_eq!(offer(E, "e", &[]), (Admission::Admitted, vec![]));
        assert_eq!(offer(A, "a", &[]), (Admission::Admitted, vec![]));
        assert_eq!(offer(C, "c", &["e", "a"]), (Admission::Bypassed("c"), vec![]));
        assert_eq!(offer(C, "c", &["e"]), (Admission::Admitted, vec![(A, "a")]), "{policy:?}");
        assert_eq!(offer(C, "again", &[]), (Admission::Bypassed("again"), vec![]));
        assert_eq!(cache.get(C), Some(&"c"));
        assert_eq!((cache.remove(C), cache.remove(C)), (Some("c"), None));
    }
}

#[test]
fn a_record_of_4_gib_is_bypassed_and_the_largest_below_it_is_charged_in_full() {
    const LARGEST: u64 = (1 << 32) - 1;
    let mut importance = paper_importance();
    for policy in [Policy::App, Policy::Lru, Policy::Arc] {
        let mut cache = Cache::new(policy, 2 * LARGEST, 5);
        access(A, LARGEST + 1, &mut cache, &mut importance);
        assert_eq!((residents(&cache), cache.used_bytes()), (vec![], 0), "{policy:?}");
        access(A, LARGEST, &mut cache, &mut importance);
        access(B, LARGEST, &mut cache, &mut importance);
        assert_eq!((residents(&cache), cache.used_bytes()), (vec![A, B], 2 * LARGEST), "{policy:?}");
    }
}

#[test]
fn lru_evicts_the_least_recently_used_whatever_its_score() {
    let mut importance = paper_importance();
    let mut cache = Cache::new(Policy::Lru, 2, 5);
    let hits = [C, B, C, E, B, C].map(|id| access(id, 1, &mut cache, &mut importance));
    assert_eq!(hits, [false, false, true, false, false, false]);
    assert_eq!(residents(&cache), [B, C]);
}

/// The residents after accesses of size 1 to a cache of size 2.
fn residents_after(policy: Policy, accesses: &[SampleId]) -> Vec<SampleId> {
    let mut importance = Importance::new(5);
    let mut cache = Cache::new(policy, 2, 5);
    for &id in accesses {
        access(id, 1, &mut cache, &mut importance);
    }
    residents(&cache)
}

#[test]
fn fifo_evicts_the_earliest_admitted_though_it_was_used_since() {
    assert_eq!(residents_after(Policy::Fifo, &[A, B, A, C]), [B, C]);
    assert_eq!(residents_after(Policy::Lru, &[A, B, A, C]), [A, C]);
}

#[test]
fn lfu_evicts_the_least_used_and_forgets_how_often_it_was() {
    // b was touched later, a more often.
    assert_eq!(residents_after(Policy::Lfu, &[A, A, B, C]), [A, C]);
    // Both twice: a was touched earlier.
    assert_eq!(residents_after(Policy::Lfu, &[A, B, A, B, C]), [B, C]);
    // b comes back with one use, not with three.
    assert_eq!(residents_after(Policy::Lfu, &[A, A, A, B, B, C, C, B, D]), [A, D]);
}

#[test]
fn static_keeps_what_came_first() {
    assert_eq!(residents_after(Policy::Static, &[A, B, C, C, D]), [A, B]);
}

#[test]
fn topc_is_app_without_uses() {
    // Equal scores: d was used, yet the smaller id is worth more.
    assert_eq!(residents_after(Policy::App, &[B, D, D, C]), [B, D]);
    assert_eq!(residents_after(Policy::TopC, &[B, D, D, C]), [B, C]);
}

#[test]
fn arc_keeps_what_was_used_again_and_learns_from_what_it_lost() {
    // b and c are used once: each gives way to the next, and a stays.
    assert_eq!(residents_after(Policy::Arc, &[A, A, B, C, D]), [A, D]);
    // b is missed soon after it left, so T1 may be larger, and this time a gives way.
    assert_eq!(residents_after(Policy::Arc, &[A, A, B, C, B]), [B, C]);
}

#[test]
fn a_capacity_of_0_holds_nothing() {
    let mut importance = Importance::new(5);
    for policy in
        [Policy::App, Policy::TopC, Policy::Lfu, Policy::Lru, Policy::Fifo, Policy::Arc, Policy::Static]
    {
        let mut cache = Cache::new(policy, 0, 5);
        for _ in 0..3 {
            assert!(!access(A, 1, &mut cache, &mut importance));
        }
        assert!(cache.is_empty());
    }
    assert_eq!(importance.score(A), SCORE_MAX);
}
