//! Reads files past the page cache where the file system allows it.
//!
//! The daemon reads shards so, and on NFS readers of both manners on one file hold each other up; what is read once needs
//! no cache besides.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// What direct I/O asks of offset, length and memory: a page is enough for every file system we know.
const ALIGN_BYTES: usize = 4096;

/// One system call asks for at most this: large enough for a disk's or a server's full rate.
const READ_BYTES_MAX: usize = 4 << 20;

/// Memory to read into, used again and again; grows as needed.
#[derive(Debug, Default)]
pub(crate) struct ReadMemory {
    /// A page longer than what is used of it, so that an aligned part is in it.
    bytes: Vec<u8>,
}

/// A file open for reading.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
}

impl ReadMemory {
    /// Bytes that it holds on to.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn aligned(&mut self, len: usize) -> &mut [u8] {
        let needed = len.saturating_add(ALIGN_BYTES);
        if self.bytes.len() < needed {
            // The old content is of no use: it is given back first, and not copied.
            self.bytes = Vec::new();
            self.bytes = vec![0; needed];
        }
        let start = self.bytes.as_ptr().align_offset(ALIGN_BYTES);
        self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len)).unwrap_or_default()
    }
}

impl DirectFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let open = |flags| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
        let opened = match open(OFlags::DIRECT) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => open(OFlags::empty()),
            other => other,
        };
        Ok(Self { file: opened?.into() })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.len())
    }

    /// Reads `range` into `memory`: gives as much of its beginning as could be read, and if that is not all, why.
    pub(crate) fn read<'m>(
        &self,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
    ) -> (&'m mut [u8], Option<io::Error>) {
        let align = ALIGN_BYTES as u64;
        let start = range.start - range.start % align;
        let before = usize::try_from(range.start - start).unwrap_or(0);
        let Ok(wanted) = usize::try_from(range.end.saturating_sub(start)) else {
            return (&mut [], Some(io::ErrorKind::FileTooLarge.into()));
        };
        let room = memory.aligned(wanted.next_multiple_of(ALIGN_BYTES));
        let (mut done, mut fault) = (0, None);
        while done < wanted {
            // Direct reads begin at a boundary only: where the last one ended elsewhere its end is read again.
            let from = done - done % ALIGN_BYTES;
            let to = room.len().min(from.saturating_add(READ_BYTES_MAX));
            match self.read_once(room.get_mut(from..to).unwrap_or_default(), start + from as u64) {
                Ok(got) if from + got > done => done = from + got,
                Ok(_) => {
                    let text = format!("the file ends at byte {}", start + done as u64);
                    fault = Some(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                    break;
                }
                Err(refused) => {
                    fault = Some(refused);
                    break;
                }
            }
        }
        let end = done.min(wanted);
        (room.get_mut(before.min(end)..end).unwrap_or_default(), fault)
    }

    fn read_once(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *into, at) {
                Err(Errno::INTR) => {}
                // Some file systems open files for direct reads and then refuse them.
                Err(Errno::INVAL) if self.leave_direct()? => {}
                done => return Ok(done?),
            }
        }
    }

    /// Goes on through the page cache; `false` if reads go through it already.
    fn leave_direct(&self) -> io::Result<bool> {
        let flags = fcntl_getfl(&self.file)?;
        if flags.contains(OFlags::DIRECT) {
            fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_read_and_the_end_is_told() {
        // Both on a disk and in memory, where direct reads may be refused.
        for folder in [std::env::temp_dir(), "/dev/shm".into()] {
            let Ok(folder) = tempfile::tempdir_in(folder) else { continue };
            let path = folder.path().join("file");
            let content: Vec<u8> = (0..5_000_001u32).map(|n| (n % 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            let file = DirectFile::open(&path).unwrap();
            assert_eq!(file.len().unwrap(), 5_000_001);
            let mut memory = ReadMemory::default();
            for range in
                [0..0, 0..1, 511..513, 4096..8192, 4095..4_300_000, 0..5_000_001, 4_999_999..5_000_001]
            {
                let (got, fault) = file.read(range.start as u64..range.end as u64, &mut memory);
                assert!(got == &content[range.clone()] && fault.is_none(), "{range:?}: {fault:?}");
            }
            let (got, fault) = file.read(4_999_000..5_001_000, &mut memory);
            assert_eq!(
                (got.len(), fault.unwrap().to_string()),
                (1001, "the file ends at byte 5000001".into())
            );
            let (got, fault) = file.read(6_000_000..6_000_001, &mut memory);
            assert!(got.is_empty() && fault.is_some());
            assert!(memory.capacity() > 5_000_000);
        }
    }
}
