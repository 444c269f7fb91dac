//! An epoch begins when every rank of this daemon wants it. Its plan is drawn from the losses that
//! they reported until then. Ranks on other nodes have daemons of their own.
//!
//! A plan goes by importance if any of these ranks reported a loss since the plan before it began.
//! Otherwise it is a permutation, and the user is warned once. A plan of which no rank took a batch
//! does not count: the next one goes by the losses that it went by. A plan that is drawn an epoch
//! early goes by the epoch that ends when it is drawn, not by the one that it follows.

use std::collections::HashSet;

use shade_formats::SampleId;
use shade_job::{JobSpec, PlanSpec};

use crate::action::Action;
use crate::aside::AsideOrder;
use crate::brain::Core;
use crate::drawing::{Awaited, DrawOrder, Drawn, PlanInputs};
use crate::importance::Importance;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::plan::{high_importance, rep_now, spec_now};
use crate::rank::Rank;

impl<M: Memory> Core<M> {
    /// Ranks that the start of the job's next epoch waits for. Where some ranks are on other nodes,
    /// nobody knows which ones are still to attach here: then those that are attached.
    pub(super) fn waiting_for_ranks(&self, job: &Job) -> Vec<u32> {
        let Some(epoch) = self.due_epoch(job) else { return Vec::new() };
        let of_job = || self.ranks.iter().filter(|rank| rank.job == job.id);
        let wants_it = |rank: &&Rank| rank.request.is_some_and(|r| r.epoch == epoch);
        let here: HashSet<u32> = of_job().filter(wants_it).map(|rank| rank.rank).collect();
        let JobSpec { world_size, .. } = job.spec;
        if job.spec.local_ranks() == world_size {
            return (0..world_size).filter(|rank| !here.contains(rank)).collect();
        }
        let mut waiting: Vec<u32> =
            of_job().map(|rank| rank.rank).filter(|rank| !here.contains(rank)).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Number of the job's ranks that are still to attach to this daemon.
    pub(super) fn ranks_to_attach(&self, job: &Job) -> u32 {
        let attached = self.ranks.iter().filter(|rank| rank.job == job.id).count();
        job.spec.local_ranks().saturating_sub(to_u32(attached))
    }

    /// Whether every rank of the job that belongs to this daemon wants the same new epoch.
    pub(super) fn is_due(&self, job: &Job) -> bool {
        let all_are_here = self.due_epoch(job).is_some() && self.ranks_to_attach(job) == 0;
        all_are_here && self.waiting_for_ranks(job).is_empty()
    }

    /// An epoch that some rank wants and whose plan is not the current one.
    fn due_epoch(&self, job: &Job) -> Option<u32> {
        self.ranks
            .iter()
            .filter(|rank| rank.job == job.id)
            .filter_map(|rank| rank.request)
            .map(|request| request.epoch)
            .find(|&epoch| job.epoch() != Some(epoch))
    }

    /// Orders a job's next plan once every rank of it here wants the same new epoch. Until then
    /// none starts: a plan is drawn from all losses of the epoch before, and messages of one rank
    /// arrive in order. Returns whether one was ordered: then there may be more. An order has
    /// copies of what the plan is drawn from, so it is one at a time.
    pub(super) fn order_due_plan(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let is_due = |job: &&Job| !job.is_postponed() && self.is_due(job);
        let due: Vec<JobId> = self.jobs.iter().filter(is_due).map(|job| job.id).collect();
        let next = due.into_iter().find(|&job| !self.waits_for_group(job, now_ns));
        next.into_iter().for_each(|job| self.order_plan(job, actions));
        self.begin_drawn(now_ns, actions);
        next.is_some()
    }

    fn order_plan(&mut self, id: JobId, actions: &mut Vec<Action<M>>) {
        let Some(epoch) = self.jobs.get(id).and_then(|job| self.due_epoch(job)) else { return };
        let order = self.next_order(id);
        let looks_ahead = self.may_look_ahead(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let of_job = self.ranks.iter().filter(|rank| rank.job == id);
        job.choose_strata(epoch);
        job.part = job.part_of(of_job.map(|rank| rank.rank).collect());
        let next = job.next_plan.take().filter(|plan| plan.epoch == epoch && plan.part == job.part);
        let drawn_first = if next.is_some() { epoch.saturating_add(1) } else { epoch };
        job.judge_reports(drawn_first, actions);
        job.had_reports = std::mem::take(&mut job.has_reports);
        let spec = spec_now(&job.spec.plan, job.had_reports);
        job.lookahead = None;
        if let Some((order, drawn)) = job.take_ahead(epoch) {
            job.awaits = Some(drawn.map_or(Awaited::Order(order), Awaited::Group));
            return;
        }
        job.awaits = Some(Awaited::Order(order));
        let seats_of_next = || job.mixed_seats(&job.strata, &job.seats, epoch, epoch.wrapping_add(1));
        let seats_of_next = spec.draw_ahead.then(seats_of_next);
        // Exchanged samples are in no list that others could draw.
        let is_told = job.shared_scores.is_some() && !self.records.policy().exchanges;
        let inputs = job.plan_inputs(spec, epoch, |id| self.records.has(id));
        let order = DrawOrder { id: order, inputs, plan: next, seats_of_next, is_told, looks_ahead };
        actions.push(Action::Aside(AsideOrder::Draw(Box::new(order))));
        self.drop_ahead(id);
    }

    /// A plan is drawn. If its epoch is due, that begins.
    pub(super) fn drawn(&mut self, now_ns: u64, drawn: Box<Drawn>, actions: &mut Vec<Action<M>>) {
        let Some(job) = self.jobs.get_mut(drawn.id.job) else { return };
        if job.awaits_order(drawn.id) {
            job.awaits = Some(Awaited::Group(drawn));
            self.begin_drawn(now_ns, actions);
        } else {
            job.keep_ahead(drawn);
        }
    }

    /// Begins the epochs whose plans are drawn. Those of a group begin together.
    pub(super) fn begin_drawn(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let is_drawn = |job: &Job| matches!(job.awaits, Some(Awaited::Group(_)));
        let jobs = &self.jobs;
        let is_awaited = |other: &Job| !is_drawn(other) && (other.is_postponed() || self.is_due(other));
        let begins = |job: &&Job| is_drawn(job) && !jobs.of_group(job).any(is_awaited);
        let begin: Vec<JobId> = jobs.iter().filter(begins).map(|job| job.id).collect();
        for job in begin {
            if let Some(Awaited::Group(drawn)) = self.jobs.get_mut(job).and_then(|job| job.awaits.take()) {
                self.begin_epoch(now_ns, *drawn, actions);
            }
        }
    }

    fn begin_epoch(&mut self, now_ns: u64, drawn: Drawn, actions: &mut Vec<Action<M>>) {
        let Drawn { id, plan, next_plan, lists } = drawn;
        let Some(job) = self.jobs.get_mut(id.job) else { return };
        let (epoch, records) = (plan.plan.epoch, &self.records);
        for rank in self.ranks.iter_mut().filter(|rank| rank.job == id.job) {
            rank.delivered.retain(|batch, _| batch.epoch.wrapping_add(1) == epoch);
        }
        let own_samples = job.own_samples();
        let cached = || job.resident_samples(records.cached(), records.len());
        // Nothing would be read, so nothing admitted, and the next epoch would be no other.
        let is_absorbing = records.len() < self.index.len() as usize
            && plan.plan.ids.iter().all(|&id| records.has(id))
            && cached() < own_samples as usize;
        if is_absorbing {
            actions.push(Action::Warn(format!(
                "epoch {epoch} reads nothing from storage: its plan has only the {} cached of {own_samples} \
                 samples, so the others may never be seen again; in Plan(...) lower rep or hit_cap, or raise \
                 cover or explore",
                cached()
            )));
        }
        let by_losses = spec_now(&job.spec.plan, job.had_reports).sampler == job.spec.plan.sampler;
        if !records.policy().exchanges {
            job.note_lists(epoch, &lists, by_losses, self.index.content_id().0);
        }
        job.begin(Some(plan));
        job.next_plan = next_plan;
        self.figures.begin_epoch(id.job);
        self.figures.count(id.job, |counts| counts.absorbing_epochs += u64::from(is_absorbing));
        job.scored_at.fill(0);
        self.begin_held(now_ns, id.job, actions);
        if self.jobs.have_changed() {
            self.weigh_jobs();
        }
        self.begin_cache_epoch(id.job);
    }

    /// Tells the cache of a job's current plan.
    pub(super) fn begin_cache_epoch(&mut self, job: JobId) {
        let Some(job) = self.jobs.get(job).filter(|job| self.jobs.admits(job)) else { return };
        let Some(plan) = &job.plan else { return };
        self.strata_of_last = job.strata.count();
        self.records.begin_epoch(|| high_importance(&plan.ids, self.jobs.importance()));
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

    /// How many of these residents, of which there are `len`, the job may use.
    fn resident_samples(&self, residents: impl Iterator<Item = SampleId>, len: usize) -> usize {
        if self.strata.subset().is_none() { len } else { residents.filter(|&id| self.has(id)).count() }
    }

    /// The current epoch ends, before the plan of epoch `drawn` is drawn. Notes whether the losses
    /// that it should go by are missing, and warns the first time. An epoch of which nothing was
    /// taken has no losses to report: then those before it still count.
    fn judge_reports<M: Memory>(&mut self, drawn: u32, actions: &mut Vec<Action<M>>) {
        if !std::mem::take(&mut self.is_plan_used) {
            self.has_reports |= self.had_reports;
            return;
        }
        let sampler = self.spec.plan.sampler;
        self.reports_missing = sampler.is_by_importance() && !self.has_reports;
        let Some(ended) = self.epoch().filter(|_| self.reports_missing && !self.warned_of_reports) else {
            return;
        };
        self.warned_of_reports = true;
        actions.push(Action::Warn(format!(
            "no loss was reported in epoch {ended}, and the sampler {sampler} draws by losses: epoch \
             {drawn} is a permutation, as with the sampler uniform, and so is every epoch that follows \
             one without reports; report losses, or choose Plan(sampler=\"uniform\")"
        )));
    }
}
