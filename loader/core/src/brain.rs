//! The state of the core. `step` says which event changes it, and how it goes on.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::limits::SPAN_BYTES_MAX;
use shade_job::Policy;

use crate::batch::{Batch, BatchStage};
use crate::block_size::charged_bytes;
use crate::cache::Cache;
use crate::counts::Counts;
use crate::decoded_rows::DecodedRows;
use crate::event::{Event, SessionId};
use crate::fill_turns::FillTurns;
use crate::importance::Importance;
use crate::job::{Job, JobId};
use crate::jobs::Jobs;
use crate::latency::LateReads;
use crate::memory::Memory;
use crate::prefetched::Prefetched;
use crate::reading::Reading;
use crate::samples::Samples;
use crate::session::Session;
use crate::sizes::entries;
use crate::tier::Tier;
use crate::windows::Windows;

/// Configuration of a core.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Capacity of the cache, bytes of arena blocks.
    pub cache_bytes: u64,
    /// Policy of the cache.
    pub policy: Policy,
    /// Planned accesses in sight of `Policy::Lookahead`, in epochs: 0 sees none, 1 the rest of the
    /// epoch.
    pub lookahead: f64,
    /// Limit of submitted reads, whatever the depth ([`Event::Depth`](super::Event::Depth)).
    pub reads_max: u32,
    /// Limit of unwanted bytes between two records that one read brings
    /// ([`GAP_BYTES_MAX`](super::GAP_BYTES_MAX)); 0 reads every record on its own.
    pub gap_bytes_max: u32,
    /// Bytes of a shard that the first record wanted of them brings along
    /// ([`window_bytes`](super::window_bytes)); 0 brings none. For a cache that the whole dataset
    /// fits into.
    pub window_bytes: u32,
    /// Bytes of a shard that a miss brings along if the cache would keep them, at most
    /// [`SPAN_BYTES_MAX`](shade_formats::limits::SPAN_BYTES_MAX); 0 brings none. It does nothing
    /// beside `window_bytes`.
    pub package_bytes: u32,
    /// Limit of prefetches in flight ([`PREFETCHES_MAX`](super::PREFETCHES_MAX)); 0 prefetches
    /// nothing.
    pub prefetches_max: u32,
    /// Where the plan of the next epoch is known before it begins, draw it and fill its first
    /// batches while ranks still have some of this epoch.
    pub opens_ahead: bool,
    /// Ask for late records a second time, for 1 in 100 reads at most.
    pub hedge: bool,
    /// Bytes of an arena block.
    pub block_bytes: u32,
    /// Limit of the orders that workers have at a time while there are several jobs, or the number
    /// of jobs if that is higher. The others wait for their jobs' turns.
    pub orders_max: usize,
    /// Limit of the decoded rows that the jobs of a group share
    /// ([`DECODED_BYTES`](shade_job::DECODED_BYTES)); 0 decodes each row for each job.
    pub decoded_bytes: u64,
}

/// The brain. See the [crate](super).
pub struct Core<M: Memory> {
    pub(super) config: CoreConfig,
    pub(super) index: Arc<dyn Samples>,
    pub(super) cache: Cache<M::Record>,
    pub(super) free: M,
    pub(super) tier: Tier<M>,
    /// Records to read or in flight, with the rows that wait for them.
    pub(super) reading: Reading,
    /// Limit of submitted reads: twice the number in flight, so that the next one is at hand when
    /// one ends. More would hold blocks for nothing, and a working set that a CPU's cache cannot
    /// hold.
    pub(super) reads_submitted_max: u32,
    pub(super) prefetched: Prefetched,
    /// Where small records lie, if the cache has room for all.
    pub(super) windows: Option<Windows>,
    /// Where records lie, if a miss brings along a package.
    pub(super) packages: Option<Windows>,
    pub(super) late_reads: LateReads,
    pub(super) jobs: Jobs,
    pub(super) decoded_rows: DecodedRows<M::Lent>,
    pub(super) fill_turns: FillTurns,
    pub(super) sessions: Vec<Session<M>>,
    /// The observers, each with the name of the job that it wants a trace of.
    pub(super) observers: Vec<(SessionId, String)>,
    /// Bytes of arena blocks that all records take.
    pub(super) all_bytes: u64,
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
    /// A core over `index`. Records that are cached, read or filled lie in `free`.
    #[must_use]
    pub fn new<S: Samples + 'static>(index: Arc<S>, free: M, config: CoreConfig) -> Self {
        let cache = Cache::new(config.policy, config.cache_bytes, index.len());
        Self::with_cache(index, free, cache, config)
    }

    /// As [`new`](Self::new), with a cache that the caller made. It has `config`'s capacity.
    #[must_use]
    pub fn with_cache<S: Samples + 'static>(
        index: Arc<S>,
        free: M,
        cache: Cache<M::Record>,
        config: CoreConfig,
    ) -> Self {
        let windows_of = |bytes: u32| (bytes > 0).then(|| Windows::new(&*index, bytes));
        let windows = windows_of(config.window_bytes);
        let package_bytes = if windows.is_some() { 0 } else { config.package_bytes.min(SPAN_BYTES_MAX) };
        let packages = windows_of(package_bytes);
        // A package is one read, however little of it is wanted.
        let gap_bytes_max = config.gap_bytes_max.max(package_bytes);
        let charged = entries(&*index).map(|(_, entry)| charged_bytes(entry.stored_len, config.block_bytes));
        let all_bytes = charged.sum();
        let mut core = Self {
            config,
            index,
            cache,
            free,
            tier: Tier::default(),
            reading: Reading::new(gap_bytes_max),
            reads_submitted_max: config.reads_max,
            prefetched: Prefetched::default(),
            windows,
            packages,
            late_reads: LateReads::default(),
            jobs: Jobs::default(),
            decoded_rows: DecodedRows::new(config.decoded_bytes),
            fill_turns: FillTurns::default(),
            sessions: Vec::new(),
            observers: Vec::new(),
            all_bytes,
            looks_ahead_due: Vec::new(),
            predict_at_ns: 0,
            last_draw: 0,
            postponed: Vec::new(),
            strata_of_last: 1,
        };
        core.keep_ranked();
        core
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
        self.cache.ids()
    }

    /// The samples in the tier, in no particular order.
    pub fn tiered(&self) -> impl Iterator<Item = SampleId> {
        self.tier.held.iter().flat_map(Cache::ids)
    }

    /// Bytes of arena blocks with records that are cached, read or filled.
    #[must_use]
    pub fn arena_used_bytes(&self) -> u64 {
        self.free.total_bytes() - self.free.free_bytes()
    }

    /// Whether nothing is being read, filled or finalized. Batches may be held for their epoch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_filled = |batch: &Batch<M>| batch.is_held() && batch.stage == BatchStage::Complete;
        self.reading.flights.in_flight() == 0
            && self.reading.asked_of_tier() == 0
            && self.sessions.iter().all(|session| session.open.iter().all(is_filled))
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

    /// The next batches of the job's ranks that asked for `epoch`.
    pub(super) fn next_batches(&self, job: JobId, epoch: u32) -> impl Iterator<Item = u32> + '_ {
        let sessions = self.sessions.iter().filter(move |session| session.job == job);
        let requests = sessions.filter_map(|session| session.request);
        requests.filter(move |request| request.epoch == epoch).map(|request| request.next_batch)
    }

    /// Applies a change to the counts of the job and of its epoch, if it is still there.
    pub(super) fn count(&mut self, job: JobId, change: impl Fn(&mut Counts)) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.count(change);
        }
    }

    /// Takes a row's record back from a worker.
    pub(super) fn take_back(&mut self, record: Option<M::Lent>) {
        if let Some(record) = record {
            self.release(M::take_back(record));
        }
    }

    /// Takes the blocks of a record back, unless the cache or a row still holds it.
    pub(super) fn release(&mut self, record: M::Record) {
        self.free.release(record);
    }
}
