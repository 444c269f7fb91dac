//! A doubly linked list over places, from the oldest to the newest: the order of FIFO and LRU, and of ARC's lists.

#![expect(
    clippy::indexing_slicing,
    reason = "links hold places that were inserted, and 0 for the list's ends"
)]

/// Index of the link that closes the list to a ring: its `next` is the oldest, its `previous` the newest.
const ENDS: u32 = 0;

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// The list. A place's link stands at place + 1; one linked to itself is in no list.
pub(super) struct List {
    links: Vec<Link>,
}

impl List {
    pub(super) fn new() -> Self {
        Self { links: vec![Link { previous: ENDS, next: ENDS }] }
    }

    /// Puts a place that is not in the list at the new end.
    pub(super) fn insert(&mut self, place: u32) {
        let at = place + 1;
        while self.links.len() <= at as usize {
            // Fewer links than samples, whose ids are u32.
            let own = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
            self.links.push(Link { previous: own, next: own });
        }
        let newest = self.links[ENDS as usize].previous;
        self.links[at as usize] = Link { previous: newest, next: ENDS };
        self.links[newest as usize].next = at;
        self.links[ENDS as usize].previous = at;
    }

    /// Takes a place out of the list.
    pub(super) fn remove(&mut self, place: u32) {
        let at = place + 1;
        let Link { previous, next } = self.links[at as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.links[at as usize] = Link { previous: at, next: at };
    }

    /// Moves a place of the list to the new end.
    pub(super) fn renew(&mut self, place: u32) {
        self.remove(place);
        self.insert(place);
    }

    /// Whether the place is in the list.
    pub(super) fn contains(&self, place: u32) -> bool {
        self.links.get(place as usize + 1).is_some_and(|link| link.next != place + 1)
    }

    /// Places from the oldest on.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = u32> {
        let after = |at: u32| self.links[at as usize].next.checked_sub(1);
        std::iter::successors(after(ENDS), move |place| after(place + 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_list_keeps_its_order(ops in prop::collection::vec((0..20u32, any::<bool>()), 0..100)) {
            let (mut list, mut expected) = (List::new(), Vec::new());
            for (place, renews) in ops {
                let position = expected.iter().position(|&other| other == place);
                prop_assert_eq!(list.contains(place), position.is_some());
                match position.map(|position| expected.remove(position)) {
                    None => list.insert(place),
                    Some(_) if renews => list.renew(place),
                    Some(_) => list.remove(place),
                }
                if position.is_none() || renews {
                    expected.push(place);
                }
                prop_assert_eq!(list.oldest_first().collect::<Vec<_>>(), &expected[..]);
            }
        }
    }
}
