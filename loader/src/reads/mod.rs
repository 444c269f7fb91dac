//! Reads of single records from shards straight into blocks: by io_uring, or by threads where it is not allowed.
//!
//! [`Reads::submit`] hands a [`ReadOp`] with its blocks to an engine; later a [`Completion`] brings the blocks back, with
//! the record or a [`ReadFault`], and says whether the record's checksum has been compared. Every submitted read comes
//! back exactly once. A buffer belongs to the kernel until the kernel has answered: nothing cancels a read (no NFS read
//! can be), so stopping waits.
//!
//! The way of a read: `reader`, then an engine (`uring`, `threads` or `sim`, behind the one seam `engine`), which begins
//! it when the `gate` has room and lets `flight` judge each result by `rules`. The gate's width is found by `depth`;
//! neighbours that `coalesce` found travel as one flight through a `bounce` buffer. `files` opens
//! shards, within `descriptors`; `line` lets flights go first whose shard was opened; `land` takes
//! neighbours apart; `identity` says whether a shard's file is another one by now. `availability`
//! says why there is no io_uring where there is none.

mod availability;
mod bell;
mod bounce;
pub mod coalesce;
mod config;
pub mod depth;
mod descriptors;
mod direct;
mod engine;
mod fault;
mod files;
mod flight;
mod gate;
mod identity;
mod land;
pub mod latency;
mod line;
mod op;
mod opener;
mod reader;
mod ring_setup;
mod rules;
mod sim;
mod store_model;
mod store_text;
mod threads;
mod uring;

pub use availability::{Unavailable, io_uring_here, linux_version};
pub use config::{Depth, EngineChoice, IoMode, PATIENCE, READS_DEPTH_MAX, ReadsConfig};
pub use descriptors::raise_open_files_limit;
pub use direct::{Choice as IoChoice, choose as choose_io};
pub use fault::{ReadFault, ReadsError, ShardWarning};
pub use files::any_shard;
pub use op::{Completion, ReadOp};
pub use reader::Reads;
pub(crate) use store_model::Queues;
pub use store_model::{ClockModel, FaultShares, LatencyModel, STUCK, StoreModel};
pub use store_text::parse_time;
