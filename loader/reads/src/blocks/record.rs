//! A record in memory: its blocks, and whether its checksum was compared.

use std::sync::atomic::{AtomicBool, Ordering};

use super::token::Blocks;

/// A record's stored bytes in their blocks, shared by cache and rows.
///
/// A checksum costs a pass over the bytes, so it is compared where they are touched first: by the
/// engine if it copies records apart, else by the worker that fills the record's first row.
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

    /// Its blocks.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Its blocks, to move its bytes.
    pub(super) fn blocks_mut(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// Returns the blocks.
    pub fn into_blocks(self) -> Blocks {
        self.blocks
    }

    /// Whether its checksum was compared and is right. The bytes never change, so two workers may
    /// compare it at the same time.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    /// Notes that its checksum is right.
    pub fn set_checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }
}
