//! A record's bytes, out of its blocks.

use shade_formats::ring::Region;

use super::decode::scratch;
use crate::batches::FillFault;
use crate::blocks::{Arena, Blocks, BlocksError};

/// Copies the record's `len` bytes to `offset` in the payload.
pub(super) fn to_payload(
    arena: &Arena,
    blocks: &Blocks,
    len: u32,
    payload: &Region,
    mut offset: u64,
) -> Result<(), FillFault> {
    for slice in arena.slices(blocks, len)? {
        payload.write(offset, slice)?;
        offset = offset.saturating_add(slice.len() as u64);
    }
    Ok(())
}

/// The record's `len` bytes in one slice: in place where its blocks happen to be neighbours, else copied to `buffer`.
pub(super) fn contiguous<'a>(
    arena: &'a Arena,
    blocks: &'a Blocks,
    len: u32,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], BlocksError> {
    let mut slices = arena.slices(blocks, len)?;
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
