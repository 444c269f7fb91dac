//! A packed dataset's files as the trainer's process reads them itself, past the daemon.
//!
//! `shards` reads spans of shards, `together` waits for many reads at once. `fields` and `records` stand on
//! these.

mod shards;
mod together;

pub(crate) use shards::Shards;
pub(crate) use together::read_together;
