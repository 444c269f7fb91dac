//! A packed dataset's files, read by the trainer's process without the daemon.
//!
//! `shards` reads spans of shards, `together` does many reads at once. `fields` and `records` use
//! both.

mod shards;
mod together;

pub(crate) use shards::Shards;
pub(crate) use together::read_together;
