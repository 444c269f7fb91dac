//! A record's bytes, out of its blocks, checked on the way if nobody has done so.

use shade_dataset::Mismatch;
use shade_formats::checksum::{crc32c, crc32c_append};
use shade_formats::index::Entry;
use shade_images::scratch;
use shade_reads::blocks::{Arena, BlocksError, Lent};
use shade_shm::Region;

use crate::batches::FillFault;

/// Bytes that are copied and checked at a time: what the copy has brought into the CPU's first cache is still there.
const PIECE_BYTES: usize = 16 * 1024;

/// Copies the stored bytes of `record`, which is that of `entry`, to `offset` in the payload. After a mismatch they are there
/// all the same.
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

/// The stored bytes of `record`, which is that of `entry`, in one slice, checked.
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

/// The first `len` bytes in one slice: in place where the blocks happen to be neighbours, else copied to `buffer`.
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
