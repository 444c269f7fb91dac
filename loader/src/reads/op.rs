//! What goes in and what comes back.

use super::ReadFault;
use crate::blocks::Blocks;
use crossbeam_channel::Sender;
use shade_formats::{SampleId, ShardId};
use std::time::Duration;

/// A record to read.
#[derive(Debug)]
pub struct ReadOp {
    /// Which of the submitter's reads this is or belongs to; for the submitter alone.
    pub flight: u64,
    /// Whose record it is.
    pub sample: SampleId,
    /// The shard that holds it.
    pub shard: ShardId,
    /// Where in the shard, in bytes; a multiple of 512.
    pub offset: u64,
    /// Stored length in bytes.
    pub len: u32,
    /// CRC32C of the stored bytes.
    pub crc32c: u32,
    /// Where the bytes go; at least `len`. Behind the record, up to the next multiple of 512, anything may be
    /// written.
    pub blocks: Blocks,
}

/// A read that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The read as submitted, with its blocks.
    pub op: ReadOp,
    /// Whether the blocks hold the record, checked by its CRC32C; after a fault they hold anything.
    pub outcome: Result<(), ReadFault>,
    /// What the store took, from the first try to the end of the last.
    pub latency: Duration,
}

/// Sends reads that have ended home. If nobody waits for them any more, their blocks are lost, as the arena soon is.
pub(super) fn deliver(completions: &Sender<Completion>, done: impl IntoIterator<Item = Completion>) {
    done.into_iter().for_each(|completion| drop(completions.send(completion)));
}
