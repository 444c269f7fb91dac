//! Queues of places, each from the oldest to the newest: the order of FIFO and LRU, and of ARC's lists.
//!
//! A queue is a log: a place that comes is written at its end, one that leaves or is renewed leaves its old entry behind, and
//! entries that are left behind are passed over and now and then swept out. Beside a linked list, whose neighbours lie
//! anywhere in memory, this touches one random cache line for each change instead of four.

#![expect(
    clippy::indexing_slicing,
    reason = "entries hold places that were inserted, positions are of entries"
)]

/// Entries of a log before sweeping is worth a thought.
const SWEEP_MIN: usize = 64;

/// In no queue.
const NONE: u32 = u32::MAX;

/// Where a place stands.
#[derive(Clone, Copy)]
struct At {
    /// `NONE` or below the number of queues.
    queue: u32,
    /// Of its entry in the queue's log.
    position: u32,
}

/// One queue's log.
#[derive(Default)]
struct Log {
    entries: Vec<u32>,
    /// Position of the oldest entry that counts; the log's length if none does.
    oldest: usize,
    /// Entries that count.
    len: usize,
}

/// `N` queues; a place is in one of them at most.
pub(super) struct Queues<const N: usize> {
    /// By place.
    at: Vec<At>,
    logs: [Log; N],
}

impl<const N: usize> Default for Queues<N> {
    fn default() -> Self {
        Self { at: Vec::new(), logs: std::array::from_fn(|_| Log::default()) }
    }
}

impl<const N: usize> Queues<N> {
    /// Puts a place that is in no queue at the new end of `queue`.
    pub(super) fn insert(&mut self, queue: usize, place: u32) {
        self.renew(queue, place);
    }

    /// Moves a place to the new end of `queue`, and says which queue it was in before.
    pub(super) fn renew(&mut self, queue: usize, place: u32) -> Option<usize> {
        self.sweep(queue);
        if self.at.len() <= place as usize {
            self.at.resize(place as usize + 1, At { queue: NONE, position: 0 });
        }
        let log = &mut self.logs[queue];
        let at = At { queue: number(queue), position: number(log.entries.len()) };
        log.entries.push(place);
        log.len += 1;
        let before = std::mem::replace(&mut self.at[place as usize], at);
        self.leave(before)
    }

    /// Takes a place out of the queue that it is in, and says which that was.
    pub(super) fn remove(&mut self, place: u32) -> Option<usize> {
        let at = self.at.get_mut(place as usize)?;
        let before = std::mem::replace(at, At { queue: NONE, ..*at });
        self.leave(before)
    }

    /// Takes note that the entry at `before` counts no more.
    fn leave(&mut self, before: At) -> Option<usize> {
        let log = self.logs.get_mut(before.queue as usize)?;
        log.len -= 1;
        if before.position as usize == log.oldest {
            let rest = log.entries[log.oldest..].iter().zip(log.oldest..);
            let left_behind =
                |&(&place, position): &(&u32, usize)| !is_at(&self.at, place, before.queue, position);
            log.oldest += rest.take_while(left_behind).count();
        }
        Some(before.queue as usize)
    }

    /// The queue that a place is in.
    pub(super) fn queue_of(&self, place: u32) -> Option<usize> {
        let at = self.at.get(place as usize)?;
        (at.queue != NONE).then_some(at.queue as usize)
    }

    /// The places of a queue from the oldest on.
    pub(super) fn oldest_first(&self, queue: usize) -> impl Iterator<Item = u32> {
        let log = &self.logs[queue];
        let entries = (log.oldest..).zip(&log.entries[log.oldest..]);
        entries
            .filter(move |&(position, &place)| is_at(&self.at, place, number(queue), position))
            .map(|(_, &place)| place)
    }

    /// Drops the entries that do not count, once they are as many as the others: so each entry is looked at twice at most.
    fn sweep(&mut self, queue: usize) {
        let log = &mut self.logs[queue];
        let full = (2 * log.len).max(SWEEP_MIN).min(u32::MAX as usize);
        if log.entries.len() < full {
            return;
        }
        let mut swept = 0;
        for position in log.oldest..log.entries.len() {
            let place = log.entries[position];
            let counts = is_at(&self.at, place, number(queue), position);
            // No branch: which entries count follows no pattern.
            let at = &mut self.at[place as usize];
            at.position = if counts { number(swept) } else { at.position };
            log.entries[swept] = place;
            swept += usize::from(counts);
        }
        log.entries.truncate(swept);
        log.oldest = 0;
    }
}

/// Whether the entry at `position` is where the place stands now.
fn is_at(at: &[At], place: u32, queue: u32, position: usize) -> bool {
    let at = at[place as usize];
    at.queue == queue && at.position as usize == position
}

/// Queues are few, and a log has fewer entries than u32 counts.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_queues_keep_their_orders(ops in prop::collection::vec((0..20u32, 0..2usize, any::<bool>()), 0..500)) {
            let mut queues = Queues::<2>::default();
            let mut expected: [Vec<u32>; 2] = Default::default();
            for (place, queue, renews) in ops {
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
                    prop_assert!(queues.logs[queue].entries.len() <= SWEEP_MIN.max(2 * 20), "swept");
                }
            }
            prop_assert_eq!(queues.remove(20), None);
        }
    }
}
