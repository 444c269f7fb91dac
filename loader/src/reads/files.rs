//! The shards' files: looked at once at start, opened when first read, opened anew when they went stale.

use super::direct::Choice;
use super::{ReadFault, ShardWarning};
use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, open, stat};
use rustix::io::Errno;
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::{ContentId, ShardId};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As much of an index as says which dataset it is of.
const INDEX_START_BYTES: u64 = 64;

/// Shards that are looked at together at start: on a network file system each look is a round trip.
const SURVEY_THREADS: usize = 16;

/// The files of a dataset's shards.
pub(super) struct Files {
    folder: PathBuf,
    index: Arc<Index>,
    choice: Choice,
    slots: Vec<Mutex<Slot>>,
    /// A direct read was refused: all shards are opened for buffered reads from then on. They lie on one mount, and mixing
    /// both on one file stalls on NFS.
    buffered: AtomicBool,
}

/// A shard's file, once it was opened.
#[derive(Default)]
struct Slot {
    open: Option<Arc<OpenShard>>,
    /// It went stale once: whatever is opened in its place is checked.
    suspect: bool,
}

/// An open shard. It stays open as long as a read of it is in flight.
#[derive(Debug)]
pub(super) struct OpenShard {
    pub(super) fd: OwnedFd,
    /// What offsets and lengths of direct reads must be multiples of, 1 to 512 bytes; `None` is buffered.
    pub(super) direct_align_bytes: Option<u32>,
}

impl OpenShard {
    /// What offsets and lengths must be multiples of, at least 1 byte.
    pub(super) fn align_bytes(&self) -> u32 {
        self.direct_align_bytes.unwrap_or(1)
    }
}

impl Files {
    pub(super) fn new(folder: &Path, index: Arc<Index>, choice: Choice) -> Self {
        let slots = (0..index.shard_count()).map(|_| Mutex::default()).collect();
        Self { folder: folder.to_owned(), index, choice, slots, buffered: AtomicBool::new(false) }
    }

    /// Whether reads bypass the page cache, and why.
    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The shard's file, opened if it is not yet.
    pub(super) fn get(&self, shard: ShardId) -> Result<Arc<OpenShard>, ReadFault> {
        let mut slot = self.slot(shard)?;
        match &slot.open {
            Some(open) => Ok(Arc::clone(open)),
            None => self.open_into(shard, &mut slot),
        }
    }

    /// The shard's file if it is open and nobody is about to change that: never waits.
    pub(super) fn opened(&self, shard: ShardId) -> Option<Arc<OpenShard>> {
        self.slots.get(shard.index())?.try_lock().ok()?.open.clone()
    }

    /// The shard's file after `stale` stopped answering: opened anew by the first read that asks, which also
    /// checks that it still has its size.
    pub(super) fn reopen(&self, shard: ShardId, stale: &Arc<OpenShard>) -> Result<Arc<OpenShard>, ReadFault> {
        let mut slot = self.slot(shard)?;
        match &slot.open {
            Some(open) if !Arc::ptr_eq(open, stale) => return Ok(Arc::clone(open)),
            _ => *slot = Slot { open: None, suspect: true },
        }
        self.open_into(shard, &mut slot)
    }

    /// Whether what was opened in a stale shard's place is that shard: it has its size, in the dataset that is served.
    fn check(&self, shard: ShardId, path: &Path, fd: &OwnedFd) -> Result<(), ReadFault> {
        let got = fstat(fd).map_err(|errno| ReadFault::Open { path: path.to_owned(), errno })?.st_size;
        let got = u64::try_from(got).unwrap_or_default();
        let expected = self.index.shard(shard).ok_or(ReadFault::UnknownShard)?.bytes;
        if got != expected {
            return Err(ReadFault::Replaced { path: path.to_owned(), got, expected });
        }
        self.check_dataset(path)
    }

    /// Whether the dataset at our path is still the one that is being served, after the shard at `path` went stale.
    fn check_dataset(&self, path: &Path) -> Result<(), ReadFault> {
        let index = self.folder.join(INDEX_FILE);
        let unreadable = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ReadFault::Open { path: index.clone(), errno }
        };
        let mut start = Vec::new();
        let file = std::fs::File::open(&index).map_err(unreadable)?;
        file.take(INDEX_START_BYTES).read_to_end(&mut start).map_err(unreadable)?;
        let expected = self.index.content_id();
        // What is no index (any more) is another dataset, too.
        let got = Index::content_id_at_start(&start).unwrap_or(ContentId(0));
        let path = path.to_owned();
        if got == expected { Ok(()) } else { Err(ReadFault::Changed { path, got, expected }) }
    }

    /// The shard's file after a direct read of it was refused: opened for buffered reads, as all others from now on.
    pub(super) fn buffer(&self, shard: ShardId) -> Result<Arc<OpenShard>, ReadFault> {
        let mut slot = self.slot(shard)?;
        if let Some(open) = &slot.open
            && open.direct_align_bytes.is_none()
        {
            return Ok(Arc::clone(open));
        }
        if !self.buffered.swap(true, Ordering::Relaxed) {
            tracing::warn!(shard = %self.path(shard)?.display(), "direct reads are refused; using the page cache");
        }
        self.open_into(shard, &mut slot)
    }

    fn slot(&self, shard: ShardId) -> Result<MutexGuard<'_, Slot>, ReadFault> {
        let slot = self.slots.get(shard.index()).ok_or(ReadFault::UnknownShard)?;
        Ok(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn path(&self, shard: ShardId) -> Result<PathBuf, ReadFault> {
        Ok(self.folder.join(self.index.shard(shard).ok_or(ReadFault::UnknownShard)?.name))
    }

    fn open_into(&self, shard: ShardId, slot: &mut Slot) -> Result<Arc<OpenShard>, ReadFault> {
        let path = self.path(shard)?;
        // Read-only also because Linux 7.2 and later answer NFS reads inline only for such descriptors.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut direct_align_bytes =
            self.choice.direct_align_bytes.filter(|_| !self.buffered.load(Ordering::Relaxed));
        let fd = match direct_align_bytes {
            Some(_) => open(&path, flags | OFlags::DIRECT, Mode::empty()),
            None => open(&path, flags, Mode::empty()),
        };
        let fd = match fd {
            Err(Errno::INVAL) if direct_align_bytes.is_some() => {
                self.buffered.store(true, Ordering::Relaxed);
                direct_align_bytes = None;
                open(&path, flags, Mode::empty())
            }
            other => other,
        };
        let fd = fd.map_err(|errno| ReadFault::Open { path: path.clone(), errno })?;
        if slot.suspect {
            self.check(shard, &path, &fd)?;
        }
        if direct_align_bytes.is_none() {
            // Only advice: readahead would fetch neighbours that nobody asked for.
            let _ = fadvise(&fd, 0, None, Advice::Random);
        }
        let open = Arc::new(OpenShard { fd, direct_align_bytes });
        slot.open = Some(Arc::clone(&open));
        Ok(open)
    }
}

/// Looks at every shard, several at a time: those that are missing or have another size than the index says, in order.
pub(super) fn survey(folder: &Path, index: &Index) -> Vec<ShardWarning> {
    let ids: Vec<ShardId> = (0..index.shard_count()).map(ShardId).collect();
    let look = |ids: &[ShardId]| ids.iter().filter_map(|&id| look_at(folder, index, id)).collect::<Vec<_>>();
    let each = ids.len().div_ceil(SURVEY_THREADS).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = ids.chunks(each).map(|ids| scope.spawn(move || look(ids))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn look_at(folder: &Path, index: &Index, id: ShardId) -> Option<ShardWarning> {
    let shard = index.shard(id)?;
    let path = folder.join(shard.name);
    let got = match stat(&path) {
        Ok(stat) => u64::try_from(stat.st_size).unwrap_or_default(),
        Err(errno) => return Some(ShardWarning::Missing { path, errno }),
    };
    let expected = shard.bytes;
    (got != expected).then_some(ShardWarning::Size { path, got, expected })
}

/// A shard that exists, to ask the file system about.
#[must_use]
pub fn any_shard(folder: &Path, index: &Index) -> Option<PathBuf> {
    (0..index.shard_count())
        .filter_map(|id| Some(folder.join(index.shard(ShardId(id))?.name)))
        .find(|path| stat(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_formats::index::{IndexBuilder, Shard};

    const SHARD: ShardId = ShardId(0);

    fn dataset(direct_align_bytes: Option<u32>) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shard-000000.tar"), [7; 1024]).unwrap();
        let mut index = IndexBuilder::new();
        index.push_shard(Shard { name: "shard-000000.tar", bytes: 1024, crc32c: 0, records: 0 }).unwrap();
        let index = index.finish().unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), &index).unwrap();
        let index = Arc::new(Index::open(index).unwrap());
        let files = Files::new(folder.path(), index, Choice { direct_align_bytes, why: "test".into() });
        (folder, files)
    }

    #[test]
    fn a_shard_is_opened_once() {
        let (_folder, files) = dataset(None);
        assert!(Arc::ptr_eq(&files.get(SHARD).unwrap(), &files.get(SHARD).unwrap()));
        assert_eq!(files.get(ShardId(1)).unwrap_err(), ReadFault::UnknownShard);
    }

    #[test]
    fn a_stale_shard_is_opened_anew_once_for_all_its_reads() {
        let (_folder, files) = dataset(None);
        let stale = files.get(SHARD).unwrap();
        let fresh = files.reopen(SHARD, &stale).unwrap();
        assert!(!Arc::ptr_eq(&stale, &fresh));
        assert!(Arc::ptr_eq(&fresh, &files.reopen(SHARD, &stale).unwrap()), "the second read finds it open");
        assert!(Arc::ptr_eq(&fresh, &files.get(SHARD).unwrap()));
    }

    #[test]
    fn a_stale_shard_of_another_size_is_a_replaced_dataset() {
        let (folder, files) = dataset(None);
        let stale = files.get(SHARD).unwrap();
        let path = folder.path().join("shard-000000.tar");
        std::fs::write(&path, [7; 512]).unwrap();
        let expected = ReadFault::Replaced { path, got: 512, expected: 1024 };
        assert_eq!(files.reopen(SHARD, &stale).unwrap_err(), expected);
        assert_eq!(files.get(SHARD).unwrap_err(), expected, "it stays refused");
    }

    #[test]
    fn a_stale_shard_of_another_dataset_is_refused_by_content_id() {
        let (folder, files) = dataset(None);
        let stale = files.get(SHARD).unwrap();
        let mut other = IndexBuilder::new();
        other.push_class(b"another").unwrap();
        let other = other.finish().unwrap();
        let got = Index::content_id_at_start(&other).unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), other).unwrap();
        let path = folder.path().join("shard-000000.tar");
        let expected = files.index.content_id();
        assert_eq!(files.reopen(SHARD, &stale).unwrap_err(), ReadFault::Changed { path, got, expected });
        std::fs::remove_file(folder.path().join(INDEX_FILE)).unwrap();
        assert!(matches!(files.reopen(SHARD, &stale), Err(ReadFault::Open { errno: Errno::NOENT, .. })));
    }

    #[test]
    fn a_shard_that_refuses_direct_reads_is_buffered_for_good() {
        let (_folder, files) = dataset(Some(512));
        files.get(SHARD).unwrap();
        let buffered = files.buffer(SHARD).unwrap();
        assert_eq!(buffered.direct_align_bytes, None);
        assert!(
            Arc::ptr_eq(&buffered, &files.buffer(SHARD).unwrap()),
            "the second refused read finds it open"
        );
        assert_eq!(files.reopen(SHARD, &buffered).unwrap().direct_align_bytes, None);
    }

    #[test]
    fn the_survey_names_what_is_not_as_the_index_says() {
        let (folder, files) = dataset(None);
        assert_eq!(survey(folder.path(), &files.index), []);
        let path = folder.path().join("shard-000000.tar");
        std::fs::write(&path, [7; 512]).unwrap();
        let size = ShardWarning::Size { path: path.clone(), got: 512, expected: 1024 };
        assert_eq!(survey(folder.path(), &files.index), [size]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            survey(folder.path(), &files.index),
            [ShardWarning::Missing { path, errno: Errno::NOENT }]
        );
        assert_eq!(any_shard(folder.path(), &files.index), None);
    }
}
