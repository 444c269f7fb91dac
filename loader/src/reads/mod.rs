//! Reads of single records from shards straight into blocks: by io_uring, or by threads where it is not allowed.
//!
//! [`Reads::submit`] hands a [`ReadOp`] with its blocks to an engine; later a [`Completion`] brings the blocks back, with
//! the record or a [`ReadFault`], and says whether the record's checksum has been compared. Every submitted read comes
//! back exactly once. A buffer belongs to the kernel until the kernel has answered: nothing cancels a read (no NFS read
//! can be), so stopping waits.
//!
//! The way of a read: `reader`, then an engine (`uring`, `threads` or `sim`, behind the one seam `engine`), which begins
//! it when the `gate` has room and lets `flight` follow each result. The gate's width is found by `depth`;
//! neighbours that `coalesce` found travel as one flight through a `bounce` buffer. Shards' files, the
//! choice of direct or buffered reads and the rules for each result are those of `shade_dataset`. `survey` looks at all
//! shards at start; `line` lets flights go first whose shard was opened; `land` takes neighbours apart.
//! `availability` says why there is no io_uring where there is none.

mod availability;
mod bell;
mod bounce;
pub mod coalesce;
mod config;
pub mod depth;
mod engine;
mod fault;
mod flight;
mod gate;
mod land;
pub mod latency;
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
pub use fault::{ReadsError, ShardWarning};
pub use op::{Completion, ReadOp};
pub use reader::Reads;
pub use shade_dataset::{IoMode, PATIENCE, ReadFault};
pub(crate) use store_model::Queues;
pub use store_model::{ClockModel, FaultShares, LatencyModel, STUCK, StoreModel};
pub use store_text::parse_time;
pub use survey::any_shard;
