//! A record in a worker's hands, with what its bytes are found by: where the blocks are neighbours, the record itself is not
//! looked at.
//!
//! The core counts a record's holders in memory next to it. If workers only read that, the count would still come back from
//! another CPU's cache each time: with images of 3 KB that was a thirteenth of all time.

use std::sync::Arc;

use super::record::Record;
use super::token::{ArenaId, BlocksError, Run, Runs};

/// A shared record that stays as it is as long as this is there.
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
