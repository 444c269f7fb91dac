//! `shade-core`: the whole brain of the daemon as one deterministic state machine. No I/O, no
//! clock, no threads; it depends on `shade-formats` and `shade-job` alone.
//!
//! [`Core::step`] takes an [`Event`] (a rank attached, a read ended, rows were filled, blocks were
//! released, losses arrived). [`Core::advance`] decides what follows, as a list of [`Action`]s
//! (read this record, fill these rows, publish this batch). The daemon carries actions out and
//! feeds the results back. So a whole epoch can be replayed without a disk, and a policy has one
//! implementation.
//!
//! | part | what it decides |
//! |---|---|
//! | [`importance`], `portable_scores` | scores by sample, from losses |
//! | [`plan`] | the epoch's samples and their order |
//! | [`cache`] | which records stay in memory |
//! | `brain`, `step` | the state; which event changes it |
//! | `job`, `rank`, `ranks`, `epoch` | the ranks that train together, and their epoch |
//! | `aside`, `drawing`, `postponed` | what takes long is done elsewhere: plans are drawn |
//! | `ahead` | the next epoch before it begins |
//! | `slices` | what takes long and must be done here is done a little at a time |
//! | `jobs`, `pace`, `due_times`, `group` | several jobs on one cache |
//! | `use_numbers` | which use of its sample each position of a group's plan is |
//! | `states`, `snapshot`, `stop`, `fields` | the saved state |
//! | `resume` | where a training goes on |
//! | `seats`, `scores`, `lists` | what nodes tell each other |
//! | `batches` | room: rings, open batches, what workers do |
//! | `open`, `fill`, `sizes` | which batch is opened and published, and how large it is |
//! | `access` | a row gets its record, or waits for a read |
//! | `records` | room: cache, memory, tier; what is read, and in which order |
//! | `lookahead` | next uses as plans and cache tell each other |
//! | `fault`, `bad_share` | what becomes of bad records |
//! | `figures` | room: counts, waits, who gets a trace |
//! | `report`, `stats`, `trace` | losses, the figures of all rooms, a trace's lines |
//! | `attribution` | for what trainers wait |
//!
//! A room has private fields. `step` and the parts beside it see all rooms, and hand each what it
//! needs of the others.
//!
//! `orders` has the types that the core shares with readers and workers. [`Memory`] and [`Samples`]
//! are memory and dataset as the core sees them. [`driver`] runs a core in a world without a
//! machine: `simulate` and the tests use it.
//!
//! A miss becomes a read in one place only (`records`). A batch is opened only when its rank's ring
//! has room for it: batches ahead of the trainer are filled along the plan as far as the ring goes.
//! Records further ahead are prefetched into the cache while the store has nothing else to do.
//!
//! An impossible state ends the daemon: parts index and assert. Bytes from elsewhere (states,
//! seats, scores of other nodes) are read in `fields`, `snapshot`, `lists`, `seats` and `scores`,
//! where indexing is refused.
#![allow(clippy::indexing_slicing, reason = "an index out of range is a defect, and ends the daemon")]

#[cfg(test)]
extern crate self as shade_core;

mod access;
mod action;
mod ahead;
mod aside;
mod attribution;
mod bad_share;
mod batches;
mod block_size;
mod brain;
pub mod cache;
mod config;
/// The memory of the tests in `tests/`, which is held to the contract there.
#[cfg(test)]
#[path = "../tests/replay/counted.rs"]
#[expect(dead_code, reason = "those tests need more of it")]
mod counted;
mod drawing;
pub mod driver;
mod due_times;
mod epoch;
mod event;
mod fault;
mod fields;
mod figures;
mod fill;
mod group;
mod ids;
pub mod importance;
mod job;
mod jobs;
/// The dataset of the tests of rooms.
#[cfg(test)]
#[path = "../tests/replay/lens.rs"]
mod lens;
mod lists;
mod lookahead;
mod memory;
mod number;
mod open;
mod orders;
mod pace;
pub mod plan;
mod portable_scores;
mod postponed;
mod rank;
mod ranks;
mod records;
mod report;
mod resume;
mod samples;
mod scores;
mod seats;
mod sizes;
mod slices;
mod snapshot;
mod states;
mod stats;
mod step;
mod stop;
mod tables;
mod tier_orders;
mod trace;
mod use_numbers;
mod validation;

pub use action::{Accepted, Action, Refusal, Resumed};
pub use aside::{AsideOrder, AsideResult};
pub use block_size::{BLOCK_UNIT_BYTES, block_bytes_for, charged_bytes};
pub use brain::Core;
pub use config::CoreConfig;
pub use drawing::{DrawOrder, Drawn};
pub use event::{Attach, Event, SessionId};
pub use figures::{Cause, Counts, RankStatus, Waits};
pub use memory::Memory;
pub use orders::{
    Columns, Completion, DecodedRow, Fault, FaultKind, FillOrder, FillRow, Filled, FinalizeOrder, Move,
    Pixels, ReadOp, Ticket,
};
pub use records::{
    GAP_BYTES_MAX, NEIGHBOURS_MAX, Neighbours, PACKAGES_MAX, PREFETCHES_MAX, ReadLatency, TierStats,
    WINDOW_BYTES, window_bytes,
};
pub use samples::Samples;
pub use sizes::{RING_BATCHES, SizeFault, capacity_bytes, indexed_size, row_bytes, staging_bytes};
pub use snapshot::{LoadOrder, LoadedState, SaveOrder, SavedState};
pub use stats::{CountStats, JobStatus, Stats};
pub use tier_orders::{TIER_OVERHEAD_BYTES, TierEvent, TierMiss, TierOrder, TierPut};
