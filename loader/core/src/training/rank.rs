//! One rank: the epoch that it asked for, and what was delivered to it.

use std::collections::HashMap;

use shade_formats::SampleId;
use shade_formats::limits::RING_DESCRIPTORS;

use crate::figures::{Bound, WaitClock};
use crate::ids::{BatchId, JobId, SessionId};

/// The epoch that a rank asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochRequest {
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    pub(crate) next_batch: u32,
    /// The end-of-epoch descriptor has been published.
    pub(crate) ended: bool,
}

/// The samples of a delivered batch: losses are credited to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    /// In the delivered order, without padding (it stands at the end).
    pub(super) samples: Vec<SampleId>,
    /// The first samples whose losses came.
    pub(super) reported: usize,
}

/// A rank attached.
pub(crate) struct Rank {
    /// Its session, which its ring has the name of, too.
    pub(super) id: SessionId,
    pub(super) job: JobId,
    pub(super) rank: u32,
    /// It has told its job's seats.
    pub(super) seated: bool,
    pub(super) request: Option<EpochRequest>,
    /// It goes on with a successor of this daemon, which needs bases.
    pub(super) survives: bool,
    /// It has taken batches of another daemon, which this one succeeds.
    goes_on: bool,
    /// How long its trainer has waited, and for what.
    clock: WaitClock,
    /// The batches of the current epoch and of the one before; only the last ones while nobody
    /// needs a loss nor has reported one.
    pub(super) delivered: HashMap<BatchId, Delivered>,
}

/// Batches for which a first loss may come where nobody needs one: far more than are in a ring.
const REPORTABLE: u32 = 256;
const _: () = assert!(REPORTABLE as usize >= 4 * RING_DESCRIPTORS);

impl Rank {
    pub(super) fn new(id: SessionId, job: JobId, rank: u32, survives: bool, now_ns: u64) -> Self {
        let clock = WaitClock::new(now_ns);
        let delivered = HashMap::new();
        Self { id, job, rank, seated: false, request: None, survives, goes_on: false, clock, delivered }
    }

    /// Its session.
    pub(crate) fn session(&self) -> SessionId {
        self.id
    }

    /// Its job.
    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// Its number in the job.
    pub(crate) fn number(&self) -> u32 {
        self.rank
    }

    /// The epoch that it asked for.
    pub(crate) fn request(&self) -> Option<EpochRequest> {
        self.request
    }

    /// How long its trainer has waited, and for what.
    pub(crate) fn clock(&self) -> &WaitClock {
        &self.clock
    }

    /// It took batches before it asked for any.
    pub(super) fn note_taken(&mut self) {
        self.goes_on |= self.request.is_none();
    }

    /// Whether it has taken batches of a daemon that this one succeeds.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Whether it does, and asks for a later epoch.
    pub(super) fn goes_on_after(&self, epoch: u32) -> bool {
        self.goes_on && self.request.is_some_and(|request| request.epoch > epoch)
    }

    /// It asks for an epoch, whose first descriptor is `first`.
    pub(super) fn ask(&mut self, now_ns: u64, request: EpochRequest, first: u64) {
        self.request = Some(request);
        self.clock.begin_epoch(now_ns, first);
    }

    /// Its trainer waits for this descriptor.
    pub(crate) fn awaits(&mut self, seq: u64) {
        self.clock.awaits(seq);
    }

    /// Counts the time up to now, and for whom it is counted next.
    pub(crate) fn note_wait(&mut self, now_ns: u64, bound: Option<Bound>) {
        self.clock.note(now_ns, bound);
    }

    /// It has released its epoch's last batch.
    pub(crate) fn end_epoch(&mut self, now_ns: u64) {
        self.clock.end_epoch(now_ns);
    }

    /// The end of the epoch that it asked for in this generation was published.
    pub(crate) fn give_all(&mut self, generation: u32) {
        let request = self.request.as_mut().filter(|request| request.generation == generation);
        request.into_iter().for_each(|request| request.ended = true);
    }

    /// A batch was delivered. `keeps_all` where losses may come for any of them.
    pub(super) fn deliver(&mut self, batch: BatchId, samples: Vec<SampleId>, keeps_all: bool) {
        self.delivered.insert(batch, Delivered { samples, reported: 0 });
        if !keeps_all && let Some(number) = batch.number.checked_sub(REPORTABLE) {
            self.delivered.remove(&BatchId { number, ..batch });
        }
    }

    /// Whether it was given all of the epoch that it asked for.
    pub(crate) fn has_ended(&self) -> bool {
        self.request.is_some_and(|request| request.ended)
    }
}
