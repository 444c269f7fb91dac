//! From records in the cache to filled batches in a ring: gather, decode, finalize.
//!
//! The core orders, worker threads do, and answer through one queue (`workers`). A [`FillOrder`]
//! names some rows of a batch: where each one's record lies in the arena and where in the payload
//! its bytes go (`fill`). Once every row of a batch is filled, or given up, a [`FinalizeOrder`]
//! closes the gaps and writes the columns (`finalize`), which the core's own thread does, as
//! handing it over is more work; then the batch may be published. Nothing here decides anything:
//! which sample, where, and what becomes of a bad record is the core's.

use shade_reads::blocks::Lent;

mod fault;
mod fill;
mod finalize;
mod gather;
mod workers;

pub use fault::{FillFault, LayoutFault};
pub use finalize::finalize;
pub use workers::Workers;

/// A row to fill, with its record in the arena.
pub type Row = shade_core::FillRow<Lent>;
/// Rows to fill.
pub type FillOrder = shade_core::FillOrder<Lent>;
/// Rows that a worker has filled, or found bad.
pub type Filled = shade_core::Filled<Lent, FillFault>;
