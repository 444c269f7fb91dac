//! A rank's batches, each in a lane of its own from its opening to its release: slices of one lane
//! never overlap, so a viewer can draw them as nested ones. Pure.

use std::collections::BTreeMap;

use shade_formats::trace::{Done, Open, Served};

/// A batch that is not released yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneBatch {
    pub(super) lane: usize,
    pub(super) epoch: u32,
    pub(super) batch: u32,
    pub(super) rows: usize,
    pub(super) misses: usize,
    pub(super) opened_us: u64,
    /// When its reads were back, and when it was published.
    pub(super) done_us: Option<(u64, u64)>,
}

/// The lanes of a rank.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By the batch's number in the ring.
    batches: BTreeMap<u64, LaneBatch>,
    /// Whether a batch is in the lane.
    taken: Vec<bool>,
}

impl Lanes {
    /// Puts a batch into the first free lane. Returns the one that had its number before and was
    /// never released: the rank has a new ring.
    pub(super) fn open(&mut self, open: &Open) -> Option<LaneBatch> {
        let before = self.batches.remove(&open.seq);
        self.leave(before.as_ref());
        let free = self.taken.iter().position(|is_taken| !is_taken);
        let lane = free.unwrap_or_else(|| {
            self.taken.push(false);
            self.taken.len() - 1
        });
        self.taken.get_mut(lane).into_iter().for_each(|is_taken| *is_taken = true);
        let is_miss = |letter: &u8| Served::from_letter(*letter) == Some(Served::Miss);
        let misses = open.served.as_bytes().iter().filter(|letter| is_miss(letter)).count();
        let &Open { epoch, batch, at_us: opened_us, .. } = open;
        let rows = open.ids.len();
        self.batches
            .insert(open.seq, LaneBatch { lane, epoch, batch, rows, misses, opened_us, done_us: None });
        before
    }

    /// A batch was published.
    pub(super) fn done(&mut self, done: &Done) {
        if let Some(batch) = self.batches.get_mut(&done.seq) {
            batch.done_us = Some((done.read_us, done.at_us));
        }
    }

    /// Takes out the batches before a number, which the rank has released; `None`: all.
    pub(super) fn release(&mut self, before_seq: Option<u64>) -> Vec<LaneBatch> {
        let rest = before_seq.map_or_else(BTreeMap::new, |seq| self.batches.split_off(&seq));
        let released: Vec<_> = std::mem::replace(&mut self.batches, rest).into_values().collect();
        released.iter().for_each(|batch| self.leave(Some(batch)));
        released
    }

    fn leave(&mut self, batch: Option<&LaneBatch>) {
        let lane = batch.and_then(|batch| self.taken.get_mut(batch.lane));
        lane.into_iter().for_each(|is_taken| *is_taken = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(seq: u64) -> Open {
        Open { at_us: seq, epoch: 0, batch: 0, rank: 0, seq, ids: vec![1, 2], served: "hm".to_owned() }
    }

    #[test]
    fn a_lane_is_free_again_once_its_batch_is_released() {
        let mut lanes = Lanes::default();
        assert_eq!((lanes.open(&open(0)), lanes.open(&open(1))), (None, None));
        let of = |batches: Vec<LaneBatch>| -> Vec<_> {
            batches.into_iter().map(|batch| (batch.opened_us, batch.lane, batch.misses)).collect()
        };
        assert_eq!(of(lanes.release(Some(1))), [(0, 0, 1)]);
        assert_eq!(lanes.open(&open(2)), None);
        assert_eq!(of(lanes.release(None)), [(1, 1, 1), (2, 0, 1)]);
        assert_eq!(of(lanes.release(None)), []);
    }

    #[test]
    fn a_number_that_comes_again_is_of_a_new_ring() {
        let mut lanes = Lanes::default();
        lanes.open(&open(7));
        assert_eq!(lanes.open(&open(7)).map(|batch| batch.lane), Some(0));
        assert_eq!(lanes.release(None).len(), 1);
    }
}
