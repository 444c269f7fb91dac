//! A simulated core's dataset, memory and store: lengths, nothing, and answers at the times of the
//! model of `reads`.

use std::collections::BTreeMap;
use std::time::Duration;

use shade_core::plan::{Strata, StrataError};
use shade_core::{Completion, FillOrder, Filled, Memory, ReadOp, Samples};
use shade_formats::index::{Codec, Entry, Media, Shard};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::{ContentId, Geometry, SampleId, ShardId};
use shade_job::StoreModel;
use shade_reads::{Queues, latency_of};

use crate::sizes::Sizes;

/// Distance of two records: too far for one read.
const APART_BITS: u32 = 32;
/// Bytes of a record's header in its shard.
const HEADER_BYTES: u64 = SHARD_ALIGN_BYTES;

/// A dataset with nothing but the samples' sizes and labels.
#[derive(Debug)]
pub(crate) struct SizesOnly {
    pub(crate) samples: u32,
    pub(crate) sizes: Sizes,
    /// By sample; empty if all are in one class.
    pub(crate) labels: Vec<u32>,
    /// By sample: where its record lies. Empty if no two are close enough for one read.
    pub(crate) places: Vec<(ShardId, u64)>,
    /// The strata of the whole dataset, where these are the samples of some of them.
    pub(crate) strata: Option<Strata>,
}

impl SizesOnly {
    /// Some of the samples, numbered anew, and the strata that they are of.
    pub(crate) fn part(&self, samples: &[u32], strata: Strata) -> Self {
        fn of<T: Copy>(all: &[T], samples: &[u32]) -> Vec<T> {
            samples.iter().filter_map(|&id| all.get(id as usize)).copied().collect()
        }
        Self {
            samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
            sizes: self.sizes.part(samples),
            labels: of(&self.labels, samples),
            places: of(&self.places, samples),
            strata: Some(strata),
        }
    }
}

/// Places of records that lie in one shard, by their ids.
pub(crate) fn in_one_shard(sizes: &Sizes, samples: u32) -> Vec<(ShardId, u64)> {
    let mut end = 0u64;
    let mut place = |id| {
        let offset = end + HEADER_BYTES;
        end = (offset + u64::from(sizes.stored(id))).next_multiple_of(SHARD_ALIGN_BYTES);
        (ShardId(0), offset)
    };
    (0..samples).map(SampleId).map(&mut place).collect()
}

impl Samples for SizesOnly {
    fn len(&self) -> u32 {
        self.samples
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        (sample.0 < self.samples).then(|| {
            let stored_len = self.sizes.stored(sample);
            let apart = (ShardId(0), u64::from(sample.0) << APART_BITS);
            let (shard, offset) = self.places.get(sample.index()).copied().unwrap_or(apart);
            Entry {
                shard,
                offset,
                stored_len,
                raw_len: stored_len,
                crc32c: Some(0),
                label: self.labels.get(sample.index()).copied().unwrap_or(0),
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
        self.labels.iter().max().map_or(1, |last| last + 1)
    }

    fn content_id(&self) -> ContentId {
        ContentId(0)
    }

    fn strata(&self, count: u32) -> Result<Strata, StrataError> {
        match &self.strata {
            Some(strata) => Ok(strata.clone()),
            None => Strata::new(self.samples, count, self.content_id().0),
        }
    }
}

/// Memory that never runs out, as nothing is written to it. The cache keeps its limit by itself.
#[derive(Debug)]
pub(crate) struct NoMemory;

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

    /// The cache only: rows are filled at once, so none pins a record.
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

/// A store that answers when its model says.
#[derive(Debug)]
pub(crate) struct VirtualStore {
    model: StoreModel,
    queues: Queues<Duration>,
    sent: u64,
    /// Records by the time of their answer, the number of their read and their offset.
    waiting: BTreeMap<(u64, u64, u64), Waiting>,
}

/// A record that the store is asked for.
#[derive(Debug)]
struct Waiting {
    /// The node that asked.
    node: usize,
    op: ReadOp<()>,
    latency: Duration,
}

impl VirtualStore {
    pub(crate) fn new(model: StoreModel) -> Self {
        Self { model, queues: Queues::default(), sent: 0, waiting: BTreeMap::new() }
    }

    /// A node sends a read: of these records, by offset, and of what lies between them.
    pub(crate) fn send(&mut self, now_ns: u64, node: usize, ops: Vec<ReadOp<()>>) {
        let now = Duration::from_nanos(now_ns);
        let latency = latency_of(&self.model, self.sent);
        let start = ops.first().map_or(0, |op| op.offset);
        let end = ops.last().map_or(0, |op| op.offset + u64::from(op.len));
        let at = self.queues.answer_at(&self.model, now, latency, end.saturating_sub(start));
        let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        for op in ops {
            let key = (at_ns, self.sent, op.offset);
            self.waiting.insert(key, Waiting { node, op, latency: at.saturating_sub(now) });
        }
        self.sent += 1;
    }

    /// The time of the next answer.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(&(at_ns, ..), _)| at_ns)
    }

    /// The next answer, if it comes by now, and the node that it is for.
    pub(crate) fn answer(&mut self, now_ns: u64) -> Option<(usize, Completion<()>)> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now_ns)?;
        let Waiting { node, op, latency } = first.remove();
        Some((node, answered(op, latency)))
    }
}

/// An order that takes no time.
pub(crate) fn filled(order: FillOrder<()>) -> Filled<()> {
    let FillOrder { ticket, output, mut rows, .. } = order;
    rows.iter_mut().for_each(|row| row.keep(Vec::new(), &[]));
    let geometry = vec![Geometry::default(); output.views().len() * rows.len()];
    Filled { ticket, rows, faults: Vec::new(), geometry, fill_ns: 0 }
}

/// A read that brought its record.
pub(crate) fn answered(op: ReadOp<()>, latency: Duration) -> Completion<()> {
    Completion { op, outcome: Ok(()), checked: true, latency }
}
