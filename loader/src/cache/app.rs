//! The order of eviction by worth: an indexed binary min-heap. APP's worth is (score, uses, -id) (ALGORITHMS 3); lookahead's is
//! the same for samples whose next use is not known, and above all of those, the sooner the more, for the others (4).
//!
//! The heap is an array of nodes; `positions` tells where in it a place's node is, so a changed key moves in O(log n).
//! Victims are found without changing the heap: its smallest keys are visited in order from the root, through a second,
//! small heap of the nodes whose parents were visited.

#![expect(clippy::indexing_slicing, reason = "positions are those of nodes in the heap")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shade_formats::SampleId;

use crate::importance::Importance;

/// What a sample is worth: the smallest key is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Score bits above uses: scores are positive, and positive floats order as their bits do and leave the top bit free.
    /// With it set: a use is known, and the rest counts down with its position.
    worth: u64,
    id: Reverse<SampleId>,
}

impl Key {
    /// The key of a sample with its next use, as a position of the plan, if that is known.
    ///
    /// Distances shrink alike as the plan goes on, so positions order as they do; and the expected distance L + N/λ of a use
    /// that is not known is above that of any that is and falls as the score grows. So keys need no clock.
    pub(super) fn of(id: SampleId, next: Option<u32>, importance: &Importance) -> Self {
        let worth = match next {
            Some(position) => 1 << 63 | u64::from(u32::MAX - position),
            None => u64::from(importance.score(id).to_bits()) << 32 | u64::from(importance.uses(id)),
        };
        Self { worth, id: Reverse(id) }
    }
}

#[derive(Clone, Copy)]
struct Node {
    key: Key,
    place: u32,
}

/// The heap, and the space in which victims are looked for.
#[derive(Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
    /// By place; stale where the place is not in the heap.
    positions: Vec<u32>,
    frontier: BinaryHeap<Reverse<(Key, usize)>>,
}

impl Heap {
    pub(super) fn insert(&mut self, place: u32, key: Key) {
        let end = self.nodes.len();
        if self.positions.len() <= place as usize {
            self.positions.resize(place as usize + 1, u32::MAX);
        }
        self.nodes.push(Node { key, place });
        self.settle(end);
    }

    pub(super) fn remove(&mut self, place: u32) {
        let Some(position) = self.position(place) else { return };
        self.nodes.swap_remove(position);
        if position < self.nodes.len() {
            self.settle(position);
        }
    }

    /// Changes the key of a place.
    pub(super) fn rekey(&mut self, place: u32, key: Key) {
        let Some(position) = self.position(place) else { return };
        self.nodes[position].key = key;
        self.settle(position);
    }

    /// Collects into `victims` the places of the smallest keys, as few as make `missing` bytes, skipping pinned ones.
    /// Returns false, and then `victims` means nothing, if that takes one whose key is not below `newcomer`.
    pub(super) fn victims(
        &mut self,
        newcomer: Key,
        mut missing: u64,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        self.frontier.clear();
        self.frontier.extend(self.nodes.first().map(|root| Reverse((root.key, 0))));
        while missing > 0 {
            let Some(Reverse((key, position))) = self.frontier.pop() else { return false };
            if key >= newcomer {
                return false;
            }
            let place = self.nodes[position].place;
            if !is_pinned(place) {
                victims.push(place);
                missing = missing.saturating_sub(bytes(place));
            }
            for child in [2 * position + 1, 2 * position + 2] {
                self.frontier.extend(self.nodes.get(child).map(|node| Reverse((node.key, child))));
            }
        }
        true
    }

    fn position(&self, place: u32) -> Option<usize> {
        let position = *self.positions.get(place as usize)? as usize;
        self.nodes.get(position).filter(|node| node.place == place).map(|_| position)
    }

    /// Moves the node at `position` up or down to where its key belongs.
    fn settle(&mut self, mut position: usize) {
        let node = self.nodes[position];
        while position > 0 && node.key < self.nodes[(position - 1) / 2].key {
            self.put(position, self.nodes[(position - 1) / 2]);
            position = (position - 1) / 2;
        }
        loop {
            let left = 2 * position + 1;
            let Some(mut smallest) = self.nodes.get(left).copied() else { break };
            let mut child = left;
            if let Some(right) = self.nodes.get(left + 1).filter(|right| right.key < smallest.key) {
                (smallest, child) = (*right, left + 1);
            }
            if node.key <= smallest.key {
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
        self.positions[node.place as usize] = u32::try_from(position).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(worth: u8, place: u32) -> Key {
        Key { worth: u64::from(worth), id: Reverse(SampleId(place)) }
    }

    /// Parents are below their children, and the nodes are those of `expected`, each where `positions` says.
    fn check(heap: &Heap, expected: &BTreeMap<u32, Key>) {
        for (position, node) in heap.nodes.iter().enumerate() {
            assert_eq!(heap.positions[node.place as usize] as usize, position);
            assert_eq!(Some(&node.key), expected.get(&node.place));
            assert!(position == 0 || heap.nodes[(position - 1) / 2].key < node.key);
        }
        assert_eq!(heap.nodes.len(), expected.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_heap_keeps_its_order(ops in prop::collection::vec((0..40u32, any::<Option<u8>>()), 0..200)) {
            let (mut heap, mut expected) = (Heap::default(), BTreeMap::new());
            for (place, worth) in ops {
                match worth.map(|worth| key(worth, place)) {
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
            let newcomer = Key { worth: u64::MAX, id: Reverse(SampleId(0)) };
            prop_assert!(!heap.victims(newcomer, u64::MAX, |_| 1, |_| false, &mut victims));
            let mut sorted: Vec<u32> = expected.keys().copied().collect();
            sorted.sort_by_key(|place| expected[place]);
            prop_assert_eq!(victims, sorted);
        }
    }
}
