//! The state of a source file: equal before and after a read if nobody wrote to it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::time::{ClockId, clock_gettime};
use shade_dataset::regular;
use shade_formats::SampleId;

use crate::catalogue::{Catalogue, SampleStore};
use crate::source::image_folder::changed_ns;

/// A file that was touched within this time may be in the midst of a write. A write leaves its time
/// stamp when it begins, and on a busy machine its process may have to wait before it ends. Two
/// writes within a tick of the clock, at most 10 ms, have one stamp, too.
const SETTLED_NS: i64 = 200_000_000;

/// Length and times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) bytes: i64,
    /// When its content was last changed, in nanoseconds since 1970. A user may set it back.
    pub(super) changed_ns: i64,
    /// When its content or anything else of it was last changed. Nobody can set it.
    touched_ns: i64,
}

impl FileState {
    /// The present state, from which every later write differs. A file that is being written to
    /// has changed already when this returns.
    pub(super) fn settled(file: &File) -> io::Result<Self> {
        let state = Self::now(file)?;
        let age_ns = now_ns().saturating_sub(state.changed_ns.max(state.touched_ns));
        if (0..SETTLED_NS).contains(&age_ns) {
            std::thread::sleep(Duration::from_nanos(SETTLED_NS.abs_diff(age_ns)));
        }
        Ok(state)
    }

    pub(super) fn now(file: &File) -> io::Result<Self> {
        let found = fstat(file)?;
        let nanoseconds = i64::try_from(found.st_ctime_nsec).unwrap_or_default();
        Ok(Self {
            bytes: found.st_size,
            changed_ns: changed_ns(&found),
            touched_ns: found.st_ctime.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        })
    }
}

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// The tars that a run reads. It may take hours, and what was read counts only if each tar is at
/// the end what it was at the beginning.
#[derive(Debug)]
pub(super) struct RunTars<'a> {
    catalogue: &'a Catalogue,
    /// The state of each tar when the run began; none for one that cannot be opened.
    tars: BTreeMap<&'a Path, Option<FileState>>,
}

impl<'a> RunTars<'a> {
    /// The tars of these samples.
    pub(super) fn of(catalogue: &'a Catalogue, samples: impl Iterator<Item = SampleId>) -> Self {
        let mut tars = BTreeMap::new();
        if catalogue.stores.iter().any(|store| matches!(store, SampleStore::Container(_))) {
            for sample in samples.filter_map(|id| catalogue.sample(id)) {
                if let SampleStore::Container(tar) = sample.store {
                    tars.entry(tar.as_path()).or_insert_with(|| state_of(tar));
                }
            }
        }
        Self { catalogue, tars }
    }

    /// The tars that were written to since. One that is gone was not.
    pub(super) fn changed(&self) -> BTreeSet<&'a Path> {
        let is_changed = |(tar, before): &(&&Path, &Option<FileState>)| {
            before.zip(state_of(tar)).is_some_and(|(before, now)| before != now)
        };
        self.tars.iter().filter(is_changed).map(|(tar, _)| *tar).collect()
    }

    /// Whether a sample lies in one of these tars.
    pub(super) fn is_in(&self, sample: SampleId, tars: &BTreeSet<&Path>) -> bool {
        self.catalogue.sample(sample).is_some_and(|sample| match sample.store {
            SampleStore::Container(tar) => tars.contains(tar.as_path()),
            SampleStore::Folder(_)
            | SampleStore::Piece { .. }
            | SampleStore::Bucket(_)
            | SampleStore::BucketTar(_) => false,
        })
    }
}

/// The state of a file that is opened for this: on network file systems only that tells of other
/// machines' writes.
fn state_of(path: &Path) -> Option<FileState> {
    regular::open(path).and_then(|file| FileState::now(&file)).ok()
}
