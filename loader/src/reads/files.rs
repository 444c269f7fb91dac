//! The shards' files: looked at once at start, opened when first read, closed for others when there are too many, opened
//! anew when they went stale.

use super::descriptors::{Descriptors, open_max};
use super::direct::Choice;
use super::identity::{Identity, OtherFile};
use super::{ReadFault, ShardWarning};
use crate::blocks::Mismatch;
use rustix::fs::{Advice, Mode, OFlags, fadvise, open, stat};
use rustix::io::Errno;
use shade_formats::index::{HEADER_BYTES, INDEX_FILE, Index};
use shade_formats::{ContentId, ShardId};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shards that are looked at together at start: on a network file system each look is a round trip.
const SURVEY_THREADS: usize = 16;

/// The files of a dataset's shards.
pub(super) struct Files {
    folder: PathBuf,
    index: Arc<Index>,
    /// The index's own file as it was at start.
    index_file: Option<Identity>,
    choice: Choice,
    slots: Vec<Slot>,
    descriptors: Descriptors,
    /// A direct read was refused: all shards are opened for buffered reads from then on. They lie on one mount, and mixing
    /// both on one file stalls on NFS.
    buffered: AtomicBool,
    /// Some shard was opened: this user may read the dataset, and the store is there.
    answered: AtomicBool,
    /// Trouble was told of and is not over.
    troubled: AtomicBool,
    /// Flights that wait for trouble to be over.
    in_trouble: AtomicUsize,
}

/// A shard and its file.
#[derive(Default)]
struct Slot {
    held: Mutex<Held>,
    /// It was read from since somebody looked for a shard to close.
    used: AtomicBool,
    /// It was not there at start.
    missing: bool,
}

/// A shard's file, once it was opened.
#[derive(Default)]
struct Held {
    open: Option<Arc<OpenShard>>,
    /// It has a descriptor, or is being given one.
    has_descriptor: bool,
    /// The file as it was when it was opened first.
    first: Option<Identity>,
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

/// Why a shard is not open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// All descriptors are those of shards that are being read: one of them will be free.
    Full,
    /// Somebody may mend it: try again until the patience is over.
    Trouble(ReadFault),
    /// Trying again is no use.
    Fault(ReadFault),
}

impl OpenShard {
    /// What offsets and lengths must be multiples of, at least 1 byte.
    pub(super) fn align_bytes(&self) -> u32 {
        self.direct_align_bytes.unwrap_or(1)
    }
}

impl Files {
    /// The files of the shards in `folder`, of which `missing`, in order, are not there.
    pub(super) fn new(folder: &Path, index: Arc<Index>, choice: Choice, missing: &[ShardId]) -> Self {
        let slot = |id| Slot { missing: missing.binary_search(&ShardId(id)).is_ok(), ..Slot::default() };
        let slots = (0..index.shard_count()).map(slot).collect();
        Self {
            folder: folder.to_owned(),
            index_file: Identity::of_path(&folder.join(INDEX_FILE)).ok(),
            index,
            choice,
            slots,
            descriptors: Descriptors::new(open_max()),
            buffered: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            in_trouble: AtomicUsize::new(0),
        }
    }

    /// Whether reads bypass the page cache, and why.
    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The shard's file, opened if it is not yet.
    pub(super) fn get(&self, shard: ShardId) -> Result<Arc<OpenShard>, Unopened> {
        let (slot, mut held) = self.slot(shard)?;
        match &held.open {
            Some(open) => {
                slot.used.store(true, Ordering::Relaxed);
                Ok(Arc::clone(open))
            }
            None => self.open_into(shard, slot, &mut held),
        }
    }

    /// The shard's file if it is open and nobody is about to change that: never waits.
    pub(super) fn opened(&self, shard: ShardId) -> Option<Arc<OpenShard>> {
        let slot = self.slots.get(shard.index())?;
        let open = slot.held.try_lock().ok()?.open.clone();
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// The shard's file after `stale` stopped answering: opened anew by the first read that asks, which also
    /// checks that it still has its size.
    pub(super) fn reopen(&self, shard: ShardId, stale: &Arc<OpenShard>) -> Result<Arc<OpenShard>, Unopened> {
        let (slot, mut held) = self.slot(shard)?;
        match &held.open {
            Some(open) if !Arc::ptr_eq(open, stale) => return Ok(Arc::clone(open)),
            _ => (held.open, held.suspect) = (None, true),
        }
        self.open_into(shard, slot, &mut held)
    }

    /// The shard's file after a direct read of it was refused: opened for buffered reads, as all others from now on.
    pub(super) fn buffer(&self, shard: ShardId) -> Result<Arc<OpenShard>, Unopened> {
        let (slot, mut held) = self.slot(shard)?;
        if let Some(open) = &held.open
            && open.direct_align_bytes.is_none()
        {
            return Ok(Arc::clone(open));
        }
        if !self.buffered.swap(true, Ordering::Relaxed) {
            let shard = self.path(shard).map_err(Unopened::Fault)?;
            tracing::warn!(shard = %shard.display(), "direct reads are refused; using the page cache");
        }
        self.open_into(shard, slot, &mut held)
    }

    /// The fault of a read that the store refuses with `errno`.
    pub(super) fn refused(&self, shard: ShardId, errno: Errno) -> ReadFault {
        match self.path(shard) {
            Ok(path) => ReadFault::Refused { path, errno, tried: Duration::ZERO },
            Err(fault) => fault,
        }
    }

    /// The fault of a record that came twice with another checksum than was packed: says so if the shard's file is another
    /// one.
    pub(super) fn doubt(&self, shard: ShardId, open: &OpenShard, mismatch: Mismatch) -> ReadFault {
        let Ok(path) = self.path(shard) else { return mismatch.into() };
        let first = self.slot(shard).ok().and_then(|(_, held)| held.first);
        let bytes = self.index.shard(shard).map_or(0, |shard| shard.bytes);
        let now = (Identity::of_path(&path).ok(), Identity::of_file(&open.fd).ok());
        match super::identity::what_changed(self.index_file, bytes, first, now) {
            Some(OtherFile { is_certain, why }) => ReadFault::OtherFile { mismatch, path, is_certain, why },
            None => mismatch.into(),
        }
    }

    /// Tells of trouble that will be waited for until `patience` is over, once while it lasts.
    pub(super) fn tell_trouble(&self, fault: &ReadFault, patience: Duration) {
        if !self.troubled.swap(true, Ordering::Relaxed) {
            tracing::warn!("{fault}: trying again for {patience:?}; no record is given up for it");
        }
    }

    /// A flight begins to wait for trouble to be over.
    pub(super) fn begin_trouble(&self) {
        self.in_trouble.fetch_add(1, Ordering::Relaxed);
    }

    /// A flight that had trouble ends: it went well, or its patience is over. Once none waits any
    /// more the next trouble is another one, and told anew.
    pub(super) fn end_trouble(&self, is_well: bool) {
        let was_last = self.in_trouble.fetch_sub(1, Ordering::Relaxed) == 1;
        let was_told = (is_well || was_last) && self.troubled.swap(false, Ordering::Relaxed);
        if was_told && is_well {
            tracing::warn!("shards can be read again");
        }
    }

    fn slot(&self, shard: ShardId) -> Result<(&Slot, MutexGuard<'_, Held>), Unopened> {
        let slot = self.slots.get(shard.index()).ok_or(Unopened::Fault(ReadFault::UnknownShard))?;
        Ok((slot, slot.held.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn path(&self, shard: ShardId) -> Result<PathBuf, ReadFault> {
        Ok(self.folder.join(self.index.shard(shard).ok_or(ReadFault::UnknownShard)?.name))
    }

    /// Opens the shard, with a descriptor that another shard gives up if need be.
    fn open_into(&self, shard: ShardId, slot: &Slot, held: &mut Held) -> Result<Arc<OpenShard>, Unopened> {
        if !held.has_descriptor && !self.descriptors.take(shard.index(), |other| self.close(other)) {
            return Err(Unopened::Full);
        }
        held.has_descriptor = true;
        let opened = self.open(shard, slot, held);
        if opened.is_err() {
            *held = Held { open: None, has_descriptor: false, ..std::mem::take(held) };
            self.descriptors.give(shard.index());
        }
        opened
    }

    /// Closes a shard that no flight uses and that was not read from lately.
    fn close(&self, shard: usize) -> bool {
        let Some(slot) = self.slots.get(shard) else { return false };
        if slot.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Ok(mut held) = slot.held.try_lock() else { return false };
        // Under the lock nobody takes another share of it.
        if held.open.as_ref().is_none_or(|open| Arc::strong_count(open) > 1) {
            return false;
        }
        (held.open, held.has_descriptor) = (None, false);
        true
    }

    fn open(&self, shard: ShardId, slot: &Slot, held: &mut Held) -> Result<Arc<OpenShard>, Unopened> {
        let path = self.path(shard).map_err(Unopened::Fault)?;
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
        let fd = fd.map_err(|errno| self.unopened(&path, errno, slot, held))?;
        let identity = Identity::of_file(&fd).map_err(|errno| trouble(&path, errno))?;
        // With few descriptors a shard is opened many times, and the path may name another file by then.
        if held.suspect || held.first.is_some_and(|first| first != identity) {
            self.check(shard, &path, identity)?;
        }
        held.first.get_or_insert(identity);
        self.answered.store(true, Ordering::Relaxed);
        slot.used.store(true, Ordering::Relaxed);
        if direct_align_bytes.is_none() {
            // Only advice: readahead would fetch neighbours that nobody asked for.
            let _ = fadvise(&fd, 0, None, Advice::Random);
        }
        let open = Arc::new(OpenShard { fd, direct_align_bytes });
        held.open = Some(Arc::clone(&open));
        Ok(open)
    }

    /// What it means that the shard cannot be opened. What was so at start is a matter of the dataset and told at once;
    /// what was otherwise is trouble that may pass.
    fn unopened(&self, path: &Path, errno: Errno, slot: &Slot, held: &Held) -> Unopened {
        let forbidden = matches!(errno, Errno::ACCESS | Errno::PERM);
        if errno == Errno::NOENT && slot.missing && held.first.is_none() {
            return Unopened::Fault(ReadFault::Missing { path: path.to_owned() });
        }
        let fault = ReadFault::Open { path: path.to_owned(), errno, tried: Duration::ZERO };
        if forbidden && !self.answered.load(Ordering::Relaxed) {
            return Unopened::Fault(fault);
        }
        Unopened::Trouble(fault)
    }

    /// Whether what was opened in a stale shard's place is that shard: it has its size, in the dataset that is served.
    fn check(&self, shard: ShardId, path: &Path, identity: Identity) -> Result<(), Unopened> {
        let got = identity.bytes;
        let expected = self.index.shard(shard).ok_or(Unopened::Fault(ReadFault::UnknownShard))?.bytes;
        if got != expected {
            return Err(Unopened::Fault(ReadFault::Replaced { path: path.to_owned(), got, expected }));
        }
        self.check_dataset(path)
    }

    /// Whether the dataset at our path is still the one that is being served, after the shard at `path` went stale.
    fn check_dataset(&self, path: &Path) -> Result<(), Unopened> {
        let index = self.folder.join(INDEX_FILE);
        let unreadable = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            trouble(&index, errno)
        };
        let mut start = Vec::new();
        let file = std::fs::File::open(&index).map_err(unreadable)?;
        file.take(HEADER_BYTES as u64).read_to_end(&mut start).map_err(unreadable)?;
        let expected = self.index.content_id();
        // What is no index (any more) is another dataset, too.
        let got = Index::content_id_at_start(&start).unwrap_or(ContentId(0));
        let path = path.to_owned();
        if got == expected {
            Ok(())
        } else {
            Err(Unopened::Fault(ReadFault::Changed { path, got, expected }))
        }
    }
}

/// Trouble with opening `path`.
fn trouble(path: &Path, errno: Errno) -> Unopened {
    Unopened::Trouble(ReadFault::Open { path: path.to_owned(), errno, tried: Duration::ZERO })
}

/// Looks at every shard, several at a time: those that are missing or have another size than the index says, in order.
pub(super) fn survey(folder: &Path, index: &Index) -> Vec<(ShardId, ShardWarning)> {
    let ids: Vec<ShardId> = (0..index.shard_count()).map(ShardId).collect();
    let look = |ids: &[ShardId]| {
        ids.iter().filter_map(|&id| Some((id, look_at(folder, index, id)?))).collect::<Vec<_>>()
    };
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
        let files = Files::new(folder.path(), index, Choice { direct_align_bytes, why: "test".into() }, &[]);
        (folder, files)
    }

    #[test]
    fn a_shard_is_opened_once() {
        let (_folder, files) = dataset(None);
        assert!(Arc::ptr_eq(&files.get(SHARD).unwrap(), &files.get(SHARD).unwrap()));
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Fault(ReadFault::UnknownShard));
    }

    #[test]
    fn trouble_is_told_once_while_it_lasts_and_again_when_it_comes_again() {
        let (_folder, files) = dataset(None);
        let fault = files.refused(SHARD, Errno::ACCESS);
        let is_told = || files.troubled.load(Ordering::Relaxed);
        files.begin_trouble();
        files.begin_trouble();
        files.tell_trouble(&fault, Duration::ZERO);
        files.end_trouble(false);
        assert!(is_told(), "one still waits");
        files.end_trouble(false);
        assert!(!is_told(), "the patience of all is over: the next outage is told");
        files.begin_trouble();
        files.tell_trouble(&fault, Duration::ZERO);
        files.end_trouble(true);
        assert!(!is_told());
    }

    fn is_trouble(opened: Result<Arc<OpenShard>, Unopened>, with: Errno) -> bool {
        matches!(opened, Err(Unopened::Trouble(ReadFault::Open { errno, .. })) if errno == with)
    }

    #[test]
    fn what_is_so_at_start_is_told_at_once_and_what_changes_later_is_trouble() {
        let (folder, files) = dataset(None);
        let (here, away) = (folder.path().join("shard-000000.tar"), folder.path().join("away"));
        std::fs::rename(&here, &away).unwrap();
        assert!(is_trouble(files.get(SHARD), Errno::NOENT), "it was there when the files were looked at");
        let missing = Files::new(folder.path(), Arc::clone(&files.index), files.choice.clone(), &[SHARD]);
        let fault = ReadFault::Missing { path: here.clone() };
        assert_eq!(missing.get(SHARD).unwrap_err(), Unopened::Fault(fault));
        std::fs::rename(&away, &here).unwrap();
        assert!(files.get(SHARD).is_ok() && missing.get(SHARD).is_ok());
        std::fs::rename(&here, &away).unwrap();
        let open = missing.get(SHARD).unwrap();
        assert!(is_trouble(missing.reopen(SHARD, &open), Errno::NOENT), "it has been there since");
    }

    #[test]
    fn a_forbidden_shard_is_a_fault_until_some_shard_was_opened() {
        let (folder, files) = dataset(None);
        let path = folder.path().join("shard-000000.tar");
        let slot = Slot::default();
        for errno in [Errno::ACCESS, Errno::PERM] {
            let fault = ReadFault::Open { path: path.clone(), errno, tried: Duration::ZERO };
            files.answered.store(false, Ordering::Relaxed);
            let expected = Unopened::Fault(fault.clone());
            assert_eq!(files.unopened(&path, errno, &slot, &Held::default()), expected);
            files.answered.store(true, Ordering::Relaxed);
            assert_eq!(files.unopened(&path, errno, &slot, &Held::default()), Unopened::Trouble(fault));
        }
    }

    #[test]
    fn a_shard_gives_its_descriptor_up_unless_it_was_used_lately_or_is_being_read() {
        let (_folder, mut files) = dataset(None);
        files.descriptors = Descriptors::new(1);
        files.slots.push(Slot::default());
        let reading = files.get(SHARD).unwrap();
        // The second shard has no file, so that opening it fails after a descriptor was found for it.
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Full);
        drop(reading);
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Fault(ReadFault::UnknownShard));
        assert!(files.opened(SHARD).is_none(), "closed for the other");
        assert!(files.get(SHARD).is_ok(), "the failed open has given its descriptor back");
    }

    #[test]
    fn a_shard_that_was_closed_and_replaced_meanwhile_is_looked_at() {
        let (folder, files) = dataset(None);
        drop(files.get(SHARD).unwrap());
        assert!(!files.close(0) && files.close(0), "the first look takes the mark off");
        let path = folder.path().join("shard-000000.tar");
        std::fs::write(folder.path().join("new"), [7; 512]).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        let replaced = Unopened::Fault(ReadFault::Replaced { path, got: 512, expected: 1024 });
        assert_eq!(files.get(SHARD).unwrap_err(), replaced);
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
    fn wrong_records_of_a_file_that_took_a_stale_one_s_place_are_no_damage() {
        let (folder, files) = dataset(None);
        let stale = files.get(SHARD).unwrap();
        let mismatch = Mismatch { got: 1, expected: 2 };
        assert_eq!(files.doubt(SHARD, &stale, mismatch), mismatch.into());
        std::fs::write(folder.path().join("new"), [9; 1024]).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("shard-000000.tar")).unwrap();
        let fault = files.doubt(SHARD, &stale, mismatch);
        assert!(!fault.is_not_the_record_s(), "still read from the first file: {fault}");
        let fault = files.doubt(SHARD, &files.reopen(SHARD, &stale).unwrap(), mismatch);
        assert!(fault.is_not_the_record_s() && fault.to_string().contains("taken its place"), "{fault}");
    }

    #[test]
    fn a_stale_shard_of_another_size_is_a_replaced_dataset() {
        let (folder, files) = dataset(None);
        let stale = files.get(SHARD).unwrap();
        let path = folder.path().join("shard-000000.tar");
        std::fs::write(&path, [7; 512]).unwrap();
        let expected = Unopened::Fault(ReadFault::Replaced { path, got: 512, expected: 1024 });
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
        let changed = Unopened::Fault(ReadFault::Changed { path, got, expected });
        assert_eq!(files.reopen(SHARD, &stale).unwrap_err(), changed);
        std::fs::remove_file(folder.path().join(INDEX_FILE)).unwrap();
        assert!(is_trouble(files.reopen(SHARD, &stale), Errno::NOENT));
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
        assert_eq!(survey(folder.path(), &files.index), [(SHARD, size)]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            survey(folder.path(), &files.index),
            [(SHARD, ShardWarning::Missing { path, errno: Errno::NOENT })]
        );
        assert_eq!(any_shard(folder.path(), &files.index), None);
    }
}
