//! `shade-reads`: reads single records from shards straight into blocks of memory, by io_uring, or
//! by threads where that is not allowed.
//!
//! [`Reads::submit`] hands a [`ReadOp`] with its blocks to an engine. Later a [`Completion`] brings
//! the blocks back, with the record or a [`ReadFault`], and says whether the record's checksum was
//! compared. Every submitted read comes back exactly once. A buffer belongs to the kernel until the
//! kernel has answered: nothing cancels a read (no NFS read can be cancelled), so stopping waits.
//!
//! [`blocks`] is the memory that reads land in and that the daemon's cache keeps.
//!
//! The way of a read:
//!
//! - `reader` hands it to an engine: `uring`, `threads`, `objects` or `sim`, behind the one seam,
//!   `Engine` of `flight`.
//! - The engine begins it when the `gate` has room; `depth` finds the gate's width.
//! - `flight` follows each result, by the rules of `shade_dataset`, which also has the shards'
//!   files and the choice of direct or buffered reads.
//! - Neighbours that the core found are one flight through a bounce buffer; `land` has the buffers
//!   and takes them apart.
//! - `resumed` lets flights go first whose shard was opened, or whose wait is over.
//!
//! `survey` looks at all shards at start. `availability` says why io_uring cannot be used.
//! `store_model` says when the store answers that `sim` and `simulate` read from; `shade_job` has
//! its description.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod availability;
mod bell;
pub mod blocks;
pub mod depth;
mod depth_objects;
mod depth_shared;
mod fault;
mod flight;
mod gate;
mod land;
mod objects;
mod op;
mod opener;
mod reader;
mod resumed;
mod ring_setup;
mod sim;
mod store_model;
mod survey;
mod threads;
mod uring;

pub use availability::{Unavailable, linux_version};
pub use fault::{ReadsError, ShardWarning, core_fault};
pub use gate::Depth;
pub use op::{Completion, ReadOp, verify};
pub use reader::{Reads, ReadsConfig};
pub use ring_setup::io_uring_here;
pub use shade_dataset::{PATIENCE, ReadFault, StoreTrouble};
pub use store_model::{Queues, STUCK, latency_of};
pub use survey::any_shard;
