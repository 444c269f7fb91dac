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
//! | `training` | room: jobs, ranks, the plan of each epoch, the saved state |
//! | `records` | room: cache, memory, tier; what is read, and in which order |
//! | `batches` | room: rings, open batches, what workers do |
//! | `figures` | room: counts, waits, who gets a trace |
//! | `brain`, `step` | the state; which event changes it |
//! | `attach`, `epoch`, `states` | ranks come and go; epochs begin; states and seats come in |
//! | `aside`, `postponed`, `slices` | what takes long: elsewhere, waited for, or in slices |
//! | `open`, `fill`, `sizes` | which batch is opened and published, and how large it is |
//! | `access` | a row gets its record, or waits for a read |
//! | `lookahead` | next uses as plans and cache tell each other |
//! | `fault`, `bad_share` | what becomes of bad records |
//! | `report`, `stats`, `trace` | losses, the figures of all rooms, a trace's lines |
//! | `attribution` | for what trainers wait |
//!
//! A room has private fields. It may ask rooms before it in the order `figures`, `training`,
//! `records` and `batches`, and none behind it. `step` and the parts beside it see all rooms, and
//! hand each what it needs of the others.
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
//! seats, scores of other nodes) are read in `fields`, `portable_scores`, and `snapshot`, `stop`,
//! `states`, `lists`, `seats` and `scores` of `training`, where indexing is refused.
#![allow(clippy::indexing_slicing, reason = "an index out of range is a defect, and ends the daemon")]

#[cfg(test)]
extern crate self as shade_core;

mod access;
mod action;
mod aside;
mod attach;
mod attribution;
mod bad_share;
mod batch_fields;
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
pub mod driver;
mod epoch;
mod event;
mod fault;
mod fields;
mod figures;
mod fill;
mod ids;
pub mod importance;
/// The dataset of the tests of rooms.
#[cfg(test)]
#[path = "../tests/replay/lens.rs"]
mod lens;
mod lookahead;
mod memory;
mod number;
mod open;
mod orders;
pub mod plan;
mod portable_scores;
mod postponed;
mod records;
mod report;
mod samples;
mod sizes;
mod slices;
mod states;
mod stats;
mod step;
mod succession;
mod tier_orders;
mod trace;
mod training;
mod whole_samples;

pub use action::{Accepted, Action, Refusal, Resumed};
pub use aside::{AsideOrder, AsideResult};
pub use batch_fields::BatchFields;
pub use block_size::{BLOCK_UNIT_BYTES, block_bytes_for, charged_bytes};
pub use brain::Core;
pub use config::CoreConfig;
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
pub use sizes::{
    RING_BATCHES, STAGING_BYTES_MAX, SizeFault, capacity_bytes, indexed_size, row_bytes, staging_bytes,
};
pub use stats::{CountStats, JobStatus, Stats};
pub use tier_orders::{TIER_OVERHEAD_BYTES, TierEvent, TierMiss, TierOrder, TierPut};
pub use training::{BaseVersion, DrawOrder, Drawn, LoadOrder, LoadedState, SaveOrder, SavedState};
pub use whole_samples::{Stored, WholeSamples};
