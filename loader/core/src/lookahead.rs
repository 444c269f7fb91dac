//! What cache and plan know of each other: the cache gets each sample's next use, as far as it
//! looks ahead; the plan gets the residents that may come earlier.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::SampleId;

use crate::brain::Core;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::plan::{Lookahead, Slot, in_sight, may_exchange, next_accesses};

/// Positions that are looked at in a slice: some ms.
const LOOKED_AT_ONCE: u32 = 1 << 16;

impl<M: Memory> Core<M> {
    /// The access of `slot` begins: tells the cache when the job uses its sample next, and which
    /// uses have come into sight.
    pub(super) fn foresee(&mut self, job: JobId, sample: SampleId, slot: Slot) {
        // Padding is no planned use.
        if !self.cache.properties().looks_ahead || slot.padding {
            return;
        }
        let Some(mut lookahead) = self.jobs.get_mut(job).and_then(|job| job.lookahead.take()) else { return };
        let (cache, tier, importance) = (&mut self.cache, &mut self.tier, self.jobs.importance());
        if let Some(of) = self.jobs.get(job) {
            let next = lookahead.access(of.known(), slot.place, |(sample, at)| {
                cache.see(job, sample, at, importance);
                tier.see(job, sample, at, importance);
            });
            cache.use_at(job, sample, next);
            tier.use_at(job, sample, next, importance);
        }
        if let Some(job) = self.jobs.get_mut(job) {
            job.lookahead = Some(lookahead);
        }
    }

    /// Whether the cache goes by the next uses of the job.
    pub(super) fn looks_ahead(&self, id: JobId) -> bool {
        // With all samples resident nothing is evicted, and next uses do not matter.
        let has_all = self.cache.len() == self.index.len() as usize && !self.cache.has_surplus();
        !has_all && self.may_look_ahead(id)
    }

    /// Whether the cache would go by them if it had no room for all samples.
    pub(super) fn may_look_ahead(&self, id: JobId) -> bool {
        self.cache.properties().looks_ahead && self.admits(id)
    }

    /// Begins to look ahead over the job's current plan, from the first batch that some rank wants,
    /// unless that is done.
    pub(super) fn look_ahead(&mut self, id: JobId, now_ns: u64) {
        if !self.looks_ahead(id) {
            return;
        }
        let Some(job) = self.jobs.get(id) else { return };
        let (Some(plan), None) = (&job.plan, &job.lookahead) else { return };
        let (clock, from) = self.clock(job, now_ns);
        let ahead = in_sight(self.config.lookahead, plan.ids.len());
        let known = job.known();
        let next = match &job.next_accesses {
            Some(next) if next.len() == known.len() as usize => Arc::clone(next),
            _ => next_accesses(known, self.index.len()),
        };
        let mut lookahead = Lookahead::over(next, from, ahead);
        // Unless repeats of a sample are dealt to the ranks, a position says whose it is.
        if job.plans_for_others() && (job.strata.count() > 1 || plan.summary.repeat_max == 1) {
            let of_job = self.sessions.iter().filter(|session| session.job == id);
            let here: HashSet<u32> = of_job.map(|session| session.rank).collect();
            let len = to_u32(plan.ids.len());
            let position = |at: u32| at.checked_sub(len).unwrap_or(at);
            lookahead.leave_out(|at| !here.contains(&(position(at) % job.spec.world_size)));
        }
        self.cache.set_clock(id, clock);
        self.cache.forget_uses(id);
        self.tier.begin_plan(id, clock);
        if let Some(job) = self.jobs.get_mut(id) {
            (job.lookahead, job.prefetch_at) = (Some(lookahead), 0);
        }
        if !self.look_on() {
            self.rank_on();
        }
    }

    /// Goes on to tell the cache of the uses that are in sight. Returns whether there are more.
    pub(super) fn look_on(&mut self) -> bool {
        let has_more = |job: &&Job| job.lookahead.as_ref().is_some_and(Lookahead::has_more_in_sight);
        let Some(id) = self.jobs.iter().find(has_more).map(|job| job.id) else { return false };
        let lookahead = self.jobs.get_mut(id).and_then(|job| job.lookahead.take());
        let Some((job, mut lookahead)) = self.jobs.get(id).zip(lookahead) else { return false };
        let (cache, tier, importance) = (&mut self.cache, &mut self.tier, self.jobs.importance());
        lookahead.look_on(job.known(), LOOKED_AT_ONCE, |(sample, at)| {
            cache.see(id, sample, at, importance);
            tier.see(id, sample, at, importance);
        });
        if let Some(job) = self.jobs.get_mut(id) {
            job.lookahead = Some(lookahead);
        }
        self.jobs.iter().any(|job| has_more(&job))
    }

    /// Before the first rank opens global batch `number`: its absent samples change places with
    /// residents of later batches, if the policy exchanges samples and the plan permits it. No rank
    /// has opened those batches.
    pub(super) fn exchange(&mut self, job: JobId, number: u32) {
        if !self.jobs.get(job).is_some_and(|job| self.jobs.admits(job)) {
            return;
        }
        if !self.cache.properties().exchanges {
            return;
        }
        self.find_stand_ins(job);
        let Some(job) = self.jobs.get_mut(job) else { return };
        if number < job.settled {
            return;
        }
        job.settled = number.saturating_add(1);
        let (from, to) = (job.start(number), job.start(job.settled));
        // Other nodes would not know of an exchange with a sample of theirs.
        if !may_exchange(&job.spec.plan)
            || job.rest_is_saved
            || job.scripted == job.epoch()
            || job.plans_for_others()
        {
            return;
        }
        let ranks = job.ranks_apart();
        let Some(plan) = &mut job.plan else { return };
        let repeated = job.repeated.get_or_insert_with(|| plan.repeated(job.importance.len()));
        let comes_once = |id: SampleId| repeated.get(id.index()) != Some(&true);
        let (cache, reading) = (&self.cache, &self.reading);
        let is_absent = |id| cache.wants_stand_in(id) && !reading.is_pending(id) && comes_once(id);
        let may_stand_in = |id| cache.may_stand_in(id) && comes_once(id);
        let exchanged = match &mut job.stand_ins {
            Some(all) => all.exchange(plan, from..to, is_absent, may_stand_in),
            None => plan.exchange(from as usize..to as usize, ranks, is_absent, may_stand_in),
        };
        if self.cache.properties().counts_exchanges {
            job.exchanged.extend(exchanged);
        }
    }

    /// Whether the sample at `place` was exchanged. True once for each.
    pub(super) fn was_exchanged(&mut self, job: JobId, place: u32) -> bool {
        self.jobs.get_mut(job).is_some_and(|job| !job.exchanged.is_empty() && job.exchanged.remove(&place))
    }
}
