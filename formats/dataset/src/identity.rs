//! Which file a shard's is: enough to tell that another one has taken its place, or that somebody
//! wrote to it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Stat, fstat, stat};
use rustix::io::Errno;

/// A file as it was at one time. Not its device: that is another one after a remount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    pub(crate) bytes: u64,
    /// When its bytes were last changed, since 1970.
    changed: Duration,
}

impl Identity {
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
        }
    }
}

/// What tells that a shard's file is another one than was packed or opened first, or was written
/// to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherFile {
    /// The open file is not the one that was opened first.
    pub(crate) is_certain: bool,
    /// The rest of a sentence that begins with its path.
    pub(crate) why: String,
}

/// What tells that a shard is not as it was packed, or not as it was when it was opened first.
/// `bytes` is its size according to the index, `now` what its path names and what is open. `None`
/// where nothing tells so.
///
/// A time alone proves nothing: a dataset that was copied without its times has shards as new as
/// its index, or newer.
pub(crate) fn what_changed(
    index: Option<Identity>,
    bytes: u64,
    first: Option<Identity>,
    (at_path, open): (Option<Identity>, Option<Identity>),
) -> Option<OtherFile> {
    if let (Some(first), Some(other)) = (first, at_path.or(open))
        && first != other
    {
        let what = if first.inode == other.inode {
            "somebody has written to it"
        } else {
            "another file has taken its place"
        };
        // What is read comes from the open file; the one at the path may be another already, or the
        // repaired one.
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

    fn file(inode: u64, bytes: u64, second: u64) -> Option<Identity> {
        Some(Identity { inode, bytes, changed: Duration::from_secs(second) })
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
            let got = what_changed(index, 512, first, (at_path, open));
            match (&got, expected) {
                (Some(got), Some((is_certain, why))) => {
                    assert!(got.is_certain == is_certain && got.why.contains(why), "{got:?}");
                }
                (got, expected) => assert!(got.is_none() && expected.is_none(), "{got:?} {expected:?}"),
            }
        }
        assert_eq!(what_changed(None, 512, None, (was, was)), None);
    }
}
