//! How long training waits: batches in order, each computed for a while, their reads served by a virtual store.
//!
//! A batch is opened when the ring has room for it, which is when the batch [`RING_BATCHES`] before it has been
//! computed; an epoch's first batches when the epoch begins, for its plan is not known before. Its misses are read in
//! plan order. The trainer takes a batch when the one before is computed and all its reads are answered; what it
//! waits for that is stall. Prefetches are sent while the store is idle, before the next batch is opened; whoever uses one
//! waits until it is there. Time is virtual and starts at 0; hits and the filling of batches take none of it. Of batches below
//! 2 MiB a daemon's ring has room for more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::core::{PREFETCHES_MAX, RING_BATCHES};
use crate::reads::{Queues, StoreModel};

/// A store and a trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    /// Who answers reads.
    pub(super) store: StoreModel,
    /// What the trainer computes for each sample.
    pub(super) compute: Duration,
}

/// The way of batches from the store to the trainer.
pub(super) struct Pipeline {
    service: Service,
    queues: Queues<Duration>,
    /// When the trainer is done with the batches that still hold their places in the ring, oldest first.
    done: VecDeque<Duration>,
    /// When the batch that is being filled was opened.
    opened: Duration,
    /// When the last of its reads is answered.
    ready: Duration,
    /// When the trainer is done with all batches before.
    now: Duration,
    reads: u64,
    /// When the prefetches are answered that may be under way.
    prefetches: BinaryHeap<Reverse<Duration>>,
    /// When the last prefetch was sent, or the batch before was opened.
    prefetched: Duration,
    stall: Duration,
}

impl Pipeline {
    pub(super) fn new(service: Service) -> Self {
        Self {
            service,
            queues: Queues::default(),
            done: VecDeque::new(),
            opened: Duration::ZERO,
            ready: Duration::ZERO,
            now: Duration::ZERO,
            reads: 0,
            prefetches: BinaryHeap::new(),
            prefetched: Duration::ZERO,
            stall: Duration::ZERO,
        }
    }

    /// Sends a prefetch of `bytes` if the store has time for it before the batch that is being filled is opened; returns when
    /// it is answered.
    pub(super) fn prefetch(&mut self, bytes: u64) -> Option<Duration> {
        let mut at = self.queues.idle_at(&self.service.store, self.prefetched);
        while self.prefetches.len() >= PREFETCHES_MAX as usize
            && let Some(Reverse(answered)) = self.prefetches.pop()
        {
            at = at.max(answered);
        }
        if at >= self.opened {
            return None;
        }
        self.prefetched = at;
        let latency = self.service.store.latency_of(self.reads);
        self.reads += 1;
        let answered = self.queues.answer_at(&self.service.store, at, latency, bytes);
        self.prefetches.push(Reverse(answered));
        Some(answered)
    }

    /// The batch that is being filled needs a record that was prefetched and is there at `answered`.
    pub(super) fn wait_for(&mut self, answered: Duration) {
        self.ready = self.ready.max(answered);
    }

    /// The next batch is the first one whose plan is known now.
    pub(super) fn begin_epoch(&mut self) {
        self.done.clear();
        self.opened = self.now;
    }

    /// A miss of the batch that is being filled.
    pub(super) fn read(&mut self, bytes: u64) {
        let store = &self.service.store;
        let latency = store.latency_of(self.reads);
        self.reads += 1;
        let answered = self.queues.answer_at(store, self.opened, latency, bytes);
        self.ready = self.ready.max(answered);
    }

    /// All samples of the batch have been asked for: the trainer takes it, and the next is opened.
    pub(super) fn end_batch(&mut self, samples: u32) {
        let begins = self.now.max(self.ready);
        self.stall += begins - self.now;
        self.now = begins + self.service.compute.saturating_mul(samples);
        self.done.push_back(self.now);
        self.prefetched = self.prefetched.max(self.opened);
        if self.done.len() as u64 >= RING_BATCHES {
            self.opened = self.done.pop_front().unwrap_or(self.now);
        }
    }

    /// What the trainer has waited so far.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pipeline(store: &str) -> Pipeline {
        Pipeline::new(Service { store: store.parse().unwrap(), compute: MS })
    }

    /// The stall in ms of `batches` batches of 10 samples, `misses` of which are read in each, with 1 ms of compute
    /// each.
    fn stall_ms(store: &str, batches: u32, misses: u32, bytes: u64) -> f64 {
        let mut pipeline = pipeline(store);
        for _ in 0..batches {
            (0..misses).for_each(|_| pipeline.read(bytes));
            pipeline.end_batch(10);
        }
        pipeline.stall().as_secs_f64() * 1e3
    }

    fn assert_near(got: f64, expected: f64, tolerance: f64) {
        assert!((got - expected).abs() <= tolerance * expected, "{got} instead of {expected}");
    }

    #[test]
    fn nothing_read_is_nothing_waited_for() {
        assert!(stall_ms("latency=1s,depth=1", 1000, 0, 1).abs() < 1e-12);
    }

    #[test]
    fn a_store_with_too_few_slots_costs_what_it_is_slower() {
        // 10 reads of 4 ms, 2 at a time: 20 ms a batch, of which 10 are hidden behind compute.
        assert_near(stall_ms("latency=4ms,depth=2", 1000, 10, 1), 1000.0 * (20.0 - 10.0), 0.01);
        // Half of them: 10 ms a batch, all hidden but for the first batch.
        assert!(stall_ms("latency=4ms,depth=2", 1000, 5, 1) <= 13.0);
    }

    #[test]
    fn a_link_that_is_too_narrow_costs_what_it_is_slower() {
        // 10 reads of 3,000 bytes at 1 MB/s: 30 ms a batch.
        assert_near(stall_ms("latency=0ms,bandwidth=1MB", 1000, 10, 3000), 1000.0 * (30.0 - 10.0), 0.01);
    }

    #[test]
    fn the_ring_hides_latency_as_long_as_it_is_deep() {
        // Batches are asked for 8 x 10 ms ahead of the end of their compute, 70 ms ahead of its beginning.
        let first = 70.0;
        assert_near(stall_ms("latency=70ms", 1000, 10, 1), first, 1e-9);
        // 100 ms: every 8 batches take 100 + 10 ms instead of 80.
        assert_near(stall_ms("latency=100ms", 8000, 10, 1), 1000.0 * 30.0, 0.01);
    }

    #[test]
    fn an_epoch_begins_with_an_empty_ring() {
        let mut pipeline = pipeline("latency=50ms");
        for epoch in 1..=3u32 {
            pipeline.begin_epoch();
            pipeline.end_batch(10);
            for _ in 1..20 {
                pipeline.read(1);
                pipeline.end_batch(10);
            }
            // The second batch was asked for when the epoch began, which the first computes away 10 ms of.
            assert_eq!(pipeline.stall(), 40 * MS * epoch, "the first latency of each epoch is waited for");
        }
    }

    #[test]
    fn prefetches_take_the_time_in_which_the_store_is_idle() {
        let mut pipeline = pipeline("latency=4ms,depth=2");
        assert_eq!(pipeline.prefetch(1), None, "the first batch is opened at once: nothing is idle before");
        (0..RING_BATCHES).for_each(|_| pipeline.end_batch(10));
        // The ring has room again once the first batch is computed: 10 ms, in which two slots have time for three reads each.
        let answered: Vec<_> = std::iter::from_fn(|| pipeline.prefetch(1)).collect();
        assert_eq!(answered, [4, 4, 8, 8, 12, 12].map(|ms| ms * MS));
        // A read of the batch that is opened then comes behind them.
        pipeline.read(1);
        pipeline.end_batch(10);
        assert_eq!(pipeline.stall(), Duration::ZERO, "it is computed at 80 ms only");
        assert_eq!(
            pipeline.prefetch(1),
            Some(16 * MS),
            "from 12 ms on the read has one slot, the other is idle"
        );
    }

    #[test]
    fn what_is_prefetched_is_waited_for_until_it_is_there() {
        let mut pipeline = pipeline("latency=200ms,depth=1");
        (0..RING_BATCHES).for_each(|_| pipeline.end_batch(10));
        let answered = pipeline.prefetch(1);
        assert_eq!(answered, Some(200 * MS));
        pipeline.wait_for(answered.unwrap());
        pipeline.end_batch(10);
        assert_eq!(pipeline.stall(), 120 * MS, "the trainer is there at 80 ms");
    }

    #[test]
    fn latencies_that_vary_come_from_the_stores_seed() {
        let stall = |store| stall_ms(store, 100, 10, 1);
        let varied = stall("latency=lognormal:4ms:1,depth=2");
        assert!((varied - stall("latency=lognormal:4ms:1,depth=2")).abs() < 1e-12);
        assert!((varied - stall("latency=lognormal:4ms:1,depth=2,seed=1")).abs() > 1e-6);
        // The mean of a lognormal is exp(sigma²/2) of its median.
        assert_near(varied, 100.0 * (20.0 * 0.5f64.exp() - 10.0), 0.1);
    }
}
