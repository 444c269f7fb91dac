//! The state of the core. `step` says which event changes it, and how it goes on.

use std::sync::Arc;

use shade_formats::SampleId;

use crate::batches::Batches;
use crate::cache::Cache;
use crate::config::CoreConfig;
use crate::event::Event;
use crate::figures::{Counts, Figures};
use crate::ids::{JobId, SessionId};
use crate::importance::Importance;
use crate::memory::Memory;
use crate::records::Records;
use crate::samples::Samples;
use crate::training::{Job, Rank, Training};

/// The brain. See the [crate](super).
pub struct Core<M: Memory> {
    pub(super) index: Arc<dyn Samples>,
    pub(super) records: Records<M>,
    pub(super) training: Training,
    pub(super) batches: Batches<M>,
    pub(super) figures: Figures,
    /// Events of jobs that wait for a plan.
    pub(super) postponed: Vec<(JobId, Event<M>)>,
    /// Jobs that look ahead next, as the cache was resized.
    pub(super) looks_ahead_due: Vec<JobId>,
}

impl<M: Memory> Core<M> {
    /// A core over `index`. Records that are cached, read or filled lie in `memory`.
    #[must_use]
    pub fn new<S: Samples + 'static>(index: Arc<S>, memory: M, config: CoreConfig) -> Self {
        let cache = Cache::new(config.policy, config.cache_bytes, index.len());
        Self::with_cache(index, memory, cache, config)
    }

    /// As [`new`](Self::new), with a cache that the caller made. It has `config`'s capacity.
    #[must_use]
    pub fn with_cache<S: Samples + 'static>(
        index: Arc<S>,
        memory: M,
        cache: Cache<M::Record>,
        config: CoreConfig,
    ) -> Self {
        let index: Arc<dyn Samples> = index;
        let records = Records::new(Arc::clone(&index), memory, cache, &config);
        let training = Training::new(Arc::clone(&index), config.lookahead, config.opens_ahead);
        Self {
            index,
            records,
            training,
            batches: Batches::new(config.orders_max, config.decoded_bytes),
            figures: Figures::default(),
            postponed: Vec::new(),
            looks_ahead_due: Vec::new(),
        }
    }

    /// Number of ranks attached.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.training.ranks().len()
    }

    /// Name of the session's job.
    #[must_use]
    pub fn job_name(&self, session: SessionId) -> Option<&str> {
        self.training.job_of(session).map(Job::name)
    }

    /// The importance table of the session's job.
    #[must_use]
    pub fn importance(&self, session: SessionId) -> Option<&Importance> {
        self.training.job_of(session).map(Job::importance)
    }

    /// The samples in the cache, in no particular order.
    pub fn cached(&self) -> impl Iterator<Item = SampleId> {
        self.records.cached()
    }

    /// The samples in the tier, in no particular order.
    pub fn tiered(&self) -> impl Iterator<Item = SampleId> {
        self.records.tiered()
    }

    /// Bytes of arena blocks with records that are cached, read or filled.
    #[must_use]
    pub fn arena_used_bytes(&self) -> u64 {
        self.records.used_bytes()
    }

    /// Whether nothing is being read, filled or finalized. Batches may be held for their epoch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.records.is_idle() && self.batches.is_idle()
    }

    /// The number of the session's job.
    pub(super) fn job_id_of(&self, session: SessionId) -> Option<JobId> {
        self.training.rank(session).map(Rank::job)
    }

    /// See [`Figures::count`].
    pub(super) fn count(&mut self, job: JobId, change: impl Fn(&mut Counts)) {
        self.figures.count(job, change);
    }

    /// The memory, for the caller to change its size. The core needs the reserve beside the cache
    /// ([`staging_bytes`](super::staging_bytes)) at any time.
    pub fn memory_mut(&mut self) -> &mut M {
        self.records.memory_mut()
    }

    /// Lets `move_record` move cached records within the memory; it returns whether it did. It may
    /// not move one that has another holder, which a row needs. It ends after some `bytes_max`
    /// bytes; `from` and the result are as with
    /// [`Cache::change_values`](super::cache::Cache::change_values).
    pub fn move_records(
        &mut self,
        from: u32,
        bytes_max: u64,
        move_record: impl FnMut(&mut M, &mut M::Record) -> bool,
    ) -> Option<u32> {
        self.records.move_records(from, bytes_max, move_record)
    }
}
