//! The shards' files: opened when first read, closed when there are too many, and opened again when
//! they go stale.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, AtFlags, CWD, OFlags, StatxFlags, fadvise, statx};
use rustix::io::Errno;
use shade_formats::index::{INDEX_FILE, Index, PlacesKind};
use shade_formats::{ContentId, ShardId};
use shade_store::{Answer, Objects, StoreFault};

use crate::bucket::Bucket;
use crate::descriptors::{Descriptors, open_max};
use crate::direct::PAGE_BYTES;
use crate::error::DatasetError;
use crate::fault::{Mismatch, ReadFault, is_forbidden};
use crate::identity::{FileIdentity, OtherFile, what_changed};
use crate::open::{Content, shards_address, shards_folder};
use crate::outage::{Outage, StoreTrouble};
use crate::refusal::Refusal;
use crate::regular;
use crate::rules::{PATIENCE, may_pass, refuses_direct};
use crate::slots::{OpenShard, ShardFile, Slot, Slots, Source};

/// Most shards that blocking readers keep open: the process needs descriptors for other things.
const BLOCKING_OPEN_MAX: usize = 256;
/// Most open files where each sample has its own: twice the reads that may be in flight. An epoch
/// reads each once, so more would only take the kernel's memory.
const FILES_OPEN_MAX: usize = 2048;

/// The files of a dataset's shards. Threads may share it.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    pub(crate) index: Arc<Index>,
    /// Where the shards are, if they are no files in the folder.
    bucket: Option<Bucket>,
    /// The index's own file as it was at start.
    index_file: Option<FileIdentity>,
    /// What offsets and lengths of direct reads are multiples of; `None` is buffered.
    direct_align_bytes: Option<u32>,
    slots: Slots,
    /// What the shards are, if shade has not written them.
    places: Option<PlacesKind>,
    descriptors: Descriptors,
    /// All shards were checked before the first read: see [`surveyed`](Self::surveyed).
    surveyed: bool,
    /// A direct read was refused, which was told: all shards that lie on one mount are opened for
    /// buffered reads from then on. Mixing both on one file stalls on NFS.
    refused: AtomicBool,
    /// Shards are those of several datasets, which may lie on several mounts: each tells for itself
    /// whether direct reads are refused.
    are_of_datasets: bool,
    /// Some shard was opened: this user may read the dataset, and the store answers.
    answered: AtomicBool,
    /// How long reads wait for the end of trouble.
    pub(crate) patience: Duration,
    pub(crate) outage: Outage,
}

/// Why a shard is not open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// All open shards are being read: a descriptor will be free soon.
    Full,
    /// It may pass: try again until the patience is over.
    Trouble(ReadFault),
    /// Trying again is useless.
    Fault(ReadFault),
}

impl Files {
    /// The files of the shards in `folder`, for an engine that reads random records and has checked
    /// all shards: those in `missing` do not exist. Their reads fail at once; what changes later is
    /// trouble, which reads wait for until `patience` is over. Direct reads are multiples of
    /// `direct_align_bytes`; `None` is buffered.
    #[must_use]
    pub fn surveyed(
        folder: &Path,
        index: Arc<Index>,
        direct_align_bytes: Option<u32>,
        missing: &[ShardId],
        patience: Duration,
    ) -> Self {
        let files = Self::with(folder, index, direct_align_bytes, open_max(), missing);
        Self { surveyed: true, patience, ..files }
    }

    /// The files of the shards in `folder`, for [`read`](Self::read): past the page cache if
    /// `direct` and the file system allows it. The shards were not checked, so the first open tells
    /// what is wrong with one.
    #[must_use]
    pub fn new(folder: &Path, index: Arc<Index>, direct: bool) -> Self {
        // Memory of whole pages has any alignment that a file system wants.
        let align_bytes = u32::try_from(PAGE_BYTES).ok().filter(|_| direct);
        Self::with(folder, index, align_bytes, open_max().min(BLOCKING_OPEN_MAX), &[])
    }

    fn with(
        folder: &Path,
        index: Arc<Index>,
        direct_align_bytes: Option<u32>,
        open_max: usize,
        missing: &[ShardId],
    ) -> Self {
        let places = index.places().map(|places| places.kind).filter(|kind| kind.is_foreign());
        let shards = index.shard_count() as usize;
        let (slots, open_max) = match places {
            Some(PlacesKind::Files) => (Slots::open(shards), open_max.min(FILES_OPEN_MAX)),
            Some(PlacesKind::Tars | PlacesKind::Shards) | None => (Slots::each(shards, missing), open_max),
        };
        Self {
            folder: folder.to_owned(),
            bucket: shards_address(folder, &index).map(Bucket::new),
            index_file: FileIdentity::of_path(&folder.join(INDEX_FILE)).ok(),
            direct_align_bytes,
            slots,
            places,
            are_of_datasets: index.places().is_some_and(|places| places.kind == PlacesKind::Shards),
            index,
            descriptors: Descriptors::new(open_max),
            surveyed: false,
            refused: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            patience: PATIENCE,
            outage: Outage::default(),
        }
    }

    /// Whether reads bypass the page cache, as decided at the start.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct_align_bytes.is_some()
    }

    /// Whether each sample has a file of its own, so that nearly every read needs an open.
    #[must_use]
    pub fn are_samples(&self) -> bool {
        self.places == Some(PlacesKind::Files)
    }

    /// The shard's file, opened if it is not yet.
    pub(crate) fn get(&self, shard: ShardId) -> Result<Arc<OpenShard>, Unopened> {
        let slot = self.slot(shard)?;
        let mut file = slot.lock();
        match &file.open {
            Some(open) => {
                slot.used.store(true, Ordering::Relaxed);
                Ok(Arc::clone(open))
            }
            None => self.open_into(shard, &slot, &mut file),
        }
    }

    /// The shard's file, if it is open and not about to change. Never waits.
    pub(crate) fn opened(&self, shard: ShardId) -> Option<Arc<OpenShard>> {
        let slot = self.slots.known(shard)?;
        let open = slot.try_lock()?.open.clone();
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// The shard's file after `stale` went stale: the first read that asks opens it again and
    /// checks its size.
    pub(crate) fn reopen(&self, shard: ShardId, stale: &Arc<OpenShard>) -> Result<Arc<OpenShard>, Unopened> {
        let slot = self.slot(shard)?;
        let mut file = slot.lock();
        match &file.open {
            Some(open) if !Arc::ptr_eq(open, stale) => return Ok(Arc::clone(open)),
            _ => (file.open, file.suspect) = (None, true),
        }
        self.open_into(shard, &slot, &mut file)
    }

    /// The shard's file after a direct read of it was refused: it is opened for buffered reads,
    /// like all others on its mount from now on.
    pub(crate) fn buffer(&self, shard: ShardId) -> Result<Arc<OpenShard>, Unopened> {
        let slot = self.slot(shard)?;
        let mut file = slot.lock();
        if let Some(open) = &file.open
            && !open.is_direct()
        {
            return Ok(Arc::clone(open));
        }
        self.refuse_direct(&self.path(shard).map_err(Unopened::Fault)?, &mut file);
        self.open_into(shard, &slot, &mut file)
    }

    /// Notes that the file system of the shard at `path` refuses direct reads.
    fn refuse_direct(&self, path: &Path, file: &mut ShardFile) {
        file.is_buffered = true;
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(shard = %path.display(), "direct reads are refused; using the page cache");
        }
    }

    /// How the shard is opened next.
    fn align_bytes_of(&self, file: &ShardFile) -> Option<u32> {
        let is_refused = match self.are_of_datasets {
            true => file.is_buffered,
            false => self.refused.load(Ordering::Relaxed),
        };
        self.direct_align_bytes.filter(|_| !is_refused)
    }

    /// The same files, of which these do not exist: those of a bucket, which was asked.
    #[must_use]
    pub fn without(self, missing: &[ShardId]) -> Self {
        if self.are_samples() {
            return self;
        }
        let slots = Slots::each(self.index.shard_count() as usize, missing);
        Self { slots, ..self }
    }

    /// What a refused read of a shard is: trouble that may pass. What was missing at the start, and
    /// what an object store says that has never answered well, is a fault at once.
    pub(crate) fn refused(&self, shard: ShardId, refusal: Refusal) -> Unopened {
        let tried = Duration::ZERO;
        match (self.path(shard), refusal) {
            (Err(fault), _) => Unopened::Fault(fault),
            (Ok(path), Refusal::System(errno)) => {
                Unopened::Trouble(ReadFault::Refused { path, errno, tried })
            }
            (Ok(path), Refusal::Store(StoreFault { answer: Answer::NotFound, .. }))
                if self.slots.known(shard).is_some_and(|slot| slot.missing) =>
            {
                Unopened::Fault(ReadFault::Missing { path })
            }
            (Ok(path), Refusal::Store(StoreFault { answer: Answer::NotFound, .. })) if self.are_samples() => {
                Unopened::Fault(ReadFault::NotAsIndexed { path, why: "it is gone".to_owned() })
            }
            (Ok(_), Refusal::Store(fault)) => {
                let is_told = fault.answer.may_be_a_mistake() && !self.answered.load(Ordering::Relaxed);
                let fault = ReadFault::Store { fault, tried };
                if is_told { Unopened::Fault(fault) } else { Unopened::Trouble(fault) }
            }
        }
    }

    /// The fault of a read in the words of its kind of index: an object that is another one than
    /// that which was indexed was not replaced in use.
    pub(crate) fn in_place(&self, shard: ShardId, fault: ReadFault) -> ReadFault {
        match (fault, self.path(shard)) {
            (ReadFault::Store { fault, .. }, Ok(path))
                if self.places.is_some() && fault.answer == Answer::Changed =>
            {
                ReadFault::NotAsIndexed { path, why: fault.words }
            }
            (fault, _) => fault,
        }
    }

    /// The store has given a record, to this process or, as somebody knows, to another one: what it
    /// refuses from now on is trouble that may pass.
    pub fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Trouble of the store that reads wait for, or did a moment ago.
    #[must_use]
    pub fn trouble(&self, now: Instant) -> Option<StoreTrouble> {
        self.outage.now(now)
    }

    /// The dataset's index.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Whether shards are objects in a bucket.
    #[must_use]
    pub fn are_objects(&self) -> bool {
        self.bucket.is_some()
    }

    /// The client of the bucket that the shards are in; `None` if they are files.
    ///
    /// # Errors
    /// The settings in the environment make no client.
    pub fn objects(&self) -> Result<Option<Arc<Objects>>, StoreFault> {
        self.bucket.as_ref().map(Bucket::objects).transpose()
    }

    /// The fault of a record that had a wrong checksum twice. It says if the shard's file is
    /// another one.
    #[must_use]
    pub fn doubt(&self, shard: ShardId, open: &OpenShard, mismatch: Mismatch) -> ReadFault {
        let Ok(path) = self.path(shard) else { return mismatch.into() };
        let first = self.slots.known(shard).and_then(|slot| slot.lock().first);
        let bytes = self.index.shard(shard).map_or(0, |shard| shard.bytes);
        let Source::File(fd) = &open.source else { return mismatch.into() };
        let (at_path, open) = (FileIdentity::of_path(&path).ok(), FileIdentity::of_file(fd).ok());
        if let Some(Err(Unopened::Fault(fault))) =
            open.map(|open| self.check_place(shard, &path, open.bytes, open.changed_ns))
        {
            return fault;
        }
        match what_changed(self.index_file, bytes, first, at_path, open) {
            Some(OtherFile { is_certain, why }) => ReadFault::OtherFile { mismatch, path, is_certain, why },
            None => mismatch.into(),
        }
    }

    fn slot(&self, shard: ShardId) -> Result<Arc<Slot>, Unopened> {
        self.slots.get(shard).ok_or(Unopened::Fault(ReadFault::UnknownShard))
    }

    /// The shard's path.
    ///
    /// # Errors
    /// The index has no such shard.
    pub fn path(&self, shard: ShardId) -> Result<PathBuf, ReadFault> {
        let name = self.index.shard(shard).ok_or(ReadFault::UnknownShard)?.name;
        Ok(match &self.bucket {
            Some(bucket) => bucket.url().join(name).as_str().into(),
            None => shards_folder(&self.folder, &self.index).join(name),
        })
    }

    /// Opens the shard, with another shard's descriptor if none is free.
    fn open_into(
        &self,
        shard: ShardId,
        slot: &Slot,
        file: &mut ShardFile,
    ) -> Result<Arc<OpenShard>, Unopened> {
        if let Some(bucket) = &self.bucket {
            let open = bucket.open(&self.index, shard).map_err(Unopened::Fault)?;
            // A sample's own object is read once an epoch, and costs nothing to open again.
            if self.are_samples() {
                self.slots.forget(shard, file);
            } else {
                file.open = Some(Arc::clone(&open));
            }
            return Ok(open);
        }
        let mut closed = None;
        let mut close = |other| {
            closed = self.close(other);
            closed.is_some()
        };
        if !file.has_descriptor && !self.descriptors.take(shard.index(), &mut close) {
            return Err(Unopened::Full);
        }
        // Closing may take a round trip, and no lock that others wait for is held any more.
        drop(closed);
        file.has_descriptor = true;
        let opened = self.open(shard, slot, file);
        if opened.is_err() {
            *file = ShardFile { open: None, has_descriptor: false, ..std::mem::take(file) };
            self.descriptors.give(shard.index());
            self.slots.forget(shard, file);
        }
        opened
    }

    /// Takes the file of a shard that no flight uses and that was not read from lately. Dropping it
    /// closes it.
    fn close(&self, shard: usize) -> Option<Arc<OpenShard>> {
        self.slots.close(shard, |slot| {
            if slot.used.swap(false, Ordering::Relaxed) {
                return None;
            }
            let mut file = slot.try_lock()?;
            // Under the lock the count cannot rise.
            if file.open.as_ref().is_none_or(|open| Arc::strong_count(open) > 1) {
                return None;
            }
            file.has_descriptor = false;
            file.open.take()
        })
    }

    fn open(&self, shard: ShardId, slot: &Slot, file: &mut ShardFile) -> Result<Arc<OpenShard>, Unopened> {
        let path = self.path(shard).map_err(Unopened::Fault)?;
        // Read-only also because Linux 7.2 and later answer NFS reads inline only for such
        // descriptors.
        let mut direct_align_bytes = self.align_bytes_of(file);
        let open = |more| regular::open_at(CWD, &path, OFlags::RDONLY | more);
        let fd = match open(direct_align_bytes.map_or(OFlags::empty(), |_| OFlags::DIRECT)) {
            Err(fault) if direct_align_bytes.is_some() && errno_of(&fault).is_some_and(refuses_direct) => {
                self.refuse_direct(&path, file);
                direct_align_bytes = None;
                open(OFlags::empty())
            }
            other => other,
        };
        let fd = fd.map_err(|fault| match errno_of(&fault) {
            Some(errno) => self.unopened(&path, errno, slot, file),
            None => Unopened::Fault(ReadFault::NotAFile { path: path.clone(), what: fault.to_string() }),
        })?;
        let identity = FileIdentity::of_file(&fd).map_err(|errno| trouble(&path, errno))?;
        self.check_place(shard, &path, identity.bytes, identity.changed_ns)?;
        // With few descriptors a shard is opened many times, and its path may have changed
        // meanwhile.
        if file.suspect || file.first.is_some_and(|first| first != identity) {
            self.check(shard, &path, identity)?;
        }
        file.first.get_or_insert(identity);
        self.answered.store(true, Ordering::Relaxed);
        // A sample's own file is read once an epoch: the one that was opened first is closed first.
        slot.used.store(!self.are_samples(), Ordering::Relaxed);
        if self.surveyed && direct_align_bytes.is_none() {
            // Only advice: readahead would fetch unwanted neighbours.
            let _ = fadvise(&fd, 0, None, Advice::Random);
        }
        let open = Arc::new(OpenShard { source: Source::File(fd), direct_align_bytes });
        file.open = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Why the shard is not open. A fault that existed at the start is the dataset's and told at
    /// once; a later one is trouble that may pass.
    fn unopened(&self, path: &Path, errno: Errno, slot: &Slot, file: &ShardFile) -> Unopened {
        let was_open = file.first.is_some();
        // The folder is there, or was when its index was compared with it.
        if errno == Errno::NOENT && self.are_samples() && !was_open {
            let why = "it is gone".to_owned();
            return Unopened::Fault(ReadFault::NotAsIndexed { path: path.to_owned(), why });
        }
        if errno == Errno::NOENT && slot.missing && !was_open {
            return Unopened::Fault(ReadFault::Missing { path: path.to_owned() });
        }
        let fault = ReadFault::Open { path: path.to_owned(), errno, tried: Duration::ZERO };
        let is_told = if self.surveyed {
            is_forbidden(errno) && !self.answered.load(Ordering::Relaxed)
        } else {
            !was_open && !may_pass(errno)
        };
        if is_told { Unopened::Fault(fault) } else { Unopened::Trouble(fault) }
    }

    /// Checks that nobody wrote to a file of an index of places while it was open: nothing else
    /// tells where no checksum is known. It asks for the attributes that the system has, which came
    /// with the open and with each answer of a server, and so never waits.
    pub(crate) fn check_read(&self, shard: ShardId, open: &OpenShard) -> Result<(), ReadFault> {
        // An object's answer was compared when it came.
        let (Some(_), Source::File(fd)) = (self.places, &open.source) else { return Ok(()) };
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let Ok(found) = statx(fd, "", flags, StatxFlags::BASIC_STATS) else { return Ok(()) };
        let path = self.path(shard)?;
        let changed_ns = found.stx_mtime.tv_sec.saturating_mul(1_000_000_000);
        let changed_ns = changed_ns.saturating_add(found.stx_mtime.tv_nsec.into());
        match self.check_place(shard, &path, found.stx_size, changed_ns) {
            Err(Unopened::Fault(fault)) => Err(fault),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks that a file of an index of places is the one that was indexed. Its attributes came
    /// with the open, so this costs no round trip.
    fn check_place(&self, shard: ShardId, path: &Path, bytes: u64, now_ns: i64) -> Result<(), Unopened> {
        let Some(changed_ns) = self.index.changed_ns(shard) else { return Ok(()) };
        let expected = self.index.shard(shard).map_or(0, |shard| shard.bytes);
        let why = if bytes != expected {
            format!("it has {bytes} bytes, the index says {expected}")
        } else if now_ns != changed_ns {
            #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
            let seconds = now_ns.saturating_sub(changed_ns) as f64 / 1e9;
            format!("its time of change differs by {seconds:.3} s")
        } else {
            return Ok(());
        };
        Err(Unopened::Fault(ReadFault::NotAsIndexed { path: path.to_owned(), why }))
    }

    /// Checks that the file opened in a stale shard's place has the shard's size, in the same
    /// dataset.
    fn check(&self, shard: ShardId, path: &Path, identity: FileIdentity) -> Result<(), Unopened> {
        let got = identity.bytes;
        let expected = self.index.shard(shard).ok_or(Unopened::Fault(ReadFault::UnknownShard))?.bytes;
        if got != expected {
            return Err(Unopened::Fault(ReadFault::Replaced { path: path.to_owned(), got, expected }));
        }
        self.check_dataset(path)
    }

    /// Checks that the dataset is still the one that was opened, perhaps with more added to it,
    /// after the shard at `path` went stale.
    fn check_dataset(&self, path: &Path) -> Result<(), Unopened> {
        let index = self.folder.join(INDEX_FILE);
        let got = match Content::check(&self.folder, Content::of(&self.index)) {
            Ok(()) => return Ok(()),
            Err(DatasetError::Replaced { got, .. }) => got,
            Err(DatasetError::Io { source, .. }) => {
                return Err(trouble(&index, Errno::from_io_error(&source).unwrap_or(Errno::IO)));
            }
            Err(DatasetError::NotPacked { .. }) => return Err(trouble(&index, Errno::NOENT)),
            // A file that is no index (any more) is another dataset too.
            Err(_) => ContentId(0),
        };
        let (path, expected) = (path.to_owned(), self.index.content_id());
        Err(Unopened::Fault(ReadFault::Changed { path, got, expected }))
    }
}

/// What the system said; `None` if what it opened is no file.
fn errno_of(fault: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(fault)
}

/// Trouble with opening `path`.
fn trouble(path: &Path, errno: Errno) -> Unopened {
    Unopened::Trouble(ReadFault::Open { path: path.to_owned(), errno, tried: Duration::ZERO })
}

#[cfg(test)]
pub(crate) mod tests {
    use shade_formats::index::{Codec, Entry, IndexBuilder, Media, Shard};

    use super::*;

    const SHARD: ShardId = ShardId(0);

    /// A dataset of one shard of 1,024 bytes.
    pub(crate) fn dataset(direct_align_bytes: Option<u32>) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shard-000000.tar"), [7; 1024]).unwrap();
        let mut index = IndexBuilder::new();
        index.push_class(b"class").unwrap();
        index.push_shard(Shard { name: "shard-000000.tar", bytes: 1024, crc32c: 0, records: 1 }).unwrap();
        let (codec, media) = (Codec::None, Media::Other);
        let (shard, offset, stored_len, raw_len, crc32c) = (SHARD, 512, 3, 3, Some(7));
        let (label, width, height) = (0, 0, 0);
        let entry = Entry { shard, offset, stored_len, raw_len, crc32c, label, width, height, codec, media };
        index.push_sample(&entry, b"class/1.png").unwrap();
        let index = index.finish().unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), &index).unwrap();
        let index = Arc::new(Index::open(index).unwrap());
        let files = Files::surveyed(folder.path(), index, direct_align_bytes, &[], PATIENCE);
        (folder, files)
    }

    #[test]
    fn a_shard_is_opened_once() {
        let (_folder, files) = dataset(None);
        assert!(Arc::ptr_eq(&files.get(SHARD).unwrap(), &files.get(SHARD).unwrap()));
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Fault(ReadFault::UnknownShard));
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
        let missing = Files::surveyed(folder.path(), Arc::clone(&files.index), None, &[SHARD], PATIENCE);
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
            assert_eq!(files.unopened(&path, errno, &slot, &ShardFile::default()), expected);
            files.answered.store(true, Ordering::Relaxed);
            assert_eq!(files.unopened(&path, errno, &slot, &ShardFile::default()), Unopened::Trouble(fault));
        }
    }

    #[test]
    fn where_nobody_looked_the_first_open_tells_and_passing_trouble_is_waited_for() {
        let (folder, surveyed) = dataset(None);
        let files = Files::new(folder.path(), Arc::clone(&surveyed.index), true);
        let path = folder.path().join("shard-000000.tar");
        let never = ShardFile::default();
        files.get(SHARD).unwrap();
        let known = ShardFile { first: Some(FileIdentity::of_path(&path).unwrap()), ..ShardFile::default() };
        let table = [
            (Errno::NOENT, false),
            (Errno::ACCESS, false),
            (Errno::IO, false),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, true),
            (Errno::STALE, true),
            (Errno::TIMEDOUT, true),
        ];
        for (errno, passes) in table {
            let told = |file| files.unopened(&path, errno, &Slot::default(), file);
            assert_eq!(matches!(told(&never), Unopened::Trouble(_)), passes, "{errno}");
            assert!(matches!(told(&known), Unopened::Trouble(_)), "{errno}");
        }
    }

    #[test]
    fn a_shard_gives_its_descriptor_up_unless_it_was_used_lately_or_is_being_read() {
        let (_folder, mut files) = dataset(None);
        files.descriptors = Descriptors::new(1);
        files.slots = Slots::each(2, &[]);
        let reading = files.get(SHARD).unwrap();
        // The second shard has no file, so that opening it fails after a descriptor was found for
        // it.
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Full);
        drop(reading);
        assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Fault(ReadFault::UnknownShard));
        assert!(files.opened(SHARD).is_none(), "closed for the other");
        assert!(files.get(SHARD).is_ok(), "the failed open has given its descriptor back");
    }

    /// Files of their own, `count` of them.
    fn folder_of_files(count: u32) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let mut index = IndexBuilder::new();
        index.push_class(b"class").unwrap();
        let mut times = Vec::new();
        for number in 0..count {
            let path = folder.path().join(format!("{number}.png"));
            std::fs::write(&path, b"abc").unwrap();
            times.push(crate::changed_ns(&rustix::fs::stat(&path).unwrap()));
            index.push_shard(Shard { name: "", bytes: 3, crc32c: 0, records: 1 }).unwrap();
            let (shard, offset, stored_len, raw_len) = (ShardId(number), 0, 3, 3);
            let (crc32c, label, width, height) = (None, 0, 0, 0);
            let (codec, media) = (Codec::None, Media::Other);
            let entry =
                Entry { shard, offset, stored_len, raw_len, crc32c, label, width, height, codec, media };
            index.push_sample(&entry, format!("{number}.png").as_bytes()).unwrap();
        }
        index.set_places(PlacesKind::Files, folder.path().as_os_str().as_encoded_bytes(), times);
        let index = Arc::new(Index::open(index.finish().unwrap()).unwrap());
        let files = Files::surveyed(Path::new("/elsewhere"), index, None, &[], PATIENCE);
        (folder, files)
    }

    #[test]
    fn images_own_files_are_bounded_and_the_first_that_was_opened_is_closed_first() {
        let (_folder, mut files) = folder_of_files(20);
        files.descriptors = Descriptors::new(3);
        let held = files.get(ShardId(0)).unwrap();
        for shard in (1..20).map(ShardId) {
            files.get(shard).unwrap();
        }
        let open = |shard: &u32| files.opened(ShardId(*shard)).is_some();
        assert_eq!((0..20).filter(open).collect::<Vec<u32>>(), [0, 18, 19]);
        let known = |shard: &u32| files.slots.known(ShardId(*shard)).is_some();
        assert_eq!((0..20).filter(known).count(), 3, "nothing is kept of the others");
        drop(held);
        assert_eq!(files.get(ShardId(20)).unwrap_err(), Unopened::Fault(ReadFault::UnknownShard));
    }

    #[test]
    fn a_file_that_is_not_as_it_was_indexed_is_refused_and_forgotten() {
        let (folder, files) = folder_of_files(2);
        let path = folder.path().join("1.png");
        std::fs::write(&path, b"abcd").unwrap();
        for why in ["it has 4 bytes, the index says 3", "it is gone"] {
            let expected = ReadFault::NotAsIndexed { path: path.clone(), why: why.to_owned() };
            assert_eq!(files.get(ShardId(1)).unwrap_err(), Unopened::Fault(expected));
            assert!(files.slots.known(ShardId(1)).is_none());
            if why.starts_with("it has") {
                std::fs::remove_file(&path).unwrap();
            }
        }
        files.get(ShardId(0)).unwrap();
    }

    #[test]
    fn a_shard_that_was_closed_and_replaced_meanwhile_is_looked_at() {
        let (folder, files) = dataset(None);
        drop(files.get(SHARD).unwrap());
        assert!(files.close(0).is_none() && files.close(0).is_some(), "the first look takes the mark off");
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
    fn shards_of_several_datasets_may_lie_where_direct_reads_are_refused_and_where_they_are_not() {
        let other = ShardFile::default();
        let (_folder, files) = dataset(Some(512));
        files.buffer(SHARD).unwrap();
        assert_eq!(files.align_bytes_of(&other), None, "one mount");
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("shard-000000.tar"), [7; 1024]).unwrap();
        let mut index = IndexBuilder::new();
        index.push_shard(Shard { name: "shard-000000.tar", bytes: 1024, crc32c: 0, records: 0 }).unwrap();
        index.set_places(PlacesKind::Shards, temp.path().as_os_str().as_encoded_bytes(), Vec::new());
        let index = index.finish().unwrap();
        std::fs::write(temp.path().join(INDEX_FILE), &index).unwrap();
        let index = Arc::new(Index::open(index).unwrap());
        let files = Files::surveyed(temp.path(), index, Some(512), &[], PATIENCE);
        let buffered = files.buffer(SHARD).unwrap();
        assert_eq!((buffered.direct_align_bytes, files.align_bytes_of(&other)), (None, Some(512)));
        assert_eq!(files.reopen(SHARD, &buffered).unwrap().direct_align_bytes, None);
    }
}
