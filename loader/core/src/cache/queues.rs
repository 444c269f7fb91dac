//! Queues of places, each from the oldest to the newest: the order of `lru`, `fifo` and `quiver`,
//! and of ARC's lists.
//!
//! A queue is a log. A place that comes is written at its end. A place that leaves or is renewed
//! leaves a hole where its entry was. Holes are passed over, and swept out now and then. A linked
//! list has its neighbours anywhere in memory: it touches four random cache lines for each change,
//! a log touches two.
//!
//! Logs do not count their places. A renewal would write the count of a log that is known only once
//! the place's line has come from memory, and the next read of a count would wait for that.

use super::eviction::Need;
use crate::number::to_u32;

/// A log with fewer entries, holes included, is never swept.
const SWEEP_MIN: usize = 64;

/// In a log: a hole.
const NONE: u32 = u32::MAX;
/// In no queue.
const NOWHERE: u8 = u8::MAX;

/// Where a place stands: 5 bytes.
#[derive(Clone, Copy)]
#[repr(Rust, packed)]
struct At {
    /// `NOWHERE` or below the number of queues.
    queue: u8,
    /// Position of its entry in the queue's log.
    position: u32,
}

/// One queue's log.
#[derive(Default)]
struct Log {
    /// Places and holes.
    entries: Vec<u32>,
    /// Position of the oldest place; the log's length if there is none.
    oldest: usize,
    /// Number of entries at which it is swept.
    full: usize,
}

/// `N` queues; a place is in one of them at most.
pub(super) struct Queues<const N: usize> {
    /// By place.
    at: Vec<At>,
    logs: [Log; N],
}

impl<const N: usize> Queues<N> {
    /// Empty queues, with room for places below `places`.
    pub(super) fn for_places(places: usize) -> Self {
        Self { at: Vec::with_capacity(places), logs: std::array::from_fn(|_| Log::default()) }
    }

    /// Puts a place that is in no queue at the new end of `queue`.
    #[inline(always)]
    pub(super) fn insert(&mut self, queue: usize, place: u32) {
        if self.at.len() <= place as usize {
            self.at.resize(place as usize + 1, At { queue: NOWHERE, position: 0 });
        }
        self.at[place as usize] = self.push(queue, place);
    }

    /// Moves a place to the new end of `queue`, and says which queue it was in before.
    #[inline(always)]
    pub(super) fn renew(&mut self, queue: usize, place: u32) -> Option<usize> {
        let at = self.push(queue, place);
        let before = std::mem::replace(&mut self.at[place as usize], at);
        self.leave(before)
    }

    /// Moves all places of queue `from`, in their order, to the new end of `queue`.
    pub(super) fn append(&mut self, queue: usize, from: usize) {
        let log = std::mem::take(&mut self.logs[from]);
        for &place in log.entries[log.oldest..].iter().filter(|&&place| place != NONE) {
            self.at[place as usize] = self.push(queue, place);
        }
    }

    /// Writes a place at the end of a log.
    #[inline(always)]
    fn push(&mut self, queue: usize, place: u32) -> At {
        if self.logs[queue].entries.len() >= self.logs[queue].full {
            self.sweep(queue);
        }
        let log = &mut self.logs[queue];
        let at = At { queue: u8::try_from(queue).unwrap_or(NOWHERE), position: to_u32(log.entries.len()) };
        log.entries.push(place);
        at
    }

    /// Takes a place out of the queue that it is in, and says which that was.
    #[inline(always)]
    pub(super) fn remove(&mut self, place: u32) -> Option<usize> {
        let at = self.at.get_mut(place as usize)?;
        let before = std::mem::replace(at, At { queue: NOWHERE, ..*at });
        self.leave(before)
    }

    /// Leaves a hole where a place was, and says in which queue.
    #[inline(always)]
    fn leave(&mut self, before: At) -> Option<usize> {
        let log = self.logs.get_mut(usize::from(before.queue))?;
        let position = before.position as usize;
        log.entries[position] = NONE;
        if position == log.oldest {
            let rest = &log.entries[position..];
            log.oldest += rest.iter().take_while(|&&place| place == NONE).count();
        }
        Some(usize::from(before.queue))
    }

    /// The queue that a place is in.
    pub(super) fn queue_of(&self, place: u32) -> Option<usize> {
        let at = self.at.get(place as usize)?;
        (at.queue != NOWHERE).then_some(usize::from(at.queue))
    }

    /// Whether no place is in `queue`.
    pub(super) fn is_empty(&self, queue: usize) -> bool {
        let log = &self.logs[queue];
        log.oldest == log.entries.len()
    }

    /// The places of a queue from the oldest on.
    pub(super) fn oldest_first(&self, queue: usize) -> impl Iterator<Item = u32> {
        let log = &self.logs[queue];
        log.entries[log.oldest..].iter().copied().filter(|&place| place != NONE)
    }

    /// Collects the oldest places of a queue that are not pinned until they make the bytes that are
    /// needed. Returns false if they do not.
    pub(super) fn oldest_unpinned(
        &self,
        queue: usize,
        Need { bytes: mut missing, most }: Need,
        bytes: impl Fn(u32) -> u64,
        is_pinned: impl Fn(u32) -> bool,
        victims: &mut Vec<u32>,
    ) -> bool {
        let mut unpinned = self.oldest_first(queue).filter(|&place| !is_pinned(place));
        while missing > 0 {
            let next = if victims.len() < most { unpinned.next() } else { None };
            let Some(place) = next else { return false };
            victims.push(place);
            missing = missing.saturating_sub(bytes(place));
        }
        true
    }

    /// Drops the holes of a log that is twice as long as after the last sweep. So it looks at no
    /// more than two entries for each place that came since.
    #[cold]
    fn sweep(&mut self, queue: usize) {
        let log = &mut self.logs[queue];
        let mut swept = 0;
        for position in log.oldest..log.entries.len() {
            // No branch: where the holes are follows no pattern.
            let place = log.entries[position];
            log.entries[swept] = place;
            swept += usize::from(place != NONE);
        }
        log.entries.truncate(swept);
        log.oldest = 0;
        log.full = (2 * swept).clamp(SWEEP_MIN, u32::MAX as usize);
        for (position, &place) in log.entries.iter().enumerate() {
            self.at[place as usize].position = to_u32(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_queues_keep_their_orders(ops in prop::collection::vec((0..21u32, 0..2usize, any::<bool>()), 0..500)) {
            let mut queues = Queues::<2>::for_places(0);
            let mut expected: [Vec<u32>; 2] = Default::default();
            for (place, queue, renews) in ops {
                if place == 20 {
                    queues.append(queue, 1 - queue);
                    let mut moved = std::mem::take(&mut expected[1 - queue]);
                    expected[queue].append(&mut moved);
                    continue;
                }
                let before = expected.iter().position(|places| places.contains(&place));
                prop_assert_eq!(queues.queue_of(place), before);
                for places in &mut expected {
                    places.retain(|&other| other != place);
                }
                match before {
                    None => queues.insert(queue, place),
                    Some(_) if renews => prop_assert_eq!(queues.renew(queue, place), before),
                    Some(_) => prop_assert_eq!(queues.remove(place), before),
                }
                if before.is_none() || renews {
                    expected[queue].push(place);
                }
                for (queue, places) in expected.iter().enumerate() {
                    prop_assert_eq!(&queues.oldest_first(queue).collect::<Vec<_>>(), places);
                    prop_assert_eq!(queues.is_empty(queue), places.is_empty());
                    prop_assert!(queues.logs[queue].entries.len() <= SWEEP_MIN.max(2 * 20), "swept");
                }
            }
            prop_assert_eq!(queues.remove(21), None);
        }
    }
}
