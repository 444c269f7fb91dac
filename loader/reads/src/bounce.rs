//! Buffers for reads of several neighbouring records, from which these are copied into their
//! blocks.
//!
//! Neighbours have headers and padding between them in a shard. A read straight into blocks would
//! need memory for these as well, and each piece that is no whole page costs one RPC on NFS.

use std::io;
use std::sync::{Mutex, PoisonError};

use shade_core::PACKAGES_MAX;
use shade_formats::limits::SPAN_BYTES_MAX;

use crate::blocks::{Arena, Blocks, BlocksError, FreeList};

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
