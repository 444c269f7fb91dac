//! Between two epochs nothing waits: the first batches of the next one are filled before it begins.
//!
//! Where a plan depends on nothing that this epoch still brings, it is drawn while the last batches
//! of this epoch are trained on. Its first batches are opened behind the epoch's end, as far as
//! rings have room, and *held*: nobody gets them, and no figure has them. They become batches like
//! any other once all ranks have asked for the epoch. If another one begins they are dropped, and
//! have cost their reads.

use shade_formats::trace::Line;
use shade_job::Sampler;

use crate::action::Action;
use crate::aside::AsideOrder;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::drawing::{Ahead, DrawOrder, Drawn, DrawnPlan, OrderId};
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::trace::{NS_PER_US, trace};

/// The share of its batches that a rank has opened, as one of this many, before the next plan is
/// drawn: a plan takes memory, and much less time than the rest of an epoch.
const DRAWN_BEFORE: u32 = 4;

impl<M: Memory> Core<M> {
    /// Orders the next plan of each job that is near its epoch's end, where that plan is known.
    pub(super) fn order_next_plans(&mut self, actions: &mut Vec<Action<M>>) {
        if !self.opens_ahead {
            return;
        }
        for at in 0..self.jobs.len() {
            let Some(job) = self.jobs.iter().nth(at).filter(|job| self.knows_next_plan(job)) else {
                continue;
            };
            let (id, spec) = (job.id, job.spec.plan);
            let Some(epoch) = job.epoch().and_then(|epoch| epoch.checked_add(1)) else { continue };
            let (order, looks_ahead) = (self.next_order(id), self.may_look_ahead(id));
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let inputs = job.plan_inputs(spec, epoch, |_| false);
            let (strata, seats, part) = (inputs.strata.clone(), inputs.seats.clone(), inputs.part.clone());
            job.ahead = Some(Ahead { order, epoch, strata, seats, part, drawn: None });
            let (plan, seats_of_next, is_told) = (None, None, false);
            let order = DrawOrder { id: order, inputs, plan, seats_of_next, is_told, looks_ahead };
            actions.push(Action::Aside(AsideOrder::Draw(Box::new(order))));
        }
    }

    /// Whether the job's next plan follows from what is known now, and will be wanted soon.
    fn knows_next_plan(&self, job: &Job) -> bool {
        let plan = &job.spec.plan;
        let is_drawn = job.ahead.is_some() || job.is_postponed() || job.next_plan.is_some();
        // With `mix` a rank has other strata in each epoch. Other nodes may still tell what counts.
        if is_drawn || plan.draw_ahead || plan.mix > 0.0 || job.shared_scores.is_some() {
            return false;
        }
        // The next validation comes after an epoch of training, whose reads these would delay.
        if !job.spec.admit {
            return false;
        }
        let Some(epoch) = job.epoch().filter(|&epoch| job.scripted != Some(epoch)) else { return false };
        let is_settled = !plan.sampler.is_by_importance() && !plan.depends_on_residents();
        // Others than those that are resident now would be exchanged.
        if !is_settled || self.records.policy().exchanges {
            return false;
        }
        let batches = u64::from(job.slices.batches_per_epoch());
        let mut ranks = self.ranks.iter().filter(|rank| rank.job == job.id);
        let is_near_its_end = ranks.all(|rank| {
            rank.request.filter(|request| request.epoch == epoch).is_some_and(|request| {
                // What was delivered decides what the guard `cover` puts in.
                let is_over = plan.sampler != Sampler::Replacement || plan.cover == 0 || request.ended;
                let opened = u64::from(request.next_batch) * u64::from(DRAWN_BEFORE);
                is_over && opened >= batches * u64::from(DRAWN_BEFORE - 1)
            })
        });
        is_near_its_end && self.ranks_to_attach(job) == 0 && job.stays_as_it_is(epoch.saturating_add(1))
    }

    /// The plan of the job's next epoch will be another one, or none: what was prepared is dropped.
    pub(super) fn drop_ahead(&mut self, job: JobId) {
        let Some(of_job) = self.jobs.get_mut(job) else { return };
        if of_job.ahead.take().is_none() {
            return;
        }
        let ranks: Vec<_> = self.ranks.iter().filter(|rank| rank.job == job).map(|rank| rank.id).collect();
        ranks.into_iter().for_each(|rank| self.abandon(rank, Dropped::Held));
    }

    /// The job's epoch has begun: the batches that were held for it become batches like any other.
    pub(super) fn begin_held(&mut self, now_ns: u64, job: JobId, actions: &mut Vec<Action<M>>) {
        let epoch = self.jobs.get(job).and_then(Job::epoch);
        for rank in self.ranks.iter_mut().filter(|rank| rank.job == job) {
            let Some(request) = rank.request.as_mut().filter(|r| Some(r.epoch) == epoch) else { continue };
            for (id, held) in self.batches.begin_held(rank.id, request.generation) {
                assert_eq!((id.epoch, id.number), (request.epoch, request.next_batch), "a held batch");
                request.next_batch += 1;
                self.figures.count(job, |counts| counts.add(&held.accesses));
                if let Some((observer, mut open)) = held.traced {
                    // Lines come in the order of their times.
                    open.at_us = now_ns / NS_PER_US;
                    actions.push(trace(observer, Line::Open(open)));
                }
            }
        }
    }
}

impl Job {
    /// Whether batches of `epoch` may be held.
    pub(super) fn is_ahead(&self, epoch: u32) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.epoch == epoch)
    }

    /// Takes what was prepared for the plan of `epoch`, whose strata, seats and part are chosen, if
    /// it is for that.
    pub(super) fn take_ahead(&mut self, epoch: u32) -> Option<(OrderId, Option<Box<Drawn>>)> {
        let is_as_chosen = |ahead: &mut Ahead| {
            ahead.epoch == epoch
                && (&ahead.strata, &ahead.seats, &ahead.part) == (&self.strata, &self.seats, &self.part)
        };
        self.ahead.take_if(is_as_chosen).map(|ahead| (ahead.order, ahead.drawn))
    }

    /// A plan was drawn that is not due yet. One that nobody wants any more is dropped.
    pub(super) fn keep_ahead(&mut self, drawn: Box<Drawn>) {
        if let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.order == drawn.id) {
            ahead.drawn = Some(drawn);
        }
    }

    /// The plan that is drawn ahead.
    pub(super) fn plan_ahead(&self) -> Option<&DrawnPlan> {
        Some(&self.ahead.as_ref()?.drawn.as_ref()?.plan)
    }

    /// Whether the plan of `epoch` has the strata and seats of this one.
    fn stays_as_it_is(&self, epoch: u32) -> bool {
        let (strata, seats, from) = self.next_strata();
        *strata == self.strata && self.mixed_seats(strata, seats, from, epoch) == self.seats
    }
}
