//! `shade-core`: the whole brain of the daemon as one deterministic state machine. No I/O, no clock,
//! no threads; it depends on `shade-formats` alone.
//!
//! [`Core::step`] takes an [`Event`] (a rank attached, a read came back, rows were filled, blocks
//! were released, losses arrived). [`Core::advance`] decides what follows, as a list of [`Action`]s
//! (read this record, fill these rows, publish this batch). The daemon carries actions out and
//! feeds their results back. So a whole epoch can be replayed without a disk, and a policy has one
//! implementation.
//!
//! | part | what it decides |
//! |---|---|
//! | [`importance`] | scores by sample id, from losses |
//! | [`plan`] | the epoch's samples and their order |
//! | [`cache`] | which records stay in memory |
//! | `job`, `session`, `epoch`, `snapshot` | the ranks that train together, their epoch, their saved state |
//! | `open`, `batch`, `fill`, `sizes`, `rows` | batches: opened where a ring has room, filled, sealed, published |
//! | `access`, `reading`, `neighbours`, `prefetch`, `around`, `stalls` | hits and misses, and which records are read when |
//! | `fault`, `bad_share` | what becomes of bad records |
//! | `report`, `counts`, `trace`, `latency` | losses, figures, a trace for an observer |
//!
//! `orders` has the words that the core and its hands share; [`Memory`] and [`Samples`] say what
//! it asks of memory and of a dataset. [`driver`] runs a core in a world without a machine:
//! `simulate` and the tests use it.
//!
//! A miss becomes a read in one place only ([`access`](self)). A batch is opened only when its
//! rank's ring has room for it: batches ahead of the trainer are filled along the plan as far as
//! the ring goes. What is further ahead is prefetched into the cache while the store has nothing
//! else to do.

mod access;
mod action;
mod around;
mod bad_share;
mod batch;
mod block_size;
pub mod cache;
mod counts;
pub mod driver;
mod epoch;
mod event;
mod fault;
mod fill;
pub mod importance;
mod job;
mod latency;
mod machine;
mod memory;
mod neighbours;
mod open;
mod orders;
mod outlook;
pub mod plan;
mod prefetch;
mod reading;
mod report;
mod rows;
mod samples;
mod session;
mod sizes;
mod snapshot;
mod stalls;
mod trace;

pub use action::{Accepted, Action, Refusal};
pub use around::{WINDOW_BYTES, window_bytes};
pub use block_size::{BLOCK_UNIT_BYTES, block_bytes_for, charged_bytes};
pub use counts::{Counts, ReadLatency, Stats};
pub use event::{Attach, Event, SessionId};
pub use machine::{Core, CoreConfig};
pub use memory::Memory;
pub use neighbours::{GAP_BYTES_MAX, NEIGHBOURS_MAX, Neighbours, SPAN_BYTES_MAX};
pub use orders::{
    Columns, Completion, Fault, FaultKind, FillOrder, Filled, Move, ReadOp, Row, SealOrder, Ticket,
};
pub use prefetch::PREFETCHES_MAX;
pub use rows::{SizeFault, indexed_size, row_bytes};
pub use samples::Samples;
pub use sizes::{Capacity, CapacityError, RING_BATCHES, staging_bytes};
