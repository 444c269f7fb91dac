//! What goes in and what comes back: the core's words, with blocks of the arena.

use crossbeam_channel::Sender;
use shade_dataset::{Mismatch, ReadFault};

use crate::blocks::{Arena, Blocks};

/// A record to read into its blocks.
pub type ReadOp = shade_core::ReadOp<Blocks>;
/// A read that has ended.
pub type Completion = shade_core::Completion<Blocks, ReadFault>;

/// Whether the blocks hold the record: the outcome with the checksum compared, for those who do not
/// go on to copy the record.
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

/// Sends reads that have ended home. If nobody waits for them any more, their blocks are lost, as the arena soon is.
pub(crate) fn deliver(completions: &Sender<Completion>, done: impl IntoIterator<Item = Completion>) {
    done.into_iter().for_each(|completion| drop(completions.send(completion)));
}
