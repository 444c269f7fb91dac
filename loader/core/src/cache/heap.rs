//! An indexed min-heap over places: the order of eviction of all policies that rank residents by a
//! key.
//!
//! A node has four children. There are half as many levels as with two, so half as many nodes move,
//! and each of them writes its position to a random place in memory. Siblings lie together.
//!
//! The heap is an array of nodes. `positions` has the position of each place's node, so a changed
//! key moves in O(log n). Victims are found without changing the heap: the smallest keys are
//! visited in order from the root, through a second, small heap of the nodes whose parents were
//! visited.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::eviction::Need;
use crate::number::to_u32;

const CHILDREN: usize = 4;

/// What places are ranked by: a number of 96 bits. No two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    /// The upper 32 bits are lost.
    pub(super) const fn new(bits: u128) -> Self {
        Self(bits << u32::BITS)
    }

    pub(super) const fn bits(self) -> u128 {
        self.0 >> u32::BITS
    }
}

/// A key and below it the place, compared as one number. It has 16 bytes, so that siblings fill a
/// cache line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Node(u128);

impl Node {
    fn new(key: Key, place: u32) -> Self {
        Self(key.0 | u128::from(place))
    }

    fn key(self) -> Key {
        Key(self.0 & !u128::from(u32::MAX))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower bits are the place")]
    fn place(self) -> u32 {
        self.0 as u32
    }
}

/// The heap, and the space in which victims are looked for. The smallest key is evicted first.
pub(super) struct Heap {
    nodes: Vec<Node>,
    /// By place; stale where the place is not in the heap.
    positions: Vec<u32>,
    frontier: BinaryHeap<Reverse<(Node, usize)>>,
}

impl Heap {
    /// An empty heap, with room for places below `places`.
    pub(super) fn for_places(places: usize) -> Self {
        let (nodes, positions) = (Vec::with_capacity(places), Vec::with_capacity(places));
        Self { nodes, positions, frontier: BinaryHeap::new() }
    }

    /// Adds a place that is not in the heap.
    pub(super) fn insert(&mut self, place: u32, key: Key) {
        let end = self.nodes.len();
        if self.positions.len() <= place as usize {
            self.positions.resize(place as usize + 1, u32::MAX);
        }
        self.nodes.push(Node::new(key, place));
        self.settle(end);
    }

    /// Takes a place out; nothing happens if it is not in the heap.
    pub(super) fn remove(&mut self, place: u32) {
        let Some(position) = self.position(place) else { return };
        self.nodes.swap_remove(position);
        if position < self.nodes.len() {
            self.settle(position);
        }
    }

    /// The key of a place; `None` if it is not in the heap.
    pub(super) fn key(&self, place: u32) -> Option<Key> {
        self.position(place).map(|position| self.nodes[position].key())
    }

    /// Changes the key of a place; nothing happens if it is not in the heap.
    pub(super) fn rekey(&mut self, place: u32, key: Key) {
        let Some(position) = self.position(place) else { return };
        self.nodes[position] = Node::new(key, place);
        self.settle(position);
    }

    /// Collects into `victims` the places of the smallest keys, as few as make the bytes that are
    /// needed, skipping pinned ones. Returns false if there are not enough, or if one of them has a
    /// key that is not below `newcomer`; `victims` then has all before it. A newcomer without a key
    /// displaces any.
    pub(super) fn victims(
        &mut self,
        newcomer: Option<Key>,
        Need { bytes: mut missing, most }: Need,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        if missing == 0 {
            return true;
        }
        self.frontier.clear();
        self.frontier.extend(self.nodes.first().map(|root| Reverse((*root, 0))));
        loop {
            let Some(Reverse((node, position))) = self.frontier.pop() else { return false };
            if newcomer.is_some_and(|newcomer| node.key() >= newcomer) {
                return false;
            }
            let place = node.place();
            if !is_pinned(place) {
                victims.push(place);
                missing = missing.saturating_sub(bytes(place));
                if missing == 0 {
                    return true;
                }
                if victims.len() >= most {
                    return false;
                }
            }
            let children = self.children(position);
            self.frontier.extend(children.map(|child| Reverse((self.nodes[child], child))));
        }
    }

    fn position(&self, place: u32) -> Option<usize> {
        let position = *self.positions.get(place as usize)? as usize;
        self.nodes.get(position).filter(|node| node.place() == place).map(|_| position)
    }

    /// Positions of the nodes below the one at `position`.
    fn children(&self, position: usize) -> Range<usize> {
        let first = CHILDREN * position + 1;
        first.min(self.nodes.len())..(first + CHILDREN).min(self.nodes.len())
    }

    /// Moves the node at `position` up or down to where its key belongs.
    fn settle(&mut self, mut position: usize) {
        let node = self.nodes[position];
        while position > 0 {
            let parent = (position - 1) / CHILDREN;
            if node >= self.nodes[parent] {
                break;
            }
            self.put(position, self.nodes[parent]);
            position = parent;
        }
        while let Some(child) = self.children(position).min_by_key(|&child| self.nodes[child]) {
            let smallest = self.nodes[child];
            if node <= smallest {
                break;
            }
            self.put(position, smallest);
            position = child;
        }
        self.put(position, node);
    }

    fn put(&mut self, position: usize, node: Node) {
        self.nodes[position] = node;
        // A heap holds fewer nodes than there are samples, whose ids are u32.
        self.positions[node.place() as usize] = to_u32(position);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PLACES: u32 = 40;

    /// Few different worths, so that places decide often.
    fn key(worth: u8, place: u32) -> Key {
        Key::new(u128::from(worth) << 32 | u128::from(!place))
    }

    /// Parents are below their children, and the nodes are those of `expected`, each where
    /// `positions` says.
    fn check(heap: &Heap, expected: &BTreeMap<u32, Key>) {
        for (position, node) in heap.nodes.iter().enumerate() {
            assert_eq!(heap.positions[node.place() as usize] as usize, position);
            assert!(position == 0 || heap.nodes[(position - 1) / CHILDREN] < *node);
        }
        for place in 0..PLACES {
            assert_eq!(heap.key(place), expected.get(&place).copied());
        }
        assert_eq!(heap.nodes.len(), expected.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_heap_keeps_its_order(ops in prop::collection::vec((0..PLACES, any::<Option<u8>>()), 0..200)) {
            let (mut heap, mut expected) = (Heap::for_places(0), BTreeMap::new());
            for (place, worth) in ops {
                match worth.map(|worth| key(worth % 8, place)) {
                    None => {
                        heap.remove(place);
                        expected.remove(&place);
                    }
                    Some(key) if expected.insert(place, key).is_some() => heap.rekey(place, key),
                    Some(key) => heap.insert(place, key),
                }
                check(&heap, &expected);
            }
            // Asking for more than there is visits all of them, smallest first.
            let mut victims = Vec::new();
            prop_assert!(!heap.victims(None, Need::of(u64::MAX), |_| 1, |_| false, &mut victims));
            let mut sorted: Vec<u32> = expected.keys().copied().collect();
            sorted.sort_by_key(|place| expected[place]);
            prop_assert_eq!(&victims, &sorted);
            // A limit cuts the search short, and the next one goes on where the smallest is left.
            let most = sorted.len() / 2;
            victims.clear();
            let is_enough = heap.victims(None, Need { bytes: u64::MAX, most }, |_| 1, |_| false, &mut victims);
            prop_assert!(!is_enough && (most == 0 || victims == sorted[..most]));
            // A newcomer displaces those below it only, and they do if they are enough.
            let newcomer = key(4, PLACES / 2);
            let below = sorted.iter().filter(|place| expected[place] < newcomer).count();
            victims.clear();
            prop_assert!(heap.victims(Some(newcomer), Need::of(below as u64), |_| 1, |_| false, &mut victims));
            prop_assert_eq!(&victims, &sorted[..below]);
            prop_assert!(!heap.victims(Some(newcomer), Need::of(below as u64 + 1), |_| 1, |_| false, &mut victims));
        }
    }
}
