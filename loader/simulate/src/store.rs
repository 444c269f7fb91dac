//! What a simulated core has in place of a dataset, of memory and of a store: lengths, nothing, and
//! answers that come when the model of `reads` has them come.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use shade_core::{Completion, ReadOp};
use shade_core::{Memory, Samples};
use shade_formats::index::{Codec, Entry, Media, Shard};
use shade_formats::{ContentId, SampleId, ShardId};
use shade_reads::{Queues, StoreModel};

use crate::sizes::Sizes;

/// Records lie so far apart that none comes along with its neighbour.
const APART_BITS: u32 = 32;

/// A store with a trainer behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    /// What answers reads.
    pub(super) store: StoreModel,
    /// What the trainer computes for each sample.
    pub(super) compute: Duration,
}

/// A dataset of which only the samples' sizes are known.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) samples: u32,
    pub(super) sizes: Sizes,
}

impl Samples for Dataset {
    fn len(&self) -> u32 {
        self.samples
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        (sample.0 < self.samples).then(|| {
            let stored_len = self.sizes.stored(sample);
            Entry {
                shard: ShardId(0),
                offset: u64::from(sample.0) << APART_BITS,
                stored_len,
                raw_len: stored_len,
                crc32c: 0,
                label: 0,
                width: 1,
                height: 1,
                codec: Codec::None,
                media: Media::Other,
            }
        })
    }

    fn path(&self, _sample: SampleId) -> Option<&[u8]> {
        None
    }

    fn shard(&self, _shard: ShardId) -> Option<Shard<'_>> {
        None
    }

    fn class_count(&self) -> u32 {
        1
    }

    fn content_id(&self) -> ContentId {
        ContentId(0)
    }
}

/// Memory of which there is always enough, as nothing is written to it. The cache keeps its limit
/// by itself.
#[derive(Debug)]
pub(super) struct NoMemory;

impl Memory for NoMemory {
    type Room = ();
    type Record = ();
    type Lent = ();

    fn take(&mut self, _bytes: u64) -> Option<()> {
        Some(())
    }

    fn give(&mut self, (): ()) {}

    fn release(&mut self, (): ()) {}

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn total_bytes(&self) -> u64 {
        u64::MAX
    }

    fn record((): (), _checked: bool) {}

    /// The cache alone: rows are filled at once, so none pins a record.
    fn holders((): &()) -> usize {
        1
    }

    fn is_checked((): &()) -> bool {
        true
    }

    fn is_same((): &(), (): &()) -> bool {
        true
    }

    fn lend((): ()) {}

    fn lent((): &()) -> &() {
        &()
    }

    fn take_back((): ()) {}
}

/// A read that will be answered.
#[derive(Debug)]
struct Answer {
    at_ns: u64,
    /// How many were sent before it.
    number: u64,
    took: Duration,
    op: ReadOp<()>,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    /// The greatest is the first to be answered.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

/// A store that answers when its model says.
#[derive(Debug)]
pub(super) struct Store {
    model: StoreModel,
    queues: Queues<Duration>,
    sent: u64,
    waiting: BinaryHeap<Answer>,
}

impl Store {
    pub(super) fn new(model: StoreModel) -> Self {
        Self { model, queues: Queues::default(), sent: 0, waiting: BinaryHeap::new() }
    }

    /// A read is sent.
    pub(super) fn send(&mut self, now_ns: u64, op: ReadOp<()>) {
        let now = Duration::from_nanos(now_ns);
        let latency = self.model.latency_of(self.sent);
        let at = self.queues.answer_at(&self.model, now, latency, u64::from(op.len));
        let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.waiting.push(Answer { at_ns, number: self.sent, took: at.saturating_sub(now), op });
        self.sent += 1;
    }

    /// When the next answer comes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.peek().map(|answer| answer.at_ns)
    }

    /// The next answer that has come by now.
    pub(super) fn answer(&mut self, now_ns: u64) -> Option<Completion<()>> {
        self.waiting.peek().filter(|answer| answer.at_ns <= now_ns)?;
        self.waiting.pop().map(|answer| answered(answer.op, answer.took))
    }
}

/// A read that brought its record.
pub(super) fn answered(op: ReadOp<()>, latency: Duration) -> Completion<()> {
    Completion { op, outcome: Ok(()), checked: true, latency }
}
