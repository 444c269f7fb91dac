//! Ranks: they attach and leave, ask for epochs and release batches.

use shade_formats::SampleId;
use shade_formats::control::{REFUSE_BUSY, REFUSE_SPEC, Sampler};

use crate::action::{Accepted, Action, Refusal};
use crate::bad_share::RowCounts;
use crate::brain::Core;
use crate::event::{Attach, SessionId};
use crate::fixed_weights::{given_weights, weights_by_class};
use crate::job::Job;
use crate::memory::Memory;
use crate::session::{EpochRequest, Session};
use crate::sizes::check_sizes;
use crate::windows::Windows;

impl<M: Memory> Core<M> {
    pub(super) fn attach(&mut self, now_ns: u64, attach: Attach, actions: &mut Vec<Action<M>>) {
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

    fn accept(&mut self, attach: Attach) -> Result<Accepted, Refusal> {
        let refuse = |code, text| Err(Refusal { code, text });
        let Attach { session, rank, spec, weights } = attach;
        spec.validate().map_err(|error| Refusal { code: REFUSE_SPEC, text: error.to_string() })?;
        if rank >= spec.world_size {
            let text = format!("rank {rank} is not below the world size {}", spec.world_size);
            return refuse(REFUSE_SPEC, text);
        }
        if self.job.as_ref().is_some_and(|job| job.spec != spec) {
            let text = "a job with other arguments is attached: give every rank the same arguments, \
                        or name another job with Daemon(job=\"...\")";
            return refuse(REFUSE_BUSY, text.into());
        }
        if self.sessions.iter().any(|session| session.rank == rank) {
            let text = format!(
                "rank {rank} is attached already: to train twice at once, name another job with \
                 Daemon(job=\"...\")"
            );
            return refuse(REFUSE_BUSY, text);
        }
        let unfit = |text| Refusal { code: REFUSE_SPEC, text };
        let given = given_weights(&spec, weights, &*self.index).map_err(unfit)?;
        let is_new = self.job.is_none();
        let job = match self.job.take() {
            Some(job) => job,
            // Goes through the whole index, so for the first rank only.
            None => {
                check_sizes(spec.output, &*self.index).map_err(unfit)?;
                let weights = match spec.plan.sampler {
                    Sampler::Balanced => Some(weights_by_class(&*self.index).map_err(unfit)?),
                    _ => given,
                };
                Job::new(spec, weights, &*self.index)?
            }
        };
        let (accepted, ring) = (job.accepted(), job.ring.clone());
        self.job = Some(job);
        if is_new {
            self.rescore_residents();
            self.windows.iter_mut().for_each(Windows::forget_brought);
        }
        self.sessions.push(Session::new(session, rank, ring));
        Ok(accepted)
    }

    pub(super) fn detach(&mut self, session: SessionId) {
        let Some(at) = self.sessions.iter().position(|s| s.id == session) else { return };
        let gone = self.sessions.swap_remove(at);
        for row in gone.open.into_iter().flat_map(|batch| batch.ready) {
            self.release(M::take_back(row.record));
        }
        self.reading.forget(session);
        if self.sessions.is_empty() {
            self.job = None;
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
        if let Some(state) = self.session_mut(session)
            && let Some(seq) = seqs.into_iter().find(|&seq| !state.release(seq))
        {
            let text = format!("released descriptor {seq}, which it does not hold");
            actions.push(Action::Close(session, text));
        }
        self.trace_release(now_ns, session, actions);
    }

    /// `session` wants an epoch. It starts once all ranks want it.
    pub(super) fn start_epoch(
        &mut self,
        session: SessionId,
        request: EpochRequest,
        actions: &mut Vec<Action<M>>,
    ) {
        let EpochRequest { epoch, next_batch, .. } = request;
        let batches = self.job.as_ref().map_or(0, |job| job.batches_in(epoch));
        if next_batch > batches {
            let text = format!("batch {next_batch} of epoch {epoch} does not exist: an epoch has {batches}");
            actions.push(Action::Interrupt(session, text));
            return;
        }
        let Some(state) = self.session_mut(session) else { return };
        state.request = Some(request);
        state.blocked_since_ns = None;
        state.is_full = false;
        let rank = state.rank;
        if let Some(job) = &mut self.job
            && job.epoch() == Some(epoch)
        {
            // Within the epoch: the accesses that follow may be others than those in sight.
            job.outlook = None;
            // What it was given before, it is given again.
            job.row_counts
                .get_mut(rank as usize)
                .into_iter()
                .for_each(|counts| *counts = RowCounts::default());
        }
        self.abandon_open(session);
    }

    /// Ranks all residents by the scores of a new job or a loaded table.
    pub(super) fn rescore_residents(&mut self) {
        let Some(job) = &self.job else { return };
        let residents: Vec<SampleId> = self.cache.ids().collect();
        for id in residents {
            self.cache.rescore(id, &job.importance);
        }
    }
}
