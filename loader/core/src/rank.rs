//! One rank: the epoch that it asked for, and what was delivered to it.

use std::collections::HashMap;

use shade_formats::SampleId;
use shade_formats::limits::RING_DESCRIPTORS;

use crate::figures::WaitClock;
use crate::ids::{BatchId, JobId, SessionId};

/// The epoch that a rank asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochRequest {
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) next_batch: u32,
    /// The end-of-epoch descriptor has been published.
    pub(super) ended: bool,
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
pub(super) struct Rank {
    /// Its session, which its ring has the name of, too.
    pub(super) id: SessionId,
    pub(super) job: JobId,
    pub(super) rank: u32,
    /// It has told its job's seats.
    pub(super) seated: bool,
    pub(super) request: Option<EpochRequest>,
    /// How long its trainer has waited, and for what.
    pub(super) clock: WaitClock,
    /// The batches of the current epoch and of the one before; only the last ones while nobody
    /// needs a loss nor has reported one.
    pub(super) delivered: HashMap<BatchId, Delivered>,
}

/// Batches for which a first loss may come where nobody needs one: far more than are in a ring.
const REPORTABLE: u32 = 256;
const _: () = assert!(REPORTABLE as usize >= 4 * RING_DESCRIPTORS);

impl Rank {
    pub(super) fn new(id: SessionId, job: JobId, rank: u32, now_ns: u64) -> Self {
        let clock = WaitClock::new(now_ns);
        Self { id, job, rank, seated: false, request: None, clock, delivered: HashMap::new() }
    }

    /// A batch was delivered. `keeps_all` where losses may come for any of them.
    pub(super) fn deliver(&mut self, batch: BatchId, samples: Vec<SampleId>, keeps_all: bool) {
        self.delivered.insert(batch, Delivered { samples, reported: 0 });
        if !keeps_all && let Some(number) = batch.number.checked_sub(REPORTABLE) {
            self.delivered.remove(&BatchId { number, ..batch });
        }
    }

    /// Whether it was given all of the epoch that it asked for.
    pub(super) fn has_ended(&self) -> bool {
        self.request.is_some_and(|request| request.ended)
    }
}

/// The next batches of the job's ranks that asked for `epoch`.
pub(super) fn next_batches(ranks: &[Rank], job: JobId, epoch: u32) -> impl Iterator<Item = u32> + '_ {
    let requests = ranks.iter().filter(move |rank| rank.job == job).filter_map(|rank| rank.request);
    requests.filter(move |request| request.epoch == epoch).map(|request| request.next_batch)
}
