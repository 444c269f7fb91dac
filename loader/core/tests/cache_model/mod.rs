//! A plain model of the cache: a list of residents, ranked anew for every offer, and ARC's ghosts
//! as lists.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fixture fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use shade_core::importance::Importance;
use shade_formats::SampleId;
use shade_job::Policy;

/// Value of a resident: the sample and which admission it came with.
pub(crate) type Value = (u32, usize);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resident {
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) value: Value,
    admitted: usize,
    /// The place that became free last before it was admitted.
    place: usize,
    touched: usize,
    frequency: usize,
    /// ARC: of T2.
    is_in_t2: bool,
    /// Quiver and iCACHE: the epoch has used it, or nobody will.
    is_used: bool,
    /// iCACHE: of the high region.
    is_high: bool,
}

/// The rank of eviction: the smallest leaves first. Numbers are compared one after the other; all
/// are exact.
type Rank = [f64; 4];

pub(crate) struct Model {
    pub(crate) policy: Policy,
    capacity_bytes: u64,
    samples: u32,
    residents: Vec<Resident>,
    /// Places of residents that have left, the latest last.
    free_places: Vec<usize>,
    ghosts: Ghosts,
    /// iCACHE: samples of low importance.
    low: BTreeSet<u32>,
    /// lookahead: sample and position of its next use.
    pub(crate) next_uses: BTreeMap<u32, u32>,
    /// Hits and admissions so far.
    time: usize,
}

/// ARC's ghosts, (id, bytes) from the earliest on, and its p.
#[derive(Clone, Default)]
struct Ghosts {
    b1: Vec<(u32, u64)>,
    b2: Vec<(u32, u64)>,
    p: f64,
}

impl Model {
    pub(crate) fn new(policy: Policy, capacity_bytes: u64, samples: u32) -> Self {
        let ghosts = Ghosts::default();
        let next_uses = BTreeMap::new();
        Self {
            policy,
            capacity_bytes,
            samples,
            residents: Vec::new(),
            free_places: Vec::new(),
            ghosts,
            low: BTreeSet::new(),
            next_uses,
            time: 0,
        }
    }

    pub(crate) fn residents(&self) -> &[Resident] {
        &self.residents
    }

    pub(crate) fn used(&self) -> u64 {
        bytes(&self.residents)
    }

    pub(crate) fn hit(&mut self, id: u32) -> Value {
        self.time += 1;
        let resident = self.residents.iter_mut().find(|resident| resident.id == id).unwrap();
        resident.touched = self.time;
        resident.frequency += 1;
        resident.is_in_t2 = true;
        resident.is_used = true;
        resident.value
    }

    pub(crate) fn begin_epoch(&mut self, low: BTreeSet<u32>, useless: &BTreeSet<u32>) {
        self.low = low;
        self.residents.iter_mut().for_each(|resident| resident.is_used = false);
        if !matches!(self.policy, Policy::Quiver | Policy::Icache) {
            return;
        }
        // As if the epoch had used them before all others.
        self.residents.sort_by_key(|resident| resident.touched);
        for resident in self.residents.iter_mut().filter(|resident| useless.contains(&resident.id)) {
            self.time += 1;
            (resident.is_used, resident.touched) = (true, self.time);
        }
    }

    /// Whether samples may be exchanged for one another by this policy, and this sample is among
    /// them.
    pub(crate) fn may_be_exchanged(&self, id: u32) -> bool {
        match self.policy {
            Policy::Quiver => true,
            Policy::Icache => self.low.contains(&id),
            _ => false,
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Value> {
        let position = self.residents.iter().position(|resident| resident.id == id)?;
        let resident = self.residents.remove(position);
        self.free_places.push(resident.place);
        Some(resident.value)
    }

    pub(crate) fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.ghosts.p = self.ghosts.p.min(capacity_bytes as f64);
    }

    /// Evicts unpinned residents that a smaller cache has no room for. Returns them in the order in
    /// which they leave.
    pub(crate) fn evict_surplus(&mut self, importance: &Importance, pinned: &BTreeSet<u32>) -> Vec<Resident> {
        let victims = match self.policy {
            Policy::Arc => self.surplus_arc(pinned),
            Policy::Icache => {
                let low_limit = self.capacity_bytes / 10;
                let mut victims = self.surplus_of(
                    self.capacity_bytes - low_limit,
                    |resident| resident.is_high,
                    importance,
                    pinned,
                );
                victims.extend(self.surplus_of(low_limit, |resident| !resident.is_high, importance, pinned));
                victims
            }
            _ => self.surplus_of(self.capacity_bytes, |_| true, importance, pinned),
        };
        self.residents.retain(|resident| !victims.contains(resident));
        self.free_places.extend(victims.iter().map(|victim| victim.place));
        victims
    }

    fn surplus_of(
        &self,
        limit: u64,
        is_of: impl Fn(&Resident) -> bool,
        importance: &Importance,
        pinned: &BTreeSet<u32>,
    ) -> Vec<Resident> {
        let mut order: Vec<Resident> =
            self.residents.iter().filter(|resident| is_of(resident)).cloned().collect();
        let used = bytes(&order);
        order.retain(|resident| !pinned.contains(&resident.id));
        // Last come those that wait for their use (Quiver), first those that came last (static).
        let rank = |resident: &Resident| -> (bool, Rank) {
            let waits = match self.policy {
                Policy::Quiver => !resident.is_used,
                Policy::Icache => !resident.is_high && !resident.is_used,
                _ => false,
            };
            match self.policy {
                Policy::Static => (waits, [-(resident.place as f64), 0.0, 0.0, 0.0]),
                _ => (waits, self.rank(resident, importance)),
            }
        };
        order.sort_by(|left, right| rank(left).partial_cmp(&rank(right)).unwrap());
        let fits = |count: &usize| used - bytes(&order[..*count]) <= limit;
        let count = (0..order.len()).find(fits).unwrap_or(order.len());
        order.truncate(count);
        order
    }

    /// The victims in the order in which they leave, or `None` for a bypass.
    pub(crate) fn offer(
        &mut self,
        (id, bytes_offered): (u32, u64),
        value: Value,
        importance: &Importance,
        pinned: &BTreeSet<u32>,
    ) -> Option<Vec<Resident>> {
        let is_resident = self.residents.iter().any(|resident| resident.id == id);
        if id >= self.samples || is_resident || bytes_offered > self.capacity_bytes {
            return None;
        }
        let newcomer = Resident {
            id,
            bytes: bytes_offered,
            value,
            admitted: self.time + 1,
            place: 0,
            touched: self.time + 1,
            frequency: 1,
            is_in_t2: false,
            is_used: true,
            is_high: !self.low.contains(&id),
        };
        let victims = match self.policy {
            Policy::Arc => return self.offer_arc(newcomer, pinned),
            Policy::Icache | Policy::Quiver => self.of_region(&newcomer, importance, pinned)?,
            Policy::Static if self.used() + bytes_offered > self.capacity_bytes => return None,
            _ => self.smallest_unpinned(bytes_offered, importance, pinned)?,
        };
        // iCACHE's high region has looked already, and is stricter: equal scores are not displaced.
        let is_below = |victim| {
            self.policy == Policy::Icache || self.rank(victim, importance) < self.rank(&newcomer, importance)
        };
        if !victims.iter().all(is_below) {
            return None;
        }
        self.residents.retain(|resident| !victims.contains(resident));
        self.free_places.extend(victims.iter().map(|victim| victim.place));
        let place = self.free_places.pop().unwrap_or(self.residents.len());
        self.residents.push(Resident { place, ..newcomer });
        self.time += 1;
        Some(victims)
    }

    /// As few unpinned residents as make room, the smallest rank first; `None` if all are too few.
    fn smallest_unpinned(
        &self,
        bytes_offered: u64,
        importance: &Importance,
        pinned: &BTreeSet<u32>,
    ) -> Option<Vec<Resident>> {
        let mut order = self.residents.clone();
        order.retain(|resident| !pinned.contains(&resident.id));
        order.sort_by(|left, right| {
            self.rank(left, importance).partial_cmp(&self.rank(right, importance)).unwrap()
        });
        let fits =
            |count: &usize| self.used() - bytes(&order[..*count]) + bytes_offered <= self.capacity_bytes;
        let count = (0..=order.len()).find(fits)?;
        Some(order[..count].to_vec())
    }

    /// The victims in the newcomer's region; Quiver has one region, which is low.
    fn of_region(
        &self,
        newcomer: &Resident,
        importance: &Importance,
        pinned: &BTreeSet<u32>,
    ) -> Option<Vec<Resident>> {
        let has_regions = self.policy == Policy::Icache;
        let is_high = has_regions && newcomer.is_high;
        let low_limit = if has_regions { self.capacity_bytes / 10 } else { self.capacity_bytes };
        let limit = if is_high { self.capacity_bytes - low_limit } else { low_limit };
        let mut region = self.residents.clone();
        region.retain(|resident| !has_regions || resident.is_high == newcomer.is_high);
        let used = bytes(&region);
        region.retain(|resident| !pinned.contains(&resident.id));
        let score = |resident: &Resident| importance.score(SampleId(resident.id));
        if is_high {
            region.retain(|resident| score(resident) < score(newcomer));
        } else {
            region.retain(|resident| resident.is_used);
        }
        region.sort_by(|left, right| {
            self.rank(left, importance).partial_cmp(&self.rank(right, importance)).unwrap()
        });
        let fits = |count: &usize| used - bytes(&region[..*count]) + newcomer.bytes <= limit;
        let count = (0..=region.len()).find(fits)?;
        Some(region[..count].to_vec())
    }

    /// The policy as a formula. A newcomer is ranked as well: where it must not matter, its rank is
    /// the greatest.
    pub(crate) fn rank(&self, resident: &Resident, importance: &Importance) -> Rank {
        let id = SampleId(resident.id);
        let (score, uses) = (f64::from(importance.score(id)), f64::from(importance.uses(id)));
        let is_newcomer = f64::from(u8::from(resident.admitted > self.time));
        match self.policy {
            Policy::App => [score, uses, -f64::from(id.0), 0.0],
            Policy::Lookahead => match self.next_uses.get(&id.0) {
                Some(&next) => [1.0, -f64::from(next), -f64::from(id.0), 0.0],
                None => [0.0, score, uses, -f64::from(id.0)],
            },
            Policy::TopC => [score, -f64::from(id.0), 0.0, 0.0],
            Policy::Lfu => [is_newcomer, resident.frequency as f64, resident.touched as f64, 0.0],
            Policy::Lru => [resident.touched as f64, 0.0, 0.0, 0.0],
            Policy::Fifo => [resident.admitted as f64, 0.0, 0.0, 0.0],
            Policy::Icache if resident.is_high => [score, -f64::from(id.0), 0.0, 0.0],
            Policy::Quiver | Policy::Icache => [resident.touched as f64, 0.0, 0.0, 0.0],
            Policy::Arc | Policy::Static => [is_newcomer, 0.0, 0.0, 0.0],
        }
    }

    /// ARC's cases II to IV on copies, which are kept if enough unpinned bytes were found.
    fn offer_arc(&mut self, mut newcomer: Resident, pinned: &BTreeSet<u32>) -> Option<Vec<Resident>> {
        let c = self.capacity_bytes;
        let mut residents = self.residents.clone();
        residents.sort_by_key(|resident| resident.touched);
        let Ghosts { mut b1, mut b2, mut p } = self.ghosts.clone();
        let was_in = |ghosts: &[(u32, u64)]| ghosts.iter().any(|ghost| ghost.0 == newcomer.id);
        let (was_in_b1, was_in_b2) = (was_in(&b1), was_in(&b2));
        // No list counts as less than a byte, so that there is no division by 0.
        let size = |ghosts: &[(u32, u64)]| ghosts.iter().map(|ghost| ghost.1).sum::<u64>().max(1) as f64;
        let step = newcomer.bytes as f64;
        if was_in_b1 {
            p = (p + f64::max(1.0, size(&b2) / size(&b1)) * step).min(c as f64);
        } else if was_in_b2 {
            p = (p - f64::max(1.0, size(&b1) / size(&b2)) * step).max(0.0);
        }
        let mut victims = Vec::new();
        while bytes(&residents) + newcomer.bytes > c {
            let is_free = |resident: &Resident| !pinned.contains(&resident.id);
            let oldest = |t2: bool| residents.iter().position(|r| r.is_in_t2 == t2 && is_free(r));
            let t1: u64 = residents.iter().filter(|r| !r.is_in_t2).map(|r| r.bytes).sum();
            let t1_gives_way = t1 as f64 > p || (was_in_b2 && t1 as f64 == p);
            let position = oldest(!t1_gives_way).or(oldest(t1_gives_way))?;
            let victim = residents.remove(position);
            let ghosts = if victim.is_in_t2 { &mut b2 } else { &mut b1 };
            ghosts.push((victim.id, victim.bytes));
            victims.push(victim);
        }
        b1.retain(|ghost| ghost.0 != newcomer.id);
        b2.retain(|ghost| ghost.0 != newcomer.id);
        newcomer.is_in_t2 = was_in_b1 || was_in_b2;
        residents.push(newcomer);
        let sum = |ghosts: &[(u32, u64)]| ghosts.iter().map(|ghost| ghost.1).sum::<u64>();
        let t1: u64 = residents.iter().filter(|r| !r.is_in_t2).map(|r| r.bytes).sum();
        while t1 + sum(&b1) > c && !b1.is_empty() {
            b1.remove(0);
        }
        while bytes(&residents) + sum(&b1) + sum(&b2) > 2 * c && !b2.is_empty() {
            b2.remove(0);
        }
        (self.residents, self.ghosts) = (residents, Ghosts { b1, b2, p });
        self.time += 1;
        Some(victims)
    }

    /// REPLACE, until what is left fits. The victims become ghosts.
    fn surplus_arc(&mut self, pinned: &BTreeSet<u32>) -> Vec<Resident> {
        let c = self.capacity_bytes;
        let mut left = self.residents.clone();
        left.sort_by_key(|resident| resident.touched);
        let Ghosts { b1, b2, p } = &mut self.ghosts;
        let mut victims = Vec::new();
        let t1 = |left: &[Resident]| left.iter().filter(|r| !r.is_in_t2).map(|r| r.bytes).sum::<u64>();
        while bytes(&left) > c {
            let oldest = |t2| left.iter().position(|r| r.is_in_t2 == t2 && !pinned.contains(&r.id));
            let t1_gives_way = t1(&left) as f64 > *p;
            let Some(position) = oldest(!t1_gives_way).or(oldest(t1_gives_way)) else { break };
            let victim = left.remove(position);
            let ghosts = if victim.is_in_t2 { &mut *b2 } else { &mut *b1 };
            ghosts.push((victim.id, victim.bytes));
            victims.push(victim);
        }
        let sum = |ghosts: &[(u32, u64)]| ghosts.iter().map(|ghost| ghost.1).sum::<u64>();
        while t1(&left) + sum(b1) > c && !b1.is_empty() {
            b1.remove(0);
        }
        while bytes(&left) + sum(b1) + sum(b2) > 2 * c && !b2.is_empty() {
            b2.remove(0);
        }
        victims
    }
}

fn bytes(residents: &[Resident]) -> u64 {
    residents.iter().map(|resident| resident.bytes).sum()
}
