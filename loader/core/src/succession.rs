//! The core of a daemon that succeeds one that died: its jobs go on where their ranks are.

use shade_formats::control::{Step, redo_from_bytes};

use crate::action::Action;
use crate::brain::Core;
use crate::event::Event;
use crate::ids::{BatchId, JobId, SessionId};
use crate::memory::Memory;
use crate::training::{Base, BaseVersion, Gathered, LoadedState, Places, Redo, Redos, Succeeded};

impl<M: Memory> Core<M> {
    /// A rank hands in a base, or a state that it had loaded.
    pub(super) fn take_base(
        &mut self,
        now_ns: u64,
        session: SessionId,
        version: BaseVersion,
        bytes: Vec<u8>,
        actions: &mut Vec<Action<M>>,
    ) {
        match self.training.take_base(session, version, bytes) {
            None => {}
            Some(Ok(())) => self.gather_of(now_ns, session, actions),
            Some(Err(text)) => actions.push(Action::Close(session, text)),
        }
    }

    /// A rank hands in its redo record.
    pub(super) fn take_redo(
        &mut self,
        now_ns: u64,
        session: SessionId,
        bytes: &[u8],
        actions: &mut Vec<Action<M>>,
    ) {
        match redo_from_bytes(bytes) {
            Ok(steps) => match self.training.take_redo(session, steps) {
                Some(redos) => self.redo(now_ns, redos, actions),
                None => self.gather_of(now_ns, session, actions),
            },
            Err(error) => actions.push(Action::Close(session, error.to_string())),
        }
    }

    /// What a session says waits for its job. If the job gathers what is handed over, that may be
    /// complete now.
    pub(super) fn note_asked(&mut self, event: &Event<M>) {
        if let Event::StartEpoch { session, .. } | Event::LoadState { session, .. } = event {
            self.training.note_asked(*session);
        }
    }

    fn gather_of(&mut self, now_ns: u64, session: SessionId, actions: &mut Vec<Action<M>>) {
        let job = self.job_id_of(session);
        job.into_iter().for_each(|job| self.gather(now_ns, job, actions));
    }

    /// Goes on once every rank here has handed over what it has, and waits.
    pub(super) fn gather(&mut self, now_ns: u64, job: JobId, actions: &mut Vec<Action<M>>) {
        match self.training.gathered(job) {
            None => {}
            Some(Gathered::Read(order)) => actions.push(Action::Aside(crate::AsideOrder::Load(order))),
            Some(Gathered::Nothing) => self.end_gathering(now_ns, job, actions),
        }
    }

    /// The state of a base was read.
    pub(super) fn succeed(&mut self, now_ns: u64, loaded: LoadedState, actions: &mut Vec<Action<M>>) {
        let job = loaded.job();
        match self.training.succeed(loaded) {
            None => return,
            Some(Ok(Succeeded { base })) => {
                self.figures.begin_epoch(job);
                self.begin_cache_epoch(job);
                actions
                    .extend(base.map(|Base { epoch, sessions, bytes }| Action::Base(sessions, epoch, bytes)));
            }
            Some(Err(text)) => {
                let text = format!("what was kept of the daemon that died cannot be gone on from: {text}");
                self.training.take_redos(job);
                for session in self.training.sessions_of(job) {
                    actions.push(Action::Close(session, text.clone()));
                }
                return;
            }
        }
        self.end_gathering(now_ns, job, actions);
        self.weigh_jobs();
    }

    pub(super) fn end_gathering(&mut self, now_ns: u64, job: JobId, actions: &mut Vec<Action<M>>) {
        let redos = self.training.take_redos(job);
        self.redo(now_ns, redos, actions);
    }

    /// Takes in what happened to ranks before.
    fn redo(&mut self, now_ns: u64, redos: Redos, actions: &mut Vec<Action<M>>) {
        let Redos { epoch: of_base, of_ranks } = redos;
        let (mut places, mut heard) = (Places::default(), Vec::new());
        for Redo { session, steps } in of_ranks {
            // What the rank said before it asked for the base's epoch is in the base.
            let (mut started, mut is_new) = (None, of_base.is_none());
            for step in steps {
                let done = match step {
                    Step::Started { epoch } => {
                        started = Some(epoch);
                        is_new |= started >= of_base;
                        Ok(())
                    }
                    Step::Delivered { epoch, batch, rows } => {
                        let batch = BatchId { epoch, number: batch };
                        self.training.redeliver(session, batch, &rows, &mut places)
                    }
                    // It came after the rank had asked for an epoch that others are told of.
                    Step::Reported { epoch, batch, losses }
                        if is_new && self.training.reports_late(session, started) =>
                    {
                        let report = Event::Report { session, epoch, batch, losses };
                        self.postponed.extend(self.job_id_of(session).map(|job| (job, report)));
                        Ok(())
                    }
                    Step::Reported { epoch, batch, losses } if is_new => {
                        self.report(now_ns, session, BatchId { epoch, number: batch }, &losses, actions);
                        Ok(())
                    }
                    Step::Validated { score } if is_new => {
                        self.training.validation_in(session, started, score);
                        Ok(())
                    }
                    Step::Heard { scores } if is_new => {
                        heard.push((session, scores));
                        Ok(())
                    }
                    Step::Reported { .. } | Step::Validated { .. } | Step::Heard { .. } => Ok(()),
                };
                if let Err(text) = done {
                    actions.push(Action::Close(session, text));
                    break;
                }
            }
        }
        // After all that the ranks here have told.
        for (session, scores) in heard {
            match self.training.take_scores(session, &scores) {
                Some(Ok(rescored)) => self.rescore(rescored),
                Some(Err(text)) => actions.push(Action::Close(session, text)),
                None => {}
            }
        }
    }
}
