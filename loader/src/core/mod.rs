//! The whole brain of the daemon as one deterministic state machine: no I/O, no clock, no threads.
//!
//! [`Core::step`] takes an [`Event`] (a rank attached, a read came back, rows were filled, slots were released, losses
//! arrived) and [`Core::advance`] decides what follows as a list of [`Action`]s (read this record, fill these rows,
//! publish this batch). The daemon carries actions out and feeds their results back; so a whole epoch can be replayed
//! without a disk, and a policy has one implementation.
//!
//! A miss becomes a read in one place only ([`access`](self)), and a batch is opened only when its rank's ring has
//! room for it: batches ahead of the trainer are filled along the plan as far as the ring goes. What is
//! further ahead is prefetched into the cache while the store has nothing else to do.

mod access;
mod action;
mod around;
mod bad_share;
mod batch;
mod counts;
mod epoch;
mod event;
mod fault;
mod fill;
mod job;
mod machine;
mod memory;
mod open;
mod outlook;
mod prefetch;
mod reading;
mod report;
mod samples;
mod session;
mod sizes;
mod snapshot;
mod stalls;
mod trace;

pub use action::{Accepted, Action, Refusal};
pub use around::{WINDOW_BYTES, window_bytes};
pub use counts::{Counts, ReadLatency, Stats};
pub use event::{Attach, Event, SessionId};
pub use machine::{Core, CoreConfig};
pub use memory::Memory;
pub use prefetch::PREFETCHES_MAX;
pub use samples::Samples;
pub use sizes::{Capacity, CapacityError, RING_BATCHES, staging_bytes};
