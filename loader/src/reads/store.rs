//! A simulated store: holds each completion back until a store with this latency and bandwidth would have
//! answered.
//!
//! Behind either engine, so that what it slows down are real reads. The request travels, then its bytes pass
//! one link after those of the reads submitted before: `answer = max(submitted + delay, link free) + bytes /
//! bandwidth`.

use super::ReadFault;
use super::config::StoreModel;
use super::op::{Completion, ReadOp};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When the store answers, read by read in the order of submission.
pub(super) struct Link {
    model: StoreModel,
    free_at: Option<Instant>,
}

impl Link {
    pub(super) fn new(model: StoreModel) -> Self {
        Self { model, free_at: None }
    }

    /// When a read of `len` bytes submitted at `now` is answered.
    pub(super) fn answer_at(&mut self, now: Instant, len: u32) -> Instant {
        let arrived = now + self.model.delay;
        let Some(rate) = self.model.bandwidth_bytes_per_s else { return arrived };
        let transfer_ns = u64::from(len).saturating_mul(1_000_000_000) / rate.max(1);
        let start = self.free_at.map_or(arrived, |free_at| free_at.max(arrived));
        let end = start + Duration::from_nanos(transfer_ns);
        self.free_at = Some(end);
        end
    }
}

/// A completion on its way through the simulated store.
pub(super) struct Held {
    pub(super) op: ReadOp,
    pub(super) outcome: Result<(), ReadFault>,
    pub(super) submitted: Instant,
    pub(super) due: Instant,
}

/// The thread that holds completions. It ends when its sender is gone, letting go of what it still holds at
/// once.
pub(super) struct Store {
    thread: Option<JoinHandle<()>>,
}

impl Store {
    pub(super) fn start(completions: Sender<Completion>) -> io::Result<(Self, Sender<Held>)> {
        // As many as reads in flight: the submitter's depth bounds it.
        let (sender, receiver) = crossbeam_channel::unbounded();
        let thread = std::thread::Builder::new()
            .name("shade-store".into())
            .spawn(move || hold(&receiver, &completions))?;
        Ok((Self { thread: Some(thread) }, sender))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hold(receiver: &Receiver<Held>, completions: &Sender<Completion>) {
    let mut held: BinaryHeap<Reverse<ByDue>> = BinaryHeap::new();
    let release = |held: Held| {
        let Held { op, outcome, submitted, .. } = held;
        let _ = completions.send(Completion { op, outcome, latency: submitted.elapsed() });
    };
    loop {
        let next = match held.peek() {
            Some(Reverse(first)) => receiver.recv_deadline(first.0.due),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(completion) => held.push(Reverse(ByDue(completion))),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(Reverse(first)) = held.pop() {
                    release(first.0);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                held.into_sorted_vec()
                    .into_iter()
                    .rev()
                    .for_each(|Reverse(completion)| release(completion.0));
                return;
            }
        }
    }
}

/// Orders completions by when they are due.
struct ByDue(Held);

impl Ord for ByDue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.due.cmp(&other.0.due)
    }
}

impl PartialOrd for ByDue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByDue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByDue {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Arena;
    use shade_formats::{SampleId, ShardId};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn without_bandwidth_every_read_takes_the_delay() {
        let mut link = Link::new(StoreModel { delay: 2 * MS, bandwidth_bytes_per_s: None });
        let now = Instant::now();
        assert_eq!(link.answer_at(now, 1 << 30), now + 2 * MS);
        assert_eq!(link.answer_at(now, 1), now + 2 * MS);
    }

    #[test]
    fn transfers_follow_each_other_and_an_idle_link_saves_nothing_up() {
        let mut link = Link::new(StoreModel { delay: 2 * MS, bandwidth_bytes_per_s: Some(1_000_000) });
        let now = Instant::now();
        assert_eq!(link.answer_at(now, 1000), now + 3 * MS);
        assert_eq!(link.answer_at(now, 5000), now + 8 * MS);
        let later = now + 100 * MS;
        assert_eq!(link.answer_at(later, 1000), later + 3 * MS);
    }

    #[test]
    fn completions_leave_in_the_order_in_which_they_are_due_and_all_leave_at_the_end() {
        let (arena, mut list) = Arena::create(64 * 512, 512).unwrap();
        let (sender, completions) = crossbeam_channel::unbounded();
        let (store, held) = Store::start(sender).unwrap();
        let now = Instant::now();
        let far = Duration::from_secs(3600);
        for (sample, due) in [(0, 3 * far), (1, far), (2, now.elapsed()), (3, 2 * far)] {
            let blocks = list.take(1).unwrap();
            let op =
                ReadOp { sample: SampleId(sample), shard: ShardId(0), offset: 0, len: 1, crc32c: 0, blocks };
            held.send(Held { op, outcome: Ok(()), submitted: now, due: now + due }).unwrap();
        }
        assert_eq!(completions.recv().unwrap().op.sample, SampleId(2), "the only one that is due");
        drop(held);
        drop(store);
        let rest: Vec<u32> = completions.iter().map(|completion| completion.op.sample.0).collect();
        assert_eq!(rest, [1, 3, 0]);
        drop(arena);
    }
}
