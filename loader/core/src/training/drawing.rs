//! Plans are drawn on another thread: an order has all that a plan depends on, as it is when the
//! order is given, and its result is an event.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_job::{PlanSpec, Seats, WeightTable};

use super::base::BaseOrder;
use super::lists::Lists;
use super::use_numbers::UseNumbers;
use crate::ids::JobId;
use crate::importance::Importance;
use crate::plan::{
    Known, Part, Plan, SampleFacts, Slices, Strata, draw_next_plan, draw_plan, next_accesses,
    position_entropy,
};

/// Names an order of its job. A result of an earlier one comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderId {
    pub(super) job: JobId,
    /// Counts the orders of all jobs.
    pub(super) number: u64,
}

/// What a job's ranks wait for.
pub(super) enum Awaited {
    /// The plan of the due epoch, or a state to load.
    Order(OrderId),
    /// The plan is drawn, and those of the job's group are not.
    Group(Box<Drawn>),
}

/// What the plan of an epoch is drawn from.
pub(super) struct PlanInputs {
    /// See [`spec_now`](crate::plan::spec_now).
    pub(super) spec: PlanSpec,
    pub(super) epoch: u32,
    pub(super) batch_size: u32,
    pub(super) slices: Slices,
    /// By sample: its bucket. Empty if there are none.
    pub(super) buckets: Arc<[u8]>,
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
    /// The plan after it, if it was given.
    pub(super) after: Option<Plan>,
    /// The seats of the plan after it, if that is drawn early.
    pub(super) seats_of_next: Option<Seats>,
    /// The lists of its strata are told to other nodes.
    pub(super) is_told: bool,
    /// The cache goes by next uses, or will if it shrinks.
    pub(super) looks_ahead: bool,
    /// The order to write what a successor of this daemon needs, if that is more than the job's
    /// document.
    pub(super) base: Option<Box<BaseOrder>>,
}

/// A [`DrawOrder`] that was carried out.
pub struct Drawn {
    pub(super) id: OrderId,
    pub(super) plan: DrawnPlan,
    /// The plan after it, if that is drawn early.
    pub(super) next_plan: Option<Plan>,
    /// See [`Plan::lists`]; empty if nobody is told.
    pub(super) lists: Vec<(u32, u32)>,
    /// What a successor of this daemon needs.
    pub(super) base: Option<Arc<Vec<u8>>>,
}

/// A plan, and what is made of it.
pub(super) struct DrawnPlan {
    pub(super) plan: Plan,
    /// Which use each position is; made for a group only.
    pub(super) use_numbers: UseNumbers,
    /// How random its order is.
    pub(super) position_entropy: f64,
    /// Next accesses of the plan and of one drawn early after it, if the cache goes by them.
    pub(super) next_accesses: Option<Arc<Vec<u32>>>,
}

impl Drawn {
    /// The plan.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan.plan
    }

    /// The job that it is of.
    pub(crate) fn job(&self) -> JobId {
        self.id.job
    }

    /// What a successor of this daemon needs, if that is more than the job's document. Unless other
    /// nodes are told something, it is the base of an [`Action::Base`](crate::Action::Base).
    #[must_use]
    pub fn base(&self) -> Option<&Arc<Vec<u8>>> {
        self.base.as_ref()
    }
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

/// The plan of the next epoch, or the order to draw it.
pub(super) struct Ahead {
    pub(super) order: OrderId,
    pub(super) epoch: u32,
    pub(super) strata: Strata,
    pub(super) seats: Seats,
    pub(super) part: Part,
    /// `None` until it is drawn.
    pub(super) drawn: Option<Box<Drawn>>,
}

impl PlanInputs {
    fn facts<'a>(&'a self, seats: &'a Seats) -> SampleFacts<'a> {
        SampleFacts {
            importance: &self.importance,
            weights: self.weights.as_deref(),
            strata: self.strata.clone(),
            seats,
            part: &self.part,
            slices: Some(self.slices),
            buckets: &self.buckets,
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
        let Self { id, inputs, plan, after, seats_of_next, is_told, looks_ahead, base } = self;
        let PlanInputs { spec, epoch, batch_size, samples, rep_now, .. } = inputs;
        let resident = |id: SampleId| inputs.is_resident(id);
        let draw = || draw_plan(&spec, epoch, batch_size, inputs.facts(&inputs.seats), resident, rep_now);
        let plan = plan.unwrap_or_else(draw);
        let draw_next =
            |seats: Seats| draw_next_plan(&spec, &plan, batch_size, inputs.facts(&seats), resident, rep_now);
        let next_plan = after.or_else(|| seats_of_next.map(draw_next));
        let lists = if is_told { plan.lists(inputs.strata.count()) } else { Vec::new() };
        let base = base.map(|mut base| {
            let state = &mut base.state;
            (state.lists, state.plan) = ((!plan.part.is_whole()).then(Lists::default), Some(plan.clone()));
            state.next_plan.clone_from(&next_plan);
            Arc::new(base.to_bytes(epoch))
        });
        let mut plan = DrawnPlan::of(plan, samples, spec.group != 0);
        let next = next_plan.as_ref().map_or(&[][..], |plan| &plan.ids);
        let known = Known { plan: &plan.plan.ids, next };
        plan.next_accesses = looks_ahead.then(|| next_accesses(known, samples));
        Drawn { id, plan, next_plan, lists, base }
    }
}
