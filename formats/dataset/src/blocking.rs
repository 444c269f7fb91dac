//! Reads spans of shards in the calling thread.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::pread;
use shade_formats::ShardId;

use crate::attempt::{Attempt, Next};
use crate::direct::{PAGE_BYTES, ReadMemory};
use crate::fault::ReadFault;
use crate::files::{Files, Unopened};
use crate::object::Room;
use crate::patience::{IsStopped, sleep};
use crate::refusal::Refusal;
use crate::slots::{OpenShard, Source};

/// Most bytes of one system call: enough for a disk's or a server's full rate.
const READ_BYTES_MAX: usize = 4 << 20;

impl Files {
    /// Reads the bytes `range` of a shard into `memory`. Returns as much of their beginning as
    /// could be read and, if that is not all, why.
    pub fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
        is_stopped: IsStopped<'_>,
    ) -> (&'m mut [u8], Option<ReadFault>) {
        // Direct reads begin and end at boundaries, so the range is extended to these.
        let start = range.start - range.start % PAGE_BYTES as u64;
        let (before, wanted) = (range.start - start, range.end.saturating_sub(start));
        let (Ok(head), Ok(len)) = (usize::try_from(before), usize::try_from(wanted)) else {
            let why = format!("{wanted} bytes, expected what this machine can address");
            return (Default::default(), Some(ReadFault::Memory { why }));
        };
        let room = memory.aligned(len.next_multiple_of(PAGE_BYTES));
        let mut attempt = Attempt::new(shard, start, wanted);
        let outcome = self.fill(&mut attempt, room, is_stopped);
        attempt.end(outcome.is_ok(), self);
        let fault = outcome.err().map(|fault| match fault {
            ReadFault::Truncated { got, expected } => {
                ReadFault::Truncated { got: got.saturating_sub(before), expected: expected - before }
            }
            other => other,
        });
        let end = usize::try_from(attempt.done()).unwrap_or(len);
        (room.get_mut(head.min(end)..end).unwrap_or_default(), fault)
    }

    /// The length of a shard's file in bytes.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn shard_len(&self, shard: ShardId, is_stopped: IsStopped<'_>) -> Result<u64, ReadFault> {
        let mut attempt = Attempt::new(shard, 0, 1);
        if self.are_objects() {
            // Each answer has the object's length, and one that is not the index's is a fault.
            let outcome = self.fill(&mut attempt, &mut [0], is_stopped);
            attempt.end(outcome.is_ok(), self);
            return outcome.map(|()| self.index().shard(shard).map_or(0, |shard| shard.bytes));
        }
        let next = attempt.next(Instant::now(), self);
        let opened = self.wait(&mut attempt, next, is_stopped);
        attempt.end(opened.is_ok(), self);
        let len = opened?.map_or(Ok(0), |(file, _)| file.bytes());
        len.map_err(|errno| match self.refused(shard, errno.into()) {
            Unopened::Trouble(fault) | Unopened::Fault(fault) => fault,
            Unopened::Full => ReadFault::Stopped,
        })
    }

    fn fill(
        &self,
        attempt: &mut Attempt,
        room: &mut [u8],
        is_stopped: IsStopped<'_>,
    ) -> Result<(), ReadFault> {
        let mut next = attempt.next(Instant::now(), self);
        while let Some((file, offset)) = self.wait(attempt, next, is_stopped)? {
            let from = usize::try_from(attempt.resume()).unwrap_or(usize::MAX);
            let to = room.len().min(from.saturating_add(READ_BYTES_MAX));
            let room = room.get_mut(from..to).unwrap_or_default();
            let read = match &file.source {
                Source::File(fd) => pread(fd, room, offset).map(|count| count as u64).map_err(Refusal::from),
                Source::Object(object) => {
                    // An answer of an object store that is not whole costs a request.
                    let end =
                        offset.saturating_add((attempt.wanted() - attempt.done()).min(room.len() as u64));
                    object.read_now(offset..end, &mut Room::new(vec![room]))
                }
            };
            next = attempt.after(read, Instant::now(), self);
        }
        Ok(())
    }

    /// Waits until there is something to read, and returns the file and the offset. `None` when all
    /// is read.
    fn wait(
        &self,
        attempt: &mut Attempt,
        mut next: Next,
        is_stopped: IsStopped<'_>,
    ) -> Result<Option<(Arc<OpenShard>, u64)>, ReadFault> {
        loop {
            match next {
                Next::Read(file, offset) => return Ok(Some((file, offset))),
                Next::End(outcome) => return outcome.map(|()| None),
                Next::Wait(wait) if sleep(wait, is_stopped) => {}
                Next::Wait(_) => return Err(ReadFault::Stopped),
            }
            next = attempt.next(Instant::now(), self);
        }
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::index::{Index, IndexBuilder, Shard};

    use super::*;

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn any_range_is_read_directly_and_through_the_page_cache_and_the_end_is_told() {
        // Both on a disk and in memory, where direct reads may be refused.
        for folder in [std::env::temp_dir(), "/dev/shm".into()] {
            let folder = tempfile::tempdir_in(folder).unwrap();
            let content: Vec<u8> = (0..5_000_001u32).map(|n| (n % 251) as u8).collect();
            std::fs::write(folder.path().join("s.tar"), &content).unwrap();
            let mut index = IndexBuilder::new();
            index.push_shard(Shard { name: "s.tar", bytes: 5_000_192, crc32c: 0, records: 0 }).unwrap();
            let index = Arc::new(Index::open(index.finish().unwrap()).unwrap());
            for direct in [true, false] {
                let files = Files::new(folder.path(), Arc::clone(&index), direct);
                let mut memory = ReadMemory::default();
                assert_eq!(files.shard_len(SHARD, &|| false), Ok(5_000_001));
                for range in
                    [0..0, 0..1, 511..513, 4096..8192, 4095..4_300_000, 0..5_000_001, 4_999_999..5_000_001]
                {
                    let bytes = range.start as u64..range.end as u64;
                    let (got, fault) = files.read(SHARD, bytes, &mut memory, &|| false);
                    assert!(got == &content[range.clone()] && fault.is_none(), "{range:?}: {fault:?}");
                }
                for (range, got) in [(4_999_000..5_001_000, 1001), (6_000_000..6_000_007, 0)] {
                    let expected = range.end - range.start;
                    let (bytes, fault) = files.read(SHARD, range, &mut memory, &|| false);
                    assert_eq!(bytes.len() as u64, got);
                    assert_eq!(fault, Some(ReadFault::Truncated { got, expected }));
                }
                let unknown = files.read(ShardId(1), 0..1, &mut memory, &|| false).1;
                assert_eq!(unknown, Some(ReadFault::UnknownShard));
            }
        }
    }
}
