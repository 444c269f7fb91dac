//! File systems by their magic numbers: the one table of what they mean for reading.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatFs, fstatfs, statfs};
use rustix::io::Errno;

/// Where a file system keeps its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this machine: no server can change or cut a file under a mapping.
    Local,
    /// On a server.
    Network,
    /// What lies below may be anything.
    Unknown,
}

/// Magic number, name and place. The numbers are the kernel's (`linux/magic.h`).
const KNOWN: [(u32, &str, Place); 9] = [
    (0x6969, "nfs", Place::Network),
    (0x0bd0_0bd0, "lustre", Place::Network),
    (0xef53, "ext4", Place::Local),
    (0x5846_5342, "xfs", Place::Local),
    (0x9123_683e, "btrfs", Place::Local),
    (0x0102_1994, "tmpfs", Place::Local),
    (0x2fc1_2fc1, "zfs", Place::Unknown),
    (0x794c_7630, "overlayfs", Place::Unknown),
    (0x6573_5546, "fuse", Place::Unknown),
];

/// The kind of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl FileSystem {
    /// The file system of what lies at `path`.
    pub(crate) fn of_path(path: &Path) -> Result<Self, Errno> {
        statfs(path).map(|status| Self::of(&status))
    }

    /// The file system of an open file.
    pub(crate) fn of_file(file: impl AsFd) -> Result<Self, Errno> {
        fstatfs(file).map(|status| Self::of(&status))
    }

    fn of(status: &StatFs) -> Self {
        let magic = u32::try_from(status.f_type).unwrap_or_default();
        match KNOWN.iter().find(|(known, ..)| *known == magic) {
            Some((_, name, place)) => Self { name: (*name).to_owned(), place: *place },
            None => Self { name: format!("file system {magic:#x}"), place: Place::Unknown },
        }
    }
}
