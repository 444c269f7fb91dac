//! The identity of a shard's file: enough to tell that another one has taken its place, or that it
//! was written to.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Stat, fstat, stat};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

/// A file's inode, size and time at one moment. Not its device, which changes with a remount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    inode: u64,
    pub(crate) bytes: u64,
    /// Time of its last change, since 1970.
    changed: Duration,
    /// The same, as an index has it.
    pub(crate) changed_ns: i64,
}

impl FileIdentity {
    pub(crate) fn of_path(path: &Path) -> Result<Self, Errno> {
        stat(path).map(|stat| Self::of(&stat))
    }

    pub(crate) fn of_file(fd: &OwnedFd) -> Result<Self, Errno> {
        fstat(fd).map(|stat| Self::of(&stat))
    }

    fn of(stat: &Stat) -> Self {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        Self {
            inode: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            changed: Duration::new(seconds, nanoseconds),
            changed_ns: changed_ns(stat),
        }
    }
}

/// When a file was last changed, in nanoseconds since 1970, as an index of places has it.
#[must_use]
pub fn changed_ns(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// The version of an object, by its ETag: 64 bits of a hash of it, which take the place of a file's
/// time of change wherever one is kept. Stores quote an ETag in some answers and not in others.
#[must_use]
pub fn version_of(etag: &str) -> i64 {
    xxh3_64(etag.trim_matches('"').as_bytes()).cast_signed()
}

/// Evidence that a shard's file is not the one that was packed or opened first, or was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherFile {
    /// The open file is not the one that was opened first.
    pub(crate) is_certain: bool,
    /// The rest of a sentence that begins with its path.
    pub(crate) why: String,
}

/// Evidence that a shard is not as it was packed, or as it was when first opened; `None` without
/// any. `bytes` is its size according to the index; the last argument has the file at its path and
/// the open one.
///
/// A time alone proves nothing: in a dataset that was copied without times, shards are as new as
/// the index, or newer.
pub(crate) fn what_changed(
    index: Option<FileIdentity>,
    bytes: u64,
    first: Option<FileIdentity>,
    at_path: Option<FileIdentity>,
    open: Option<FileIdentity>,
) -> Option<OtherFile> {
    if let (Some(first), Some(other)) = (first, at_path.or(open))
        && first != other
    {
        let what = if first.inode == other.inode {
            "somebody has written to it"
        } else {
            "another file has taken its place"
        };
        // Reads come from the open file; the one at the path may be another, or made again.
        let is_certain = open.is_some_and(|open| open.inode != first.inode);
        return Some(OtherFile {
            is_certain,
            why: format!("was replaced or changed: {what} since it was opened"),
        });
    }
    let now = open.or(at_path)?;
    let perhaps = |why| Some(OtherFile { is_certain: false, why });
    if now.bytes != bytes {
        return perhaps(format!(
            "was replaced or changed: it has {} bytes, the index says {bytes}",
            now.bytes
        ));
    }
    let later = now.changed.checked_sub(index?.changed).filter(|later| !later.is_zero())?;
    perhaps(format!(
        "is perhaps another file: it is newer than the dataset's index, by {:.1} s",
        later.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64, bytes: u64, second: u64) -> Option<FileIdentity> {
        let changed_ns = i64::try_from(second).unwrap() * 1_000_000_000;
        Some(FileIdentity { inode, bytes, changed: Duration::from_secs(second), changed_ns })
    }

    #[test]
    fn a_version_does_not_depend_on_quotes_and_never_changes() {
        assert_eq!(version_of("\"abc\""), version_of("abc"));
        assert_ne!(version_of("abc"), version_of("abd"));
        assert_ne!(version_of("abc-1"), version_of("abc-2"));
        // Indexes keep it.
        assert_eq!(version_of("d41d8cd98f00b204e9800998ecf8427e"), -676_557_783_545_476_959);
    }

    #[test]
    fn each_change_has_its_own_words() {
        let index = file(1, 9, 100);
        let was = file(2, 512, 90);
        let table = [
            (was, was, was, None),
            (None, was, was, None),
            (
                was,
                file(3, 512, 90),
                was,
                Some((false, "replaced or changed: another file has taken its place")),
            ),
            // Opened anew after it went stale: both are the other file.
            (
                was,
                file(3, 512, 90),
                file(3, 512, 90),
                Some((true, "changed: another file has taken its place")),
            ),
            (was, None, file(3, 512, 90), Some((true, "changed: another file has taken its place"))),
            (was, file(2, 512, 101), file(2, 512, 101), Some((false, "replaced or changed: somebody"))),
            (
                None,
                file(2, 1024, 90),
                file(2, 1024, 90),
                Some((false, "changed: it has 1024 bytes, the index")),
            ),
            // Copied without times, the index first.
            (
                None,
                file(3, 512, 103),
                file(3, 512, 103),
                Some((false, "is perhaps another file: it is newer")),
            ),
            (None, file(3, 512, 100), file(3, 512, 100), None),
            (was, None, was, None),
            (None, None, None, None),
        ];
        for (first, at_path, open, expected) in table {
            let got = what_changed(index, 512, first, at_path, open);
            match (&got, expected) {
                (Some(got), Some((is_certain, why))) => {
                    assert!(got.is_certain == is_certain && got.why.contains(why), "{got:?}");
                }
                (got, expected) => assert!(got.is_none() && expected.is_none(), "{got:?} {expected:?}"),
            }
        }
        assert_eq!(what_changed(None, 512, None, was, was), None);
    }
}
