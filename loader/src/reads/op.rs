//! What goes in and what comes back.

use super::ReadFault;
use crate::blocks::{Arena, Blocks};
use crossbeam_channel::Sender;
use shade_dataset::Mismatch;
use shade_formats::{SampleId, ShardId};
use std::time::Duration;

/// A record to read.
#[derive(Debug)]
pub struct ReadOp<B = Blocks> {
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
    /// Compare the checksum on arrival, and the shard's file with what was packed if it is wrong: it was wrong before.
    pub recheck: bool,
    /// Where the bytes go; at least `len`. Behind the record, up to the next multiple of 512, anything may be
    /// written.
    pub blocks: B,
}

/// A read that has ended.
#[derive(Debug)]
pub struct Completion<B = Blocks> {
    /// The read as submitted, with its blocks.
    pub op: ReadOp<B>,
    /// Whether the blocks hold what the store gave for the record; after a fault they hold anything.
    pub outcome: Result<(), ReadFault>,
    /// Whether the record's CRC32C was found to be right: neighbours' are compared while they are copied apart. That of
    /// a record read straight into its blocks is left to whoever touches the bytes next: in the thread that reads it
    /// took as long as all the rest.
    pub checked: bool,
    /// What the store took, from the first try to the end of the last.
    pub latency: Duration,
}

impl Completion {
    /// The outcome with the checksum compared, for those who do not go on to copy the record.
    ///
    /// # Errors
    ///
    /// The fault of the outcome, or a mismatch.
    pub fn verify(&self, arena: &Arena) -> Result<(), ReadFault> {
        self.outcome.clone()?;
        if !self.checked {
            Mismatch::compare(arena.crc32c(&self.op.blocks, self.op.len)?, self.op.crc32c)?;
        }
        Ok(())
    }
}

/// Sends reads that have ended home. If nobody waits for them any more, their blocks are lost, as the arena soon is.
pub(super) fn deliver(completions: &Sender<Completion>, done: impl IntoIterator<Item = Completion>) {
    done.into_iter().for_each(|completion| drop(completions.send(completion)));
}
