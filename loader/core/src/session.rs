//! One rank's side of the core: the room in its ring, its open batches, what was delivered to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use shade_formats::SampleId;
use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::ring::PayloadAllocator;

use crate::batch::{Batch, BatchId};
use crate::event::SessionId;
use crate::figures::{RankStatus, WaitClock};
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;

/// The epoch that a rank asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochRequest {
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) next_batch: u32,
    /// The end-of-epoch descriptor has been published.
    pub(super) ended: bool,
}

/// The end of an epoch, whose turn in the ring comes after the epoch's last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochEnd {
    /// Number of its descriptor.
    pub(super) seq: u64,
    /// 0 if the rank has moved on.
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) batches: u32,
}

/// The samples of a delivered batch: losses are credited to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    /// In the delivered order, without padding (it stands at the end).
    pub(super) samples: Vec<SampleId>,
    /// The first samples whose losses came.
    pub(super) reported: usize,
}

/// A descriptor that the client has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// Payload offset of the batch's block; `None` for a message.
    pub(super) block: Option<u64>,
    pub(super) published_ns: u64,
}

/// A rank attached.
pub(super) struct Session<M: Memory> {
    pub(super) id: SessionId,
    pub(super) job: JobId,
    pub(super) rank: u32,
    /// The ring is mapped on both sides.
    pub(super) ready: bool,
    /// It has told its job's seats.
    pub(super) seated: bool,
    pub(super) payload: PayloadAllocator,
    /// Sequence number of the next descriptor.
    pub(super) next_seq: u64,
    /// The descriptors published and not released.
    pub(super) outstanding: BTreeMap<u64, Outstanding>,
    /// When one was released last.
    released_ns: u64,
    /// Batches opened and not yet published, by sequence number.
    pub(super) open: VecDeque<Batch<M>>,
    pub(super) request: Option<EpochRequest>,
    /// The end of the epoch, once all its batches are open and until it is published.
    pub(super) end: Option<EpochEnd>,
    /// The next batch has found no room in the ring, and no batch was released since.
    pub(super) is_full: bool,
    /// When the next batch first found no room in the ring.
    pub(super) blocked_since_ns: Option<u64>,
    /// How long its trainer has waited, and for what.
    pub(super) clock: WaitClock,
    /// The batches of the current epoch and of the one before; only the last ones while nobody
    /// needs a loss nor has reported one.
    pub(super) delivered: HashMap<BatchId, Delivered>,
}

/// Batches for which a first loss may come where nobody needs one: far more than are in a ring.
const REPORTABLE: u32 = 256;
const _: () = assert!(REPORTABLE as usize >= 4 * RING_DESCRIPTORS);

impl<M: Memory> Session<M> {
    pub(super) fn new(id: SessionId, job: JobId, rank: u32, payload: PayloadAllocator, now_ns: u64) -> Self {
        Self {
            id,
            job,
            rank,
            ready: false,
            seated: false,
            payload,
            next_seq: 0,
            outstanding: BTreeMap::new(),
            released_ns: 0,
            open: VecDeque::new(),
            request: None,
            end: None,
            is_full: false,
            blocked_since_ns: None,
            clock: WaitClock::new(now_ns),
            delivered: HashMap::new(),
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

    /// The next batch finds no room in the ring.
    pub(super) fn blocked(&mut self, now_ns: u64) {
        self.blocked_since_ns.get_or_insert(now_ns);
        self.is_full = true;
    }

    /// The open batch with this sequence number.
    pub(super) fn batch_mut(&mut self, seq: u64) -> Option<&mut Batch<M>> {
        let first = self.open.front()?.seq;
        // An end between the two has a number, too.
        let ends = u64::from(self.end.is_some_and(|end| (first..seq).contains(&end.seq)));
        self.open.get_mut(usize::try_from(seq.checked_sub(first)? - ends).ok()?)
    }

    /// The batches that are filled before their epoch begins.
    pub(super) fn held(&self) -> impl Iterator<Item = &Batch<M>> {
        self.open.iter().filter(|batch| batch.is_held())
    }

    /// Whether the end of the epoch that it asked for has its number.
    pub(super) fn has_end(&self) -> bool {
        let is_of = |end: EpochEnd, request: EpochRequest| end.generation == request.generation;
        self.request.is_some_and(|request| request.ended || self.end.is_some_and(|end| is_of(end, request)))
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

    /// A batch was delivered. `keeps_all` where losses may come for any of them.
    pub(super) fn deliver(&mut self, batch: BatchId, samples: Vec<SampleId>, keeps_all: bool) {
        self.delivered.insert(batch, Delivered { samples, reported: 0 });
        if !keeps_all && let Some(number) = batch.number.checked_sub(REPORTABLE) {
            self.delivered.remove(&BatchId { number, ..batch });
        }
    }

    /// Whether it was given all of the epoch that it asked for, and holds none of it any more.
    pub(super) fn has_released_epoch(&self) -> bool {
        let has_ended = self.request.is_some_and(|request| request.ended);
        has_ended
            && self.open.iter().all(Batch::is_held)
            && self.outstanding.values().all(|held| held.block.is_none())
    }

    /// Time that the client has had the batch at hand and not released it, or has done nothing
    /// after an epoch; 0 if it waits for a batch.
    pub(super) fn batch_ns(&self, now_ns: u64) -> u64 {
        let first = self.outstanding.values().find(|held| held.block.is_some());
        let has_ended = self.request.is_some_and(|request| request.ended);
        let idle_since_ns = has_ended.then_some(self.released_ns);
        let since_ns = first.map(|held| held.published_ns.max(self.released_ns)).or(idle_since_ns);
        since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Its figures.
    pub(super) fn status(&self) -> RankStatus {
        let (waits, attached_ns) = self.clock.times();
        RankStatus {
            rank: self.rank,
            in_ring: to_u32(self.outstanding.values().filter(|held| held.block.is_some()).count()),
            open: to_u32(self.open.len()),
            attached_ns,
            waits_for: self.clock.waits_for(),
            waits,
        }
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
}

/// Time until the first of a job's trainers has used up its finished batches, ns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
pub(super) fn runs_dry_in_ns<M: Memory>(job: &Job, sessions: &[Session<M>]) -> u64 {
    let ranks = sessions.iter().filter(|session| session.job == job.id && session.request.is_some());
    let batches = ranks.map(|session| session.outstanding.len()).min().unwrap_or(usize::MAX);
    (batches as f64 * job.pace.batch_ns()) as u64
}
