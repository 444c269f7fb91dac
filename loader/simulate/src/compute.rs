//! The compute time of recorded trainers: the time in which a rank had a batch and did not wait.
//!
//! A rank has a batch until it releases the batch. It begins when the batch is published or, if
//! that is later, when the batch before is released. Many trainers keep a batch until they have the
//! next one, so they wait meanwhile, too. The daemon's counters of waits are recorded now and then,
//! and what they grew by, between two records in equal parts, is no compute time. The median over
//! batches leaves out pauses.
#![warn(clippy::indexing_slicing)]

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A rank's batches that are not released yet.
#[derive(Clone, Debug, Default)]
struct Rank {
    /// Number, rows, and the time of publication.
    batches: VecDeque<(u64, usize, Option<u64>)>,
    released_us: u64,
    waits: Waits,
    had: Vec<Had>,
}

/// Batches that a rank had from one time to another.
#[derive(Clone, Copy, Debug)]
struct Had {
    from_us: u64,
    until_us: u64,
    rows: usize,
}

/// How long a rank had waited, at the times of looks at its counters.
#[derive(Clone, Debug, Default)]
struct Waits {
    /// Time of the look, and all waits until then, in microseconds.
    looks: Vec<(u64, u64)>,
    /// The counters of the last look: time since the rank attached, and waits in it.
    last: (u64, u64),
}

impl Waits {
    fn look(&mut self, at_us: u64, attached_us: u64, waited_us: u64) {
        // One that has attached anew counts from 0.
        let before_us = if attached_us >= self.last.0 { self.last.1 } else { 0 };
        let so_far_us = self.looks.last().map_or(0, |look| look.1);
        self.looks.push((at_us, so_far_us + waited_us.saturating_sub(before_us)));
        self.last = (attached_us, waited_us);
    }

    /// Waits until a time, as far as looks tell.
    fn until(&self, at_us: u64) -> u64 {
        let next = self.looks.partition_point(|&(look_us, _)| look_us < at_us);
        let before = next.checked_sub(1).and_then(|at| self.looks.get(at));
        match (before, self.looks.get(next)) {
            (Some(&(from, waited)), Some(&(to, then))) => {
                let part =
                    u128::from(then - waited) * u128::from(at_us - from) / u128::from((to - from).max(1));
                // A part of a u64.
                waited + u64::try_from(part).unwrap_or(u64::MAX)
            }
            // Before the first look nothing is known, and nothing after the last.
            (Some(&(_, waited)), None) | (None, Some(&(_, waited))) => waited,
            (None, None) => 0,
        }
    }
}

/// Compute times of the trainers.
#[derive(Clone, Debug, Default)]
pub(super) struct ComputeTimes {
    ranks: HashMap<u32, Rank>,
    /// By batch of the jobs before: nanoseconds for a sample.
    sample_ns: Vec<u64>,
}

impl ComputeTimes {
    /// Another job begins, whose batches are numbered from 0.
    pub(super) fn begin(&mut self) {
        let ranks = std::mem::take(&mut self.ranks);
        self.sample_ns.extend(ranks.values().flat_map(Rank::sample_ns));
    }

    /// A look at a rank's counters: how long it is attached, and how much of that it has waited.
    pub(super) fn looked(&mut self, rank: u32, at_us: u64, attached_us: u64, waited_us: u64) {
        self.ranks.entry(rank).or_default().waits.look(at_us, attached_us, waited_us);
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
            rank.had.push(Had { from_us: from_us.max(rank.released_us), until_us: at_us, rows });
        }
        rank.released_us = at_us;
    }

    /// The median compute time of a sample, for one trainer that does the work of these `ranks`;
    /// `None` if it is unknown or 0.
    pub(super) fn median(mut self, ranks: u32) -> Option<Duration> {
        self.begin();
        let middle = self.sample_ns.len() / 2;
        if self.sample_ns.is_empty() {
            return None;
        }
        let (_, median, _) = self.sample_ns.select_nth_unstable(middle);
        let ns = *median / u64::from(ranks.max(1));
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

impl Rank {
    /// Nanoseconds for a sample, by batch.
    fn sample_ns(&self) -> impl Iterator<Item = u64> {
        self.had.iter().map(|&Had { from_us, until_us, rows }| {
            let waited_us = self.waits.until(until_us).saturating_sub(self.waits.until(from_us));
            until_us.saturating_sub(from_us).saturating_sub(waited_us).saturating_mul(1000) / rows as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_that_keeps_its_batch_until_the_next_one_comes_waits_with_it() {
        for looks in [true, false] {
            let mut times = ComputeTimes::default();
            let (mut now_us, mut waited_us) = (0, 0);
            for seq in 0..200 {
                times.opened(0, seq, 10);
                // The store takes 5 ms, and then the trainer 1 ms.
                now_us += 5000;
                waited_us += 5000;
                times.published(0, seq, now_us);
                times.released(0, seq, now_us);
                now_us += 1000;
                if looks && seq % 40 == 0 {
                    times.looked(0, now_us, now_us, waited_us);
                }
            }
            let expected = if looks { 100 } else { 600 };
            assert_eq!(times.median(1), Some(Duration::from_micros(expected)));
        }
    }

    #[test]
    fn a_rank_that_attaches_anew_has_waited_before() {
        let mut waits = Waits::default();
        waits.look(100, 100, 40);
        waits.look(200, 200, 90);
        waits.look(300, 50, 10);
        assert_eq!([0, 100, 150, 200, 300, 900].map(|at| waits.until(at)), [40, 40, 65, 90, 100, 100]);
    }

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
        times.begin();
        assert_eq!(times.sample_ns, [20_000, 20_000, 20_000]);
        assert_eq!(ComputeTimes::default().median(1), None);
    }
}
