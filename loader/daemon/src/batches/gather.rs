//! Gathers a record's bytes from its blocks, and checks them if that was not done before.

use shade_dataset::Mismatch;
use shade_formats::checksum::{crc32c, crc32c_append};
use shade_formats::index::Entry;
use shade_images::scratch;
use shade_reads::blocks::{Arena, BlocksError, Lent};
use shade_shm::Region;

use crate::batches::FillFault;

/// Bytes that are copied and then checked: few enough to be still in the CPU's first cache.
const PIECE_BYTES: usize = 16 * 1024;

/// Copies the stored bytes of `record`, whose entry is `entry`, to `offset` in the payload, also if
/// their checksum is wrong.
pub(super) fn to_payload(
    arena: &Arena,
    record: &Lent,
    entry: &Entry,
    payload: &Region,
    mut offset: u64,
) -> Result<(), FillFault> {
    let slices = arena.slices_of(record, entry.stored_len)?;
    if record.is_checked() {
        for slice in slices {
            payload.write(offset, slice)?;
            offset = offset.saturating_add(slice.len() as u64);
        }
        return Ok(());
    }
    let mut checksum = 0;
    for piece in slices.flat_map(|slice| slice.chunks(PIECE_BYTES)) {
        payload.write(offset, piece)?;
        checksum = crc32c_append(checksum, piece);
        offset = offset.saturating_add(piece.len() as u64);
    }
    Mismatch::compare(checksum, entry.crc32c)?;
    record.record().set_checked();
    Ok(())
}

/// The stored bytes of `record`, whose entry is `entry`, in one slice, checked.
pub(super) fn stored<'a>(
    arena: &'a Arena,
    record: &'a Lent,
    entry: &Entry,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], FillFault> {
    let stored = contiguous(arena, record, entry.stored_len, buffer)?;
    if !record.is_checked() {
        Mismatch::compare(crc32c(stored), entry.crc32c)?;
        record.record().set_checked();
    }
    Ok(stored)
}

/// The first `len` bytes in one slice: in place if the blocks are neighbours, else copied to
/// `buffer`.
fn contiguous<'a>(
    arena: &'a Arena,
    record: &'a Lent,
    len: u32,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], BlocksError> {
    let mut slices = arena.slices_of(record, len)?;
    let first = slices.next().unwrap_or_default();
    if first.len() == len as usize {
        return Ok(first);
    }
    let buffer = scratch(buffer, len as usize);
    let mut rest = &mut *buffer;
    for slice in std::iter::once(first).chain(slices) {
        // `slices` yields `len` bytes in all, so there is always room.
        let Some(room) = rest.split_off_mut(..slice.len()) else { break };
        room.copy_from_slice(slice);
    }
    Ok(buffer)
}
