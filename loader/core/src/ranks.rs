//! Ranks: they attach and leave, ask for epochs and release batches.

use shade_formats::control::{REFUSE_BUSY, REFUSE_RESOURCES, REFUSE_SPEC};
use shade_formats::limits::JOBS_MAX;
use shade_job::Sampler;

use crate::action::{Accepted, Action, Refusal};
use crate::bad_share::RowCounts;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::event::{Attach, SessionId};
use crate::importance::Importance;
use crate::job::Job;
use crate::memory::Memory;
use crate::rank::{EpochRequest, Rank};
use crate::tables::{given_tables, weights_by_class};

impl<M: Memory> Core<M> {
    pub(super) fn attach(&mut self, now_ns: u64, attach: Attach, actions: &mut Vec<Action<M>>) {
        let id = attach.session;
        let jobs = self.jobs.len();
        match self.accept(now_ns, attach) {
            Ok(accepted) => {
                actions.push(Action::Accept(id, accepted));
                if self.jobs.len() > jobs {
                    self.trace_job(now_ns, id, actions);
                }
            }
            Err(refusal) => actions.push(Action::Refuse(id, refusal)),
        }
    }

    fn accept(&mut self, now_ns: u64, attach: Attach) -> Result<Accepted, Refusal> {
        let refuse = |code, text| Err(Refusal { code, text });
        let Attach { session, job: name, rank, spec, tables } = attach;
        spec.validate().map_err(|error| Refusal { code: REFUSE_SPEC, text: error.to_string() })?;
        if rank >= spec.world_size {
            let text = format!("rank {rank} is not below the world size {}", spec.world_size);
            return refuse(REFUSE_SPEC, text);
        }
        let known = self.jobs.named(&name).map(|job| job.id);
        if let Some(job) = known.and_then(|job| self.jobs.get(job)).filter(|job| job.spec != spec) {
            let text = format!(
                "job {:?} is attached with other arguments: give every rank the same arguments, or name \
                 another job with Daemon(job=\"...\")",
                job.name
            );
            return refuse(REFUSE_BUSY, text);
        }
        if self.ranks.iter().any(|other| Some(other.job) == known && other.rank == rank) {
            let text = format!(
                "rank {rank} is attached already in job {name:?}: to train twice at once, name another \
                 job with Daemon(job=\"...\")"
            );
            return refuse(REFUSE_BUSY, text);
        }
        if let Some(job) =
            known.and_then(|job| self.jobs.get(job)).filter(|job| self.ranks_to_attach(job) == 0)
        {
            let here = job.spec.local_ranks();
            let text = format!(
                "rank {rank} is one too many: job {name:?} has {here} ranks at this daemon, and all of them are \
                 attached; give ranks_here of a node as many ranks as it has"
            );
            return refuse(REFUSE_BUSY, text);
        }
        if known.is_none() && self.jobs.len() >= JOBS_MAX as usize {
            let text = format!(
                "{JOBS_MAX} jobs are attached already, which is the most that one daemon serves: wait until \
                 one of them has ended, or start another daemon with Daemon(socket=\"...\")"
            );
            return refuse(REFUSE_RESOURCES, text);
        }
        let unfit = |text| Refusal { code: REFUSE_SPEC, text };
        let mut given = given_tables(&spec, tables, &*self.index).map_err(unfit)?;
        let place = |job: &Job| (job.accepted(), job.ring.clone());
        let (job, (accepted, ring)) = match known.and_then(|job| self.jobs.get(job)) {
            Some(job) => (job.id, place(job)),
            // Goes through the whole index, so for the first rank only.
            None => {
                if spec.plan.sampler == Sampler::Balanced {
                    let weights = weights_by_class(&*self.index, given.subset.as_ref()).map_err(unfit)?;
                    given.weights = Some(weights);
                }
                let job = Job::new(self.jobs.next_id(), name, spec, given, &*self.index)?;
                let begun = (job.id, place(&job));
                self.begin_job(job);
                begun
            }
        };
        self.jobs.get_mut(job).into_iter().for_each(|job| job.has_rank(rank));
        self.ranks.push(Rank::new(session, job, rank, now_ns));
        self.batches.attach(session, job, ring);
        Ok(accepted)
    }

    fn begin_job(&mut self, job: Job) {
        self.figures.begin_job(job.id, &job.name);
        if self.jobs.is_empty() {
            self.records.begin_jobs();
        }
        let (id, before) = (job.id, self.jobs.admitting_ids());
        self.jobs.add(job);
        let after = self.jobs.admitting_ids();
        // A validation that had the cache leaves it to a training.
        for job in before.into_iter().filter(|job| !after.contains(job)) {
            self.records.forget_job(job);
            self.jobs.get_mut(job).into_iter().for_each(|job| job.lookahead = None);
        }
        if after.contains(&id) {
            self.weigh_jobs();
        }
    }

    pub(super) fn detach(&mut self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        self.goes_on(now_ns, session, actions);
        let Some(at) = self.ranks.iter().position(|rank| rank.id == session) else { return };
        // It can no longer tell whether it trained.
        self.note_taken(session);
        let gone = self.ranks.swap_remove(at);
        let spare = self.batches.detach(session);
        spare.into_iter().for_each(|record| self.records.take_back(record));
        self.records.forget(session, |_| true);
        if self.ranks.iter().any(|rank| rank.job == gone.job) {
            return;
        }
        let admitted = self.jobs.admitting_ids().contains(&gone.job);
        self.jobs.remove(gone.job);
        self.figures.end_job(gone.job);
        self.batches.end_job(gone.job, &self.jobs);
        self.records.end_job(gone.job);
        if admitted {
            self.records.forget_job(gone.job);
            self.records.rank_anew(self.jobs.importance());
            // The scores of the last job stay, until another one begins.
            if self.jobs.admitting().next().is_some() {
                self.weigh_jobs();
            }
        }
    }

    /// `session` leaves its epoch: tells of it, if it was not told of.
    fn goes_on(&mut self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        if let Some(job) = self.rank(session).map(|rank| rank.job) {
            self.tell_of_epoch(job, now_ns, true, actions);
        }
    }

    /// `session` has released these descriptors.
    pub(super) fn released(
        &mut self,
        now_ns: u64,
        session: SessionId,
        seqs: Vec<u64>,
        actions: &mut Vec<Action<M>>,
    ) {
        let Some(rank) = self.ranks.iter().find(|rank| rank.id == session) else { return };
        let mut job = self.jobs.get_mut(rank.job);
        for seq in seqs {
            match self.batches.release(session, seq, now_ns) {
                Some(0) => {}
                Some(batch_ns) => job.iter_mut().for_each(|job| job.pace.computed(batch_ns)),
                None => {
                    let text = format!("released descriptor {seq}, which it does not hold");
                    actions.push(Action::Close(session, text));
                    break;
                }
            }
        }
        self.trace_release(now_ns, session, actions);
        if let Some(job) = self.rank(session).map(|rank| rank.job) {
            self.tell_of_epoch(job, now_ns, false, actions);
        }
    }

    /// `session` took batches of the epoch that it asked for last, or may have.
    fn note_taken(&mut self, session: SessionId) {
        let Some(state) = self.rank(session) else { return };
        let (job, request) = (state.job, state.request);
        let Some(job) = self.jobs.get_mut(job) else { return };
        // After a state was loaded, the plan may be another one than it took them of.
        job.is_plan_used |= request.is_some_and(|request| job.epoch() == Some(request.epoch));
    }

    /// `session` wants an epoch. It starts once all ranks want it.
    pub(super) fn start_epoch(
        &mut self,
        now_ns: u64,
        session: SessionId,
        request: EpochRequest,
        has_taken: bool,
        actions: &mut Vec<Action<M>>,
    ) {
        if has_taken {
            self.note_taken(session);
        }
        self.goes_on(now_ns, session, actions);
        let EpochRequest { epoch, next_batch, .. } = request;
        let slices = self.job_of(session).map(|job| job.slices_of(epoch));
        let batches = slices.map_or(0, |slices| slices.batches_per_epoch());
        if next_batch > batches {
            let text = format!("batch {next_batch} of epoch {epoch} does not exist: an epoch has {batches}");
            actions.push(Action::Interrupt(session, text));
            return;
        }
        let misses = |state: &Rank| self.jobs.get(state.job)?.why_not_here(epoch, state.rank);
        let misses = self.rank(session).and_then(misses);
        if let Some(text) = misses.or_else(|| self.why_not_seated(session)) {
            actions.push(Action::Interrupt(session, text));
            return;
        }
        let is_ahead = self.job_of(session).is_some_and(|job| job.is_ahead(epoch)) && next_batch == 0;
        self.batches.begin_epoch(session);
        let Some(first) = self.batches.first_of_next(session, is_ahead) else { return };
        let Some(state) = self.rank_mut(session) else { return };
        // An epoch that was resumed with other ranks has no earlier batches.
        let first_batch = slices.map_or(0, |slices| slices.origin().batch);
        state.request = Some(EpochRequest { next_batch: next_batch.max(first_batch), ..request });
        state.clock.begin_epoch(now_ns, first);
        let (rank, job) = (state.rank, state.job);
        if let Some(job) = self.jobs.get_mut(job)
            && job.epoch() == Some(epoch)
        {
            // Within the epoch: the accesses that follow may be others than those in sight.
            job.lookahead = None;
            self.figures.rank_begins(job.id);
            // What it was given before, it is given again.
            job.row_counts
                .get_mut(rank as usize)
                .into_iter()
                .for_each(|counts| *counts = RowCounts::default());
        }
        self.abandon(session, if is_ahead { Dropped::NotHeld } else { Dropped::All });
    }

    /// A session's job has learned elsewhere. A table for other samples is ignored.
    pub(super) fn replace_importance(&mut self, session: SessionId, table: Importance) {
        let Some(job) = self.rank(session).map(|rank| rank.job) else { return };
        let Some(job) = self.jobs.get_mut(job).filter(|job| job.importance.len() == table.len()) else {
            return;
        };
        (job.importance, job.has_reports) = (table, true);
        let job = job.id;
        self.drop_ahead(job);
        self.weigh_jobs();
    }
}
