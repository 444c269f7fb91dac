//! Ranks save states and load them.
#![warn(clippy::indexing_slicing)]

use std::collections::HashSet;

use crate::action::{Action, Resumed};
use crate::aside::AsideOrder;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::drawing::Awaited;
use crate::event::SessionId;
use crate::job::{Job, Loaded};
use crate::lists::Lists;
use crate::memory::Memory;
use crate::snapshot::{LoadOrder, LoadedState, SaveOrder, State, state_digest};
use crate::stop::Next;

impl<M: Memory> Core<M> {
    /// Saves the state before batch `batch` of `epoch`. From then on the rest of that epoch is as
    /// saved.
    pub(super) fn save_state(
        &mut self,
        session: SessionId,
        epoch: u32,
        batch: u32,
        actions: &mut Vec<Action<M>>,
    ) {
        let content_id = self.index.content_id().0;
        let Some(id) = self.rank(session).map(|rank| rank.job) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.rest_is_saved |= job.epoch() == Some(epoch);
        let is_part = job.plan.as_ref().is_some_and(|plan| !plan.part.is_whole());
        let lists = || job.shared_scores.as_ref().map_or_else(Lists::default, |shared| shared.lists.clone());
        let order = SaveOrder {
            session,
            content_id,
            plan_spec: job.spec.plan,
            strata: job.strata.count(),
            has_reports: job.has_reports,
            next: Next::of(job, epoch, batch),
            seats: job.seats.clone(),
            plan: job.plan.clone(),
            next_plan: job.next_plan.clone(),
            validation: job.validation.clone(),
            lists: is_part.then(lists),
            scored_at: job.scored_at.clone(),
            importance: job.importance.clone(),
        };
        actions.push(Action::Aside(AsideOrder::Save(Box::new(order))));
    }

    /// Loads a saved state. Every rank of a job hands in the same one; it takes effect with the
    /// first. Unless `strata_wanted` is 0, its plan must have as many.
    pub(super) fn load_state(
        &mut self,
        session: SessionId,
        strata_wanted: u32,
        bytes: Vec<u8>,
        actions: &mut Vec<Action<M>>,
    ) {
        let Some((rank, id)) = self.rank(session).map(|rank| (rank.rank, rank.job)) else { return };
        let Some(job) = self.jobs.get_mut(id) else { return };
        match &mut job.loaded {
            // Others have loaded theirs, and this rank has not: it must hand in the same.
            Some(last) if !last.ranks.contains(&rank) => {
                if last.digest == state_digest(&bytes) {
                    last.ranks.insert(rank);
                    return actions.push(Action::StateLoaded(session, last.resumed));
                }
                let mut others: Vec<u32> = last.ranks.iter().copied().collect();
                others.sort_unstable();
                let text = format!(
                    "rank {rank} loads another state than ranks {others:?} have loaded: all ranks of a job \
                     load the state that one of them saved"
                );
                actions.extend(self.ranks.iter().filter(|s| s.job == id).map(|s| {
                    let tell = if s.id == session { Action::Fail } else { Action::Interrupt };
                    tell(s.id, text.clone())
                }));
                return;
            }
            _ => {}
        }
        let (spec, samples, content_id) = (job.spec.clone(), self.index.len(), self.index.content_id().0);
        let (weights, own_strata) = (job.weights.clone(), job.own_strata.clone());
        let id = self.next_order(id);
        let order = LoadOrder {
            id,
            session,
            rank,
            strata_wanted,
            bytes,
            content_id,
            samples,
            spec,
            weights,
            own_strata,
        };
        if let Some(job) = self.jobs.get_mut(id.job) {
            job.awaits = Some(Awaited::Order(id));
        }
        actions.push(Action::Aside(AsideOrder::Load(Box::new(order))));
    }

    /// A state was read: it takes effect.
    pub(super) fn loaded(&mut self, loaded: LoadedState, actions: &mut Vec<Action<M>>) {
        let LoadedState { id, session, rank, digest, state } = loaded;
        let Some(job) = self.jobs.get_mut(id.job) else { return };
        assert!(job.awaits_order(id), "a job loads one state at a time");
        job.awaits = None;
        let state = match state {
            Ok(state) => state,
            Err(error) => return actions.push(Action::Fail(session, error.to_string())),
        };
        let resumed = job.restore(state);
        self.figures.begin_epoch(id.job);
        job.loaded = Some(Loaded { digest, ranks: HashSet::from([rank]), resumed });
        self.weigh_jobs();
        self.begin_cache_epoch(id.job);
        let text = format!(
            "rank {rank} has loaded a state, which ends the current epoch in all ranks: load the same one here, too"
        );
        let everyone: Vec<SessionId> =
            self.ranks.iter().filter(|rank| rank.job == id.job).map(|rank| rank.id).collect();
        for other in everyone {
            self.abandon(other, Dropped::All);
            // Nor does the end come of what it was given before.
            self.batches.forget_end(other);
            let Some(state) = self.rank_mut(other) else { continue };
            state.delivered.clear();
            // It would wait for batches that do not come.
            if state.request.take().is_some_and(|request| !request.ended) && other != session {
                actions.push(Action::Interrupt(other, text.clone()));
            }
        }
        actions.push(Action::StateLoaded(session, resumed));
    }
}

impl Job {
    /// Goes on where the state says.
    fn restore(&mut self, state: State) -> Resumed {
        let State { strata, seats, plan, next_plan, validation, has_reports, scored_at, importance, next } =
            state;
        (self.strata, self.seats) = (strata, seats);
        self.forget_lists();
        self.begin(plan);
        self.next_plan = next_plan;
        self.validation = validation;
        (self.has_reports, self.reports_missing) = (has_reports, false);
        (self.had_reports, self.is_plan_used) = (false, false);
        self.scored_at = scored_at;
        self.importance = importance;
        self.rest_is_saved = self.epoch() == Some(next.epoch);
        self.resume(next)
    }
}
