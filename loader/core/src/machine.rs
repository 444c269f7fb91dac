//! The state machine: its state, and which event goes where.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::control::{Policy, REFUSE_BUSY, REFUSE_SPEC};

use crate::action::{Accepted, Action, Refusal};
use crate::around::Places;
use crate::bad_share::Given;
use crate::cache::Cache;
use crate::counts::{EpochStats, Stats, TotalStats};
use crate::event::{Attach, Event, SessionId};
use crate::job::Job;
use crate::memory::Memory;
use crate::prefetch::Prefetch;
use crate::reading::Reading;
use crate::samples::Samples;
use crate::session::{Session, Wanted};
use crate::sizes::check_sizes;
use crate::stalls::Stalls;

/// What the core is told at its start.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Capacity of the cache, bytes of arena blocks.
    pub cache_bytes: u64,
    /// Who is kept.
    pub policy: Policy,
    /// Planned accesses in sight of `Policy::Lookahead`, in epochs: 0 sees none, 1 the rest of the epoch.
    pub lookahead: f64,
    /// Reads submitted at most, whatever the depth ([`Event::Depth`](super::Event::Depth)).
    pub reads_max: u32,
    /// Unwanted bytes that are read along to have neighbours in one read
    /// ([`GAP_BYTES_MAX`](crate::neighbours::GAP_BYTES_MAX)); 0 reads every record on its own.
    pub gap_bytes_max: u32,
    /// Bytes of a shard that the first record wanted of them brings along ([`window_bytes`](super::window_bytes)); 0 brings none.
    /// For a cache that the whole dataset fits into.
    pub window_bytes: u32,
    /// Prefetches in flight at most ([`PREFETCHES_MAX`](super::PREFETCHES_MAX)); 0 reads nothing before a batch wants it.
    pub prefetches_max: u32,
    /// Ask for late records a second time, for 1 in 100 reads at most.
    pub hedge: bool,
    /// Bytes of an arena block.
    pub block_bytes: u32,
}

/// The brain. See the [module](super).
pub struct Core<M: Memory> {
    pub(super) config: CoreConfig,
    pub(super) index: Arc<dyn Samples>,
    pub(super) cache: Cache<M::Record>,
    pub(super) free: M,
    /// Records wanted from storage, with the rows that wait for them.
    pub(super) reading: Reading,
    /// Reads to submit at most: as many again as are in flight, so that the next one is at hand when one ends. More would
    /// hold blocks for nothing, and a working set that a CPU's cache cannot hold.
    pub(super) reads_submitted_max: u32,
    pub(super) prefetch: Prefetch,
    /// Where small records lie, if the cache has room for all.
    pub(super) places: Option<Places>,
    pub(super) stalls: Stalls,
    pub(super) job: Option<Job>,
    pub(super) sessions: Vec<Session<M>>,
    /// Somebody takes a trace.
    pub(super) observed: bool,
}

impl<M: Memory> Core<M> {
    /// A core over `index`, whose records lie in `free`: the cache's, and those being read or filled.
    #[must_use]
    pub fn new<S: Samples + 'static>(index: Arc<S>, free: M, config: CoreConfig) -> Self {
        let cache = Cache::new(config.policy, config.cache_bytes, index.len());
        Self::with_cache(index, free, cache, config)
    }

    /// The same with a cache of `config`'s capacity that keeps whom it likes.
    #[must_use]
    pub fn with_cache<S: Samples + 'static>(
        index: Arc<S>,
        free: M,
        cache: Cache<M::Record>,
        config: CoreConfig,
    ) -> Self {
        let places = (config.window_bytes > 0).then(|| Places::new(&*index, config.window_bytes));
        Self {
            config,
            index,
            cache,
            free,
            reading: Reading::new(config.gap_bytes_max),
            reads_submitted_max: config.reads_max,
            prefetch: Prefetch::default(),
            places,
            stalls: Stalls::default(),
            job: None,
            sessions: Vec::new(),
            observed: false,
        }
    }

    /// Takes in one event. `now_ns` is monotonic. Call [`Core::advance`] after a burst of events.
    pub fn step(&mut self, now_ns: u64, event: Event<M>, actions: &mut Vec<Action<M>>) {
        match event {
            Event::Attach(attach) => self.attach(now_ns, &attach, actions),
            Event::Ready(session) => {
                if let Some(session) = self.session_mut(session) {
                    session.ready = true;
                }
            }
            Event::Detach(session) => self.detach(session),
            Event::StartEpoch { session, generation, epoch, first_batch } => {
                self.want_epoch(
                    session,
                    Wanted { generation, epoch, next_batch: first_batch, ended: false },
                    actions,
                );
            }
            Event::Report { session, epoch, batch, losses } => {
                self.report(now_ns, (session, epoch, batch), &losses, actions);
            }
            Event::Validation { session, score } => self.validation(session, score),
            Event::SaveState(session) => self.save_state(session, actions),
            Event::LoadState { session, bytes } => self.load_state(session, &bytes, actions),
            Event::Depth(depth) => {
                self.reads_submitted_max = depth.saturating_mul(2).min(self.config.reads_max)
            }
            Event::Read(completion) => self.read_done(now_ns, completion, actions),
            Event::Filled(filled) => self.filled(filled, actions),
            Event::Sealed(ticket) => self.sealed(ticket),
            Event::Released { session, seqs } => self.released(now_ns, session, seqs, actions),
            Event::Plan(plan) => {
                if let Some(job) = &mut self.job {
                    (job.scripted, job.next_plan) = (Some(plan.epoch), Some(*plan));
                }
            }
            Event::Observe(on) => self.observe(now_ns, on, actions),
        }
    }

    /// Does what has become possible: draws a due plan, publishes, opens batches, submits reads, hands rows to workers.
    /// `true`: more batches can be opened, once these actions are carried out.
    #[must_use]
    pub fn advance(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        self.draw_due_plan(actions);
        self.publish_complete(now_ns, actions);
        let can_go_on = self.open_batches(now_ns, actions);
        self.submit_reads(now_ns, actions);
        if !can_go_on {
            self.prefetch(now_ns, actions);
        }
        self.watch_reads(now_ns, actions);
        self.hand_out_rows(now_ns, actions);
        // A batch that needed no work (all rows skipped) is complete by now.
        self.publish_complete(now_ns, actions);
        can_go_on
    }

    /// Ranks attached.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of arena blocks that hold records: those of the cache, and those being read or filled.
    #[must_use]
    pub fn arena_used_bytes(&self) -> u64 {
        self.free.total_bytes() - self.free.free_bytes()
    }

    /// Nothing is being read, filled or sealed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.reading.in_flight() == 0 && self.sessions.iter().all(|session| session.open.is_empty())
    }

    /// The figures as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let samples = f64::from(self.index.len().max(1));
        let mut epoch = EpochStats::default();
        let mut total = TotalStats::default();
        if let Some(job) = &self.job {
            epoch.counts = job.epoch_counts.into();
            epoch.reports_missing = job.reports_missing;
            if let Some(plan) = &job.plan {
                epoch.epoch = Some(plan.epoch);
                epoch.distinct = plan.summary.distinct;
                epoch.distinct_share = f64::from(plan.summary.distinct) / samples;
                epoch.repeat_max = plan.summary.repeat_max;
                epoch.hit_cap_withheld = plan.summary.hit_cap_withheld;
                epoch.covered = plan.summary.covered;
                epoch.position_entropy = job.position_entropy;
            }
            total.counts = job.total.into();
            total.ever_seen_share = f64::from(job.importance.seen()) / samples;
        }
        Stats {
            epoch,
            total,
            resident: self.cache.len() as u64,
            cache_bytes: self.cache.capacity_bytes(),
            cache_used_bytes: self.cache.used_bytes(),
            arena_used_bytes: self.arena_used_bytes(),
            reads_submitted: self.reading.in_flight() as u64,
            reads_late: self.stalls.late,
            read_latency: self.stalls.latency(),
            waiting_for_ranks: self.waiting_for_ranks(),
        }
    }

    pub(super) fn session_mut(&mut self, session: SessionId) -> Option<&mut Session<M>> {
        self.sessions.iter_mut().find(|s| s.id == session)
    }

    /// Gives a record's blocks back once nobody holds them.
    pub(super) fn release(&mut self, record: M::Record) {
        self.free.release(record);
    }

    fn attach(&mut self, now_ns: u64, attach: &Attach, actions: &mut Vec<Action<M>>) {
        let id = attach.session;
        let is_new = self.job.is_none();
        match self.accept(attach) {
            Ok(accepted) => {
                actions.push(Action::Accept(id, accepted));
                if is_new {
                    self.trace_job(now_ns, false, actions);
                }
            }
            Err(refusal) => actions.push(Action::Refuse(id, refusal)),
        }
    }

    fn accept(&mut self, attach: &Attach) -> Result<Accepted, Refusal> {
        let refuse = |code, text| Err(Refusal { code, text });
        let spec = &attach.spec;
        spec.validate().map_err(|error| Refusal { code: REFUSE_SPEC, text: error.to_string() })?;
        if attach.rank >= spec.world_size {
            return refuse(
                REFUSE_SPEC,
                format!("rank {} is not below the world size {}", attach.rank, spec.world_size),
            );
        }
        if let Some(job) = &self.job
            && job.spec != *spec
        {
            let text = "a job with other arguments is attached: give every rank the same ones, or name another job with job=";
            return refuse(REFUSE_BUSY, text.into());
        }
        if self.sessions.iter().any(|session| session.rank == attach.rank) {
            let text = format!(
                "rank {} is attached already: to train twice at once, name another job with job=",
                attach.rank
            );
            return refuse(REFUSE_BUSY, text);
        }
        let is_new = self.job.is_none();
        let job = match self.job.take() {
            Some(job) => job,
            // Goes through the whole index, so for the first rank only.
            None => {
                check_sizes(spec.output, &*self.index).map_err(|text| Refusal { code: REFUSE_SPEC, text })?;
                Job::new(*spec, &*self.index)?
            }
        };
        let (accepted, ring) = (job.accepted(), job.ring.clone());
        self.job = Some(job);
        if is_new {
            self.rescore_residents();
            self.places.iter_mut().for_each(Places::forget_brought);
        }
        self.sessions.push(Session::new(attach.session, attach.rank, ring));
        Ok(accepted)
    }

    fn detach(&mut self, session: SessionId) {
        let Some(at) = self.sessions.iter().position(|s| s.id == session) else { return };
        let gone = self.sessions.swap_remove(at);
        for batch in gone.open {
            for row in batch.ready {
                self.release(M::take_back(row.record));
            }
        }
        self.forget_waiting(session);
        if self.sessions.is_empty() {
            self.job = None;
        }
    }

    /// `session` has released these descriptors.
    fn released(&mut self, now_ns: u64, session: SessionId, seqs: Vec<u64>, actions: &mut Vec<Action<M>>) {
        if let Some(state) = self.session_mut(session)
            && let Some(seq) = seqs.into_iter().find(|&seq| !state.release(seq))
        {
            let text = format!("released descriptor {seq}, which it does not hold");
            actions.push(Action::Close(session, text));
        }
        self.trace_release(now_ns, session, actions);
    }

    fn want_epoch(&mut self, session: SessionId, wanted: Wanted, actions: &mut Vec<Action<M>>) {
        let batches = self.job.as_ref().map_or(0, |job| job.batches_in(wanted.epoch));
        if wanted.next_batch > batches {
            let text = format!(
                "batch {} of epoch {} does not exist: an epoch has {batches}",
                wanted.next_batch, wanted.epoch
            );
            actions.push(Action::Interrupt(session, text));
            return;
        }
        let Some(state) = self.session_mut(session) else { return };
        state.wanted = Some(wanted);
        state.blocked_since_ns = None;
        state.is_full = false;
        let rank = state.rank;
        if let Some(job) = &mut self.job
            && job.epoch() == Some(wanted.epoch)
        {
            // Within the epoch: the accesses that follow may be others than those in sight.
            job.outlook = None;
            // What it was given before, it is given again.
            job.given.get_mut(rank as usize).into_iter().for_each(|given| *given = Given::default());
        }
        self.abandon_open(session);
    }

    /// A new job or a loaded table ranks what is resident anew.
    pub(super) fn rescore_residents(&mut self) {
        let Some(job) = &self.job else { return };
        let residents: Vec<SampleId> = self.cache.ids().collect();
        for id in residents {
            self.cache.rescore(id, &job.importance);
        }
    }
}
