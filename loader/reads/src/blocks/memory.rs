//! The arena's blocks as the core asks for them.

use std::sync::Arc;

use shade_core::Memory;

use super::{Blocks, FreeList, Lent, Record};

impl Memory for FreeList {
    type Room = Blocks;
    type Record = Arc<Record>;
    type Lent = Lent;

    fn take(&mut self, bytes: u64) -> Option<Blocks> {
        Self::take(self, bytes)
    }

    fn give(&mut self, room: Blocks) {
        Self::give(self, room);
    }

    fn release(&mut self, record: Arc<Record>) {
        if let Some(record) = Arc::into_inner(record) {
            Self::give(self, record.into_blocks());
        }
    }

    fn free_bytes(&self) -> u64 {
        Self::free_bytes(self)
    }

    fn total_bytes(&self) -> u64 {
        Self::total_bytes(self)
    }

    fn record(room: Blocks, checked: bool) -> Arc<Record> {
        Arc::new(Record::new(room, checked))
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

    fn lend(record: Arc<Record>) -> Lent {
        Lent::new(record)
    }

    fn lent(lent: &Lent) -> &Arc<Record> {
        lent.record()
    }

    fn take_back(lent: Lent) -> Arc<Record> {
        lent.into_record()
    }
}
