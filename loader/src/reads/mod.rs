//! Reads of single records from shards straight into blocks: by io_uring, or by threads where it is not allowed.
//!
//! [`Reads::submit`] hands a [`ReadOp`] with its blocks to an engine; later a [`Completion`] brings the blocks back,
//! with the record checked against its CRC32C or a [`ReadFault`]. Every submitted read comes back exactly once. A
//! buffer belongs to the kernel until the kernel has answered: nothing cancels a read (no NFS read can be), so
//! stopping waits.
//!
//! The way of a read: `reader`, then an engine (`uring` or `threads`, behind the one seam `engine`), which lets
//! `flight` judge each result by `rules` and verify the bytes, then `delivery`, which a simulated `store` may delay.

mod bell;
mod config;
mod delivery;
mod direct;
mod engine;
mod fault;
mod files;
mod flight;
mod op;
mod reader;
mod rules;
mod store;
mod threads;
mod uring;

pub use config::{EngineChoice, IoMode, READS_DEPTH_MAX, ReadsConfig, StoreModel};
pub use fault::{ReadFault, ReadsError, ShardWarning};
pub use op::{Completion, ReadOp};
pub use reader::Reads;
