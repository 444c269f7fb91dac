//! Which file a shard's is: enough to tell that another one has taken its place, or that somebody wrote to it.

use rustix::fs::{Stat, fstat, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A file as it was at one time. Not its device: that is another one after a remount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    pub(super) bytes: u64,
    /// When its bytes were last changed, since 1970.
    changed: Duration,
}

impl Identity {
    pub(super) fn of_path(path: &Path) -> Result<Self, Errno> {
        stat(path).map(|stat| Self::of(&stat))
    }

    pub(super) fn of_file(fd: &OwnedFd) -> Result<Self, Errno> {
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

/// What tells that a shard is not as it was packed, or not as it was when it was opened first. `bytes` is its size
/// according to the index, `now` what its path names and what is open. `None` where nothing tells so.
pub(super) fn what_changed(
    index: Option<Identity>,
    bytes: u64,
    first: Option<Identity>,
    (at_path, open): (Option<Identity>, Option<Identity>),
) -> Option<String> {
    if let (Some(first), Some(other)) = (first, at_path.or(open))
        && first != other
    {
        return Some(if first.inode == other.inode {
            "somebody has written to it since it was opened".to_owned()
        } else {
            "another file has taken its place since it was opened".to_owned()
        });
    }
    let now = open.or(at_path)?;
    if now.bytes != bytes {
        return Some(format!("it has {} bytes, the index says {bytes}", now.bytes));
    }
    let later = now.changed.checked_sub(index?.changed).filter(|later| !later.is_zero())?;
    Some(format!("it is newer than the dataset's index, by {:.1} s", later.as_secs_f64()))
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
            (was, file(3, 512, 90), was, Some("another file has taken its place")),
            // Opened anew after it went stale: both are the other file.
            (was, file(3, 512, 90), file(3, 512, 90), Some("another file has taken its place")),
            (was, file(2, 512, 101), file(2, 512, 101), Some("written to it")),
            (None, file(2, 1024, 90), file(2, 1024, 90), Some("1024 bytes, the index says 512")),
            (None, file(3, 512, 103), file(3, 512, 103), Some("newer than the dataset's index, by 3.0 s")),
            (None, file(3, 512, 100), file(3, 512, 100), None),
            (was, None, was, None),
            (None, None, None, None),
        ];
        for (first, at_path, open, expected) in table {
            let got = what_changed(index, 512, first, (at_path, open));
            match (&got, expected) {
                (Some(got), Some(expected)) => assert!(got.contains(expected), "{got}"),
                (got, expected) => assert_eq!(got.as_deref(), expected),
            }
        }
        assert_eq!(what_changed(None, 512, None, (was, was)), None);
    }
}
