//! Where a saved state goes on: a position of its plan, whatever the number of ranks.
//!
//! All positions before it are delivered. A job with the saved batch size and world size goes on
//! with the saved batch. Any other divides the rest of the plan anew, from that position on; the
//! plan itself depends on neither.

use shade_formats::FormatError;
use shade_formats::control::PlanSpec;

use crate::action::Resumed;
use crate::fields::Fields;
use crate::job::Job;
use crate::lists::Lists;
use crate::plan::{Origin, Plan, SampleFacts, draw_plan, spec_now};

/// The batch before which a state was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) epoch: u32,
    batch: u32,
    /// The plan's first position that is not delivered. 0 if the state's plan is not that epoch's.
    position: u32,
    /// Where the saved epoch's batches began.
    origin: Origin,
    pub(super) batch_size: u32,
    world_size: u32,
}

impl Next {
    /// Before this batch of the job.
    pub(super) fn of(job: &Job, epoch: u32, batch: u32) -> Self {
        let (batch_size, world_size) = (job.spec.batch_size, job.spec.world_size);
        if job.epoch() != Some(epoch) {
            let origin = Origin::default();
            return Self { epoch, batch: 0, position: 0, origin, batch_size, world_size };
        }
        let origin = job.slices.origin();
        let batch = batch.min(job.slices.batches_per_epoch()).max(origin.batch);
        Self { epoch, batch, position: job.slices.start(batch), origin, batch_size, world_size }
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

impl Job {
    /// Goes on from there, after [`begin`](Job::begin) with the plan that it [`fits`](Next::fits).
    pub(super) fn resume(&mut self, next: Next) -> Resumed {
        let Next { epoch, batch, position, origin, batch_size, world_size } = next;
        if self.epoch() != Some(epoch) {
            return Resumed { epoch, first_batch: 0, batches: self.slices_of(epoch).batches_per_epoch() };
        }
        let as_saved = self.slices.from_origin(origin);
        let is_as_saved = (batch_size, world_size) == (self.spec.batch_size, self.spec.world_size)
            && (origin.batch..=as_saved.batches_per_epoch()).contains(&batch)
            && as_saved.start(batch) == position;
        let first_batch = if is_as_saved {
            self.slices = as_saved;
            batch
        } else {
            let origin = self.slices.origin_at(position);
            self.slices = self.slices.from_origin(origin);
            // Reports from now on are of later positions than those before.
            self.scored_at.iter_mut().for_each(|at| *at = (*at).min(1));
            origin.batch
        };
        Resumed { epoch, first_batch, batches: self.slices.batches_per_epoch() }
    }
}
