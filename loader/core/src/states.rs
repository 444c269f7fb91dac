//! Saved states, scores of other nodes, and seats: what ranks hand in and are handed.

use crate::action::Action;
use crate::aside::AsideOrder;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::ids::SessionId;
use crate::memory::Memory;
use crate::plan::StrataError;
use crate::training::{LoadAnswer, LoadedState, Restored};

impl<M: Memory> Core<M> {
    /// Saves the state before batch `batch` of `epoch`.
    pub(super) fn save_state(
        &mut self,
        session: SessionId,
        epoch: u32,
        batch: u32,
        actions: &mut Vec<Action<M>>,
    ) {
        let order = self.training.save_state(session, epoch, batch);
        actions.extend(order.map(|order| Action::Aside(AsideOrder::Save(order))));
    }

    /// Loads a saved state.
    pub(super) fn load_state(
        &mut self,
        session: SessionId,
        strata: u32,
        bytes: Vec<u8>,
        actions: &mut Vec<Action<M>>,
    ) {
        match self.training.load_state(session, strata, bytes) {
            None => {}
            Some(LoadAnswer::Loaded(resumed)) => actions.push(Action::StateLoaded(session, resumed)),
            Some(LoadAnswer::Ordered(order)) => actions.push(Action::Aside(AsideOrder::Load(order))),
            Some(LoadAnswer::Differs(text)) => {
                let everyone = self.job_id_of(session).map(|job| self.training.sessions_of(job));
                actions.extend(everyone.into_iter().flatten().map(|other| {
                    let tell = if other == session { Action::Fail } else { Action::Interrupt };
                    tell(other, text.clone())
                }));
            }
        }
    }

    /// A state was read: it takes effect.
    pub(super) fn loaded(&mut self, now_ns: u64, loaded: LoadedState, actions: &mut Vec<Action<M>>) {
        if self.training.is_handed_over(&loaded) {
            return self.succeed(now_ns, loaded, actions);
        }
        let session = loaded.session;
        let Restored { job, resumed, interrupted, text } = match self.training.loaded(loaded) {
            None => return,
            Some(Ok(restored)) => restored,
            Some(Err(text)) => return actions.push(Action::Fail(session, text)),
        };
        self.figures.begin_epoch(job);
        self.weigh_jobs();
        self.begin_cache_epoch(job);
        for other in self.training.sessions_of(job) {
            self.abandon(other, Dropped::All);
            // Nor does the end come of what it was given before.
            self.batches.forget_end(other);
        }
        actions.extend(interrupted.into_iter().map(|other| Action::Interrupt(other, text.clone())));
        actions.push(Action::StateLoaded(session, resumed));
        if self.training.has_loaded_as_they_did(job) {
            self.end_gathering(now_ns, job, actions);
        }
    }

    /// Takes what another node has told.
    pub(super) fn take_scores(&mut self, session: SessionId, bytes: &[u8], actions: &mut Vec<Action<M>>) {
        let Some(taken) = self.training.take_scores(session, bytes) else { return };
        actions.push(answer(session, taken.map(|rescored| self.rescore(rescored))));
    }

    /// A rank tells the seats of its job's plans.
    pub(super) fn take_seats(&mut self, session: SessionId, bytes: &[u8], actions: &mut Vec<Action<M>>) {
        let taken = self.training.take_seats(session, bytes);
        actions.extend(taken.map(|taken| answer(session, taken)));
    }

    /// How much of each of `strata` strata is cached, as
    /// [`held_from_bytes`](shade_job::held_from_bytes) reads it; 0 strata are those of the last job
    /// that trains. Returns their number, too.
    ///
    /// # Errors
    /// There are more strata than samples.
    pub fn held(&self, strata: u32) -> Result<(u32, Vec<u8>), StrataError> {
        self.training.held(strata, self.cached())
    }
}

/// What a session hears of what it has handed in.
fn answer<M: Memory>(session: SessionId, taken: Result<(), String>) -> Action<M> {
    match taken {
        Ok(()) => Action::Taken(session),
        Err(text) => Action::Fail(session, text),
    }
}
