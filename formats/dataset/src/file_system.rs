//! File systems by their magic numbers: the one table of what they mean for reads.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatFs, fstatfs, statfs};
use rustix::io::Errno;

/// Where a file system keeps its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    /// On this machine: no server can change or truncate a file under a mapping.
    Local,
    /// On a server.
    Network,
    /// The layer below may be anything.
    Unknown,
}

/// Magic number, name and locality. The numbers are the kernel's (`linux/magic.h`).
const KNOWN: [(u32, &str, Locality); 9] = [
    (0x6969, "nfs", Locality::Network),
    (0x0bd0_0bd0, "lustre", Locality::Network),
    (0xef53, "ext4", Locality::Local),
    (0x5846_5342, "xfs", Locality::Local),
    (0x9123_683e, "btrfs", Locality::Local),
    (0x0102_1994, "tmpfs", Locality::Local),
    (0x2fc1_2fc1, "zfs", Locality::Unknown),
    (0x794c_7630, "overlayfs", Locality::Unknown),
    (0x6573_5546, "fuse", Locality::Unknown),
];

/// The kind of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    pub(crate) locality: Locality,
}

impl FileSystem {
    /// The file system at `path`.
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
            Some((_, name, locality)) => Self { name: (*name).to_owned(), locality: *locality },
            None => Self { name: format!("file system {magic:#x}"), locality: Locality::Unknown },
        }
    }
}
