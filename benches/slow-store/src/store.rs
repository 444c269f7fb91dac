//! A directory as a file system: asks the real one at once and sends answers over the wire.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use fuser::{
    Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};
use rustix::buffer::spare_capacity;
use rustix::io::pread;

use crate::attributes::{attributes, ttl};
use crate::handles::Handles;
use crate::wire::{Operation, Wire};

/// The kernel's own requests in flight, such as read-ahead. Its default limit is 16.
const BACKGROUND_MAX: u16 = 4096;

/// A bit of the numbers of links that are shown by themselves; file systems count from below.
const LINKS: u64 = 1 << 63;

/// The directory. Inodes keep their numbers, except for the root's, which is 1, and for those of
/// hard links that are shown as files of their own.
#[derive(Debug)]
pub(crate) struct Store {
    wire: Arc<Wire>,
    links_apart: bool,
    paths: RwLock<HashMap<u64, PathBuf>>,
    files: Handles<File>,
    folders: Handles<Vec<Listed>>,
    // How the kernel opens a file.
    opened: FopenFlags,
}

/// One name in a directory.
#[derive(Debug)]
struct Listed {
    number: u64,
    kind: FileType,
    name: OsString,
}

impl Store {
    /// With `no_page_cache` the kernel drops a file's cached contents when the file is opened. With
    /// `links_apart` it caches the contents of a file once for each name.
    pub(crate) fn open(
        root: &Path,
        wire: Arc<Wire>,
        no_page_cache: bool,
        links_apart: bool,
    ) -> io::Result<Self> {
        let paths = RwLock::new(HashMap::from([(INodeNo::ROOT.0, root.canonicalize()?)]));
        let opened = if no_page_cache { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        Ok(Self { wire, links_apart, paths, files: Handles::new(), folders: Handles::new(), opened })
    }

    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        let paths = self.paths.read().unwrap_or_else(PoisonError::into_inner);
        paths.get(&inode.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The number of what has this name, and its attributes.
    fn find(&self, parent: INodeNo, name: &OsStr) -> io::Result<(u64, fs::Metadata)> {
        let path = self.path(parent)?.join(name);
        let metadata = path.symlink_metadata()?;
        let number = self.number(&path, &metadata);
        self.paths.write().unwrap_or_else(PoisonError::into_inner).insert(number, path);
        Ok((number, metadata))
    }

    /// A hash of the path, of the upper half of numbers, for a link that is shown by itself.
    fn number(&self, path: &Path, metadata: &fs::Metadata) -> u64 {
        if !self.links_apart || metadata.is_dir() || metadata.nlink() < 2 {
            return metadata.ino();
        }
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish() | LINKS
    }

    fn list(&self, inode: INodeNo) -> io::Result<Vec<Listed>> {
        let listed = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            Ok(Listed { number: entry.ino(), kind, name: entry.file_name() })
        };
        fs::read_dir(self.path(inode)?)?.map(listed).collect()
    }
}

impl Filesystem for Store {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Otherwise the kernel looks up names of a directory one at a time, as it does not with
        // NFS.
        config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS).map_err(|_| io::ErrorKind::Unsupported)?;
        // Otherwise it sends direct reads that one thread submits one at a time, also unlike NFS.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let arrived = Instant::now();
        let found = self.find(parent, name);
        self.wire.answer(Operation::Lookup, arrived, move || match found {
            Ok((number, found)) => {
                reply.entry(&ttl(&found), &attributes(number, &found), Generation(0));
            }
            Err(error) => reply.error(error.into()),
        });
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let arrived = Instant::now();
        let found = self.path(inode).and_then(|path| path.symlink_metadata());
        self.wire.answer(Operation::Getattr, arrived, move || match found {
            Ok(found) => reply.attr(&ttl(&found), &attributes(inode.0, &found)),
            Err(error) => reply.error(error.into()),
        });
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let arrived = Instant::now();
        let target = self.path(inode).and_then(fs::read_link);
        self.wire.answer(Operation::Readlink, arrived, move || match target {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error.into()),
        });
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let arrived = Instant::now();
        let opened = self.path(inode).and_then(File::open).map(|file| self.files.open(file));
        let flags = self.opened;
        self.wire.answer(Operation::Open, arrived, move || match opened {
            Ok(handle) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(error.into()),
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let arrived = Instant::now();
        let bytes = match self.files.get(handle.0) {
            Some(file) => read_up_to(&file, offset, size as usize),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        self.wire.answer(Operation::Read, arrived, move || match bytes {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.close(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(inode) {
            Ok(names) => {
                let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                reply.opened(FileHandle(self.folders.open(names)), cached);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let arrived = Instant::now();
        let Some(names) = self.folders.get(handle.0) else { return reply.error(Errno::ENOENT) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (listed, next) in names.iter().zip(1_u64..).skip(from) {
            if reply.add(INodeNo(listed.number), next, listed.kind, &listed.name) {
                break;
            }
        }
        if from < names.len() {
            self.wire.answer(Operation::Readdir, arrived, || reply.ok());
        } else {
            // An empty answer costs nothing, as the end came with the last names.
            reply.ok();
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.folders.close(handle.0);
        reply.ok();
    }
}

/// The bytes at `offset`, at most `size`. Memory is not zeroed before: that took 6 % of the
/// store's time.
fn read_up_to(file: &File, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let at = offset + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The memory may be more than was asked for.
    bytes.truncate(size);
    Ok(bytes)
}
