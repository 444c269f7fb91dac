//! From records in the cache to filled batches in a ring: gather, decode, finalize.
//!
//! Worker threads carry out the core's orders and answer through one queue (`workers`). A
//! [`FillOrder`] names some rows of a batch: where each record lies in the arena, and where its
//! bytes go in the payload (`fill`). Once every row of a batch is filled or given up, a
//! [`FinalizeOrder`] closes the gaps and writes the columns (`finalize`). The core's own thread
//! does that, as handing it over would be more work. Then the batch may be published. The core
//! decides everything: which sample, where, and what happens to a bad record.

use shade_reads::blocks::Lent;

mod fatal;
mod fault;
mod fields;
mod fill;
mod finalize;
mod gather;
mod room;
mod workers;

pub use fault::{FieldFault, FillFault, LayoutFault};
pub use finalize::finalize;
pub use room::Room;
pub use workers::Workers;

/// A row to fill, with its record in the arena.
pub type Row = shade_core::FillRow<Lent>;
/// Rows to fill.
pub type FillOrder = shade_core::FillOrder<Lent>;
/// Rows that a worker has filled, or found bad.
pub type Filled = shade_core::Filled<Lent, FillFault>;
