//! One rank's ring: the room in it, its open batches, the descriptors that its client has.

use std::collections::{BTreeMap, VecDeque};

use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::ring::PayloadAllocator;

use super::batch::Batch;
use crate::ids::{JobId, SessionId};
use crate::memory::Memory;

/// The end of an epoch, whose turn in the ring comes after the epoch's last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochEnd {
    /// Number of its descriptor.
    pub(crate) seq: u64,
    /// 0 if the rank has moved on.
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    pub(crate) batches: u32,
}

/// A descriptor that the client has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// Payload offset of the batch's block; `None` for a message.
    pub(super) block: Option<u64>,
    pub(super) published_ns: u64,
}

/// A rank's ring.
pub(super) struct Ring<M: Memory> {
    pub(super) session: SessionId,
    pub(super) job: JobId,
    /// It is mapped on both sides.
    pub(super) is_ready: bool,
    pub(super) payload: PayloadAllocator,
    /// Sequence number of the next descriptor.
    pub(super) next_seq: u64,
    /// The descriptors published and not released.
    pub(super) outstanding: BTreeMap<u64, Outstanding>,
    /// When one was released last.
    released_ns: u64,
    /// Batches opened and not yet published, by sequence number.
    pub(super) open: VecDeque<Batch<M>>,
    /// The end of the epoch, once all its batches are open and until it is published.
    pub(super) end: Option<EpochEnd>,
    /// The next batch has found no room, and no batch was released since.
    pub(super) is_full: bool,
    /// When the next batch first found no room.
    pub(super) blocked_since_ns: Option<u64>,
}

impl<M: Memory> Ring<M> {
    pub(super) fn new(session: SessionId, job: JobId, payload: PayloadAllocator) -> Self {
        Self {
            session,
            job,
            is_ready: false,
            payload,
            next_seq: 0,
            outstanding: BTreeMap::new(),
            released_ns: 0,
            open: VecDeque::new(),
            end: None,
            is_full: false,
            blocked_since_ns: None,
        }
    }

    /// Descriptors that it needs or has.
    pub(super) fn descriptors(&self) -> usize {
        self.open.len() + usize::from(self.end.is_some()) + self.outstanding.len()
    }

    /// Whether a release mark is free for one more batch or message.
    pub(super) fn has_descriptor(&self) -> bool {
        self.descriptors() < RING_DESCRIPTORS
    }

    /// The open batch with this sequence number.
    pub(super) fn batch_mut(&mut self, seq: u64) -> Option<&mut Batch<M>> {
        let first = self.open.front()?.seq;
        // An end between the two has a number, too.
        let ends = u64::from(self.end.is_some_and(|end| (first..seq).contains(&end.seq)));
        self.open.get_mut(usize::try_from(seq.checked_sub(first)? - ends).ok()?)
    }

    /// The client has released descriptor `seq`. Returns the time that it had a batch and did not
    /// wait, 0 for a message; `None` if it does not hold the descriptor.
    pub(super) fn release(&mut self, seq: u64, now_ns: u64) -> Option<u64> {
        let Outstanding { block, published_ns } = self.outstanding.remove(&seq)?;
        let Some(offset) = block else { return Some(0) };
        self.payload.free(offset);
        self.is_full = false;
        let begun_ns = published_ns.max(std::mem::replace(&mut self.released_ns, now_ns));
        Some(now_ns.saturating_sub(begun_ns))
    }

    /// The client has this descriptor from now on.
    pub(super) fn give(&mut self, seq: u64, block: Option<u64>, now_ns: u64) {
        let before = self.outstanding.insert(seq, Outstanding { block, published_ns: now_ns });
        assert!(before.is_none(), "descriptor {seq} is published twice");
    }

    /// Time that the client has had the batch at hand and not released it, or has done nothing
    /// after an epoch, if that `has_ended`; 0 if it waits for a batch.
    pub(super) fn batch_ns(&self, now_ns: u64, has_ended: bool) -> u64 {
        let first = self.outstanding.values().find(|held| held.block.is_some());
        let idle_since_ns = has_ended.then_some(self.released_ns);
        let since_ns = first.map(|held| held.published_ns.max(self.released_ns)).or(idle_since_ns);
        since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Finished batches that the client has.
    pub(super) fn in_ring(&self) -> usize {
        self.outstanding.values().filter(|held| held.block.is_some()).count()
    }

    /// The sequence number before which all descriptors were published.
    pub(super) fn first_unpublished(&self) -> u64 {
        let batch = self.open.front().map_or(self.next_seq, |batch| batch.seq);
        self.end.map_or(batch, |end| end.seq.min(batch))
    }

    /// The sequence number before which all descriptors were released.
    pub(super) fn first_unreleased(&self) -> u64 {
        self.outstanding.first_key_value().map_or_else(|| self.first_unpublished(), |(&seq, _)| seq)
    }

    /// Bytes of its payload.
    pub(super) fn bytes(&self) -> u64 {
        self.payload.bytes()
    }
}
