//! The store that all nodes share: each node's reads pass its own depth, the store's slots and
//! link, and the node's link. So does what its tier brings, except for depth and store.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use shade_core::{Completion, Event, ReadOp, TierOrder};
use shade_job::StoreModel;
use shade_reads::depth::DepthController;

use crate::engine::tier_servers::{TierServers, later};
use crate::store::{NoMemory, VirtualStore};

/// What stores the nodes have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StorageModel {
    /// The store of all.
    pub(crate) store: StoreModel,
    /// Rate of each node's link, bytes a second.
    pub(crate) nic: Option<u64>,
    /// Each node's tier.
    pub(crate) tier: StoreModel,
    /// Whether each node looks for the depth of its reads, as a daemon does. Else it sends all that
    /// its core orders.
    pub(crate) finds_depth: bool,
}

/// Store, links, and how many reads each node has in flight.
pub(crate) struct Storage {
    store: VirtualStore,
    gates: Vec<Gate>,
    tiers: TierServers,
    links: Option<Links>,
}

impl Storage {
    /// The stores, before any read.
    pub(crate) fn new(model: StorageModel, nodes: usize) -> Self {
        let mut storage = Self {
            store: VirtualStore::new(model.store),
            gates: (0..nodes).map(|_| Gate::new(model.finds_depth)).collect(),
            tiers: TierServers::new(model.tier, nodes),
            links: model.nic.map(|rate| Links::new(rate, nodes)),
        };
        storage.share(nodes);
        storage
    }

    /// Sets how many nodes read from the store.
    pub(crate) fn share(&mut self, nodes: usize) {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let controllers = self.gates.iter_mut().filter_map(|gate| gate.controller.as_mut());
        controllers.for_each(|controller| controller.share(nodes));
    }

    /// A node orders a read, of one record or of neighbours.
    pub(crate) fn order(&mut self, now_ns: u64, node: usize, read: Vec<ReadOp<()>>) {
        let gate = &mut self.gates[node];
        gate.queued.push_back(read);
        gate.send(now_ns, node, &mut self.store);
    }

    /// A node gives its tier an order.
    pub(crate) fn order_from_tier(&mut self, now_ns: u64, node: usize, order: TierOrder<NoMemory>) {
        self.tiers.order(now_ns, node, order);
    }

    /// Time of the next answer, or when it has passed the node's link.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let arrives = self.links.as_ref().and_then(Links::next_ns);
        self.store.next_ns().into_iter().chain(self.tiers.next_ns()).chain(arrives).min()
    }

    /// What reaches the nodes at this time, by node, in its order.
    pub(crate) fn answer(&mut self, now_ns: u64) -> BTreeMap<usize, Vec<Event<NoMemory>>> {
        let mut arrived = BTreeMap::<usize, Vec<Event<NoMemory>>>::new();
        let mut answers = Vec::new();
        while let Some((node, record)) = self.store.answer(now_ns) {
            answers.push((node, (record.op.len, Event::Read(record))));
        }
        while let Some(answer) = self.tiers.answer(now_ns) {
            answers.push(answer);
        }
        for (node, (len, answer)) in answers {
            match &mut self.links {
                Some(links) => links.carry(now_ns, node, len, answer),
                None => arrived.entry(node).or_default().push(answer),
            }
        }
        while let Some((node, answer)) = self.links.as_mut().and_then(|links| links.arrive(now_ns)) {
            arrived.entry(node).or_default().push(answer);
        }
        arrived.into_iter().map(|(node, answers)| (node, self.take_in(now_ns, node, answers))).collect()
    }

    /// How many reads of the node may be in flight; `None` if there is no limit.
    pub(crate) fn depth(&self, node: usize) -> Option<u32> {
        Some(self.gates[node].controller.as_ref()?.depth())
    }

    /// A node's reads end, and others begin in their places.
    fn take_in(
        &mut self,
        now_ns: u64,
        node: usize,
        mut events: Vec<Event<NoMemory>>,
    ) -> Vec<Event<NoMemory>> {
        let before = self.depth(node);
        let gate = &mut self.gates[node];
        for event in &events {
            if let Event::Read(record) = event {
                gate.leave(now_ns, record);
            }
        }
        gate.send(now_ns, node, &mut self.store);
        events.extend(self.depth(node).filter(|&depth| Some(depth) != before).map(Event::Depth));
        events
    }
}

/// The reads of one node: as many are in flight as its controller finds best.
#[derive(Debug)]
struct Gate {
    /// `None` lets all reads through.
    controller: Option<DepthController>,
    in_flight: u32,
    /// Reads in flight when the last one began.
    level: u32,
    queued: VecDeque<Vec<ReadOp<()>>>,
    /// By flight: records that a read of neighbours has not brought yet.
    missing: HashMap<u64, usize>,
}

impl Gate {
    fn new(finds_depth: bool) -> Self {
        let controller = finds_depth.then(DepthController::new);
        Self { controller, in_flight: 0, level: 0, queued: VecDeque::new(), missing: HashMap::new() }
    }

    fn is_open(&self) -> bool {
        self.controller.as_ref().is_none_or(|controller| self.in_flight < controller.depth())
    }

    fn send(&mut self, now_ns: u64, node: usize, store: &mut VirtualStore) {
        if let Some(controller) = &mut self.controller
            && self.in_flight == 0
            && !self.queued.is_empty()
        {
            controller.begins(now_ns);
        }
        while self.is_open() {
            let Some(ops) = self.queued.pop_front() else { return };
            self.in_flight += 1;
            self.level = self.in_flight;
            if let [first, _, ..] = ops.as_slice() {
                self.missing.insert(first.flight, ops.len());
            }
            store.send(now_ns, node, ops);
        }
    }

    /// A record has come.
    fn leave(&mut self, now_ns: u64, record: &Completion<()>) {
        let flight = record.op.flight;
        if let Some(missing) = self.missing.get_mut(&flight) {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.missing.remove(&flight);
        }
        self.in_flight -= 1;
        let latency_ns = u64::try_from(record.latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(controller) = &mut self.controller {
            controller.completed(self.level, latency_ns, now_ns);
        }
    }
}

/// The nodes' own links: each carries one record after the other, as store and tier answer.
struct Links {
    bytes_per_s: u64,
    /// By node: when its link is free.
    free_ns: Vec<u64>,
    /// By time of arrival and number of the record.
    on_the_way: BTreeMap<(u64, u64), (usize, Event<NoMemory>)>,
    carried: u64,
}

impl Links {
    fn new(bytes_per_s: u64, nodes: usize) -> Self {
        let bytes_per_s = bytes_per_s.max(1);
        Self { bytes_per_s, free_ns: vec![0; nodes], on_the_way: BTreeMap::new(), carried: 0 }
    }

    fn next_ns(&self) -> Option<u64> {
        self.on_the_way.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    fn carry(&mut self, now_ns: u64, node: usize, len: u32, answer: Event<NoMemory>) {
        let free_ns = &mut self.free_ns[node];
        let takes_ns = u128::from(len) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        *free_ns = now_ns.max(*free_ns).saturating_add(takes_ns);
        let answer = later(answer, Duration::from_nanos(*free_ns - now_ns));
        self.carried += 1;
        self.on_the_way.insert((*free_ns, self.carried), (node, answer));
    }

    fn arrive(&mut self, now_ns: u64) -> Option<(usize, Event<NoMemory>)> {
        let first = self.on_the_way.first_entry().filter(|first| first.key().0 <= now_ns)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use shade_core::TierEvent;
    use shade_formats::{SampleId, ShardId};

    use super::*;

    const MS: u64 = 1_000_000;

    fn op(flight: u64, offset: u64, len: u32) -> ReadOp<()> {
        let (sample, shard) = (SampleId(0), ShardId(0));
        ReadOp { flight, sample, shard, offset, len, crc32c: Some(0), recheck: false, blocks: () }
    }

    /// When each node's records come: (ms, node, flight).
    fn answers(storage: &mut Storage) -> Vec<(u64, usize, u64)> {
        let mut all = Vec::new();
        while let Some(now_ns) = storage.next_ns() {
            for (node, events) in storage.answer(now_ns) {
                let flights = events.iter().filter_map(|event| match event {
                    Event::Read(record) => Some(record.op.flight),
                    _ => None,
                });
                all.extend(flights.map(|flight| (now_ns / MS, node, flight)));
            }
        }
        all
    }

    fn storage(model: &str, nodes: usize, nic: Option<u64>) -> Storage {
        let (store, tier) = (model.parse().unwrap(), "latency=1ms".parse().unwrap());
        Storage::new(StorageModel { store, nic, tier, finds_depth: true }, nodes)
    }

    #[test]
    fn nodes_share_the_stores_slots() {
        let mut storage = storage("latency=2ms,depth=2", 2, None);
        for node in 0..2 {
            (0..2).for_each(|flight| storage.order(0, node, vec![op(flight, 0, 1)]));
        }
        assert_eq!(answers(&mut storage), [(2, 0, 0), (2, 0, 1), (4, 1, 0), (4, 1, 1)]);
    }

    #[test]
    fn each_node_has_a_link_of_its_own() {
        // A record of 1,000 bytes takes 1 ms of it.
        let mut storage = storage("latency=2ms", 2, Some(1_000_000));
        for node in 0..2 {
            (0..2).for_each(|flight| storage.order(0, node, vec![op(flight, 0, 1000)]));
        }
        assert_eq!(answers(&mut storage), [(3, 0, 0), (3, 1, 0), (4, 0, 1), (4, 1, 1)]);
    }

    #[test]
    fn what_a_tier_brings_takes_no_read_of_the_store_and_passes_the_link() {
        let mut storage = storage("latency=2ms,depth=1", 1, Some(1_000_000));
        storage.order(0, 0, vec![op(0, 0, 1000)]);
        storage.order_from_tier(0, 0, TierOrder::Get(vec![op(1, 0, 1000), op(2, 0, 1000)]));
        let mut seen = Vec::new();
        while let Some(now_ns) = storage.next_ns() {
            for event in storage.answer(now_ns).remove(&0).unwrap_or_default() {
                if let Event::Tier(TierEvent::Got { op, latency, .. }) = event {
                    seen.push((now_ns / MS, op.flight));
                    assert_eq!(u128::from(now_ns), latency.as_nanos());
                }
            }
        }
        // At 1 ms both are there. The store's record comes while the first is on the link.
        assert_eq!((seen, storage.gates[0].in_flight), (vec![(2, 1), (3, 2)], 0));
    }

    #[test]
    fn no_more_reads_are_in_flight_than_the_controller_says() {
        let mut storage = storage("latency=2ms", 1, None);
        let first = DepthController::new().depth();
        (0..2 * u64::from(first)).for_each(|flight| storage.order(0, 0, vec![op(flight, 0, 1)]));
        let at_first = answers(&mut storage).iter().filter(|(ms, ..)| *ms == 2).count();
        assert_eq!(at_first, first as usize);
    }

    #[test]
    fn neighbours_are_one_read() {
        let mut storage = storage("latency=2ms,depth=1", 1, None);
        storage.order(0, 0, vec![op(0, 0, 1), op(0, 512, 1)]);
        storage.order(0, 0, vec![op(1, 0, 1)]);
        assert_eq!(storage.gates[0].in_flight, 2);
        assert_eq!(answers(&mut storage), [(2, 0, 0), (2, 0, 0), (4, 0, 1)]);
        assert!(storage.gates[0].in_flight == 0 && storage.gates[0].missing.is_empty());
    }
}
