//! Where a training was stopped, as a saved state says it.
#![warn(clippy::indexing_slicing)]

use shade_formats::FormatError;
use shade_job::{JobSpec, PlanSpec};

use super::lists::Lists;
use crate::fields::Fields;
use crate::plan::{Origin, Plan, SampleFacts, draw_plan, spec_now};

/// The batch before which a state was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) epoch: u32,
    pub(super) batch: u32,
    /// The plan's first position that is not delivered. 0 if the state's plan is not that epoch's.
    pub(super) position: u32,
    /// Where the saved epoch's batches began.
    pub(super) origin: Origin,
    pub(super) batch_size: u32,
    pub(super) world_size: u32,
}

impl Next {
    /// Whether a plan that was drawn before is one for the batches of `spec`, too. A mixture has
    /// its ratio in batches of one size, and buckets are dealt to them.
    pub(super) fn has_batches_of(&self, spec: &JobSpec) -> bool {
        let is_of_batches = !spec.plan.parts.is_empty() || !spec.plan.bucket.is_empty();
        !is_of_batches || u64::from(self.batch_size) * u64::from(self.world_size) == spec.global_batch()
    }

    pub(super) fn fields(&self) -> [u32; 7] {
        let Self { epoch, batch, position, origin, batch_size, world_size } = *self;
        [epoch, batch, position, origin.position, origin.batch, batch_size, world_size]
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        let (epoch, batch, position) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let origin = Origin { position: fields.u32()?, batch: fields.u32()? };
        Ok(Self { epoch, batch, position, origin, batch_size: fields.u32()?, world_size: fields.u32()? })
    }

    /// Whether it may belong to this plan of a dataset of `samples` samples.
    pub(super) fn fits(&self, plan: Option<&Plan>, samples: u32) -> bool {
        match plan.filter(|plan| plan.epoch == self.epoch) {
            Some(plan) => self.position <= plan.len_of_all(samples),
            None => (self.batch, self.position) == (0, 0),
        }
    }
}

/// Makes a part of a plan whole again, if every node can: if the plan follows from its
/// parameters alone, or from the `facts` of the saved state, by which all `lists` were drawn.
/// Else it stays as it was; why is told with it.
pub(super) fn complete(
    spec: &PlanSpec,
    part: Plan,
    batch_size: u32,
    facts: SampleFacts<'_>,
    lists: &Lists,
) -> (Plan, Option<String>) {
    let depends = spec.depends_on_its_node();
    let known = lists.all().filter(|known| !known.is_empty());
    if depends && known.is_none() {
        let why =
            "it depends on what their node has seen, and was saved before the other nodes had told theirs";
        return (part, Some(why.to_owned()));
    }
    let spec = spec_now(spec, lists.by_losses);
    let (count, seats) = (facts.strata.count(), facts.seats);
    let mut whole = draw_plan(&spec, part.epoch, batch_size, facts, |_| false, 1.0);
    let Some(known) = known.filter(|_| depends) else {
        // It differs where samples were exchanged; then nobody knows what the others have.
        let why = "samples were exchanged by what their node has cached".to_owned();
        return if whole.has(&part) { (whole, None) } else { (part, Some(why)) };
    };
    // Scores of the strata there have changed since their lists were drawn.
    whole.replace(&part);
    let differs = |&(seat, crc): &(u32, u32)| known.get(seats.stratum(seat) as usize) != Some(&crc);
    match whole.lists(count).into_iter().find(differs) {
        None => (whole, None),
        Some((seat, _)) => {
            let stratum = seats.stratum(seat);
            let why = format!("the scores in it are not those by which another node drew stratum {stratum}");
            (part, Some(why))
        }
    }
}
