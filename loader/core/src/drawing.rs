//! Plans are drawn on another thread: an order has all that a plan depends on, as it is when the
//! order is given, and its result is an event.
//!
//! Until the plan of a due epoch is there, what the job's ranks say waits, too. So they see an
//! epoch that begins at once, however long the drawing takes.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::control::{PlanSpec, Seats, WeightTable};

use crate::brain::Core;
use crate::event::{Event, SessionId};
use crate::importance::Importance;
use crate::job::JobId;
use crate::memory::Memory;
use crate::plan::{
    Known, Part, Plan, SampleFacts, Strata, draw_next_plan, draw_plan, next_accesses, position_entropy,
};
use crate::use_numbers::UseNumbers;

/// Names an order of its job. A result of an earlier one comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderId {
    pub(super) job: JobId,
    number: u64,
}

/// What the plan of an epoch is drawn from.
pub(super) struct PlanInputs {
    /// See [`spec_now`](crate::plan::spec_now).
    pub(super) spec: PlanSpec,
    pub(super) epoch: u32,
    pub(super) batch_size: u32,
    /// Samples of the dataset.
    pub(super) samples: u32,
    /// Empty if no plan of `spec` depends on it.
    pub(super) importance: Importance,
    pub(super) weights: Option<Arc<WeightTable>>,
    pub(super) strata: Strata,
    pub(super) seats: Seats,
    pub(super) part: Part,
    /// By sample: it is in the cache. Empty if no plan of `spec` depends on it.
    pub(super) residents: Vec<bool>,
    pub(super) rep_now: f64,
}

/// The order to draw a plan.
pub struct DrawOrder {
    pub(super) id: OrderId,
    pub(super) inputs: PlanInputs,
    /// The plan, if it was drawn before.
    pub(super) plan: Option<Plan>,
    /// The seats of the plan after it, if that is drawn early.
    pub(super) seats_of_next: Option<Seats>,
    /// The lists of its strata are told to other nodes.
    pub(super) is_told: bool,
    /// The cache goes by next uses.
    pub(super) looks_ahead: bool,
}

/// A [`DrawOrder`] that was carried out.
pub struct Drawn {
    pub(super) id: OrderId,
    pub(super) plan: DrawnPlan,
    /// The plan after it, if that is drawn early.
    pub(super) next_plan: Option<Plan>,
    /// See [`Plan::lists`]; empty if nobody is told.
    pub(super) lists: Vec<(u32, u32)>,
}

/// A plan, and what is made of it.
pub(super) struct DrawnPlan {
    pub(super) plan: Plan,
    /// Which use each position is; made for a group only.
    pub(super) use_numbers: UseNumbers,
    /// How random its order is.
    pub(super) position_entropy: f64,
    /// Next accesses of the plan and the one that is drawn early after it, if the cache goes by them.
    pub(super) next_accesses: Option<Arc<Vec<u32>>>,
}

impl DrawnPlan {
    /// A plan over `samples` samples.
    pub(super) fn of(plan: Plan, samples: u32, is_in_group: bool) -> Self {
        let use_numbers =
            if is_in_group { UseNumbers::of(&plan.ids, samples) } else { UseNumbers::default() };
        let position_entropy = position_entropy(&plan.ids, samples);
        Self { plan, use_numbers, position_entropy, next_accesses: None }
    }
}

impl PlanInputs {
    fn facts<'a>(&'a self, seats: &'a Seats) -> SampleFacts<'a> {
        SampleFacts {
            importance: &self.importance,
            weights: self.weights.as_deref(),
            strata: self.strata.clone(),
            seats,
            part: &self.part,
        }
    }

    fn is_resident(&self, id: SampleId) -> bool {
        self.residents.get(id.index()) == Some(&true)
    }
}

impl DrawOrder {
    /// Draws the plan. Equal orders give equal plans, on any thread at any time.
    #[must_use]
    pub fn carry_out(self) -> Drawn {
        let Self { id, inputs, plan, seats_of_next, is_told, looks_ahead } = self;
        let PlanInputs { spec, epoch, batch_size, samples, rep_now, .. } = inputs;
        let resident = |id: SampleId| inputs.is_resident(id);
        let draw = || draw_plan(&spec, epoch, batch_size, inputs.facts(&inputs.seats), resident, rep_now);
        let plan = plan.unwrap_or_else(draw);
        let next_plan = seats_of_next
            .map(|seats| draw_next_plan(&spec, &plan, batch_size, inputs.facts(&seats), resident, rep_now));
        let lists = if is_told { plan.lists(inputs.strata.count()) } else { Vec::new() };
        let mut plan = DrawnPlan::of(plan, samples, spec.group != 0);
        let next = next_plan.as_ref().map_or(&[][..], |plan| &plan.ids);
        let known = Known { plan: &plan.plan.ids, next };
        plan.next_accesses = looks_ahead.then(|| next_accesses(known, samples));
        Drawn { id, plan, next_plan, lists }
    }
}

impl<M: Memory> Core<M> {
    /// Names a new order of the job.
    pub(super) fn next_order(&mut self, job: JobId) -> OrderId {
        self.last_draw += 1;
        OrderId { job, number: self.last_draw }
    }

    /// The job whose plan the event waits for.
    pub(super) fn waits_for_plan(&self, event: &Event<M>) -> Option<JobId> {
        let job = self.job_of(postponed_of(event)?)?;
        job.draws.is_some().then_some(job.id)
    }

    /// Whether what this session says has to wait until its job's plan is drawn.
    #[must_use]
    pub fn is_postponed(&self, session: SessionId) -> bool {
        self.job_of(session).is_some_and(|job| job.draws.is_some())
    }

    /// The next event that was postponed and need not wait any more.
    pub(super) fn next_postponed(&mut self) -> Option<Event<M>> {
        let waits = |id: JobId| self.jobs.get(id).is_some_and(|job| job.draws.is_some());
        let at = self.postponed.iter().position(|&(job, _)| !waits(job))?;
        Some(self.postponed.remove(at).1)
    }

    /// What a session reported and was postponed, before it goes. The rest of what it said is of no
    /// use any more.
    pub(super) fn postponed_reports(&mut self, session: SessionId) -> Vec<Event<M>> {
        let of_session = self.postponed.extract_if(.., |(_, event)| postponed_of(event) == Some(session));
        let is_report = |event: &Event<M>| matches!(event, Event::Report { .. } | Event::Validation { .. });
        of_session.map(|(_, event)| event).filter(is_report).collect()
    }
}

/// The session of an event that waits until its job's plan is drawn.
fn postponed_of<M: Memory>(event: &Event<M>) -> Option<SessionId> {
    match event {
        Event::StartEpoch { session, .. }
        | Event::Report { session, .. }
        | Event::Validation { session, .. }
        | Event::SaveState { session, .. }
        | Event::LoadState { session, .. }
        | Event::TellScores { session, .. }
        | Event::TakeScores { session, .. }
        | Event::Seat { session, .. }
        | Event::Plan(session, _)
        | Event::Importance(session, _) => Some(*session),
        Event::Attach(_)
        | Event::Ready(_)
        | Event::Detach(_)
        | Event::Drawn(_)
        | Event::Depth(_)
        | Event::Read(_)
        | Event::Tier(_)
        | Event::Filled(_)
        | Event::Finalized(_)
        | Event::Waits { .. }
        | Event::Released { .. }
        | Event::Resize { .. }
        | Event::Observe { .. } => None,
    }
}
