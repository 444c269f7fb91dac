//! Reads a [saved state](super::snapshot), which may be anybody's bytes.
#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use shade_formats::{FormatError, SampleId};
use shade_job::{JobSpec, PlanSpec, Seats, WeightTable};

use super::drawing::{DrawnPlan, OrderId};
use super::lists::Lists;
use super::scored_at::ScoredAt;
use super::snapshot::{MAGIC, MAGIC_BEFORE, NO_EPOCH};
use super::stop::{Next, complete};
use super::validation::Validation;
use crate::fields::Fields;
use crate::ids::{JobId, SessionId};
use crate::importance::Importance;
use crate::plan::{GAP_BATCHES, Part, Plan, PlanSummary, SampleFacts, Strata, may_leave_out};

/// The order to read a state.
pub struct LoadOrder {
    pub(super) id: OrderId,
    pub(super) session: SessionId,
    pub(super) rank: u32,
    /// How many strata its plan must have; 0: any number.
    pub(super) strata_wanted: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) content_id: u128,
    /// Samples of the dataset.
    pub(super) samples: u32,
    pub(super) spec: JobSpec,
    pub(super) weights: Option<Arc<WeightTable>>,
    /// The strata that the job's ranks ask for.
    pub(super) own_strata: Strata,
}

/// A [`LoadOrder`] that was carried out.
pub struct LoadedState {
    pub(super) id: OrderId,
    pub(crate) session: SessionId,
    pub(super) rank: u32,
    /// Tells whether it is the same as another.
    pub(super) digest: u64,
    pub(super) state: Result<State, FormatError>,
}

/// What a state says.
pub(super) struct State {
    pub(super) strata: Strata,
    pub(super) gap: u32,
    pub(super) seats: Seats,
    pub(super) plan: Option<DrawnPlan>,
    pub(super) next_plan: Option<Plan>,
    pub(super) validation: Vec<Validation>,
    pub(super) has_reports: bool,
    pub(super) scored_at: ScoredAt,
    pub(super) importance: Importance,
    pub(super) next: Next,
}

impl LoadedState {
    /// The job that it is for.
    pub(crate) fn job(&self) -> JobId {
        self.id.job
    }
}

/// What a state of another format is not.
const EXPECTED: &str =
    "SHADES10, a state that this version has saved: finish the training with the version that began it";

/// Reads the format's mark. Whether a state of it has a gap.
fn read_format(fields: &mut Fields<'_>) -> Result<bool, FormatError> {
    let magic: [u8; 8] = fields.array()?;
    fields.expect(EXPECTED, [MAGIC, MAGIC_BEFORE].contains(&&magic))?;
    Ok(magic == *MAGIC)
}

impl LoadOrder {
    /// Reads the state.
    pub(crate) fn carry_out(self) -> LoadedState {
        let digest = state_digest(&self.bytes);
        LoadedState { id: self.id, session: self.session, rank: self.rank, digest, state: self.read() }
    }

    fn read(&self) -> Result<State, FormatError> {
        let &Self { rank, content_id, samples, ref spec, .. } = self;
        let mut fields = Fields::new("saved state", &self.bytes)?;
        let has_gap = read_format(&mut fields)?;
        let found = u128::from_le_bytes(fields.array()?);
        fields.expect("the state of this very dataset", found == content_id)?;
        let digest = u64::from_le_bytes(fields.array()?);
        let found = fields.u32()?;
        fields.expect("the dataset's sample count", found == samples)?;
        let scores = fields.u32()?;
        let reported = fields.u32()?;
        fields.expect("whether losses were reported: 0 or 1", reported < 2)?;
        fields.expect(
            "the state of a loader with the same plan arguments, weights and indices, and the same mixture",
            digest == spec.plan.digest(),
        )?;
        let strata = self.read_strata(&mut fields)?;
        let next = Next::read(&mut fields)?;
        let gap = if has_gap { fields.u32()? } else { GAP_BATCHES };
        let plan_spec = self.with_gap(&mut fields, gap)?;
        let seats = read_seats(&mut fields, strata.count(), samples)?;
        let plan = read_plan(&mut fields, samples, &plan_spec, &strata)?;
        let next_plan = read_plan(&mut fields, samples, &plan_spec, &strata)?;
        fields.expect("a position of the plan", next.fits(plan.as_ref(), strata.samples()))?;
        let validation = (0..scores).map(|_| read_validation(&mut fields)).collect::<Result<Vec<_>, _>>()?;
        let lists = match &plan {
            Some(plan) if !plan.part.is_whole() => read_lists(&mut fields, strata.count())?,
            _ => Lists::default(),
        };
        let scored_at = ScoredAt::of(fields.u32s(samples)?);
        let importance = Importance::from_bytes(fields.rest())?;
        fields.expect("a row of importance for each sample", importance.len() == samples)?;
        let (plan, next_plan) = match plan {
            Some(part) if !part.part.is_whole() => {
                let facts = SampleFacts {
                    weights: self.weights.as_deref(),
                    strata: strata.clone(),
                    seats: &seats,
                    // Every node has the whole plan of a mixture, and where there are buckets.
                    ..(&importance).into()
                };
                match complete(&plan_spec, part, next.batch_size, facts, &lists) {
                    // The next plan follows from the same, too.
                    (whole, None) => (Some(whole), None),
                    (part, Some(why)) => {
                        let (ranks, world_size) = part.part.ranks().unwrap_or_default();
                        let expected = format!(
                            "a plan of the ranks here, rank {rank} of {} among them, and not of ranks {ranks:?} of \
                         {world_size}: {why}. Load the state that a rank of this node has saved, with the number of \
                         ranks that it had, or an older one",
                            spec.world_size
                        );
                        fields.expect(&expected, world_size == spec.world_size && ranks.contains(&rank))?;
                        (Some(part), next_plan)
                    }
                }
            }
            plan => (plan, next_plan),
        };

        Ok(State {
            plan: plan.map(|plan| DrawnPlan::of(plan, samples, spec.plan.group != 0)),
            // The next epoch may have other strata.
            next_plan: next_plan
                .filter(|_| next.has_batches_of(spec) && strata.stay(&self.own_strata, spec.world_size)),
            strata,
            gap,
            seats,
            validation,
            has_reports: reported == 1,
            scored_at,
            importance,
            next,
        })
    }

    /// The parameters of the state's plans, which had this gap: the job's own, if it says one.
    fn with_gap(&self, fields: &mut Fields<'_>, gap: u32) -> Result<PlanSpec, FormatError> {
        let plan = self.spec.plan;
        fields.expect("a gap of batches", gap > 0)?;
        let expected = format!(
            "a plan whose gap is {}, and not {gap}: give Plan(gap={gap}), or none",
            plan.gap.unwrap_or_default()
        );
        fields.expect(&expected, !plan.spaces_repeats() || plan.gap.is_none_or(|own| own == gap))?;
        Ok(PlanSpec { gap: Some(gap), ..plan })
    }

    /// Reads the strata of the state's plan: as many as are wanted, and such as the job could have
    /// on one node.
    fn read_strata(&self, fields: &mut Fields<'_>) -> Result<Strata, FormatError> {
        let (count, wanted) = (fields.u32()?, self.strata_wanted);
        let expected =
            format!("a plan of {wanted} strata, and not of {count}: give Plan(strata={count}), or none");
        fields.expect(&expected, wanted == 0 || wanted == count)?;
        let plan = PlanSpec { strata: count, ..self.spec.plan };
        let spec = JobSpec { plan, ranks_here: 0, ..self.spec.clone() }
            .validate()
            .map_err(|error| error.to_string());
        let strata = match self.own_strata.subset() {
            // It has one stratum, or `spec` is refused.
            Some(_) => Ok(self.own_strata.clone()),
            None => Strata::new(self.samples, count, self.content_id).map_err(|error| error.to_string()),
        };
        match spec.and(strata) {
            Ok(strata) => Ok(strata),
            Err(text) => fields.expect(&text, false).map(|()| self.own_strata.clone()),
        }
    }
}

fn read_lists(fields: &mut Fields<'_>, strata: u32) -> Result<Lists, FormatError> {
    let by_losses = fields.u32()?;
    fields.expect("whether the plan was drawn by losses: 0 or 1", by_losses < 2)?;
    let count = fields.u32()?;
    fields.expect("a list for each stratum, or none", count == 0 || count == strata)?;
    Ok(Lists::of(by_losses == 1, fields.u32s(count)?))
}

fn read_seats(fields: &mut Fields<'_>, strata: u32, samples: u32) -> Result<Seats, FormatError> {
    let count = fields.u32()?;
    fields.expect("a seat for each stratum, or none", count == 0 || count == strata)?;
    match Seats::new(fields.u32s(count)?, samples) {
        Ok(seats) => Ok(seats),
        Err(error) => fields.expect(&error.to_string(), false).map(|()| Seats::IN_ORDER),
    }
}

/// Reads a plan of the job on a dataset of `samples` samples: with a position for each sample that
/// it has, or with fewer if its epochs may be shorter. An epoch of a mixture may have been drawn
/// for batches of another size, and have another length.
fn read_plan(
    fields: &mut Fields<'_>,
    samples: u32,
    spec: &PlanSpec,
    strata: &Strata,
) -> Result<Option<Plan>, FormatError> {
    let (len, positions) = (fields.u32()?, strata.samples());
    let is_mixture = !spec.parts.is_empty();
    fields.expect("a plan of the epoch's length, or none", len <= positions || is_mixture)?;
    let epoch = fields.u32()?;
    let summary = PlanSummary {
        distinct: fields.u32()?,
        repeat_max: fields.u32()?,
        hit_cap_withheld: fields.u32()?,
        covered: fields.u32()?,
    };
    let part = read_part(fields, strata.count())?;
    let is_shorter = part.is_whole() && (may_leave_out(spec.sampler) || is_mixture);
    let fits = len == 0 || len == part.places_before(positions) || is_shorter;
    fields.expect("a plan of the epoch's length, or none", fits)?;
    let ids: Vec<SampleId> = fields.u32s(len)?.into_iter().map(SampleId).collect();
    let is_of_job = |id: &SampleId| id.0 < samples && strata.has(*id);
    fields.expect("ids of the job's samples", ids.iter().all(is_of_job))?;
    let weights = fields.f32s(len)?;
    Ok((len > 0).then_some(Plan { epoch, part, ids, weights, summary }))
}

/// Reads which part of a plan of `strata` strata it is.
fn read_part(fields: &mut Fields<'_>, strata: u32) -> Result<Part, FormatError> {
    let (world_size, ranks) = (fields.u32()?, fields.u32()?);
    if world_size == 0 {
        fields.expect("no ranks of a whole plan", ranks == 0)?;
        return Ok(Part::WHOLE);
    }
    fields.expect("a world size that divides the number of strata", strata.is_multiple_of(world_size))?;
    fields.expect("some of the ranks, not all", ranks > 0 && ranks < world_size)?;
    let ranks = fields.u32s(ranks)?;
    fields.expect("different ranks in their order", ranks.is_sorted_by(|left, right| left < right))?;
    fields.expect("ranks of the world", ranks.last().is_some_and(|&last| last < world_size))?;
    Ok(Part::of(ranks, world_size))
}

fn read_validation(fields: &mut Fields<'_>) -> Result<Validation, FormatError> {
    let epoch = Some(fields.u32()?).filter(|&epoch| epoch != NO_EPOCH);
    Ok(Validation { epoch, rank: fields.u32()?, score: f64::from_le_bytes(fields.array()?) })
}

/// Tells whether two states are the same.
pub(super) fn state_digest(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
