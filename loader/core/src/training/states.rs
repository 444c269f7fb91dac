//! Ranks save states and load them.
#![warn(clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;

use super::Training;
use super::drawing::{Awaited, OrderId};
use super::job::{Job, Loaded};
use super::lists::Lists;
use super::loading::{LoadOrder, LoadedState, State, state_digest};
use super::snapshot::{SaveOrder, StateToSave};
use super::stop::Next;
use crate::action::Resumed;
use crate::ids::{JobId, SessionId};
use crate::samples::Samples;

/// What becomes of a state that a rank hands in.
pub(crate) enum LoadAnswer {
    /// The job goes on there already, as another rank has loaded the same.
    Loaded(Resumed),
    /// It is another state than others have loaded: no rank of the job goes on.
    Differs(String),
    /// It is read first.
    Ordered(Box<LoadOrder>),
}

/// The rank that hands in a state.
pub(super) struct Loader {
    pub(super) session: SessionId,
    pub(super) rank: u32,
}

/// A state that has taken effect.
pub(crate) struct Restored {
    pub(crate) job: JobId,
    pub(crate) resumed: Resumed,
    /// The other ranks whose epoch ended with that: they would wait for batches that do not come.
    pub(crate) interrupted: Vec<SessionId>,
    /// What these are told.
    pub(crate) text: String,
}

impl Training {
    /// The order to save the state before batch `batch` of `epoch`. From then on the rest of that
    /// epoch is as saved. `None` if the session is not there.
    pub(crate) fn save_state(
        &mut self,
        session: SessionId,
        epoch: u32,
        batch: u32,
    ) -> Option<Box<SaveOrder>> {
        let content_id = self.index.content_id().0;
        let job = self.job_of_mut(session)?;
        job.current.rest_is_saved |= job.epoch() == Some(epoch);
        let state = job.state_to_save(content_id, Next::of(job, epoch, batch));
        Some(Box::new(SaveOrder { session, state }))
    }

    /// A rank hands in a saved state. Every rank of a job hands in the same one; it takes effect
    /// with the first. Unless `strata_wanted` is 0, its plan must have as many. `None` if the
    /// session is not there.
    pub(crate) fn load_state(
        &mut self,
        session: SessionId,
        strata_wanted: u32,
        bytes: Vec<u8>,
    ) -> Option<LoadAnswer> {
        let (rank, id) = self.rank(session).map(|rank| (rank.rank, rank.job))?;
        // Others have loaded theirs, and this rank has not: it must hand in the same.
        let loaded = self.jobs.get_mut(id)?.loaded.as_mut();
        if let Some(last) = loaded.filter(|last| !last.ranks.contains(&rank)) {
            if last.digest == state_digest(&bytes) {
                last.ranks.insert(rank);
                return Some(LoadAnswer::Loaded(last.resumed));
            }
            let mut others: Vec<u32> = last.ranks.iter().copied().collect();
            others.sort_unstable();
            return Some(LoadAnswer::Differs(format!(
                "rank {rank} loads another state than ranks {others:?} have loaded: all ranks of a job \
                 load the state that one of them saved"
            )));
        }
        let order = self.next_order(id);
        let index = Arc::clone(&self.index);
        let job = self.jobs.get_mut(id)?;
        job.awaits = Some(Awaited::Order(order));
        let order = job.load_order(order, Loader { session, rank }, strata_wanted, bytes, &*index);
        Some(LoadAnswer::Ordered(Box::new(order)))
    }

    /// A state was read: it takes effect. `None` if its job has ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn loaded(&mut self, loaded: LoadedState) -> Option<Result<Restored, String>> {
        let LoadedState { id, session, rank, digest, state } = loaded;
        let job = self.jobs.get_mut(id.job)?;
        assert!(job.awaits_order(id), "a job loads one state at a time");
        job.awaits = None;
        let state = match state {
            Ok(state) => state,
            Err(error) => return Some(Err(error.to_string())),
        };
        let resumed = job.restore(state);
        job.forget_pooled(digest);
        job.loaded = Some(Loaded { digest, ranks: HashSet::from([rank]), resumed });
        let mut interrupted = Vec::new();
        for other in self.ranks.iter_mut().filter(|other| other.job == id.job) {
            other.delivered.clear();
            if other.request.take().is_some_and(|request| !request.ended) && other.id != session {
                interrupted.push(other.id);
            }
        }
        let text = format!(
            "rank {rank} has loaded a state, which ends the current epoch in all ranks: load the same one here, too"
        );
        Some(Ok(Restored { job: id.job, resumed, interrupted, text }))
    }
}

impl Job {
    /// What goes into a state that goes on at `next`.
    pub(super) fn state_to_save(&self, content_id: u128, next: Next) -> StateToSave {
        let is_part = self.plan().is_some_and(|plan| !plan.part.is_whole());
        let lists = || self.shared_scores.as_ref().map_or_else(Lists::default, |shared| shared.lists.clone());
        StateToSave {
            content_id,
            plan_spec: self.plan_spec(),
            strata: self.strata.count(),
            has_reports: self.reports.have_come(),
            next,
            seats: self.seats.clone(),
            plan: self.current.plan.clone(),
            next_plan: self.next_plan.clone(),
            validation: self.validation.clone(),
            lists: is_part.then(lists),
            scored_at: self.scored_at.clone(),
            importance: self.importance.clone(),
        }
    }

    /// The order to read a state that this rank has handed in.
    pub(super) fn load_order(
        &self,
        id: OrderId,
        by: Loader,
        strata_wanted: u32,
        bytes: Vec<u8>,
        index: &dyn Samples,
    ) -> LoadOrder {
        LoadOrder {
            id,
            session: by.session,
            rank: by.rank,
            strata_wanted,
            bytes,
            content_id: index.content_id().0,
            samples: index.len(),
            spec: self.spec.clone(),
            weights: self.weights.clone(),
            own_strata: self.own_strata.clone(),
        }
    }

    /// Goes on where the state says.
    pub(super) fn restore(&mut self, state: State) -> Resumed {
        let State { strata, gap, seats, plan, next_plan, .. } = state;
        let State { validation, has_reports, scored_at, importance, next, .. } = state;
        self.is_restored = true;
        (self.strata, self.seats, self.gap) = (strata, seats, gap);
        self.forget_lists();
        self.begin(plan);
        self.next_plan = next_plan;
        self.validation = validation;
        self.reports.restore(has_reports);
        self.scored_at = scored_at;
        self.importance = importance;
        self.current.rest_is_saved = self.epoch() == Some(next.epoch);
        self.resume(next)
    }
}
