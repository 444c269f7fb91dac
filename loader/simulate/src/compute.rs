//! The compute time of recorded trainers: the time in which a rank had a batch and did not wait.
//!
//! A rank computes a batch until it releases the batch. It begins when the batch is published or,
//! if that is later, when the batch before is released. The median over batches leaves out pauses.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A rank's batches that are not released yet.
#[derive(Clone, Debug, Default)]
struct Rank {
    /// Number, rows, and the time of publication.
    batches: VecDeque<(u64, usize, Option<u64>)>,
    released_us: u64,
}

/// Compute times of the trainers.
#[derive(Clone, Debug, Default)]
pub(super) struct ComputeTimes {
    ranks: HashMap<u32, Rank>,
    /// By batch: nanoseconds for a sample.
    sample_ns: Vec<u64>,
}

impl ComputeTimes {
    /// Another job begins, whose batches are numbered from 0.
    pub(super) fn begin(&mut self) {
        self.ranks.clear();
    }

    /// A batch of `rows` samples is opened.
    pub(super) fn opened(&mut self, rank: u32, seq: u64, rows: usize) {
        let rank = self.ranks.entry(rank).or_default();
        if rank.batches.back().is_some_and(|last| last.0 >= seq) {
            // It has attached anew.
            rank.batches.clear();
        }
        rank.batches.push_back((seq, rows, None));
    }

    /// The batch is published.
    pub(super) fn published(&mut self, rank: u32, seq: u64, at_us: u64) {
        let Some(rank) = self.ranks.get_mut(&rank) else { return };
        if let Some(batch) = rank.batches.iter_mut().find(|batch| batch.0 == seq) {
            batch.2 = Some(at_us);
        }
    }

    /// The rank has released all batches before `before_seq`.
    pub(super) fn released(&mut self, rank: u32, before_seq: u64, at_us: u64) {
        let Some(rank) = self.ranks.get_mut(&rank) else { return };
        let mut rows = 0;
        let mut from_us = None;
        while let Some((_, of, published)) = rank.batches.pop_front_if(|batch| batch.0 < before_seq) {
            rows += of;
            from_us = from_us.or(published);
        }
        if let Some(from_us) = from_us
            && rows > 0
        {
            let took_us = at_us.saturating_sub(from_us.max(rank.released_us));
            self.sample_ns.push(took_us.saturating_mul(1000) / rows as u64);
        }
        rank.released_us = at_us;
    }

    /// The median compute time of a sample, for one trainer that does the work of `world_size`
    /// ranks; `None` if it is unknown or 0.
    pub(super) fn median(mut self, world_size: u32) -> Option<Duration> {
        let middle = self.sample_ns.len() / 2;
        if self.sample_ns.is_empty() {
            return None;
        }
        let (_, median, _) = self.sample_ns.select_nth_unstable(middle);
        let ns = *median / u64::from(world_size.max(1));
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_pauses_are_not_counted() {
        let mut times = ComputeTimes::default();
        let mut now_us = 0;
        for seq in 0..9 {
            times.opened(0, seq, 10);
            // The store takes 5 ms, the trainer 1 ms, and once it validates.
            now_us += 5000;
            times.published(0, seq, now_us);
            now_us += if seq == 4 { 900_000 } else { 1000 };
            times.released(0, seq + 1, now_us);
        }
        assert_eq!(times.clone().median(1), Some(Duration::from_micros(100)));
        assert_eq!(times.median(2), Some(Duration::from_micros(50)));
    }

    #[test]
    fn batches_that_wait_for_the_trainer_count_from_its_last_release() {
        let mut times = ComputeTimes::default();
        (0..4).for_each(|seq| times.opened(3, seq, 100));
        (0..4).for_each(|seq| times.published(3, seq, seq));
        times.released(3, 1, 2000);
        // Two at once.
        times.released(3, 3, 6000);
        times.released(3, 4, 8000);
        assert_eq!(times.sample_ns, [20_000, 20_000, 20_000]);
        assert_eq!(ComputeTimes::default().median(1), None);
    }
}
