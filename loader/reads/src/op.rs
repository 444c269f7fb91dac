//! Reads and their completions: the core's types, with blocks of the arena.

use crossbeam_channel::Sender;
use shade_dataset::{Mismatch, ReadFault};

use crate::blocks::{Arena, Blocks};

/// A record to read into its blocks.
pub type ReadOp = shade_core::ReadOp<Blocks>;
/// A read that has ended.
pub type Completion = shade_core::Completion<Blocks, ReadFault>;

/// Whether the blocks hold the record: its outcome, with the checksum compared. For callers that do
/// not fill rows.
///
/// # Errors
/// The fault of the outcome, or a mismatch.
pub fn verify(completion: &Completion, arena: &Arena) -> Result<(), ReadFault> {
    completion.outcome.clone()?;
    if !completion.checked {
        let crc32c = arena.crc32c(&completion.op.blocks, completion.op.len)?;
        Mismatch::compare(crc32c, completion.op.crc32c)?;
    }
    Ok(())
}

/// Sends reads that have ended. If the receiver is gone, their blocks are lost, as the arena soon
/// is.
pub(crate) fn deliver(completions: &Sender<Completion>, done: impl IntoIterator<Item = Completion>) {
    done.into_iter().for_each(|completion| drop(completions.send(completion)));
}
