//! The current epoch of a job: its plan, and what has become of that so far.

use std::collections::HashSet;
use std::sync::Arc;

use super::drawing::DrawnPlan;
use super::use_numbers::UseNumbers;
use crate::bad_share::{Faults, RowCounts};
use crate::plan::{Lookahead, Plan, Slices, StandIns};

/// An epoch. All of it is new with each plan.
pub(super) struct Epoch {
    /// `None` before the first epoch.
    pub(super) plan: Option<Plan>,
    /// Where the samples of the known accesses are accessed next, if it was found with the plan.
    pub(super) next_accesses: Option<Arc<Vec<u32>>>,
    /// How random the plan's order is.
    pub(super) position_entropy: f64,
    /// Which use each position is; made for a group only.
    pub(super) use_numbers: UseNumbers,
    /// The batches of the plan. Before the first: those of a plan as long as the dataset.
    pub(super) slices: Slices,
    /// The uses in sight; `None` while nothing looks ahead.
    pub(super) lookahead: Option<Lookahead>,
    /// Global batches below have their final samples. Those of later ones may still be exchanged.
    pub(super) settled: u32,
    /// A state has the rest of the epoch: from then on nothing is exchanged, so that the rest is
    /// the same wherever it is delivered.
    pub(super) rest_is_saved: bool,
    /// By sample: it comes more than once in the plan. Made when samples are first exchanged; empty
    /// if there is none.
    pub(super) repeated: Option<Vec<bool>>,
    /// Positions of the plan whose sample was exchanged.
    pub(super) exchanged: HashSet<u32>,
    /// What packages brought, if it may stand in for other samples.
    pub(super) stand_ins: Option<StandIns>,
    /// Faults of the records that were skipped or substituted.
    pub(super) faults: Faults,
    /// By rank: its rows, since it asked for the epoch last. A rank that is further on by now, or
    /// gone, still counts.
    pub(super) row_counts: Vec<RowCounts>,
}

impl Epoch {
    /// The epoch of a plan, or the time before the first epoch, with these batches.
    pub(super) fn new(drawn: Option<DrawnPlan>, slices: Slices, world_size: u32) -> Self {
        let (mut next_accesses, mut position_entropy, mut use_numbers) = (None, 1.0, UseNumbers::default());
        let plan = drawn.map(|drawn| {
            (use_numbers, position_entropy) = (drawn.use_numbers, drawn.position_entropy);
            next_accesses = drawn.next_accesses;
            drawn.plan
        });
        Self {
            plan,
            next_accesses,
            position_entropy,
            use_numbers,
            slices,
            lookahead: None,
            settled: 0,
            rest_is_saved: false,
            repeated: None,
            exchanged: HashSet::new(),
            stand_ins: None,
            faults: Faults::default(),
            row_counts: vec![RowCounts::default(); world_size as usize],
        }
    }
}
