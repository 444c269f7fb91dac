//! Writes the shards of a plan: many threads read, so that a distant store has tens of files to
//! fetch at a time, and what they make is put together in the plan's order.
//!
//! `packing` says what is packed and hands out stretches, `run` does it: `read` and `stretch` turn
//! one into bytes (`recipe`, `transform` and `compress` say how), `shard_file` places them, `done`
//! remembers complete shards. `not_decodable` counts what trainers cannot decode. `state` tells
//! that a source file was written to meanwhile. `gate` bounds memory and computing threads,
//! `readers` the threads that read.

mod compress;
mod done;
mod gate;
mod not_decodable;
mod packing;
mod read;
mod readers;
mod recipe;
mod run;
mod shard_file;
mod state;
mod stretch;
mod transform;

pub(crate) use compress::{COMPRESSIBLE, choose_recipe};
pub use done::{DoneRecord, DoneShard, read as read_done};
pub(crate) use done::{PlacedShard, is_shard_written, placed_in, sync_file};
pub(crate) use gate::{Gate, Pass};
pub use not_decodable::NotDecodable;
pub use packing::Packing;
pub(crate) use read::{SourceFault, SourceReader};
pub use recipe::Recipe;
pub(crate) use recipe::Zstd;
pub(crate) use transform::{Format, Interpolation, Transform};
