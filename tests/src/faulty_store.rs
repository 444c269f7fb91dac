//! A directory shown through FUSE, where opens and reads of shards fail on request.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{
    BackgroundSession, Config, Errno as FuseErrno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::left_out;

/// A mounted store. It is unmounted when dropped.
pub struct FaultyStore {
    faults: Arc<Mutex<Faults>>,
    // Dropped before the folder that it is mounted on.
    _session: BackgroundSession,
    mountpoint: TempDir,
}

/// What happens to requests for shards.
#[derive(Default)]
struct Faults {
    opens: VecDeque<Errno>,
    reads: VecDeque<Errno>,
    /// Every read of more than a page returns half.
    short: bool,
    refuses_direct: bool,
    /// Every read that covers this byte of a shard fails.
    lost: Option<u64>,
    opened: usize,
    opened_direct: usize,
    read: usize,
}

impl FaultyStore {
    /// Shows `source`. Where nothing can be mounted it says why and returns `None`.
    #[must_use]
    pub fn mount(source: &Path) -> Option<Self> {
        let mountpoint = tempfile::Builder::new().prefix("faulty-").tempdir().unwrap();
        let faults = Arc::<Mutex<Faults>>::default();
        let paths = Mutex::new(HashMap::from([(INodeNo::ROOT.0, source.to_owned())]));
        let mut options = Config::default();
        options.mount_options = vec![MountOption::RO, MountOption::FSName("faulty-store".to_owned())];
        let store = Store { faults: Arc::clone(&faults), paths };
        match fuser::spawn_mount(store, mountpoint.path(), &options) {
            Ok(session) => Some(Self { faults, _session: session, mountpoint }),
            Err(error) => {
                left_out(&format!("nothing can be mounted here: {error}"));
                None
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    /// The next opens of shards fail, each with one of `errnos`.
    pub fn fail_opens(&self, errnos: &[Errno]) {
        lock(&self.faults).opens.extend(errnos);
    }

    /// The next reads of shards fail, each with one of `errnos`.
    pub fn fail_reads(&self, errnos: &[Errno]) {
        lock(&self.faults).reads.extend(errnos);
    }

    /// Reads of more than a page of a shard return half.
    pub fn shorten_reads(&self) {
        lock(&self.faults).short = true;
    }

    /// Reads past the page cache are refused.
    pub fn refuse_direct(&self) {
        lock(&self.faults).refuses_direct = true;
    }

    /// The byte `at` of every shard is lost.
    pub fn lose(&self, at: u64) {
        lock(&self.faults).lost = Some(at);
    }

    /// The number of faults still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        let faults = lock(&self.faults);
        faults.opens.len() + faults.reads.len()
    }

    /// How often shards were opened, in all and for direct reads.
    #[must_use]
    pub fn opened(&self) -> (usize, usize) {
        let faults = lock(&self.faults);
        (faults.opened, faults.opened_direct)
    }

    /// Number of reads of shards.
    #[must_use]
    pub fn read(&self) -> usize {
        lock(&self.faults).read
    }
}

struct Store {
    faults: Arc<Mutex<Faults>>,
    paths: Mutex<HashMap<u64, PathBuf>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_shard(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar")
}

fn fuse(errno: Errno) -> FuseErrno {
    FuseErrno::from_i32(errno.raw_os_error())
}

impl Store {
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        lock(&self.paths).get(&inode.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> io::Result<Metadata> {
        let path = self.path(parent)?.join(name);
        let metadata = fs::metadata(&path)?;
        lock(&self.paths).insert(metadata.ino(), path);
        Ok(metadata)
    }

    fn read_shard(
        &self,
        path: &Path,
        offset: u64,
        size: usize,
        is_direct: bool,
    ) -> Result<Vec<u8>, FuseErrno> {
        let mut faults = lock(&self.faults);
        faults.read += 1;
        if is_direct && faults.refuses_direct {
            return Err(fuse(Errno::INVAL));
        }
        if let Some(errno) = faults.reads.pop_front() {
            return Err(fuse(errno));
        }
        if faults.lost.is_some_and(|at| (offset..offset + size as u64).contains(&at)) {
            return Err(fuse(Errno::IO));
        }
        let size = if faults.short && size > 4096 { size / 2 } else { size };
        drop(faults);
        read(path, offset, size).map_err(Into::into)
    }
}

fn read(path: &Path, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let (file, mut bytes) = (File::open(path)?, vec![0; size]);
    let len = file.read_at(&mut bytes, offset)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn attributes(inode: u64, metadata: &Metadata) -> FileAttr {
    let modified = metadata.modified().unwrap();
    FileAttr {
        ino: INodeNo(inode),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind: if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: if metadata.is_dir() { 0o755 } else { 0o644 },
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Store {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(found) => reply.entry(&Duration::ZERO, &attributes(found.ino(), &found), Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(inode).and_then(fs::metadata) {
            Ok(found) => reply.attr(&Duration::ZERO, &attributes(inode.0, &found)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.path(inode).is_ok_and(|path| is_shard(&path)) {
            let mut faults = lock(&self.faults);
            if let Some(errno) = faults.opens.pop_front() {
                return reply.error(fuse(errno));
            }
            faults.opened += 1;
            faults.opened_direct += usize::from(is_direct(flags));
        }
        // So that each read is a request, also a buffered one.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = self.path(inode).map_err(Into::into).and_then(|path| match is_shard(&path) {
            true => self.read_shard(&path, offset, size as usize, is_direct(flags)),
            false => read(&path, offset, size as usize).map_err(Into::into),
        });
        match bytes {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

fn is_direct(flags: OpenFlags) -> bool {
    flags.0 & libc::O_DIRECT != 0
}
