//! Memory that only counts its bytes. It keeps the same contract as the daemon's arena
//! (`memory_contract`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shade_core::Memory;

/// Blocks without content.
#[derive(Debug)]
pub(crate) struct Counted {
    block_bytes: u64,
    total: u64,
    free: u64,
}

/// Bytes with an owner.
#[derive(Debug)]
pub(crate) struct Room(u64);

/// A record, and whether its checksum was compared.
#[derive(Debug)]
pub(crate) struct Record {
    bytes: u64,
    checked: AtomicBool,
}

impl Record {
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }
}

impl Counted {
    /// As many whole blocks as fit into `bytes`.
    pub(crate) fn new(bytes: u64, block_bytes: u32) -> Self {
        let block_bytes = u64::from(block_bytes);
        let total = bytes / block_bytes * block_bytes;
        Self { block_bytes, total, free: total }
    }
}

impl Memory for Counted {
    type Room = Room;
    type Record = Arc<Record>;
    type Lent = Arc<Record>;

    fn take(&mut self, bytes: u64) -> Option<Room> {
        let bytes = bytes.max(1).next_multiple_of(self.block_bytes);
        self.free = self.free.checked_sub(bytes)?;
        Some(Room(bytes))
    }

    fn give(&mut self, Room(bytes): Room) {
        self.free += bytes;
        assert!(self.free <= self.total, "room was given back twice");
    }

    fn release(&mut self, record: Arc<Record>) {
        if let Some(record) = Arc::into_inner(record) {
            self.give(Room(record.bytes));
        }
    }

    fn free_bytes(&self) -> u64 {
        self.free
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn record(Room(bytes): Room, checked: bool) -> Arc<Record> {
        Arc::new(Record { bytes, checked: AtomicBool::new(checked) })
    }

    fn holders(record: &Arc<Record>) -> usize {
        Arc::strong_count(record)
    }

    fn is_checked(record: &Arc<Record>) -> bool {
        record.is_checked()
    }

    fn is_same(left: &Arc<Record>, right: &Arc<Record>) -> bool {
        Arc::ptr_eq(left, right)
    }

    fn lend(record: Arc<Record>) -> Arc<Record> {
        record
    }

    fn lent(lent: &Arc<Record>) -> &Arc<Record> {
        lent
    }

    fn take_back(lent: Arc<Record>) -> Arc<Record> {
        lent
    }
}
