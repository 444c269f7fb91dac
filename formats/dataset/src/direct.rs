//! Chooses direct or buffered reads: asks the file system once, at start, tries it, and says why.
//!
//! Direct reads see what every process of this machine has written, also where the file system
//! keeps written pages for a while: the kernel writes those out first. They see what other machines
//! write no later than buffered reads do. Shards never change once they are there, and each record
//! has a checksum.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, statx};
use rustix::io::{Errno, pread};
use shade_job::IoMode;

use crate::file_system::{FileSystem, Locality};
use crate::memory::{PAGE_BYTES, ReadMemory};
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
}
