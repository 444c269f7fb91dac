//! A record in memory: its blocks, and whether its checksum was compared. [`Lent`] is one that a
//! worker holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::token::{ArenaId, Blocks, BlocksError, Run, Runs};

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

/// A shared record that does not change while this exists, with the place of its bytes: if its
/// blocks are neighbours, the worker that holds it does not touch the record itself.
///
/// The core counts a record's holders in memory next to it. A worker that only read there would
/// fetch that line from another CPU's cache each time: a thirteenth of all time with images of 3
/// KB.
#[derive(Debug)]
pub struct Lent {
    record: Arc<Record>,
    arena: ArenaId,
    run: Option<Run>,
    checked: bool,
}

impl Lent {
    /// Lends `record`.
    #[must_use]
    pub fn new(record: Arc<Record>) -> Self {
        let blocks = record.blocks();
        let (arena, run, checked) = (blocks.arena(), blocks.run(), record.is_checked());
        Self { record, arena, run, checked }
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Gives the record back.
    #[must_use]
    pub fn into_record(self) -> Arc<Record> {
        self.record
    }

    /// As [`Record::is_checked`].
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.checked || self.record.is_checked()
    }

    /// Where its first `len` bytes lie in `arena`.
    pub(super) fn runs(&self, arena: ArenaId, block_bytes: u32, len: u32) -> Result<Runs<'_>, BlocksError> {
        if self.arena != arena {
            return Err(BlocksError::Foreign);
        }
        match self.run {
            Some(run) => run.runs(block_bytes, len),
            None => self.record.blocks().runs(len),
        }
    }
}
