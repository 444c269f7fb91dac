//! Chooses direct or buffered reads: asks the file system once, at start, tries it, and says why.
//!
//! Direct reads see what every process of this machine has written, also where the file system
//! keeps written pages for a while: the kernel writes those out first. They see what other machines
//! write no later than buffered reads do. Shards never change once they are there, and each record
//! has a checksum.
//!
//! [`FileSystem`] is a mount by its magic number, with the one table of what it means for reads.
//! [`ReadMemory`] is memory that is aligned for direct reads.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, StatFs, StatxFlags, fstatfs, statfs, statx};
use rustix::io::{Errno, pread};
use shade_job::IoMode;

use crate::regular;
use crate::rules::refuses_direct;

/// Records start at multiples of this and are padded to it, so a direct read into a record's memory
/// may be rounded up to it at most.
const ALIGN_BYTES_MAX: u32 = 512;

/// How shards are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What offsets and lengths of direct reads must be multiples of, 1 to 512 bytes; `None` is
    /// buffered.
    pub direct_align_bytes: Option<u32>,
    /// Why, for the log.
    pub why: String,
}

/// Direct reads are demanded and impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read with direct I/O: {why}", folder.display())]
pub struct NotDirect {
    /// The dataset's folder.
    pub folder: PathBuf,
    /// What stands against it.
    pub why: String,
}

/// The file system's alignment of direct reads, if it names one: memory and offset, in bytes.
type Align = Option<(u32, u32)>;

/// Chooses for the shards in `folder`, of which `shard` is one; `memory_align_bytes` is what blocks
/// are aligned to.
///
/// # Errors
///
/// Direct reads are demanded and impossible.
pub fn choose(
    mode: IoMode,
    folder: &Path,
    shard: Option<&Path>,
    memory_align_bytes: u32,
) -> Result<Choice, NotDirect> {
    let choice = match mode {
        IoMode::Buffered => buffered("as asked".into()),
        _ => ask(mode, folder, shard, memory_align_bytes),
    };
    if mode == IoMode::Direct && choice.direct_align_bytes.is_none() {
        return Err(NotDirect { folder: folder.to_owned(), why: choice.why });
    }
    Ok(choice)
}

fn ask(mode: IoMode, folder: &Path, shard: Option<&Path>, memory_align_bytes: u32) -> Choice {
    let file_system = match FileSystem::of_path(folder) {
        Ok(file_system) => file_system,
        Err(errno) => return buffered(format!("its file system does not answer: {errno}")),
    };
    let choice = decide(mode, &file_system, alignment(shard), memory_align_bytes);
    let Some(shard) = shard.filter(|_| choice.direct_align_bytes.is_some()) else {
        // Without a shard nothing can be tried, and the file system has named nothing.
        let is_unknown = choice.direct_align_bytes.is_some() && file_system.locality != Locality::Network;
        let text = || format!("{} names no alignment, and there is no shard to try", file_system.name);
        return if is_unknown && mode == IoMode::Auto { buffered(text()) } else { choice };
    };
    match try_direct(shard) {
        Ok(true) => choice,
        Ok(false) => buffered(format!("{} brings other bytes by direct reads", file_system.name)),
        Err(errno) if refuses_direct(errno) => {
            buffered(format!("{} refuses direct reads: {errno}", file_system.name))
        }
        // Any other fault of the shard is told when a record of it is read.
        Err(_) => choice,
    }
}

fn alignment(shard: Option<&Path>) -> Align {
    let answer = statx(CWD, shard?, AtFlags::empty(), StatxFlags::DIOALIGN).ok()?;
    let is_told = answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && answer.stx_dio_offset_align > 0;
    is_told.then_some((answer.stx_dio_mem_align, answer.stx_dio_offset_align))
}

/// Reads a shard's second 512 bytes past the page cache, into memory that is aligned no better, and
/// through it. Returns whether the bytes are the same. A file system may accept the flag and refuse
/// the read, or such a place.
fn try_direct(shard: &Path) -> Result<bool, Errno> {
    let place = ALIGN_BYTES_MAX as usize;
    let (mut direct, mut buffered) = (ReadMemory::default(), ReadMemory::default());
    let [direct, buffered] = [&mut direct, &mut buffered]
        .map(|memory| memory.aligned(PAGE_BYTES).get_mut(place..2 * place).unwrap_or_default());
    let open = |flags| {
        let opened = regular::open_at(CWD, shard, flags);
        opened.map_err(|fault| Errno::from_io_error(&fault).unwrap_or(Errno::NXIO))
    };
    let read = pread(&open(OFlags::RDONLY | OFlags::DIRECT)?, &mut *direct, place as u64)?;
    let expected = pread(&open(OFlags::RDONLY)?, &mut *buffered, place as u64)?;
    Ok(read == expected && direct == buffered)
}

fn decide(mode: IoMode, file_system: &FileSystem, align: Align, memory_align_bytes: u32) -> Choice {
    let FileSystem { name, locality } = file_system;
    match align {
        Some((_, offset)) if offset > ALIGN_BYTES_MAX => {
            buffered(format!("{name} aligns at {offset}, shards at {ALIGN_BYTES_MAX}"))
        }
        Some((memory, _)) if memory > memory_align_bytes => {
            buffered(format!("{name} wants memory aligned at {memory}, blocks are at {memory_align_bytes}"))
        }
        Some((_, offset)) => direct(offset, format!("{name} aligns at {offset}")),
        // A network client keeps its whole depth with direct reads and one kernel worker per read
        // with buffered ones.
        None if *locality == Locality::Network => {
            direct(ALIGN_BYTES_MAX, format!("{name} keeps full depth so"))
        }
        None if mode == IoMode::Direct => {
            direct(ALIGN_BYTES_MAX, format!("as asked, {name} names no alignment"))
        }
        None => direct(ALIGN_BYTES_MAX, format!("{name} names no alignment, a trial read was good")),
    }
}

fn direct(align_bytes: u32, why: String) -> Choice {
    Choice { direct_align_bytes: Some(align_bytes), why }
}

fn buffered(why: String) -> Choice {
    Choice { direct_align_bytes: None, why }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.direct_align_bytes.is_some() { "direct" } else { "buffered" };
        write!(f, "{how}: {}", self.why)
    }
}

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

/// Largest alignment of memory, offsets and lengths for direct reads: the largest sector and the
/// page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory below this at least doubles, as records differ in length; above it are spans, all of
/// about one length.
const DOUBLED_BYTES_MAX: usize = 1 << 20;

/// Memory for one thread's reads, reused. It grows to the largest read.
#[derive(Debug, Default)]
pub struct ReadMemory {
    /// A page longer than needed, so that it contains an aligned part.
    bytes: Vec<u8>,
}

impl ReadMemory {
    /// Bytes that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// `len` bytes that start at a multiple of [`PAGE_BYTES`], with any content.
    pub(crate) fn aligned(&mut self, len: usize) -> &mut [u8] {
        let needed = len.saturating_add(PAGE_BYTES);
        if self.bytes.len() < needed {
            let twice = 2 * self.bytes.len();
            let grown = if needed < DOUBLED_BYTES_MAX { needed.max(twice) } else { needed };
            // The old content is not needed: it is freed first, and not copied.
            self.bytes = Vec::new();
            self.bytes = vec![0; grown];
        }
        let start = self.bytes.as_ptr().align_offset(PAGE_BYTES);
        self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_decides() {
        use IoMode::{Auto, Direct};
        let table = [
            (Auto, "ext4", false, Some((512, 512)), Some(512)),
            (Auto, "xfs", false, Some((4, 1)), Some(1)),
            (Auto, "ext4", false, Some((4096, 512)), None),
            (Auto, "ext4", false, Some((4, 4096)), None),
            (Auto, "tmpfs", false, None, Some(512)),
            (Auto, "fuse", false, None, Some(512)),
            (Auto, "nfs", true, None, Some(512)),
            (Auto, "nfs", true, Some((1, 1)), Some(1)),
            (Auto, "lustre", true, Some((4096, 4096)), None),
            (Direct, "ext4", false, Some((512, 512)), Some(512)),
            (Direct, "ext4", false, None, Some(512)),
            (Direct, "ext4", false, Some((4096, 4096)), None),
            (Direct, "ext4", false, Some((1024, 512)), None),
        ];
        for (mode, name, network, align, expected) in table {
            let locality = if network { Locality::Network } else { Locality::Local };
            let file_system = FileSystem { name: name.into(), locality };
            let got = decide(mode, &file_system, align, 512);
            assert_eq!(got.direct_align_bytes, expected, "{mode:?} {file_system:?}: {got}");
        }
    }

    #[test]
    fn a_trial_read_brings_what_is_in_the_file_or_the_reason_why_not() {
        let temp = tempfile::tempdir().unwrap();
        for len in [0, 512, 700, 1024, 4096, 100_000] {
            let path = temp.path().join(format!("{len}"));
            let bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
            std::fs::write(&path, bytes).unwrap();
            match try_direct(&path) {
                Ok(is_same) => assert!(is_same, "{len}"),
                Err(errno) => assert!(refuses_direct(errno), "{len}: {errno}"),
            }
            // It was written a moment ago, so the page cache has what the disk may not have.
            let choice = choose(IoMode::Auto, temp.path(), Some(&path), 512).unwrap();
            assert_eq!(choice.direct_align_bytes.is_some(), choice.to_string().starts_with("direct: "));
        }
        assert_eq!(choose(IoMode::Auto, temp.path(), None, 4096).unwrap().direct_align_bytes, None);
        let is_refusal = try_direct(temp.path()).is_err_and(refuses_direct);
        assert!(!is_refusal, "a folder says nothing of direct reads");
    }

    #[test]
    fn a_folder_that_is_not_there_is_read_buffered_unless_direct_is_demanded() {
        let nowhere = Path::new("/nonexistent/shade");
        assert_eq!(choose(IoMode::Auto, nowhere, None, 512).unwrap().direct_align_bytes, None);
        assert!(choose(IoMode::Direct, nowhere, None, 512).is_err());
        assert_eq!(choose(IoMode::Buffered, nowhere, None, 512).unwrap().to_string(), "buffered: as asked");
    }

    #[test]
    fn memory_is_aligned_whatever_it_held() {
        let mut memory = ReadMemory::default();
        for len in [0, 1, 4096, 100, 70_000, 512] {
            let room = memory.aligned(len);
            assert_eq!((room.len(), room.as_ptr().align_offset(PAGE_BYTES)), (len, 0));
        }
        assert!(memory.capacity() > 70_000);
    }
}
