//! Every policy against an obvious model, with pins, removals, new scores, records of any size and
//! caches that grow and shrink.

use std::collections::BTreeSet;

use crate::cache_model::{Model, Resident, Value};
use proptest::prelude::*;
use proptest::test_runner::Config;
use shade_core::cache::{Admission, Cache};
use shade_core::importance::Importance;
use shade_formats::SampleId;
use shade_job::Policy;

const SAMPLES: u32 = 24;
const CAPACITY_BYTES: u64 = 100;

#[derive(Clone, Debug)]
enum Op {
    /// Hit if resident, else offer a record of this many bytes.
    Access(u32, u64),
    /// Offer without looking first; a resident sample must be bypassed.
    Offer(u32, u64),
    /// Few different scores, so that uses and ids decide often.
    Score(u32, u8),
    /// An access that knows its sample's next use, or that none is in sight.
    Planned(u32, u64, Option<u32>),
    /// A use comes into sight.
    See(u32, u32),
    /// The plan is over.
    Forget,
    /// An epoch begins, in which these samples are of low importance, and these are of no use.
    Epoch(BTreeSet<u32>, BTreeSet<u32>),
    Pin(u32),
    Unpin(u32),
    Remove(u32),
    /// The cache has this capacity from now on.
    Resize(u64),
    /// It ranks residents in slices, or all when victims are asked for.
    KeepRanked(bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // One id beyond the dataset.
    let id = 0..=SAMPLES;
    let bytes = prop_oneof![8 => 1..30u64, 1 => Just(0), 1 => 90..110u64];
    let op = prop_oneof![
        12 => (id.clone(), bytes.clone()).prop_map(|(id, bytes)| Op::Access(id, bytes)),
        1 => (id.clone(), bytes.clone()).prop_map(|(id, bytes)| Op::Offer(id, bytes)),
        6 => (id.clone(), 0..5u8).prop_map(|(id, score)| Op::Score(id, score)),
        6 => (id.clone(), bytes, prop::option::of(0..40u32)).prop_map(|(id, b, next)| Op::Planned(id, b, next)),
        6 => (id.clone(), 0..40u32).prop_map(|(id, at)| Op::See(id, at)),
        1 => Just(Op::Forget),
        2 => (prop::collection::btree_set(0..SAMPLES, 0..20), prop::collection::btree_set(0..SAMPLES, 0..9))
            .prop_map(|(low, useless)| Op::Epoch(low, useless)),
        2 => id.clone().prop_map(Op::Pin),
        2 => id.clone().prop_map(Op::Unpin),
        1 => id.prop_map(Op::Remove),
        1 => (0..150u64).prop_map(Op::Resize),
        1 => any::<bool>().prop_map(Op::KeepRanked),
    ];
    prop::collection::vec(op, 0..200)
}

struct Pair {
    cache: Cache<Value>,
    model: Model,
    importance: Importance,
    pinned: BTreeSet<u32>,
    accesses: usize,
    hits: usize,
    misses: usize,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        Self {
            cache: Cache::new(policy, CAPACITY_BYTES, SAMPLES),
            model: Model::new(policy, CAPACITY_BYTES, SAMPLES),
            importance: Importance::new(SAMPLES),
            pinned: BTreeSet::new(),
            accesses: 0,
            hits: 0,
            misses: 0,
        }
    }

    fn apply(&mut self, step: usize, op: &Op) {
        match *op {
            Op::Access(id, bytes) => self.access(step, id, bytes),
            Op::Planned(id, bytes, next) => {
                self.cache.use_at(0, SampleId(id), next);
                self.model.next_uses.remove(&id);
                self.model.next_uses.extend(next.map(|next| (id, next)));
                self.access(step, id, bytes);
            }
            Op::See(id, position) => {
                self.cache.see(0, SampleId(id), position, &self.importance);
                self.model.next_uses.entry(id).or_insert(position);
            }
            Op::Forget => {
                self.cache.forget_uses(0);
                self.model.next_uses.clear();
            }
            Op::Epoch(ref low, ref useless) => {
                let may_use = |id: SampleId| !useless.contains(&id.0);
                self.cache.begin_epoch(may_use, || (0..=SAMPLES).map(|id| !low.contains(&id)).collect());
                self.model.begin_epoch(low.clone(), useless);
            }
            Op::Offer(id, bytes) => self.offer(step, id, bytes),
            Op::Score(id, score) => {
                self.importance.set_score(SampleId(id), 2.5 + f32::from(score) / 4.0);
                self.cache.rescore(SampleId(id), &self.importance);
            }
            Op::Pin(id) => drop(self.pinned.insert(id)),
            Op::Unpin(id) => drop(self.pinned.remove(&id)),
            Op::Remove(id) => assert_eq!(self.cache.remove(SampleId(id)), self.model.remove(id)),
            Op::Resize(capacity_bytes) => {
                self.cache.resize(capacity_bytes);
                self.model.resize(capacity_bytes);
            }
            Op::KeepRanked(is_kept) => self.cache.keep_ranked(is_kept),
        }
        while self.cache.rank_on(3, &self.importance) {}
        if self.cache.has_surplus() {
            // ARC's ghosts depend on how many leave at once.
            let is_arc = self.model.policy == Policy::Arc;
            self.evict_surplus(if is_arc { usize::MAX } else { 1 + step % 4 });
        }
        self.check();
    }

    /// In slices of `most` residents, in which the same ones leave in the same order.
    fn evict_surplus(&mut self, most: usize) {
        let mut evicted = Vec::new();
        let is_pinned = |value: &Value| self.pinned.contains(&value.0);
        loop {
            let before = evicted.len();
            self.cache.evict_surplus(most, &self.importance, is_pinned, &mut evicted);
            assert!(evicted.len() - before <= most);
            if !self.cache.has_slices_left() {
                break;
            }
        }
        let victims = self.model.evict_surplus(&self.importance, &self.pinned);
        let expected: Vec<_> = victims.iter().map(|victim| (SampleId(victim.id), victim.value)).collect();
        assert_eq!(evicted, expected);
        if self.cache.has_surplus() {
            assert!(self.cache.ids().any(|id| self.pinned.contains(&id.0)), "only what is pinned stays");
        }
    }

    fn access(&mut self, step: usize, id: u32, bytes: u64) {
        self.accesses += 1;
        if self.cache.get(SampleId(id)).is_some() {
            self.hits += 1;
            self.importance.record_hit(SampleId(id));
            let hit = self.cache.hit(SampleId(id), &self.importance).copied();
            assert_eq!(hit, Some(self.model.hit(id)));
        } else {
            self.misses += 1;
            assert_eq!(self.cache.hit(SampleId(id), &self.importance), None);
            self.offer(step, id, bytes);
        }
    }

    fn offer(&mut self, step: usize, id: u32, bytes: u64) {
        let value = (id, step);
        let mut evicted = Vec::new();
        let is_pinned = |value: &Value| self.pinned.contains(&value.0);
        let admission =
            self.cache.offer(SampleId(id), bytes, value, &self.importance, is_pinned, &mut evicted);
        let Some(victims) = self.model.offer((id, bytes), value, &self.importance, &self.pinned) else {
            assert_eq!((admission, evicted), (Admission::Bypassed(value), vec![]));
            return;
        };
        assert_eq!(admission, Admission::Admitted);
        let expected: Vec<_> = victims.iter().map(|victim| (SampleId(victim.id), victim.value)).collect();
        assert_eq!(evicted, expected);
        // The two policies with regions or epochs may keep residents that rank lower.
        let leaves_out = self.cache.properties().exchanges;
        let stays = |resident: &&Resident| {
            !leaves_out && resident.value != value && !self.pinned.contains(&resident.id)
        };
        for survivor in self.model.residents().iter().filter(stays) {
            let rank = self.model.rank(survivor, &self.importance);
            assert!(victims.iter().all(|victim| self.model.rank(victim, &self.importance) <= rank));
        }
    }

    /// Same residents with the same values; the limit holds.
    fn check(&self) {
        let mut ids: Vec<u32> = self.cache.ids().map(|id| id.0).collect();
        ids.sort_unstable();
        let mut expected: Vec<u32> = self.model.residents().iter().map(|resident| resident.id).collect();
        expected.sort_unstable();
        assert_eq!(ids, expected);
        for resident in self.model.residents() {
            assert_eq!(self.cache.get(SampleId(resident.id)), Some(&resident.value));
        }
        for id in 0..SAMPLES {
            let (resident, may) = (ids.contains(&id), self.model.may_be_exchanged(id));
            assert_eq!(self.cache.wants_stand_in(SampleId(id)), may && !resident);
            assert_eq!(self.cache.may_stand_in(SampleId(id)), may && resident);
        }
        assert_eq!((self.cache.len(), self.cache.is_empty()), (ids.len(), ids.is_empty()));
        assert_eq!(self.cache.used_bytes(), self.model.used());
        let is_within = self.cache.used_bytes() <= self.cache.capacity_bytes();
        assert!(is_within || self.cache.has_surplus() && !self.pinned.is_empty());
        assert_eq!(self.hits + self.misses, self.accesses);
    }
}

fn compare(policy: Policy, ops: &[Op]) {
    let mut pair = Pair::new(policy);
    ops.iter().enumerate().for_each(|(step, op)| pair.apply(step, op));
}

/// Whatever happens between two slices, all are ranked in the end as they would be at once.
fn compare_slices(policy: Policy, ops: &[Op]) {
    let mut caches = [(); 2].map(|()| Cache::new(policy, u64::MAX, SAMPLES));
    caches[1].keep_ranked(true);
    let mut importance = Importance::new(SAMPLES);
    for op in ops {
        if let Op::Score(id, score) = *op {
            importance.set_score(SampleId(id), 2.5 + f32::from(score) / 4.0);
        }
        for cache in &mut caches {
            let evicted = &mut Vec::new();
            match *op {
                Op::Access(id, bytes) | Op::Offer(id, bytes) | Op::Planned(id, bytes, _) => {
                    if let Op::Planned(_, _, next) = *op {
                        cache.use_at(0, SampleId(id), next);
                    }
                    if cache.hit(SampleId(id), &importance).is_none() {
                        cache.offer(SampleId(id), bytes, (), &importance, |()| false, evicted);
                    }
                }
                Op::Score(id, _) => cache.rescore(SampleId(id), &importance),
                Op::See(id, position) => cache.see(0, SampleId(id), position, &importance),
                Op::Forget => cache.forget_uses(0),
                Op::Remove(id) => drop(cache.remove(SampleId(id))),
                Op::Epoch(..) | Op::Pin(_) | Op::Unpin(_) | Op::Resize(_) | Op::KeepRanked(_) => {}
            }
        }
        let _ = caches[1].rank_on(2, &importance);
    }
    while caches[1].rank_on(2, &importance) {}
    let [at_once, in_slices] = caches.map(|mut cache| {
        let mut evicted = Vec::new();
        cache.resize(0);
        cache.evict_surplus(usize::MAX, &importance, |()| false, &mut evicted);
        evicted
    });
    assert_eq!(at_once, in_slices);
}

fn config() -> Config {
    Config { cases: 512, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn residents_ranked_in_slices_have_the_ranks_of_now(ops in ops()) {
        [Policy::App, Policy::Lookahead, Policy::TopC].iter().for_each(|&policy| compare_slices(policy, &ops));
    }

    #[test]
    fn app_equals_the_model(ops in ops()) {
        compare(Policy::App, &ops);
    }

    #[test]
    fn lookahead_equals_the_model(ops in ops()) {
        compare(Policy::Lookahead, &ops);
    }

    #[test]
    fn topc_equals_the_model(ops in ops()) {
        compare(Policy::TopC, &ops);
    }

    #[test]
    fn lfu_equals_the_model(ops in ops()) {
        compare(Policy::Lfu, &ops);
    }

    #[test]
    fn lru_equals_the_model(ops in ops()) {
        compare(Policy::Lru, &ops);
    }

    #[test]
    fn fifo_equals_the_model(ops in ops()) {
        compare(Policy::Fifo, &ops);
    }

    #[test]
    fn arc_equals_the_model(ops in ops()) {
        compare(Policy::Arc, &ops);
    }

    #[test]
    fn icache_equals_the_model(ops in ops()) {
        compare(Policy::Icache, &ops);
    }

    #[test]
    fn quiver_equals_the_model(ops in ops()) {
        compare(Policy::Quiver, &ops);
    }

    #[test]
    fn static_equals_the_model(ops in ops()) {
        compare(Policy::Static, &ops);
    }
}
