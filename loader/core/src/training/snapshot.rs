//! The saved state: all that the rest of an epoch and later epochs depend on.
//!
//! ```text
//! bytes       what (little-endian)
//! 0..8        magic "SHADEST8"
//! 8..24       content id of the dataset, u128
//! 24..32      `PlanSpec::digest`
//!             (a state resumes only the plan it came from)
//! 32..36      samples N, u32           36..40  validation scores V, u32
//! 40..44      1 if a loss was reported since the plan began, else 0, u32
//! 44..48      strata of the plan, u32
//! 48..60      where it goes on: epoch, batch, position in that epoch's plan, u32 each (0 and 0 if
//!             the plan is of another epoch)
//! 60..68      where the epoch's batches begin: position, number of the batch, u32 each
//! 68..76      batch size, world size, u32 each
//! then        the seats: their number, u32 (0: seat q has stratum q), and the stratum of each,
//!             u32; the plan; the next one, if it was drawn early; V validation scores;
//!             if the plan is a part: 1 if it was drawn by losses, else 0, u32; the lists that are
//!             known, of all strata or none: their number, u32, and the CRC32C of each, u32;
//!             N x u32 scored_at; the importance table
//! last 4      CRC32C of everything before
//!
//! a plan      number of places L, u32 (0: there is no plan); epoch, distinct, repeat_max,
//!             hit_cap_withheld, covered, u32 each; world size, u32 (0: the plan is whole); ranks
//!             that it is for R, u32; R x u32 ranks, L x u32 sample ids, L x f32 weights
//! a score     its epoch, u32 (0xffff_ffff: before the first); the rank that reported it, u32; f64
//! ```
//! The plan is saved because it cannot be drawn again: scores and residents have changed since. A
//! daemon that has some of a job's ranks saves their part of it, and its own ranks load that.
//!
//!
//! A state of a large dataset takes long to write and to read, so that is done aside: an order has
//! a copy of what goes into it.
#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use shade_formats::checksum::crc32c;
use shade_formats::{FormatError, SampleId};
use shade_job::{JobSpec, PlanSpec, Seats, WeightTable};

use super::drawing::{DrawnPlan, OrderId};
use super::lists::Lists;
use super::stop::{Next, complete};
use super::validation::Validation;
use crate::fields::Fields;
use crate::ids::SessionId;
use crate::importance::Importance;
use crate::number::to_u32;
use crate::plan::{Part, Plan, PlanSummary, SampleFacts, Strata, may_leave_out};

const MAGIC: &[u8; 8] = b"SHADEST8";
/// Header of the state.
const HEADER_BYTES: usize = 76;
/// Header of a plan.
const PLAN_HEADER_BYTES: usize = 32;
/// The epoch of a validation score from before the first epoch.
const NO_EPOCH: u32 = u32::MAX;

/// The order to write a state.
pub struct SaveOrder {
    pub(super) session: SessionId,
    pub(super) content_id: u128,
    pub(super) plan_spec: PlanSpec,
    pub(super) strata: u32,
    pub(super) has_reports: bool,
    pub(super) next: Next,
    pub(super) seats: Seats,
    pub(super) plan: Option<Plan>,
    pub(super) next_plan: Option<Plan>,
    pub(super) validation: Vec<Validation>,
    /// The lists that are known, if the plan is a part.
    pub(super) lists: Option<Lists>,
    pub(super) scored_at: Vec<u32>,
    pub(super) importance: Importance,
}

/// A [`SaveOrder`] that was carried out.
pub struct SavedState {
    pub(crate) session: SessionId,
    pub(crate) bytes: Vec<u8>,
}

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
    pub(super) seats: Seats,
    pub(super) plan: Option<DrawnPlan>,
    pub(super) next_plan: Option<Plan>,
    pub(super) validation: Vec<Validation>,
    pub(super) has_reports: bool,
    pub(super) scored_at: Vec<u32>,
    pub(super) importance: Importance,
    pub(super) next: Next,
}

impl SaveOrder {
    /// Writes the state. Equal orders give equal bytes, on any thread at any time.
    pub(crate) fn carry_out(self) -> SavedState {
        let plan_bytes =
            |plan: &Option<Plan>| PLAN_HEADER_BYTES + plan.as_ref().map_or(0, |plan| plan.ids.len() * 8);
        let plans = [&self.plan, &self.next_plan];
        let plans_bytes: usize = plans.map(plan_bytes).iter().sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + plans_bytes + self.scored_at.len() * 16 + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.content_id.to_le_bytes());
        bytes.extend_from_slice(&self.plan_spec.digest().to_le_bytes());
        bytes.extend_from_slice(&self.importance.len().to_le_bytes());
        bytes.extend_from_slice(&len_u32(self.validation.len()).to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.has_reports).to_le_bytes());
        bytes.extend_from_slice(&self.strata.to_le_bytes());
        bytes.extend(self.next.fields().iter().flat_map(|field| field.to_le_bytes()));
        write_seats(&self.seats, &mut bytes);
        plans.into_iter().for_each(|plan| write_plan(plan.as_ref(), &mut bytes));
        for &Validation { epoch, rank, score } in &self.validation {
            bytes.extend_from_slice(&epoch.unwrap_or(NO_EPOCH).to_le_bytes());
            bytes.extend_from_slice(&rank.to_le_bytes());
            bytes.extend_from_slice(&score.to_le_bytes());
        }
        if let Some(lists) = &self.lists {
            write_lists(lists, &mut bytes);
        }
        bytes.extend(self.scored_at.iter().flat_map(|at| at.to_le_bytes()));
        bytes.extend_from_slice(&self.importance.to_bytes());
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        SavedState { session: self.session, bytes }
    }
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
        let magic: [u8; 8] = fields.array()?;
        fields.expect(
        "SHADEST8, a state that this version has saved: finish the training with the version that began it",
        magic == *MAGIC,
    )?;
        let found = u128::from_le_bytes(fields.array()?);
        fields.expect("the state of this very dataset", found == content_id)?;
        let digest = u64::from_le_bytes(fields.array()?);
        let found = fields.u32()?;
        fields.expect("the dataset's sample count", found == samples)?;
        let scores = fields.u32()?;
        let reported = fields.u32()?;
        fields.expect("whether losses were reported: 0 or 1", reported < 2)?;
        fields.expect(
            "the state of a loader with the same plan arguments, weights and indices",
            digest == spec.plan.digest(),
        )?;
        let strata = self.read_strata(&mut fields)?;
        let next = Next::read(&mut fields)?;
        let seats = read_seats(&mut fields, strata.count(), samples)?;
        let plan = read_plan(&mut fields, samples, &spec.plan, &strata)?;
        let next_plan = read_plan(&mut fields, samples, &spec.plan, &strata)?;
        fields.expect("a position of the plan", next.fits(plan.as_ref(), strata.samples()))?;
        let validation = (0..scores).map(|_| read_validation(&mut fields)).collect::<Result<Vec<_>, _>>()?;
        let lists = match &plan {
            Some(plan) if !plan.part.is_whole() => read_lists(&mut fields, strata.count())?,
            _ => Lists::default(),
        };
        let scored_at = fields.u32s(samples)?;
        let importance = Importance::from_bytes(fields.rest())?;
        fields.expect("a row of importance for each sample", importance.len() == samples)?;
        let (plan, next_plan) = match plan {
            Some(part) if !part.part.is_whole() => {
                let facts = SampleFacts {
                    importance: &importance,
                    weights: self.weights.as_deref(),
                    strata: strata.clone(),
                    seats: &seats,
                    part: &Part::WHOLE,
                };
                match complete(&spec.plan, part, next.batch_size, facts, &lists) {
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
            next_plan: next_plan.filter(|_| strata.stay(&self.own_strata, spec.world_size)),
            strata,
            seats,
            validation,
            has_reports: reported == 1,
            scored_at,
            importance,
            next,
        })
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

fn write_lists(lists: &Lists, bytes: &mut Vec<u8>) {
    let crcs = lists.all().unwrap_or_default();
    let by_losses = u32::from(lists.by_losses);
    bytes.extend([by_losses, len_u32(crcs.len())].iter().chain(&crcs).flat_map(|field| field.to_le_bytes()));
}

fn read_lists(fields: &mut Fields<'_>, strata: u32) -> Result<Lists, FormatError> {
    let by_losses = fields.u32()?;
    fields.expect("whether the plan was drawn by losses: 0 or 1", by_losses < 2)?;
    let count = fields.u32()?;
    fields.expect("a list for each stratum, or none", count == 0 || count == strata)?;
    Ok(Lists::of(by_losses == 1, fields.u32s(count)?))
}

fn write_seats(seats: &Seats, bytes: &mut Vec<u8>) {
    let strata = seats.to_bytes();
    bytes.extend_from_slice(&len_u32(strata.len() / 4).to_le_bytes());
    bytes.extend_from_slice(&strata);
}

fn read_seats(fields: &mut Fields<'_>, strata: u32, samples: u32) -> Result<Seats, FormatError> {
    let count = fields.u32()?;
    fields.expect("a seat for each stratum, or none", count == 0 || count == strata)?;
    match Seats::new(fields.u32s(count)?, samples) {
        Ok(seats) => Ok(seats),
        Err(error) => fields.expect(&error.to_string(), false).map(|()| Seats::IN_ORDER),
    }
}

fn write_plan(plan: Option<&Plan>, bytes: &mut Vec<u8>) {
    let summary = PlanSummary::default();
    let none = Plan { epoch: 0, part: Part::WHOLE, ids: Vec::new(), weights: Vec::new(), summary };
    let Plan { epoch, part, ids, weights, summary } = plan.unwrap_or(&none);
    let (ranks, world_size) = part.ranks().unwrap_or_default();
    let PlanSummary { distinct, repeat_max, hit_cap_withheld, covered } = *summary;
    let header = [len_u32(ids.len()), *epoch, distinct, repeat_max, hit_cap_withheld, covered];
    let of_part = [world_size, len_u32(ranks.len())];
    bytes.extend(header.iter().chain(&of_part).chain(ranks).flat_map(|field| field.to_le_bytes()));
    bytes.extend(ids.iter().flat_map(|id| id.0.to_le_bytes()));
    bytes.extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
}

/// Reads a plan of the job on a dataset of `samples` samples: with a position for each sample that
/// it has, or with fewer if its epochs may be shorter.
fn read_plan(
    fields: &mut Fields<'_>,
    samples: u32,
    spec: &PlanSpec,
    strata: &Strata,
) -> Result<Option<Plan>, FormatError> {
    let (len, positions) = (fields.u32()?, strata.samples());
    fields.expect("a plan of the epoch's length, or none", len <= positions)?;
    let epoch = fields.u32()?;
    let summary = PlanSummary {
        distinct: fields.u32()?,
        repeat_max: fields.u32()?,
        hit_cap_withheld: fields.u32()?,
        covered: fields.u32()?,
    };
    let part = read_part(fields, strata.count())?;
    let is_shorter = part.is_whole() && may_leave_out(spec.sampler);
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

fn len_u32(len: usize) -> u32 {
    to_u32(len)
}
