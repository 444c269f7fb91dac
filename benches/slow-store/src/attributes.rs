//! Attributes for the kernel, and how long it may use them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};

/// NFS's `acregmin` and `acdirmin`: how long the kernel uses attributes that have not changed
/// lately.
const FILE_TTL: Duration = Duration::from_secs(3);
const FOLDER_TTL: Duration = Duration::from_secs(30);

/// How long the kernel may use these attributes.
pub(crate) fn ttl(metadata: &Metadata) -> Duration {
    if metadata.is_dir() { FOLDER_TTL } else { FILE_TTL }
}

/// The attributes, with the kernel's number for the inode.
pub(crate) fn attributes(number: u64, metadata: &Metadata) -> FileAttr {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(number),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or_default(),
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
