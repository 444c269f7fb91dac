//! Reads spans of shards: through the page cache, or past it where the file system allows that.
//!
//! The daemon reads past it, and on NFS buffered and direct reads of one file wait for each other: the
//! client empties the page cache of the file whenever one kind follows the other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread};
use shade_formats::ShardId;

use crate::dialogue::lock;
use crate::fork::Owner;

/// What direct reads want memory, offsets and lengths to be multiples of, at most: the largest sector and the page.
const ALIGN: usize = 4096;
/// Shards kept open. Beyond it all are closed: a process has 1,024 descriptors where nobody has raised that.
const OPEN_MAX: usize = 256;

/// Not among what a read of a file can answer.
const ENDS_EARLY: Errno = Errno::NODATA;

/// The files of a dataset's shards, opened when first read.
#[derive(Debug)]
pub(crate) struct Shards {
    folder: PathBuf,
    /// Cleared for good by the first read or open that the file system refuses to do directly.
    direct: AtomicBool,
    open: Mutex<HashMap<ShardId, Arc<OpenShard>>>,
    owner: Owner,
}

#[derive(Debug)]
struct OpenShard {
    fd: OwnedFd,
    direct: bool,
}

/// Memory for one thread's reads, grown to the largest.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// `len` bytes that start at a multiple of [`ALIGN`].
    fn aligned(&mut self, len: usize) -> &mut [u8] {
        let with_slack = len.saturating_add(ALIGN);
        if self.bytes.len() < with_slack {
            self.bytes.resize(with_slack, 0);
        }
        let slack = self.bytes.as_ptr().align_offset(ALIGN);
        self.bytes.get_mut(slack..).and_then(|bytes| bytes.get_mut(..len)).unwrap_or_default()
    }
}

impl Shards {
    pub(crate) fn new(folder: PathBuf, direct: bool) -> Self {
        Self { folder, direct: AtomicBool::new(direct), open: Mutex::default(), owner: Owner::here() }
    }

    /// The `len` bytes from `offset` on of the shard called `name`; on failure says what the system says. The index's
    /// limits are such that `len` fits a buffer.
    pub(crate) fn read<'a>(
        &self,
        shard: ShardId,
        name: &str,
        offset: u64,
        len: u64,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], String> {
        let mut open = self.get(shard, name)?;
        // Not multiples of what a direct read must be aligned to, so rounded outwards; the shard's end may cut it.
        let start = offset - offset % ALIGN as u64;
        let (Ok(head), Ok(len)) = (usize::try_from(offset - start), usize::try_from(len)) else {
            return Err(format!("{len} bytes, expected what this machine can address"));
        };
        let needed = head.saturating_add(len);
        let room = buffer.aligned(needed.next_multiple_of(ALIGN));
        let mut read = fill(&open, start, needed, room);
        if read == Err(Errno::INVAL) && open.direct {
            self.buffer_all();
            open = self.get(shard, name)?;
            read = fill(&open, start, needed, room);
        }
        match read {
            Ok(()) => room.get(head..needed).ok_or_else(|| format!("no room for {needed} bytes")),
            Err(errno) => {
                // The next one opens it anew: a handle that a server has forgotten stays forgotten.
                lock(&self.open).remove(&shard);
                Err(if errno == ENDS_EARLY { "the file ends before".to_owned() } else { errno.to_string() })
            }
        }
    }

    fn get(&self, shard: ShardId, name: &str) -> Result<Arc<OpenShard>, String> {
        if let Some(open) = lock(&self.open).get(&shard) {
            return Ok(Arc::clone(open));
        }
        // Opened without the lock: on a distant store that takes a while, and the threads are here to wait together.
        let path = self.folder.join(name);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut direct = self.direct.load(Ordering::Relaxed);
        let mut opened = open(&path, if direct { flags | OFlags::DIRECT } else { flags }, Mode::empty());
        if direct && opened.as_ref().is_err_and(|errno| *errno == Errno::INVAL) {
            self.buffer_all();
            direct = false;
            opened = open(&path, flags, Mode::empty());
        }
        let fd = opened.map_err(|errno| format!("cannot open {}: {errno}", path.display()))?;
        let opened = Arc::new(OpenShard { fd, direct });
        let mut open = lock(&self.open);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(shard, Arc::clone(&opened));
        Ok(opened)
    }

    /// From now on through the page cache, every shard: what one refuses, all on this file system do.
    fn buffer_all(&self) {
        self.direct.store(false, Ordering::Relaxed);
        lock(&self.open).retain(|_, open| !open.direct);
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        // A thread that the fork left behind may have been changing the map: a child does not look at it.
        if !self.owner.is_here() {
            let open = std::mem::take(self.open.get_mut().unwrap_or_else(PoisonError::into_inner));
            Box::leak(Box::new(open));
        }
    }
}

/// Reads from `start` on into `room`, `needed` bytes at least.
fn fill(open: &OpenShard, start: u64, needed: usize, room: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < needed {
        // A direct read that was cut short in the middle goes on at a multiple again; at the file's end it is over.
        let whole = if open.direct { filled - filled % ALIGN } else { filled };
        let rest = room.get_mut(whole..).unwrap_or_default();
        match pread(&open.fd, rest, start.saturating_add(whole as u64)) {
            Ok(got) if whole + got <= filled => return Err(ENDS_EARLY),
            Ok(got) => filled = whole + got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_whatever_they_held() {
        let mut buffer = Buffer::default();
        for len in [0, 1, 4096, 100, 70_000, 512] {
            let room = buffer.aligned(len);
            assert_eq!((room.len(), room.as_ptr().align_offset(ALIGN)), (len, 0));
        }
    }

    #[test]
    fn spans_come_back_directly_and_through_the_page_cache() {
        let folder = std::env::temp_dir().join(format!("shade-client-shards-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let bytes: Vec<u8> = (0..41_u8).flat_map(|block| [block; 512]).collect();
        std::fs::write(folder.join("s.tar"), &bytes).unwrap();
        for direct in [true, false] {
            let shards = Shards::new(folder.clone(), direct);
            let mut buffer = Buffer::default();
            for (offset, len) in
                [(0, 512), (512, 1024), (3584, 8192), (4096, 4096), (512, 20_480), (20_480, 512)]
            {
                let read = shards.read(ShardId(0), "s.tar", offset as u64, len as u64, &mut buffer).unwrap();
                assert_eq!(read, &bytes[offset..offset + len], "{len} at {offset}");
            }
            for (offset, len) in [(20_480, 1024), (40_960, 512)] {
                assert!(shards.read(ShardId(0), "s.tar", offset, len, &mut buffer).is_err());
            }
            let missing = shards.read(ShardId(1), "t.tar", 0, 512, &mut buffer).unwrap_err();
            assert!(missing.contains("t.tar"), "{missing}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
