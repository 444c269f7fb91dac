//! A record in memory: its blocks, and whether anybody has compared its checksum.

use std::sync::atomic::{AtomicBool, Ordering};

use shade_formats::checksum::crc32c_append;

use super::arena::Arena;
use super::token::{Blocks, BlocksError};

/// A record's stored bytes in their blocks, as cache and rows share them.
///
/// A checksum costs a pass over the bytes, so it is compared by the first who has to touch them anyway: by the engine
/// for records that it copies apart, else by the worker that fills the record's first row.
#[derive(Debug)]
pub struct Record {
    blocks: Blocks,
    checked: AtomicBool,
}

impl Record {
    /// A record that was read into `blocks`; `checked` if its checksum has been compared.
    #[must_use]
    pub fn new(blocks: Blocks, checked: bool) -> Self {
        Self { blocks, checked: AtomicBool::new(checked) }
    }

    /// Where its bytes lie.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Gives the blocks out.
    pub fn into_blocks(self) -> Blocks {
        self.blocks
    }

    /// Whether its checksum was found to be right. The bytes do not change after that, nor before: two workers that
    /// compare it at the same time do no harm.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    /// Its checksum is right.
    pub fn set_checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }
}

impl Arena {
    /// CRC32C of the first `len` bytes in `blocks`.
    ///
    /// # Errors
    ///
    /// As of [`slices`](Self::slices).
    pub fn crc32c(&self, blocks: &Blocks, len: u32) -> Result<u32, BlocksError> {
        Ok(self.slices(blocks, len)?.fold(0, crc32c_append))
    }
}
