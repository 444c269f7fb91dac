//! Ranks come, ask for epochs and go.

use shade_formats::control::{REFUSE_BUSY, REFUSE_RESOURCES, REFUSE_SPEC};
use shade_formats::limits::JOBS_MAX;
use shade_formats::ring::PayloadAllocator;
use shade_job::{JobSpec, Sampler};

use super::Training;
use super::job::Job;
use super::rank::{EpochRequest, Rank};
use super::tables::{given_tables, weights_by_class};
use crate::action::{Accepted, Refusal};
use crate::bad_share::RowCounts;
use crate::event::Attach;
use crate::ids::{JobId, SessionId};
use crate::importance::Importance;
use crate::plan::Plan;

/// A rank that has attached.
pub(crate) struct Attached {
    pub(crate) job: JobId,
    pub(crate) accepted: Accepted,
    /// The blocks of its ring.
    pub(crate) ring: PayloadAllocator,
    /// What its job has changed, if it is the first rank of it.
    pub(crate) begun: Option<Begun>,
}

/// A job has begun.
pub(crate) struct Begun {
    /// There was no other.
    pub(crate) is_first: bool,
    /// It keeps records in the cache.
    pub(crate) admits: bool,
    /// The jobs that kept records in the cache, and leave it to this one.
    pub(crate) displaced: Vec<JobId>,
}

/// A rank has left.
pub(crate) struct Left {
    pub(crate) job: JobId,
    /// It was its job's last: whether that kept records in the cache.
    pub(crate) ended_admitted: Option<bool>,
}

impl Training {
    /// A rank asks to attach, to a cache that holds `cache_samples` samples of the usual size.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn attach(
        &mut self,
        now_ns: u64,
        attach: Attach,
        cache_samples: u64,
    ) -> Result<Attached, Refusal> {
        let Attach { session, job: name, rank, spec, tables, survives } = attach;
        spec.validate().map_err(|error| Refusal { code: REFUSE_SPEC, text: error.to_string() })?;
        if rank >= spec.world_size {
            let text = format!("rank {rank} is not below the world size {}", spec.world_size);
            return Err(Refusal { code: REFUSE_SPEC, text });
        }
        let known = self.jobs.named(&name).map(|job| job.id);
        if let Some(job) = known.and_then(|job| self.jobs.get(job)) {
            self.check_place(job, rank, &spec)?;
        } else if self.jobs.len() >= JOBS_MAX as usize {
            let text = format!(
                "{JOBS_MAX} jobs are attached already, which is the most that one daemon serves: wait until \
                 one of them has ended, or start another daemon with Daemon(socket=\"...\")"
            );
            return Err(Refusal { code: REFUSE_RESOURCES, text });
        }
        let unfit = |text| Refusal { code: REFUSE_SPEC, text };
        let mut given = given_tables(&spec, tables, &*self.index).map_err(unfit)?;
        let (id, begun) = match known {
            Some(job) => (job, None),
            // Goes through the whole index, so for the first rank only.
            None => {
                if spec.plan.samplers().any(|sampler| sampler == Sampler::Balanced) {
                    let weights = weights_by_class(&*self.index, given.subset.as_ref(), &spec.plan.parts);
                    given.weights = Some(weights.map_err(unfit)?);
                }
                let id = self.jobs.next_id();
                let job = Job::new(id, name, spec, given, &*self.index, cache_samples)?;
                (id, Some(self.begin_job(job)))
            }
        };
        let Some(job) = self.jobs.get_mut(id) else { unreachable!("job {id} was known or has begun") };
        job.has_rank(rank);
        let (accepted, ring) = (job.accepted(), job.ring.clone());
        self.ranks.push(Rank::new(session, id, rank, survives, now_ns));
        Ok(Attached { job: id, accepted, ring, begun })
    }

    /// Refuses a rank that has no place in a job that has begun.
    fn check_place(&self, job: &Job, rank: u32, spec: &JobSpec) -> Result<(), Refusal> {
        let name = &job.name;
        let text = if job.spec != *spec {
            format!(
                "job {name:?} is attached with other arguments: give every rank the same arguments, or name \
                 another job with Daemon(job=\"...\")"
            )
        } else if self.ranks_of(job.id).any(|other| other.rank == rank) {
            format!(
                "rank {rank} is attached already in job {name:?}: to train twice at once, name another \
                 job with Daemon(job=\"...\")"
            )
        } else if self.ranks_to_attach(job) == 0 {
            let here = job.spec.local_ranks();
            format!(
                "rank {rank} is one too many: job {name:?} has {here} ranks at this daemon, and all of them are \
                 attached; give ranks_here of a node as many ranks as it has"
            )
        } else {
            return Ok(());
        };
        Err(Refusal { code: REFUSE_BUSY, text })
    }

    fn begin_job(&mut self, job: Job) -> Begun {
        let (id, is_first, before) = (job.id, self.jobs.is_empty(), self.jobs.admitting_ids());
        self.jobs.add(job);
        let after = self.jobs.admitting_ids();
        // A validation that had the cache leaves it to a training.
        let displaced: Vec<JobId> = before.into_iter().filter(|job| !after.contains(job)).collect();
        for &job in &displaced {
            self.jobs.get_mut(job).into_iter().for_each(|job| job.current.lookahead = None);
        }
        Begun { is_first, admits: after.contains(&id), displaced }
    }

    /// A rank leaves. `None` if it was not there.
    pub(crate) fn detach(&mut self, session: SessionId) -> Option<Left> {
        let at = self.ranks.iter().position(|rank| rank.id == session)?;
        // It can no longer tell whether it trained.
        self.note_taken(session);
        let job = self.ranks.swap_remove(at).job;
        self.forget_handed(job, session);
        if self.ranks_of(job).next().is_some() {
            return Some(Left { job, ended_admitted: None });
        }
        let admitted = self.jobs.admitting_ids().contains(&job);
        self.jobs.remove(job);
        Some(Left { job, ended_admitted: Some(admitted) })
    }

    /// A rank has computed a batch in this time.
    pub(crate) fn computed(&mut self, session: SessionId, batch_ns: u64) {
        self.job_of_mut(session).into_iter().for_each(|job| job.pace.computed(batch_ns));
    }

    /// `session` took batches of the epoch that it asked for last, or may have.
    pub(crate) fn note_taken(&mut self, session: SessionId) {
        let Some(rank) = self.rank_mut(session) else { return };
        rank.note_taken();
        let request = rank.request;
        let Some(job) = self.job_of_mut(session) else { return };
        // After a state was loaded, the plan may be another one than it took them of.
        if request.is_some_and(|request| job.epoch() == Some(request.epoch)) {
            job.reports.use_plan();
        }
    }

    /// Refuses an epoch that the rank cannot have, or not from this batch on.
    ///
    /// # Errors
    /// Why.
    pub(crate) fn check_request(
        &self,
        session: SessionId,
        EpochRequest { epoch, next_batch, .. }: EpochRequest,
    ) -> Result<(), String> {
        let Some((rank, job)) = self.rank(session).zip(self.job_of(session)) else { return Ok(()) };
        let batches = job.slices_of(epoch).batches_per_epoch();
        if next_batch > batches {
            return Err(format!(
                "batch {next_batch} of epoch {epoch} does not exist: an epoch has {batches}"
            ));
        }
        let why_not = job.why_not_here(epoch, rank.rank).or_else(|| self.why_not_seated(rank, job));
        why_not.map_or(Ok(()), Err)
    }

    /// Whether batches of this epoch may be held for the rank, and it asks for the first of them.
    pub(crate) fn is_ahead(&self, session: SessionId, request: EpochRequest) -> bool {
        self.job_of(session).is_some_and(|job| job.is_ahead(request.epoch)) && request.next_batch == 0
    }

    /// `session` wants an epoch, whose first descriptor is `first`. It starts once all ranks want
    /// it. Returns the job if the epoch has begun.
    pub(crate) fn start_epoch(
        &mut self,
        now_ns: u64,
        session: SessionId,
        request: EpochRequest,
        first: u64,
    ) -> Option<JobId> {
        let epoch = request.epoch;
        // An epoch that was resumed with other ranks has no earlier batches.
        let first_batch = self.job_of(session)?.slices_of(epoch).origin().batch;
        let rank = self.rank_mut(session)?;
        let next_batch = request.next_batch.max(first_batch);
        rank.ask(now_ns, EpochRequest { next_batch, ..request }, first);
        let number = rank.rank;
        let job = self.job_of_mut(session).filter(|job| job.epoch() == Some(epoch))?;
        // The accesses that follow may be others than the ones in sight.
        job.current.lookahead = None;
        job.go_back();
        // What it was given before, it is given again.
        job.current.row_counts[number as usize] = RowCounts::default();
        Some(job.id)
    }

    /// A session's job has learned elsewhere. A table for other samples is ignored. Returns the
    /// job.
    pub(crate) fn learn(&mut self, session: SessionId, table: Importance) -> Option<JobId> {
        let job = self.job_of_mut(session).filter(|job| job.importance.len() == table.len())?;
        job.importance = table;
        job.reports.come();
        Some(job.id)
    }

    /// The plan of a session's next epoch is given, and not drawn; also the one `after` it, if that
    /// is known. Returns the job.
    pub(crate) fn script(&mut self, session: SessionId, plan: Plan, after: Option<Plan>) -> Option<JobId> {
        let job = self.job_of_mut(session)?;
        (job.scripted, job.next_plan, job.scripted_after) = (Some(plan.epoch), Some(plan), after);
        Some(job.id)
    }
}
