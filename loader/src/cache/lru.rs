//! LRU's order of eviction: a doubly linked list over the places, from the least to the most recently used.

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
pub(super) struct Recency {
    links: Vec<Link>,
}

impl Recency {
    pub(super) fn new() -> Self {
        Self { links: vec![Link { previous: ENDS, next: ENDS }] }
    }

    /// Puts a new place at the recent end.
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

    /// Takes a place out.
    pub(super) fn remove(&mut self, place: u32) {
        let Link { previous, next } = self.links[place as usize + 1];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    /// Moves a place to the recent end.
    pub(super) fn touch(&mut self, place: u32) {
        self.remove(place);
        self.insert(place);
    }

    /// Places from the least recently used on.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = u32> {
        let mut at = ENDS;
        std::iter::from_fn(move || {
            at = self.links[at as usize].next;
            at.checked_sub(1)
        })
    }
}
