//! What cache and plan know of each other: the cache gets each sample's next use, as far as it
//! looks ahead; the plan gets the residents that may come earlier.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::SampleId;

use crate::brain::Core;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::plan::{Lookahead, Slot, StandIns, in_sight, may_exchange, next_accesses};

/// Positions that are looked at in a slice: some ms.
const LOOKED_AT_ONCE: u32 = 1 << 16;

impl<M: Memory> Core<M> {
    /// The access of `slot` begins: tells the cache when the job uses its sample next, and which
    /// uses have come into sight.
    pub(super) fn foresee(&mut self, job: JobId, sample: SampleId, slot: Slot) {
        // Padding is no planned use.
        if !self.records.policy().looks_ahead || slot.padding {
            return;
        }
        let Some(mut lookahead) = self.jobs.get_mut(job).and_then(|job| job.lookahead.take()) else { return };
        let (records, importance) = (&mut self.records, self.jobs.importance());
        if let Some(of) = self.jobs.get(job) {
            let next = lookahead.access(of.known(), slot.place, |(sample, at)| {
                records.see(job, sample, at, importance);
            });
            records.use_at(job, sample, next, importance);
        }
        if let Some(job) = self.jobs.get_mut(job) {
            job.lookahead = Some(lookahead);
        }
    }

    /// Whether the cache goes by the next uses of the job.
    pub(super) fn looks_ahead(&self, id: JobId) -> bool {
        // With all samples resident nothing is evicted, and next uses do not matter.
        !self.records.has_all() && self.may_look_ahead(id)
    }

    /// Whether the cache would go by them if it had no room for all samples.
    pub(super) fn may_look_ahead(&self, id: JobId) -> bool {
        self.records.policy().looks_ahead && self.jobs.admits_job(id)
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
        let ahead = in_sight(self.lookahead, plan.ids.len());
        let known = job.known();
        let next = match &job.next_accesses {
            Some(next) if next.len() == known.len() as usize => Arc::clone(next),
            _ => next_accesses(known, self.index.len()),
        };
        let mut lookahead = Lookahead::over(next, from, ahead);
        // Unless repeats of a sample are dealt to the ranks, a position says whose it is.
        if job.plans_for_others() && (job.strata.count() > 1 || plan.summary.repeat_max == 1) {
            let of_job = self.ranks.iter().filter(|rank| rank.job == id);
            let here: HashSet<u32> = of_job.map(|rank| rank.rank).collect();
            let len = to_u32(plan.ids.len());
            let position = |at: u32| at.checked_sub(len).unwrap_or(at);
            lookahead.leave_out(|at| !here.contains(&(position(at) % job.spec.world_size)));
        }
        self.records.begin_plan(id, clock);
        if let Some(job) = self.jobs.get_mut(id) {
            job.lookahead = Some(lookahead);
        }
        if !self.look_on() {
            self.records.rank_on(self.jobs.importance());
        }
    }

    /// Goes on to tell the cache of the uses that are in sight. Returns whether there are more.
    pub(super) fn look_on(&mut self) -> bool {
        let has_more = |job: &&Job| job.lookahead.as_ref().is_some_and(Lookahead::has_more_in_sight);
        let Some(id) = self.jobs.iter().find(has_more).map(|job| job.id) else { return false };
        let lookahead = self.jobs.get_mut(id).and_then(|job| job.lookahead.take());
        let Some((job, mut lookahead)) = self.jobs.get(id).zip(lookahead) else { return false };
        let (records, importance) = (&mut self.records, self.jobs.importance());
        lookahead.look_on(job.known(), LOOKED_AT_ONCE, |(sample, at)| {
            records.see(id, sample, at, importance);
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
        if !self.records.policy().exchanges || !self.jobs.admits_job(job) {
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
        let records = &self.records;
        let is_absent = |id| records.wants_stand_in(id) && comes_once(id);
        let may_stand_in = |id| records.may_stand_in(id) && comes_once(id);
        let exchanged = match &mut job.stand_ins {
            Some(all) => all.exchange(plan, from..to, is_absent, may_stand_in),
            None => plan.exchange(from as usize..to as usize, ranks, is_absent, may_stand_in),
        };
        if self.records.policy().counts_exchanges {
            job.exchanged.extend(exchanged);
        }
    }

    /// The job's table of stand-ins for its current plan, made anew if there is none.
    fn find_stand_ins(&mut self, job: JobId) {
        let (records, samples) = (&self.records, self.index.len());
        let Some(job) = self.jobs.get_mut(job).filter(|job| job.stand_ins.is_none()) else { return };
        let (Some(plan), true) = (&job.plan, records.brings_stand_ins()) else { return };
        let mut residents: Vec<SampleId> = records.cached().filter(|&id| records.may_stand_in(id)).collect();
        // In an order that does not depend on where they lie in memory.
        residents.sort_unstable();
        job.stand_ins = Some(StandIns::new(&plan.ids, samples, job.ranks_apart(), residents));
    }

    /// Whether the sample at `place` was exchanged. True once for each.
    pub(super) fn was_exchanged(&mut self, job: JobId, place: u32) -> bool {
        self.jobs.get_mut(job).is_some_and(|job| !job.exchanged.is_empty() && job.exchanged.remove(&place))
    }
}
