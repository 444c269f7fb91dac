//! Both policies against an obvious model: a plain list of residents, sorted anew for every offer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;
use shade_formats::SampleId;
use shade_load::cache::{Admission, Cache, Policy};
use shade_load::importance::Importance;

const SAMPLES: u32 = 24;
const CAPACITY_BYTES: u64 = 100;

#[derive(Clone, Debug)]
enum Op {
    /// Hit if resident, else offer a record of so many bytes.
    Access(u32, u64),
    /// Offer without looking first; a resident sample must be bypassed.
    Offer(u32, u64),
    /// Few different scores, so that uses and ids decide often.
    Score(u32, u8),
    Pin(u32),
    Unpin(u32),
    Remove(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // One id beyond the dataset.
    let id = 0..=SAMPLES;
    let bytes = prop_oneof![8 => 1..30u64, 1 => Just(0), 1 => 90..110u64];
    let op = prop_oneof![
        12 => (id.clone(), bytes.clone()).prop_map(|(id, bytes)| Op::Access(id, bytes)),
        1 => (id.clone(), bytes).prop_map(|(id, bytes)| Op::Offer(id, bytes)),
        6 => (id.clone(), 0..5u8).prop_map(|(id, score)| Op::Score(id, score)),
        2 => id.clone().prop_map(Op::Pin),
        2 => id.clone().prop_map(Op::Unpin),
        1 => id.prop_map(Op::Remove),
    ];
    prop::collection::vec(op, 0..200)
}

/// Value of a resident: the sample and which admission it came with.
type Value = (u32, usize);

#[derive(Clone, Debug, PartialEq)]
struct Resident {
    id: u32,
    bytes: u64,
    value: Value,
}

struct Model {
    policy: Policy,
    /// Least recently used first.
    residents: Vec<Resident>,
}

impl Model {
    fn used(&self) -> u64 {
        self.residents.iter().map(|resident| resident.bytes).sum()
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.residents.iter().position(|resident| resident.id == id)
    }

    fn touch(&mut self, position: usize) {
        let resident = self.residents.remove(position);
        self.residents.push(resident);
    }

    /// The victims, or `None` for a bypass.
    fn offer(
        &mut self,
        newcomer: Resident,
        importance: &Importance,
        pinned: &BTreeSet<u32>,
    ) -> Option<Vec<Resident>> {
        if newcomer.id >= SAMPLES || self.position(newcomer.id).is_some() || newcomer.bytes > CAPACITY_BYTES {
            return None;
        }
        let mut order = self.residents.clone();
        if self.policy == Policy::App {
            order.sort_by(|left, right| compare(left.id, right.id, importance));
        }
        let mut victims = Vec::new();
        for resident in order.into_iter().filter(|resident| !pinned.contains(&resident.id)) {
            let evicted: u64 = victims.iter().map(|victim: &Resident| victim.bytes).sum();
            if self.used() - evicted + newcomer.bytes <= CAPACITY_BYTES {
                break;
            }
            victims.push(resident);
        }
        let evicted: u64 = victims.iter().map(|victim| victim.bytes).sum();
        let fits = self.used() - evicted + newcomer.bytes <= CAPACITY_BYTES;
        let worth_it = self.policy == Policy::Lru
            || victims.iter().all(|victim| compare(victim.id, newcomer.id, importance).is_lt());
        if !fits || !worth_it {
            return None;
        }
        self.residents.retain(|resident| !victims.contains(resident));
        self.residents.push(newcomer);
        Some(victims)
    }
}

/// (score, uses, -id), lexicographically.
fn compare(left: u32, right: u32, importance: &Importance) -> std::cmp::Ordering {
    let (left, right) = (SampleId(left), SampleId(right));
    importance
        .score(left)
        .total_cmp(&importance.score(right))
        .then(importance.uses(left).cmp(&importance.uses(right)))
        .then(right.cmp(&left))
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
            model: Model { policy, residents: Vec::new() },
            importance: Importance::new(SAMPLES),
            pinned: BTreeSet::new(),
            accesses: 0,
            hits: 0,
            misses: 0,
        }
    }

    fn apply(&mut self, step: usize, op: &Op) {
        match *op {
            Op::Access(id, bytes) => {
                self.accesses += 1;
                if self.cache.get(SampleId(id)).is_some() {
                    self.hits += 1;
                    self.importance.record_hit(SampleId(id));
                    let position = self.model.position(id).unwrap();
                    self.model.touch(position);
                    let hit = self.cache.hit(SampleId(id), &self.importance).copied();
                    assert_eq!(hit, self.model.residents.last().map(|resident| resident.value));
                } else {
                    self.misses += 1;
                    assert_eq!(self.cache.hit(SampleId(id), &self.importance), None);
                    self.offer(step, id, bytes);
                }
            }
            Op::Offer(id, bytes) => self.offer(step, id, bytes),
            Op::Score(id, score) => {
                self.importance.set_score(SampleId(id), 2.5 + f32::from(score) / 4.0);
                self.cache.rescore(SampleId(id), &self.importance);
            }
            Op::Pin(id) => drop(self.pinned.insert(id)),
            Op::Unpin(id) => drop(self.pinned.remove(&id)),
            Op::Remove(id) => {
                let removed = self.model.position(id).map(|at| self.model.residents.remove(at).value);
                assert_eq!(self.cache.remove(SampleId(id)), removed);
            }
        }
        self.check();
    }

    fn offer(&mut self, step: usize, id: u32, bytes: u64) {
        let value = (id, step);
        let mut evicted = Vec::new();
        let is_pinned = |value: &Value| self.pinned.contains(&value.0);
        let admission =
            self.cache.offer(SampleId(id), bytes, value, &self.importance, is_pinned, &mut evicted);
        let unpinned_before: Vec<u32> = self
            .model
            .residents
            .iter()
            .map(|resident| resident.id)
            .filter(|id| !self.pinned.contains(id))
            .collect();
        match self.model.offer(Resident { id, bytes, value }, &self.importance, &self.pinned) {
            None => {
                assert_eq!((admission, evicted), (Admission::Bypassed(value), vec![]));
            }
            Some(victims) => {
                assert_eq!(admission, Admission::Admitted);
                let victims: Vec<_> =
                    victims.iter().map(|victim| (SampleId(victim.id), victim.value)).collect();
                assert_eq!(evicted, victims);
                if self.model.policy == Policy::App {
                    let stay = |id: &u32| !evicted.iter().any(|(victim, _)| victim.0 == *id);
                    for survivor in unpinned_before.into_iter().filter(stay) {
                        for (victim, _) in &evicted {
                            assert!(compare(victim.0, survivor, &self.importance).is_lt());
                        }
                    }
                }
            }
        }
    }

    /// Same residents with the same values; the limit holds.
    fn check(&self) {
        let mut ids: Vec<u32> = self.cache.ids().map(|id| id.0).collect();
        ids.sort_unstable();
        let mut expected: Vec<u32> = self.model.residents.iter().map(|resident| resident.id).collect();
        expected.sort_unstable();
        assert_eq!(ids, expected);
        for resident in &self.model.residents {
            assert_eq!(self.cache.get(SampleId(resident.id)), Some(&resident.value));
        }
        assert_eq!((self.cache.len(), self.cache.is_empty()), (ids.len(), ids.is_empty()));
        assert_eq!(self.cache.used_bytes(), self.model.used());
        assert!(self.cache.used_bytes() <= self.cache.capacity_bytes());
        assert_eq!(self.hits + self.misses, self.accesses);
    }
}

fn config() -> Config {
    Config { cases: 512, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn app_equals_the_model(ops in ops()) {
        let mut pair = Pair::new(Policy::App);
        ops.iter().enumerate().for_each(|(step, op)| pair.apply(step, op));
    }

    #[test]
    fn lru_equals_the_model(ops in ops()) {
        let mut pair = Pair::new(Policy::Lru);
        ops.iter().enumerate().for_each(|(step, op)| pair.apply(step, op));
    }
}
