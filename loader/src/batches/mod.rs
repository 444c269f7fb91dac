//! From records in the cache to filled batches in a ring: gather, decode, seal.
//!
//! The core orders, worker threads do, and answer through one queue (`workers`). A [`FillOrder`] names some rows of a
//! batch: where each one's record lies in the arena and where in the payload its bytes go (`fill`). Once every row
//! of a batch is filled, or given up, a [`SealOrder`] closes the gaps and writes the columns (`seal`), which the core's own
//! thread does, as handing it over is more work; then the batch may be published. Nothing here decides anything: which sample,
//! where, and what becomes of a bad record is the core's.

mod fault;
mod fill;
mod gather;
mod order;
mod room;
mod seal;
mod workers;

pub use fault::{FillFault, LayoutFault};
pub use order::{Columns, FillOrder, Filled, Move, Row, SealOrder, Ticket};
pub use room::row_bytes;
pub use seal::seal;
pub use workers::Workers;
