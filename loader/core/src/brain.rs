//! The state of the core. `step` says which event changes it, and how it goes on.

use std::sync::Arc;

use shade_formats::SampleId;

use crate::batches::Batches;
use crate::cache::Cache;
use crate::config::CoreConfig;
use crate::event::{Event, SessionId};
use crate::figures::{Counts, Figures};
use crate::importance::Importance;
use crate::job::{Job, JobId};
use crate::jobs::Jobs;
use crate::memory::Memory;
use crate::rank::Rank;
use crate::records::Records;
use crate::samples::Samples;

/// The brain. See the [crate](super).
pub struct Core<M: Memory> {
    /// See [`CoreConfig::lookahead`].
    pub(super) lookahead: f64,
    /// See [`CoreConfig::opens_ahead`].
    pub(super) opens_ahead: bool,
    pub(super) index: Arc<dyn Samples>,
    pub(super) records: Records<M>,
    pub(super) jobs: Jobs,
    pub(super) batches: Batches<M>,
    pub(super) ranks: Vec<Rank>,
    pub(super) figures: Figures,
    /// Jobs that look ahead next, as the cache was resized.
    pub(super) looks_ahead_due: Vec<JobId>,
    /// When the due times of several jobs are predicted anew at the earliest.
    pub(super) predict_at_ns: u64,
    /// Number of the order to draw that was given last; 0 before the first.
    pub(super) last_draw: u64,
    /// Events of jobs that wait for a plan.
    pub(super) postponed: Vec<(JobId, Event<M>)>,
    /// Strata of the last job that trains; 1 before the first.
    pub(super) strata_of_last: u32,
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
        Self {
            lookahead: config.lookahead,
            opens_ahead: config.opens_ahead,
            index,
            records,
            jobs: Jobs::default(),
            batches: Batches::new(config.orders_max, config.decoded_bytes),
            ranks: Vec::new(),
            figures: Figures::default(),
            looks_ahead_due: Vec::new(),
            predict_at_ns: 0,
            last_draw: 0,
            postponed: Vec::new(),
            strata_of_last: 1,
        }
    }

    /// Number of ranks attached.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.ranks.len()
    }

    /// Name of the session's job.
    #[must_use]
    pub fn job_name(&self, session: SessionId) -> Option<&str> {
        self.job_of(session).map(|job| job.name.as_str())
    }

    /// The importance table of the session's job.
    #[must_use]
    pub fn importance(&self, session: SessionId) -> Option<&Importance> {
        Some(&self.job_of(session)?.importance)
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

    pub(super) fn rank(&self, session: SessionId) -> Option<&Rank> {
        self.ranks.iter().find(|rank| rank.id == session)
    }

    pub(super) fn rank_mut(&mut self, session: SessionId) -> Option<&mut Rank> {
        self.ranks.iter_mut().find(|rank| rank.id == session)
    }

    /// The job of `session`.
    pub(super) fn job_of(&self, session: SessionId) -> Option<&Job> {
        self.jobs.get(self.rank(session)?.job)
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
