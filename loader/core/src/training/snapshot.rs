//! The saved state: all that the rest of an epoch and later epochs depend on.
//!
//! ```text
//! bytes       what (little-endian)
//! 0..8        magic "SHADES10"
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
//! 76..80      most batches from a use of a sample to the next, u32; `SHADEST9` has none: it is 60
//! then        the seats: their number, u32 (0: seat q has stratum q), and the stratum of each,
//!             u32; the plan; the next one, if it was drawn early; V validation scores;
//!             if the plan is a part: 1 if it was drawn by losses, else 0, u32; the lists that are
//!             known, of all strata or none: their number, u32, and the CRC32C of each, u32;
//!             N x u32 where each sample was scored ([`ScoredAt`]); the importance table
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
//! A state of a large dataset takes long to write and to read, so that is done aside: an order has
//! a copy of what goes into it.
#![warn(clippy::indexing_slicing)]

use shade_formats::checksum::crc32c;
use shade_job::{PlanSpec, Seats};

use super::lists::Lists;
use super::scored_at::ScoredAt;
use super::stop::Next;
use super::validation::Validation;
use crate::ids::SessionId;
use crate::importance::Importance;
use crate::number::to_u32;
use crate::plan::{GAP_BATCHES, Part, Plan, PlanSummary};

pub(super) const MAGIC: &[u8; 8] = b"SHADES10";
/// That of states without a gap.
pub(super) const MAGIC_BEFORE: &[u8; 8] = b"SHADEST9";
/// Header of the state.
const HEADER_BYTES: usize = 80;
/// Header of a plan.
const PLAN_HEADER_BYTES: usize = 32;
/// The epoch of a validation score from before the first epoch.
pub(super) const NO_EPOCH: u32 = u32::MAX;

/// The order to write a state.
pub struct SaveOrder {
    pub(super) session: SessionId,
    pub(super) state: StateToSave,
}

/// A copy of what goes into a state.
pub(super) struct StateToSave {
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
    pub(super) scored_at: ScoredAt,
    pub(super) importance: Importance,
}

/// A [`SaveOrder`] that was carried out.
pub struct SavedState {
    pub(crate) session: SessionId,
    pub(crate) bytes: Vec<u8>,
}

impl SaveOrder {
    /// Writes the state. Equal orders give equal bytes, on any thread at any time.
    pub(crate) fn carry_out(self) -> SavedState {
        SavedState { session: self.session, bytes: self.state.to_bytes() }
    }
}

impl StateToSave {
    /// The state's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let plan_bytes =
            |plan: &Option<Plan>| PLAN_HEADER_BYTES + plan.as_ref().map_or(0, |plan| plan.ids.len() * 8);
        let plans = [&self.plan, &self.next_plan];
        let plans_bytes: usize = plans.map(plan_bytes).iter().sum();
        let mut bytes =
            Vec::with_capacity(HEADER_BYTES + plans_bytes + self.scored_at.places().len() * 16 + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.content_id.to_le_bytes());
        bytes.extend_from_slice(&self.plan_spec.digest().to_le_bytes());
        bytes.extend_from_slice(&self.importance.len().to_le_bytes());
        bytes.extend_from_slice(&len_u32(self.validation.len()).to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.has_reports).to_le_bytes());
        bytes.extend_from_slice(&self.strata.to_le_bytes());
        bytes.extend(self.next.fields().iter().flat_map(|field| field.to_le_bytes()));
        bytes.extend_from_slice(&self.plan_spec.gap.unwrap_or(GAP_BATCHES).to_le_bytes());
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
        bytes.extend(self.scored_at.places().iter().flat_map(|at| at.to_le_bytes()));
        bytes.extend_from_slice(&self.importance.to_bytes());
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn write_lists(lists: &Lists, bytes: &mut Vec<u8>) {
    let crcs = lists.all().unwrap_or_default();
    let by_losses = u32::from(lists.by_losses);
    bytes.extend([by_losses, len_u32(crcs.len())].iter().chain(&crcs).flat_map(|field| field.to_le_bytes()));
}

fn write_seats(seats: &Seats, bytes: &mut Vec<u8>) {
    let strata = seats.to_bytes();
    bytes.extend_from_slice(&len_u32(strata.len() / 4).to_le_bytes());
    bytes.extend_from_slice(&strata);
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

fn len_u32(len: usize) -> u32 {
    to_u32(len)
}
