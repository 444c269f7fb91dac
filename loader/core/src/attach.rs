//! Ranks come, ask for epochs, release batches and go: what that means for all rooms.

use crate::action::Action;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::event::Attach;
use crate::ids::{JobId, SessionId};
use crate::importance::Importance;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::training::{Attached, Begun, EpochRequest};

impl<M: Memory> Core<M> {
    pub(super) fn attach(&mut self, now_ns: u64, attach: Attach, actions: &mut Vec<Action<M>>) {
        let session = attach.session;
        match self.training.attach(now_ns, attach, self.records.cache_samples()) {
            Ok(Attached { job, accepted, ring, begun }) => {
                let has_begun = begun.is_some();
                begun.into_iter().for_each(|begun| self.begin_job(job, begun));
                self.batches.attach(session, job, ring);
                actions.push(Action::Accept(session, accepted));
                if has_begun {
                    self.trace_job(now_ns, session, actions);
                }
            }
            Err(refusal) => actions.push(Action::Refuse(session, refusal)),
        }
    }

    fn begin_job(&mut self, id: JobId, begun: Begun) {
        let Some(job) = self.training.job(id) else { unreachable!("job {id} has begun") };
        self.figures.begin_job(id, job.name());
        if begun.is_first {
            self.records.begin_jobs();
        }
        begun.displaced.into_iter().for_each(|job| self.records.forget_job(job));
        if begun.admits {
            self.weigh_jobs();
        }
    }

    pub(super) fn detach(&mut self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        self.goes_on(now_ns, session, actions);
        let Some(left) = self.training.detach(session) else { return };
        let spare = self.batches.detach(session);
        spare.into_iter().for_each(|record| self.records.take_back(record));
        self.records.forget(session, |_| true);
        let Some(admitted) = left.ended_admitted else { return };
        self.figures.end_job(left.job);
        self.batches.end_job(left.job, self.training.jobs());
        self.records.end_job(left.job);
        if admitted {
            self.records.forget_job(left.job);
            self.records.rank_anew(self.training.jobs().importance());
            // The scores of the last job stay, until another one begins.
            if self.training.jobs().admitting().next().is_some() {
                self.weigh_jobs();
            }
        }
    }

    /// `session` leaves its epoch: tells of it, if it was not told of.
    fn goes_on(&mut self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        if let Some(job) = self.job_id_of(session) {
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
        let Some(job) = self.job_id_of(session) else { return };
        for seq in seqs {
            match self.batches.release(session, seq, now_ns) {
                Some(0) => {}
                Some(batch_ns) => self.training.computed(session, batch_ns),
                None => {
                    let text = format!("released descriptor {seq}, which it does not hold");
                    actions.push(Action::Close(session, text));
                    break;
                }
            }
        }
        self.trace_release(now_ns, session, actions);
        self.tell_of_epoch(job, now_ns, false, actions);
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
            self.training.note_taken(session);
        }
        self.goes_on(now_ns, session, actions);
        if let Err(text) = self.training.check_request(session, request) {
            actions.push(Action::Interrupt(session, text));
            return;
        }
        let is_ahead = self.training.is_ahead(session, request);
        self.batches.begin_epoch(session);
        let Some(first) = self.batches.first_of_next(session, is_ahead) else { return };
        // Within the epoch: it counts anew what it is given again.
        if let Some(job) = self.training.start_epoch(now_ns, session, request, first) {
            self.figures.rank_begins(job);
        }
        self.abandon(session, if is_ahead { Dropped::NotHeld } else { Dropped::All });
    }

    /// A session's job has learned elsewhere.
    pub(super) fn replace_importance(&mut self, session: SessionId, table: Importance) {
        if let Some(job) = self.training.learn(session, table) {
            self.drop_ahead(job);
            self.weigh_jobs();
        }
    }

    /// The plan of the next epoch of a session's job is given, and not drawn; also the one `after`
    /// it, if that is known.
    pub(super) fn give_plan(&mut self, session: SessionId, plan: Plan, after: Option<Plan>) {
        let job = self.training.script(session, plan, after);
        job.into_iter().for_each(|job| self.drop_ahead(job));
    }
}
