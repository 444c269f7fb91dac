//! The plan of the next epoch, where it follows from what is known before that is due.

use super::Training;
use super::drawing::{Ahead, DrawOrder, Drawn, DrawnPlan, OrderId};
use super::job::Job;
use crate::ids::{BatchId, JobId, SessionId};

/// The share of its batches that a rank has opened, as one of this many, before the next plan is
/// drawn: a plan takes memory, and much less time than the rest of an epoch.
const DRAWN_BEFORE: u32 = 4;

impl Training {
    /// The jobs whose next plans follow from what is known now, and will be wanted soon.
    pub(crate) fn jobs_near_their_ends(&self) -> Vec<JobId> {
        let near = self.jobs.iter().filter(|job| self.opens_ahead && self.knows_next_plan(job));
        near.map(|job| job.id).collect()
    }

    /// The order to draw the plan of the job's next epoch; `None` if there is none.
    /// `looks_ahead` says whether the cache goes by next uses.
    pub(crate) fn order_next_plan(&mut self, id: JobId, looks_ahead: bool) -> Option<Box<DrawOrder>> {
        let epoch = self.jobs.get(id)?.epoch()?.checked_add(1)?;
        let order = self.next_order(id);
        let job = self.jobs.get_mut(id)?;
        let inputs = job.plan_inputs(job.plan_spec(), epoch, |_| false);
        let (strata, seats, part) = (inputs.strata.clone(), inputs.seats.clone(), inputs.part.clone());
        job.ahead = Some(Ahead { order, epoch, strata, seats, part, drawn: None });
        let (plan, after, seats_of_next, is_told) = (None, None, None, false);
        // Policies that exchange samples have no plans ahead.
        let base = self.base_order(id, epoch, false);
        Some(Box::new(DrawOrder {
            id: order,
            inputs,
            plan,
            after,
            seats_of_next,
            is_told,
            looks_ahead,
            base,
        }))
    }

    /// Whether the job's next plan follows from what is known now, and will be wanted soon.
    fn knows_next_plan(&self, job: &Job) -> bool {
        let plan = &job.spec.plan;
        let is_drawn = job.ahead.is_some() || job.is_postponed() || job.next_plan.is_some();
        // With `mix` a rank has other strata in each epoch. Other nodes may still tell what counts.
        let hears_others = job.shared_scores.is_some() || job.pool.is_some();
        if is_drawn || plan.draw_ahead || plan.mix > 0.0 || hears_others {
            return false;
        }
        // The next validation comes after an epoch of training, whose reads these would delay.
        if !job.spec.admit {
            return false;
        }
        let Some(epoch) = job.epoch().filter(|&epoch| job.scripted != Some(epoch)) else { return false };
        if plan.is_by_importance() || plan.depends_on_residents() {
            return false;
        }
        let batches = u64::from(job.batches_per_epoch());
        let is_near_its_end = self.ranks_of(job.id).all(|rank| {
            rank.request.filter(|request| request.epoch == epoch).is_some_and(|request| {
                // What was delivered decides what the guard `cover` puts in.
                let is_over = !plan.is_by_deliveries() || request.ended;
                let opened = u64::from(request.next_batch) * u64::from(DRAWN_BEFORE);
                is_over && opened >= batches * u64::from(DRAWN_BEFORE - 1)
            })
        });
        is_near_its_end && self.ranks_to_attach(job) == 0 && job.stays_as_it_is(epoch.saturating_add(1))
    }

    /// The plan of the job's next epoch will be another one, or none. Returns whether something was
    /// prepared for it.
    pub(crate) fn drop_ahead(&mut self, job: JobId) -> bool {
        self.jobs.get_mut(job).is_some_and(|job| job.ahead.take().is_some())
    }

    /// The generation in which a rank asked for its job's current epoch.
    pub(crate) fn generation_of_current(&self, session: SessionId) -> Option<u32> {
        let epoch = self.job_of(session)?.epoch();
        let request = self.rank(session)?.request.filter(|request| Some(request.epoch) == epoch)?;
        Some(request.generation)
    }

    /// The rank is given its next batch, which was held for the epoch.
    pub(crate) fn begin_held(&mut self, session: SessionId, batch: BatchId) {
        let request = self.rank_mut(session).and_then(|rank| rank.request.as_mut());
        let Some(request) = request else { unreachable!("a batch held for nobody") };
        assert_eq!((batch.epoch, batch.number), (request.epoch, request.next_batch), "a held batch");
        request.next_batch += 1;
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
