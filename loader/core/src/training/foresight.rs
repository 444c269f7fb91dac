//! The uses of samples that are in sight, and samples that change places with residents.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::SampleId;

use super::Training;
use super::job::Job;
use crate::cache::Clock;
use crate::ids::{JobId, SessionId};
use crate::importance::Importance;
use crate::number::to_u32;
use crate::plan::{Lookahead, StandIns, in_sight, may_exchange, next_accesses};

/// Positions that are looked at in a slice: some ms.
const LOOKED_AT_ONCE: u32 = 1 << 16;

/// What is found when an access begins.
pub(crate) enum Foreseen {
    /// The sample's use at this place has come into sight.
    InSight(SampleId, u32),
    /// The accessed sample is used next here, if that is in sight.
    Next(Option<u32>),
}

impl Training {
    /// The access of a place begins. Tells of the uses that have come into sight, and then of the
    /// next one of the place's sample, if the job looks ahead.
    pub(crate) fn foresee(&mut self, job: JobId, place: u32, mut tell: impl FnMut(Foreseen, &Importance)) {
        let lookahead = self.jobs.get_mut(job).and_then(|job| job.current.lookahead.take());
        let Some((of, mut lookahead)) = self.jobs.get(job).zip(lookahead) else { return };
        let importance = self.jobs.importance();
        let see = |(sample, at)| tell(Foreseen::InSight(sample, at), importance);
        let next = lookahead.access(of.known(), place, see);
        tell(Foreseen::Next(next), importance);
        if let Some(job) = self.jobs.get_mut(job) {
            job.current.lookahead = Some(lookahead);
        }
    }

    /// Begins to look ahead over the job's current plan, from the first batch that some rank wants.
    /// Returns the clock of its places; `None` if that is done, or there is no plan. `batch_ns`
    /// says how long a rank is at its batch.
    pub(crate) fn look_ahead(
        &mut self,
        id: JobId,
        now_ns: u64,
        batch_ns: impl Fn(SessionId, bool) -> u64,
    ) -> Option<Clock> {
        let job = self.jobs.get(id).filter(|job| job.lookahead().is_none())?;
        let plan = job.plan()?;
        let (clock, from) = (self.clock(job, now_ns, &batch_ns), self.position(job));
        let known = job.known();
        let next = match &job.current.next_accesses {
            Some(next) if next.len() == known.len() as usize => Arc::clone(next),
            _ => next_accesses(known, self.index.len()),
        };
        let mut lookahead = Lookahead::over(next, from, in_sight(self.lookahead, plan.ids.len()));
        // Unless repeats of a sample are dealt to the ranks, a position says whose it is.
        if job.plans_for_others() && !job.deals_repeats(plan) {
            let here: HashSet<u32> = self.ranks_of(id).map(|rank| rank.rank).collect();
            let len = to_u32(plan.ids.len());
            let position = |at: u32| at.checked_sub(len).unwrap_or(at);
            lookahead.leave_out(|at| !here.contains(&(position(at) % job.spec.world_size)));
        }
        self.jobs.get_mut(id)?.current.lookahead = Some(lookahead);
        Some(clock)
    }

    /// Goes on to look at the uses that are in sight: tells `see` some of one job. Returns whether
    /// there are more.
    pub(crate) fn look_on(&mut self, mut see: impl FnMut(JobId, SampleId, u32, &Importance)) -> bool {
        let has_more = |job: &&Job| job.lookahead().is_some_and(Lookahead::has_more_in_sight);
        let Some(id) = self.jobs.iter().find(has_more).map(|job| job.id) else { return false };
        let lookahead = self.jobs.get_mut(id).and_then(|job| job.current.lookahead.take());
        let Some((job, mut lookahead)) = self.jobs.get(id).zip(lookahead) else { return false };
        let importance = self.jobs.importance();
        lookahead.look_on(job.known(), LOOKED_AT_ONCE, |(sample, at)| see(id, sample, at, importance));
        if let Some(job) = self.jobs.get_mut(id) {
            job.current.lookahead = Some(lookahead);
        }
        self.jobs.iter().any(|job| has_more(&job))
    }

    /// What the cache goes by has changed: all jobs look ahead anew.
    pub(crate) fn forget_lookaheads(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.current.lookahead = None);
    }

    /// A sample may stand in for others from now on.
    pub(crate) fn add_stand_in(&mut self, sample: SampleId) {
        let stand_ins = self.jobs.iter_mut().filter_map(|job| job.current.stand_ins.as_mut());
        stand_ins.for_each(|all| all.add(sample));
    }

    /// The job's table of stand-ins for its current plan is made of these `residents`, unless there
    /// is one.
    pub(crate) fn find_stand_ins(&mut self, job: JobId, residents: impl Iterator<Item = SampleId>) {
        let samples = self.index.len();
        let none_yet = |job: &&mut Job| job.current.stand_ins.is_none();
        let Some(job) = self.jobs.get_mut(job).filter(none_yet) else { return };
        let Some(plan) = job.plan() else { return };
        let mut residents: Vec<SampleId> = residents.collect();
        // In an order that does not depend on where they lie in memory.
        residents.sort_unstable();
        let delivered = plan.ids.get(..job.end() as usize).unwrap_or(&plan.ids);
        job.current.stand_ins = Some(StandIns::new(delivered, samples, job.ranks_apart(), residents));
    }

    /// Before the first rank opens global batch `number`: its samples that want a stand-in change
    /// places with residents of later batches that may be one, if the plan permits it. No rank has
    /// opened those batches. `is_counted` says whether their accesses count as exchanged.
    pub(crate) fn exchange(
        &mut self,
        job: JobId,
        number: u32,
        wants_stand_in: impl Fn(SampleId) -> bool,
        may_stand_in: impl Fn(SampleId) -> bool,
        is_counted: bool,
    ) {
        let Some(job) = self.jobs.get_mut(job) else { return };
        if number < job.current.settled {
            return;
        }
        job.current.settled = number.saturating_add(1);
        let (from, to, end) = (job.start(number), job.start(job.current.settled), job.end());
        // Other nodes would not know of an exchange with a sample of theirs. Where a batch is dealt
        // by its samples, one that is exchanged moves the others to other ranks.
        if !may_exchange(&job.spec.plan)
            || job.current.rest_is_saved
            || job.scripted == job.epoch()
            || job.plans_for_others()
            || job.plan().is_some_and(|plan| job.deals_repeats(plan))
        {
            return;
        }
        let (ranks, samples, current) = (job.ranks_apart(), job.importance.len(), &mut job.current);
        let Some(plan) = &mut current.plan else { return };
        let repeated = current.repeated.get_or_insert_with(|| plan.repeated(samples));
        let comes_once = |id: SampleId| repeated.get(id.index()) != Some(&true);
        let is_absent = |id| wants_stand_in(id) && comes_once(id);
        let may_stand_in = |id| may_stand_in(id) && comes_once(id);
        let exchanged = match &mut current.stand_ins {
            Some(all) => all.exchange(plan, from..to, is_absent, may_stand_in),
            None => plan.exchange(from as usize..to as usize, end as usize, ranks, is_absent, may_stand_in),
        };
        if is_counted {
            current.exchanged.extend(exchanged);
        }
    }

    /// Whether samples of the job's current plan were exchanged, and count as such.
    pub(crate) fn has_exchanged(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|job| !job.current.exchanged.is_empty())
    }

    /// Whether the sample at `place` was exchanged. True once for each.
    pub(crate) fn was_exchanged(&mut self, job: JobId, place: u32) -> bool {
        let exchanged = self.jobs.get_mut(job).map(|job| &mut job.current.exchanged);
        exchanged.is_some_and(|all| !all.is_empty() && all.remove(&place))
    }
}
