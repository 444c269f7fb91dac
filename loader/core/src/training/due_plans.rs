//! An epoch begins when every rank of this daemon wants it. Its plan is drawn from the losses that
//! they reported until then. Ranks on other nodes have daemons of their own. A daemon that succeeds
//! one that died begins with the epoch in which the last rank is, also if others are beyond it.
//!
//! A plan goes by importance if any of these ranks reported a loss since the plan before it began.
//! Otherwise it is a permutation, and the user is warned once. A plan of which no rank took a batch
//! does not count: the next one goes by the losses that it went by. A plan that is drawn an epoch
//! early goes by the epoch that ends when it is drawn, not by the one that it follows.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::SampleId;
use shade_job::{PlanSpec, Sampler};

use super::Training;
use super::base::{Base, BaseOrder};
use super::drawing::{Awaited, DrawOrder, Drawn, PlanInputs};
use super::job::Job;
use super::rank::Rank;
use crate::ids::JobId;
use crate::importance::Importance;
use crate::number::to_u32;
use crate::plan::{high_importance, rep_now, spec_now};

/// What a job waits for, from the moment when its epoch is due.
pub(crate) struct Ordered {
    /// The order to draw its plan, unless that is drawn or ordered already.
    pub(crate) draw: Option<Box<DrawOrder>>,
    /// What the user is told, once.
    pub(crate) warning: Option<String>,
}

/// An epoch has begun.
pub(crate) struct EpochBegun {
    pub(crate) job: JobId,
    /// What its ranks keep for a successor of this daemon.
    pub(crate) base: Option<Base>,
}

impl Training {
    /// Ranks that the start of the job's next epoch waits for. Where some ranks are on other nodes,
    /// nobody knows which ones are still to attach here: then those that are attached.
    pub(crate) fn waiting_for_ranks(&self, job: &Job) -> Vec<u32> {
        let Some(epoch) = self.due_epoch(job) else { return Vec::new() };
        let wants_it = |rank: &&Rank| rank.request.is_some_and(|request| request.epoch == epoch);
        // It is through with the epoch, which another daemon has given it.
        let had_it = |rank: &&Rank| job.epoch().is_none() && rank.goes_on_after(epoch);
        let here: HashSet<u32> = self
            .ranks_of(job.id)
            .filter(|rank| wants_it(rank) || had_it(rank))
            .map(|rank| rank.rank)
            .collect();
        let world_size = job.spec.world_size;
        if job.spec.local_ranks() == world_size {
            return (0..world_size).filter(|rank| !here.contains(rank)).collect();
        }
        let attached = self.ranks_of(job.id).map(|rank| rank.rank);
        let mut waiting: Vec<u32> = attached.filter(|rank| !here.contains(rank)).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Number of the job's ranks that are still to attach to this daemon.
    pub(crate) fn ranks_to_attach(&self, job: &Job) -> u32 {
        job.spec.local_ranks().saturating_sub(to_u32(self.ranks_of(job.id).count()))
    }

    /// Whether every rank of the job that belongs to this daemon wants the same new epoch.
    pub(crate) fn is_due(&self, job: &Job) -> bool {
        let all_are_here = self.due_epoch(job).is_some() && self.ranks_to_attach(job) == 0;
        all_are_here && self.waiting_for_ranks(job).is_empty()
    }

    /// An epoch that some rank wants and whose plan is not the current one. The successor of a
    /// daemon that died begins with the earliest: ranks may have been apart by an epoch's end.
    pub(super) fn due_epoch(&self, job: &Job) -> Option<u32> {
        let requests = self.ranks_of(job.id).filter_map(|rank| rank.request);
        if job.epoch().is_none() && self.ranks_of(job.id).any(Rank::goes_on) {
            return requests.map(|request| request.epoch).min();
        }
        requests.map(|request| request.epoch).find(|&epoch| job.epoch() != Some(epoch))
    }

    /// A job every rank of which wants the same new epoch. Until then none starts: a plan is drawn
    /// from all losses of the epoch before, and messages of one rank arrive in order. Where nodes
    /// draw one plan together, it is drawn from the losses of all.
    pub(crate) fn due_plan(&mut self, now_ns: u64) -> Option<JobId> {
        let is_due = |job: &&Job| !job.is_postponed() && self.is_due(job);
        let due: Vec<JobId> = self.jobs.iter().filter(is_due).map(|job| job.id).collect();
        due.into_iter().find(|&job| self.has_pooled(job) && !self.waits_for_group(job, now_ns))
    }

    /// The plan of a job's due epoch is wanted. `is_resident` says what the cache has, and
    /// `looks_ahead` whether it goes by next uses. Where it `exchanges` samples, other nodes are
    /// told of no lists: they could not draw them.
    pub(crate) fn order_plan(
        &mut self,
        id: JobId,
        is_resident: impl Fn(SampleId) -> bool,
        looks_ahead: bool,
        exchanges: bool,
    ) -> Ordered {
        let order = self.next_order(id);
        let ranks: Vec<u32> = self.ranks_of(id).map(|rank| rank.rank).collect();
        let epoch = self.jobs.get(id).and_then(|job| self.due_epoch(job));
        let Some((job, epoch)) = self.jobs.get_mut(id).zip(epoch) else {
            unreachable!("job {id} is due, and no epoch of it")
        };
        job.choose_strata(epoch);
        job.part = job.part_of(ranks);
        let next = job.next_plan.take().filter(|plan| plan.epoch == epoch && plan.part == job.part);
        let warning = job.end_plan(if next.is_some() { epoch.saturating_add(1) } else { epoch });
        let spec = spec_now(&job.plan_spec(), job.reports.had_come());
        job.current.lookahead = None;
        if let Some((order, drawn)) = job.take_ahead(epoch) {
            job.awaits = Some(drawn.map_or(Awaited::Order(order), Awaited::Group));
            return Ordered { draw: None, warning };
        }
        job.awaits = Some(Awaited::Order(order));
        let seats_of_next = || job.mixed_seats(&job.strata, &job.seats, epoch, epoch.wrapping_add(1));
        let seats_of_next = spec.draw_ahead.then(seats_of_next);
        let is_told = (job.shared_scores.is_some() && !exchanges) || job.pool.is_some();
        let inputs = job.plan_inputs(spec, epoch, is_resident);
        let after = job.scripted_after.take();
        let base = self.base_order(id, epoch, exchanges);
        let order =
            DrawOrder { id: order, inputs, plan: next, after, seats_of_next, is_told, looks_ahead, base };
        Ordered { draw: Some(Box::new(order)), warning }
    }

    /// A plan is drawn. Returns whether its job waits for it: from now on with its group. Else the
    /// job may want it later.
    pub(crate) fn drawn(&mut self, drawn: Box<Drawn>) -> bool {
        let Some(job) = self.jobs.get_mut(drawn.id.job) else { return false };
        let is_due = job.awaits_order(drawn.id);
        if is_due {
            job.awaits = Some(Awaited::Group(drawn));
        } else {
            job.keep_ahead(drawn);
        }
        is_due
    }

    /// The plans whose epochs begin now. Epochs of a group begin together.
    pub(crate) fn take_drawn(&mut self) -> Vec<Drawn> {
        let is_drawn = |job: &Job| matches!(job.awaits, Some(Awaited::Group(_)));
        // Not one whose ranks still come back from a daemon that died: some may never.
        // Nor one that waits for other nodes.
        let is_near = |other: &Job| self.is_due(other) && self.waiting_for_scores_of(other).is_empty();
        let is_awaited = |other: &Job| !is_drawn(other) && (other.awaits.is_some() || is_near(other));
        let begins = |job: &&Job| is_drawn(job) && !self.jobs.of_group(job).any(is_awaited);
        let begin: Vec<JobId> = self.jobs.iter().filter(begins).map(|job| job.id).collect();
        let take = |job| match self.jobs.get_mut(job).and_then(|job| job.awaits.take()) {
            Some(Awaited::Group(drawn)) => Some(*drawn),
            _ => None,
        };
        begin.into_iter().filter_map(take).collect()
    }

    /// The epoch of a plan begins. Where the cache `exchanges` samples, other nodes are told
    /// nothing. `None` if its job has ended.
    pub(crate) fn begin_epoch(&mut self, drawn: Drawn, exchanges: bool) -> Option<EpochBegun> {
        let Drawn { id, plan, next_plan, lists, base } = drawn;
        let epoch = plan.plan.epoch;
        for rank in self.ranks.iter_mut().filter(|rank| rank.job == id.job) {
            rank.delivered.retain(|batch, _| batch.epoch.wrapping_add(1) == epoch);
        }
        let content_id = self.index.content_id().0;
        let job = self.jobs.get_mut(id.job)?;
        let by_losses = spec_now(&job.spec.plan, job.reports.had_come()) == job.spec.plan;
        if !exchanges {
            job.note_lists(epoch, &lists, by_losses, content_id);
        }
        job.begin_pooled(&lists);
        job.begin(Some(plan));
        job.next_plan = next_plan;
        // Nodes that pool their scores have ended the one before together.
        if job.pool.is_none() {
            job.scored_at.end_epoch();
        }
        let state = job.pooled_in_base();
        let told = job.shared_scores.as_ref().map(|shared| &shared.told[..]);
        let told = told.or(state.as_ref().map(|state| &state[..])).unwrap_or_default();
        let base = base.map(|bytes| if told.is_empty() { bytes } else { Arc::new([&bytes, told].concat()) });
        let survivors = self.ranks_of(id.job).filter(|rank| rank.survives).map(|rank| rank.id).collect();
        let base = base.map(|bytes| Base { epoch, sessions: survivors, bytes });
        Some(EpochBegun { job: id.job, base })
    }

    /// The order to write the base of an epoch that is drawn, if a rank of its job needs one.
    pub(super) fn base_order(&self, id: JobId, epoch: u32, exchanges: bool) -> Option<Box<BaseOrder>> {
        let job = self.jobs.get(id).filter(|job| job.needs_base(exchanges))?;
        let survives = self.ranks_of(id).any(|rank| rank.survives);
        survives.then(|| job.base_order(epoch, self.index.content_id().0))
    }

    /// The job's epoch begins or goes on: whether it counts for the cache.
    pub(crate) fn begin_cache_epoch(&mut self, job: JobId) -> bool {
        let Some(job) = self.jobs.get(job).filter(|job| self.jobs.admits(job)) else { return false };
        if job.plan().is_some() {
            self.strata_of_last = job.strata.count();
        }
        job.plan().is_some()
    }

    /// By sample: it has high importance in the current plans of all jobs that keep records in the
    /// cache.
    pub(crate) fn high_importance(&self) -> Vec<bool> {
        let plans = self.jobs.admitting().filter_map(Job::plan);
        high_importance(plans.flat_map(|plan| &plan.ids).copied(), self.jobs.importance())
    }
}

impl Job {
    /// What the plan of `epoch` is drawn from, as it is now.
    pub(super) fn plan_inputs(
        &self,
        spec: PlanSpec,
        epoch: u32,
        is_resident: impl Fn(SampleId) -> bool,
    ) -> PlanInputs {
        let samples = self.importance.len();
        let importance =
            if spec.depends_on_its_node() { self.importance.clone() } else { Importance::new(0) };
        let of_cache = if spec.depends_on_residents() { samples } else { 0 };
        PlanInputs {
            spec,
            epoch,
            batch_size: self.spec.batch_size,
            slices: self.current.slices.of_len(self.positions()),
            buckets: Arc::clone(&self.buckets),
            samples,
            importance,
            weights: self.weights.clone(),
            strata: self.strata.clone(),
            seats: self.seats.clone(),
            part: self.part.clone(),
            residents: (0..of_cache).map(SampleId).map(is_resident).collect(),
            rep_now: rep_now(&self.spec.plan, self.validation.iter().map(|validation| validation.score)),
        }
    }

    /// Whether the more of its samples are cached, the more of these are drawn.
    pub(crate) fn draws_by_residents(&self) -> bool {
        let plan = &self.spec.plan;
        plan.rep > 1.0 && plan.samplers().any(|sampler| sampler == Sampler::Pads)
    }

    /// How many of these residents, of which there are `len`, the job may use.
    pub(crate) fn resident_samples(&self, residents: impl Iterator<Item = SampleId>, len: usize) -> usize {
        if self.strata.subset().is_none() { len } else { residents.filter(|&id| self.has(id)).count() }
    }

    /// The warning of an epoch all of whose samples are cached, if the job has more samples than
    /// these `cached` ones: then nothing is admitted, and the next epoch is no other.
    pub(crate) fn warning_of_absorbing(&self, epoch: u32, cached: usize) -> Option<String> {
        let own_samples = self.own_samples();
        (cached < own_samples as usize).then(|| {
            format!(
                "epoch {epoch} reads nothing from storage: its plan has only the {cached} cached of {own_samples} \
                 samples, so the others may never be seen again; in Plan(...) lower rep or hit_cap, or raise \
                 cover or explore"
            )
        })
    }

    /// The current epoch ends, before the plan of epoch `drawn` is drawn. Returns a warning the
    /// first time that the losses are missing which that should go by.
    fn end_plan(&mut self, drawn: u32) -> Option<String> {
        let (by_losses, ended) = (self.spec.plan.samplers().find(|of| of.is_by_importance()), self.epoch());
        let warns = self.reports.end_plan(by_losses.is_some(), ended.is_some());
        ended.zip(by_losses).filter(|_| warns).map(|(ended, sampler)| {
            let remedy = match self.spec.plan.sampler == sampler {
                true => "choose Plan(sampler=\"uniform\")".to_owned(),
                false => format!("leave out {sampler} behind its dataset in the mixture"),
            };
            format!(
                "no loss was reported in epoch {ended}, and the sampler {sampler} draws by losses: epoch \
                 {drawn} is a permutation, as with the sampler uniform, and so is every epoch that follows \
                 one without reports; report losses, or {remedy}"
            )
        })
    }
}
