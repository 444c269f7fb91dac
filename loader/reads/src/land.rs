//! Takes records out of what was read: neighbours are copied apart, and checksums are compared
//! where that is the reads' part.

use std::time::Duration;

use shade_dataset::{Files, Mismatch, OpenShard};
use shade_formats::checksum::crc32c;

use crate::ReadFault;
use crate::blocks::{Arena, BlocksError};
use crate::op::{Completion, ReadOp};

/// Compares the checksum of a record that was not as packed before.
pub(super) fn recheck(
    op: &ReadOp,
    file: Option<&OpenShard>,
    files: &Files,
    arena: &Arena,
) -> Result<(), ReadFault> {
    let got = arena.crc32c(&op.blocks, op.len)?;
    Mismatch::compare(got, op.crc32c).map_err(|mismatch| match file {
        Some(file) => files.doubt(op.shard, file, mismatch),
        None => mismatch.into(),
    })
}

/// Copies neighbours out of the bytes that begin at `start` of their shard. Also returns those that
/// are missing or wrong: each must be read alone.
pub(super) fn land(
    ops: Vec<ReadOp>,
    bytes: &[u8],
    start: u64,
    latency: Duration,
    arena: &Arena,
) -> (Vec<Completion>, Vec<ReadOp>) {
    let (mut done, mut again) = (Vec::with_capacity(ops.len()), Vec::new());
    for mut op in ops {
        let from = usize::try_from(op.offset.saturating_sub(start)).unwrap_or(usize::MAX);
        match bytes.get(from..from.saturating_add(op.len as usize)) {
            Some(record) if crc32c(record) == op.crc32c && copy(record, &mut op, arena).is_ok() => {
                done.push(Completion { op, outcome: Ok(()), checked: true, latency });
            }
            Some(_) => {
                let ReadOp { sample, shard, offset, .. } = &op;
                tracing::debug!(%sample, %shard, offset, "checksum mismatch: reading the record again, alone");
                op.recheck = true;
                again.push(op);
            }
            None => again.push(op),
        }
    }
    (done, again)
}

fn copy(record: &[u8], op: &mut ReadOp, arena: &Arena) -> Result<(), BlocksError> {
    let mut rest = record;
    for slice in arena.slices_mut(&mut op.blocks, op.len)? {
        let Some((now, later)) = rest.split_at_checked(slice.len()) else { break };
        slice.copy_from_slice(now);
        rest = later;
    }
    Ok(())
}
