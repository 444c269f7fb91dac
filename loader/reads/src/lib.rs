//! `shade-reads`: reads single records from shards straight into blocks of memory, by io_uring, or by
//! threads where that is not allowed.
//!
//! [`Reads::submit`] hands a [`ReadOp`] with its blocks to an engine. Later a [`Completion`] brings
//! the blocks back, with the record or a [`ReadFault`], and says whether the record's checksum has
//! been compared. Every submitted read comes back exactly once. A buffer belongs to the kernel until
//! the kernel has answered: nothing cancels a read (no NFS read can be cancelled), so stopping waits.
//!
//! [`blocks`] is the memory that reads land in and that the daemon's cache keeps.
//!
//! The way of a read: `reader`, then an engine (`uring`, `threads` or `sim`, behind the one seam
//! `engine`). The engine begins it when the `gate` has room, and lets `flight` follow each result.
//! The gate's width is found by `depth`. Neighbours that the core found travel as one flight through
//! a `bounce` buffer, and `land` takes them apart. Shards' files, the choice of direct or buffered
//! reads and the rules for each result are those of `shade_dataset`. `survey` looks at all shards at
//! start; `line` lets flights go first whose shard was opened. `availability` says why there is no
//! io_uring where there is none. `store_model` is the store that `sim` and `simulate` pretend to
//! read from.

mod availability;
mod bell;
pub mod blocks;
mod bounce;
mod config;
pub mod depth;
mod engine;
mod fault;
mod flight;
mod gate;
mod land;
mod line;
mod op;
mod opener;
mod reader;
mod ring_setup;
mod sim;
mod store_model;
mod store_text;
mod survey;
mod threads;
mod uring;

pub use availability::{Unavailable, io_uring_here, linux_version};
pub use config::{Depth, EngineChoice, READS_DEPTH_MAX, ReadsConfig};
pub use fault::{ReadsError, ShardWarning, core_fault};
pub use op::{Completion, ReadOp, verify};
pub use reader::Reads;
pub use shade_dataset::{IoMode, PATIENCE, ReadFault};
pub use store_model::{ClockModel, FaultShares, LatencyModel, Queues, STUCK, StoreModel};
pub use store_text::parse_time;
pub use survey::any_shard;
