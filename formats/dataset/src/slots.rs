//! What is known of each shard's file. A dataset of shards has hundreds; an index of an
//! ImageFolder's files may have millions, and of these only the open ones take memory.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use shade_formats::ShardId;

use crate::identity::FileIdentity;
use crate::object::Object;

/// Locks that share the open files: as many as engines have threads at work at a time.
const PARTS: usize = 16;

/// A shard and its file.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    file: Mutex<ShardFile>,
    /// It was read from since the last search for a shard to close.
    pub(crate) used: AtomicBool,
    /// It was missing at the start.
    pub(crate) missing: bool,
}

/// A shard's file, once it was opened.
#[derive(Debug, Default)]
pub(crate) struct ShardFile {
    pub(crate) open: Option<Arc<OpenShard>>,
    /// It has a descriptor, or is being given one.
    pub(crate) has_descriptor: bool,
    /// The file as it was when it was opened first.
    pub(crate) first: Option<FileIdentity>,
    /// It went stale once: a file that is opened in its place is checked.
    pub(crate) suspect: bool,
    /// Its file system refuses direct reads.
    pub(crate) is_buffered: bool,
}

/// What the bytes of an open shard come from.
#[derive(Debug)]
pub enum Source {
    /// A file, open for reading.
    File(OwnedFd),
    /// An object in a bucket.
    Object(Object),
}

/// An open shard. It stays open as long as a read of it is in flight.
#[derive(Debug)]
pub struct OpenShard {
    /// Where its bytes are.
    pub source: Source,
    /// What offsets and lengths of direct reads must be multiples of; `None` is buffered.
    pub(crate) direct_align_bytes: Option<u32>,
}

/// The slots of all shards.
#[derive(Debug)]
pub(crate) enum Slots {
    /// One for each.
    Each(Vec<Arc<Slot>>),
    /// Those of the shards that are open, or suspect.
    Open(OpenSlots),
}

/// The slots of open files, by shard.
type OpenFiles = HashMap<usize, Arc<Slot>>;

#[derive(Debug)]
pub(crate) struct OpenSlots {
    shards: usize,
    parts: Box<[Mutex<OpenFiles>; PARTS]>,
}

impl OpenShard {
    /// What offsets and lengths must be multiples of, at least 1 byte.
    #[must_use]
    pub fn align_bytes(&self) -> u32 {
        self.direct_align_bytes.unwrap_or(1)
    }

    /// Whether reads bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct_align_bytes.is_some()
    }

    /// The file, for an engine that reads files.
    ///
    /// # Panics
    /// It is an object: such shards are given to the engine of objects alone.
    #[must_use]
    pub fn fd(&self) -> &OwnedFd {
        match &self.source {
            Source::File(fd) => fd,
            Source::Object(_) => unreachable!("an object was given to an engine that reads files"),
        }
    }

    /// The file's length in bytes.
    pub(crate) fn bytes(&self) -> Result<u64, Errno> {
        FileIdentity::of_file(self.fd()).map(|found| found.bytes)
    }
}

impl Slot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, if nobody else looks at it now.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, ShardFile>> {
        self.file.try_lock().ok()
    }
}

impl Slots {
    /// A slot for each of this number of shards; those in `missing` do not exist.
    pub(crate) fn each(shards: usize, missing: &[ShardId]) -> Self {
        let mut slots: Vec<Slot> = std::iter::repeat_with(Slot::default).take(shards).collect();
        for shard in missing {
            if let Some(slot) = slots.get_mut(shard.index()) {
                slot.missing = true;
            }
        }
        Self::Each(slots.into_iter().map(Arc::new).collect())
    }

    /// Slots of the open ones among this number of shards.
    pub(crate) fn open(shards: usize) -> Self {
        Self::Open(OpenSlots { shards, parts: Box::new(std::array::from_fn(|_| Mutex::default())) })
    }

    /// The slot of a shard; `None` if there is no such shard.
    pub(crate) fn get(&self, shard: ShardId) -> Option<Arc<Slot>> {
        match self {
            Self::Each(slots) => slots.get(shard.index()).cloned(),
            Self::Open(slots) if shard.index() >= slots.shards => None,
            Self::Open(slots) => {
                Some(Arc::clone(slots.part(shard.index()).entry(shard.index()).or_default()))
            }
        }
    }

    /// The slot of a shard, if something is known of it.
    pub(crate) fn known(&self, shard: ShardId) -> Option<Arc<Slot>> {
        match self {
            Self::Each(slots) => slots.get(shard.index()).cloned(),
            Self::Open(slots) => slots.part(shard.index()).get(&shard.index()).cloned(),
        }
    }

    /// Asks `close` for the file of a shard, and forgets the shard if it gives one.
    pub(crate) fn close<T>(&self, shard: usize, close: impl FnOnce(&Slot) -> Option<T>) -> Option<T> {
        match self {
            Self::Each(slots) => slots.get(shard).and_then(|slot| close(slot)),
            Self::Open(slots) => {
                let mut part = slots.part(shard);
                // Who has the slot may be about to open the shard. Under this lock nobody else gets
                // it.
                let slot = part.get(&shard).filter(|slot| Arc::strong_count(slot) == 1);
                let closed = slot.and_then(|slot| close(slot));
                let is_suspect = || {
                    part.get(&shard).and_then(|slot| slot.try_lock().map(|file| file.suspect)).unwrap_or(true)
                };
                if closed.is_some() && !is_suspect() {
                    part.remove(&shard);
                }
                closed
            }
        }
    }

    /// Forgets a shard that could not be opened. The caller has one of its slot's handles.
    pub(crate) fn forget(&self, shard: ShardId, file: &ShardFile) {
        if let Self::Open(slots) = self
            && !file.suspect
        {
            let mut part = slots.part(shard.index());
            if part.get(&shard.index()).is_some_and(|slot| Arc::strong_count(slot) <= 2) {
                part.remove(&shard.index());
            }
        }
    }
}

impl OpenSlots {
    fn part(&self, shard: usize) -> MutexGuard<'_, OpenFiles> {
        let [first, ..] = &*self.parts;
        let part = self.parts.get(shard % PARTS).unwrap_or(first);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(slots: &Slots, shards: u32) -> Vec<u32> {
        (0..shards).filter(|&shard| slots.known(ShardId(shard)).is_some()).collect()
    }

    #[test]
    fn of_many_files_only_those_in_use_and_suspects_are_kept() {
        let slots = Slots::open(100);
        assert!(slots.get(ShardId(100)).is_none() && known(&slots, 101).is_empty());
        for shard in [3, 19, 35, 99] {
            slots.get(ShardId(shard)).unwrap();
        }
        slots.get(ShardId(35)).unwrap().lock().suspect = true;
        let held = slots.get(ShardId(99)).unwrap();
        assert!(slots.close(3, |_| None::<()>).is_none() && slots.close(50, |_| Some(1)).is_none());
        assert_eq!(known(&slots, 100), [3, 19, 35, 99]);
        assert_eq!((slots.close(3, |_| Some(1)), slots.close(35, |_| Some(2))), (Some(1), Some(2)));
        assert_eq!(slots.close(99, |_| Some(1)), None, "somebody is about to open it");
        assert_eq!(known(&slots, 100), [19, 35, 99]);
        slots.forget(ShardId(99), &held.lock());
        assert_eq!(known(&slots, 100), [19, 35]);
    }

    #[test]
    fn of_shards_each_is_kept() {
        let slots = Slots::each(3, &[ShardId(1), ShardId(7)]);
        let missing: Vec<bool> = (0..3).map(|id| slots.get(ShardId(id)).unwrap().missing).collect();
        assert_eq!(missing, [false, true, false]);
        assert_eq!((slots.close(2, |_| Some(1)), slots.close(3, |_| Some(1))), (Some(1), None));
        assert_eq!(known(&slots, 5), [0, 1, 2]);
    }
}
