//! Gathers a record's bytes from its blocks, and checks them if that was not done before.

use std::ops::Range;

use shade_dataset::Mismatch;
use shade_formats::checksum::{crc32c, crc32c_append};
use shade_formats::index::Entry;
use shade_images::scratch;
use shade_reads::blocks::{Arena, Lent};
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
    let stored = part(arena, record, 0..entry.stored_len as usize, buffer)?;
    if !record.is_checked() {
        Mismatch::compare(crc32c(stored), entry.crc32c)?;
        record.record().set_checked();
    }
    Ok(stored)
}

/// Some of the stored bytes of `record` in one slice: in place if its blocks are neighbours, else
/// copied to `buffer`.
pub(super) fn part<'a>(
    arena: &'a Arena,
    record: &'a Lent,
    range: Range<usize>,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], FillFault> {
    let end = u32::try_from(range.end).unwrap_or(u32::MAX);
    let mut before = 0;
    let mut slices = arena.slices_of(record, end)?.filter_map(|slice| {
        let skipped = range.start.saturating_sub(before).min(slice.len());
        before += slice.len();
        slice.get(skipped..).filter(|slice| !slice.is_empty())
    });
    let first = slices.next().unwrap_or_default();
    if first.len() == range.len() {
        return Ok(first);
    }
    let buffer = scratch(buffer, range.len());
    let mut rest = &mut *buffer;
    for slice in std::iter::once(first).chain(slices) {
        // The slices have as many bytes as the range in all, so there is always room.
        let Some(room) = rest.split_off_mut(..slice.len()) else { break };
        room.copy_from_slice(slice);
    }
    Ok(buffer)
}
