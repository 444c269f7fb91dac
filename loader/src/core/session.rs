//! One rank's side of the core: its ring's room, its open batches, what it has been given.

use std::collections::{HashMap, VecDeque};

use shade_formats::SampleId;
use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::ring::PayloadRing;

use super::batch::Batch;
use super::event::SessionId;

/// The epoch a rank asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) next_batch: u32,
    /// The end-of-epoch descriptor has been queued.
    pub(super) ended: bool,
}

/// A rank attached.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) rank: u32,
    /// The ring is mapped on both sides.
    pub(super) ready: bool,
    pub(super) payload: PayloadRing,
    /// Sequence number of the next descriptor.
    pub(super) next_seq: u64,
    /// Descriptors the client has released, in order.
    pub(super) released: u64,
    /// For each descriptor published and not yet released in order: the payload offset of its block, if it has one that
    /// was not given back.
    pub(super) outstanding: VecDeque<Option<u64>>,
    /// Batches opened and not yet published, by sequence number.
    pub(super) open: VecDeque<Batch>,
    pub(super) wanted: Option<Wanted>,
    /// Since when the next batch has found no room in the ring.
    pub(super) blocked_since_ns: Option<u64>,
    /// The samples delivered, by (epoch, batch), to credit losses to: the current epoch's and the one before. In the
    /// delivered order, padding left out (it stands at the end).
    pub(super) delivered: HashMap<(u32, u32), Vec<SampleId>>,
}

impl Session {
    pub(super) fn new(id: SessionId, rank: u32, payload: PayloadRing) -> Self {
        Self {
            id,
            rank,
            ready: false,
            payload,
            next_seq: 0,
            released: 0,
            outstanding: VecDeque::new(),
            open: VecDeque::new(),
            wanted: None,
            blocked_since_ns: None,
            delivered: HashMap::new(),
        }
    }

    /// Is a descriptor free for one more batch or message?
    pub(super) fn has_descriptor(&self) -> bool {
        self.open.len() + self.outstanding.len() < RING_DESCRIPTORS
    }

    /// The open batch with this sequence number.
    pub(super) fn batch_mut(&mut self, seq: u64) -> Option<&mut Batch> {
        let first = self.open.front()?.seq;
        self.open.get_mut(usize::try_from(seq.checked_sub(first)?).ok()?)
    }

    /// Takes note that the client has released `count` descriptors in order, and after them those whose bit in `later`
    /// is set. `false`: it claims more than it got.
    pub(super) fn release_to(&mut self, count: u64, later: u64) -> bool {
        while self.released < count {
            let Some(block) = self.outstanding.pop_front() else { return false };
            if let Some(offset) = block {
                self.payload.free(offset);
            }
            self.released += 1;
        }
        for bit in (0..RING_DESCRIPTORS).filter(|bit| later >> bit & 1 == 1) {
            let Some(block) = self.outstanding.get_mut(bit) else { return false };
            if let Some(offset) = block.take() {
                self.payload.free(offset);
            }
        }
        true
    }
}
