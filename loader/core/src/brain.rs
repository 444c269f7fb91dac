//! The state of the core. `step` says which event changes it, and how it goes on.

use std::sync::Arc;

use shade_formats::SampleId;

use crate::batch::{Batch, BatchStage};
use crate::cache::Cache;
use crate::config::CoreConfig;
use crate::decoded_rows::DecodedRows;
use crate::event::{Event, SessionId};
use crate::figures::{Counts, Figures};
use crate::fill_turns::FillTurns;
use crate::importance::Importance;
use crate::job::{Job, JobId};
use crate::jobs::Jobs;
use crate::memory::Memory;
use crate::records::Records;
use crate::samples::Samples;
use crate::session::Session;

/// The brain. See the [crate](super).
pub struct Core<M: Memory> {
    pub(super) config: CoreConfig,
    pub(super) index: Arc<dyn Samples>,
    pub(super) records: Records<M>,
    pub(super) jobs: Jobs,
    pub(super) decoded_rows: DecodedRows<M::Lent>,
    pub(super) fill_turns: FillTurns,
    pub(super) sessions: Vec<Session<M>>,
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
            config,
            index,
            records,
            jobs: Jobs::default(),
            decoded_rows: DecodedRows::new(config.decoded_bytes),
            fill_turns: FillTurns::default(),
            sessions: Vec::new(),
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
        self.sessions.len()
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
        let is_filled = |batch: &Batch<M>| batch.is_held() && batch.stage == BatchStage::Complete;
        self.records.is_idle() && self.sessions.iter().all(|session| session.open.iter().all(is_filled))
    }

    pub(super) fn session(&self, session: SessionId) -> Option<&Session<M>> {
        self.sessions.iter().find(|s| s.id == session)
    }

    pub(super) fn session_mut(&mut self, session: SessionId) -> Option<&mut Session<M>> {
        self.sessions.iter_mut().find(|s| s.id == session)
    }

    /// The open batch of `session` with this sequence number.
    pub(super) fn batch_mut(&mut self, session: SessionId, seq: u64) -> Option<&mut Batch<M>> {
        self.session_mut(session)?.batch_mut(seq)
    }

    /// The job of `session`.
    pub(super) fn job_of(&self, session: SessionId) -> Option<&Job> {
        self.jobs.get(self.session(session)?.job)
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

/// The next batches of the job's ranks that asked for `epoch`.
pub(super) fn next_batches<M: Memory>(
    sessions: &[Session<M>],
    job: JobId,
    epoch: u32,
) -> impl Iterator<Item = u32> + '_ {
    let sessions = sessions.iter().filter(move |session| session.job == job);
    let requests = sessions.filter_map(|session| session.request);
    requests.filter(move |request| request.epoch == epoch).map(|request| request.next_batch)
}
