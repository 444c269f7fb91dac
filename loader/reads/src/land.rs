//! Takes records out of what was read: neighbours are copied apart, and checksums are compared
//! where that is the reads' part.
//!
//! Several neighbouring records are read into a buffer of the [`BouncePool`], from which they are
//! copied into their blocks. Neighbours have headers and padding between them in a shard. A read
//! straight into blocks would need memory for these as well, and each piece that is no whole page
//! costs one RPC on NFS.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shade_core::PACKAGES_MAX;
use shade_dataset::{Files, Mismatch, OpenShard};
use shade_formats::checksum::crc32c;
use shade_formats::limits::SPAN_BYTES_MAX;

use crate::ReadFault;
use crate::blocks::{Arena, Blocks, BlocksError, FreeList};
use crate::op::{Completion, ReadOp};

/// Most reads of neighbours at a time; 64 x 256 KiB are 16 MiB, allocated on first use.
const BUFFERS: u32 = 64;
const _: () = assert!(BUFFERS as usize >= PACKAGES_MAX);

/// The pool of buffers.
pub(super) struct BouncePool {
    arena: Arena,
    free: Mutex<FreeList>,
}

impl BouncePool {
    pub(super) fn create() -> io::Result<Self> {
        let (arena, free) = Arena::create(u64::from(BUFFERS) * u64::from(SPAN_BYTES_MAX), SPAN_BYTES_MAX)?;
        Ok(Self { arena, free: Mutex::new(free) })
    }

    /// One buffer of [`SPAN_BYTES_MAX`] bytes; `None` while all are in use.
    pub(super) fn take(&self) -> Option<Blocks> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).take(1)
    }

    pub(super) fn give(&self, buffer: Blocks) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).give(buffer);
    }

    /// The first `len` bytes of a buffer: one slice, as it is one block.
    pub(super) fn bytes<'a>(&'a self, buffer: &'a Blocks, len: u32) -> Result<&'a [u8], BlocksError> {
        Ok(self.arena.slices(buffer, len)?.next().unwrap_or_default())
    }

    /// The arena of the buffers.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }
}

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
            Some(record) if is_as_packed(record, &op) && copy(record, &mut op, arena).is_ok() => {
                // Nothing was compared where nobody knows the checksum.
                let checked = op.crc32c.is_some();
                done.push(Completion { op, outcome: Ok(()), checked, latency });
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

fn is_as_packed(record: &[u8], op: &ReadOp) -> bool {
    Mismatch::compare(crc32c(record), op.crc32c).is_ok()
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
