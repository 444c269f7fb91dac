//! A packed dataset's files as the trainer's process reads them itself, past the daemon.
//!
//! `index` opens the index and tells whether it has changed, `shards` reads spans of shards, `together` waits for many
//! reads at once. `fields` and `records` stand on these.

mod index;
mod shards;
mod together;

pub(crate) use index::{Content, check_unchanged, content_now, open_index};
pub(crate) use shards::{Buffer, Shards};
pub(crate) use together::read_together;
