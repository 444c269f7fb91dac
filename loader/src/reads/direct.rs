//! Past the page cache or through it: asks the file system once, at start, and says why.

use super::config::IoMode;
use crate::blocks::Arena;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statfs, statx};
use rustix::io::{Errno, pread};
use std::path::Path;

/// Records start at multiples of this and are padded to it, so a direct read may be rounded up to it at most.
const ALIGN_BYTES_MAX: u32 = 512;

/// What a first read tries: aligned for whatever a file system may want.
const PAGE_BYTES: u32 = 4096;

/// How shards are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What offsets and lengths of direct reads must be multiples of, 1 to 512 bytes; `None` is buffered.
    pub direct_align_bytes: Option<u32>,
    /// Why, for the log.
    pub why: String,
}

/// A file system, as far as reading is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSystem {
    name: String,
    network: bool,
    /// What direct reads must be aligned to, if it says so: memory and offset, in bytes.
    align: Option<(u32, u32)>,
}

/// Chooses for the shards in `folder`, of which `shard` is one; `memory_align_bytes` is what blocks are
/// aligned to.
///
/// # Errors
///
/// Direct reads are demanded and impossible; the text says why.
pub fn choose(
    mode: IoMode,
    folder: &Path,
    shard: Option<&Path>,
    memory_align_bytes: u32,
) -> Result<Choice, String> {
    if mode == IoMode::Buffered {
        return Ok(buffered("as asked".into()));
    }
    match inspect(folder, shard) {
        Ok(file_system) => {
            let choice = decide(mode, &file_system, memory_align_bytes)?;
            let refused = match (choice.direct_align_bytes, shard) {
                (Some(_), Some(shard)) => try_direct(shard).err(),
                _ => None,
            };
            match refused {
                Some(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                    let why = format!("{} refuses direct reads: {errno}", file_system.name);
                    if mode == IoMode::Direct { Err(why) } else { Ok(buffered(why)) }
                }
                // Whatever else is wrong with the shard is told when a record of it is read.
                _ => Ok(choice),
            }
        }
        Err(errno) if mode == IoMode::Direct => Err(format!("its file system does not answer: {errno}")),
        Err(errno) => Ok(buffered(format!("the file system does not answer: {errno}"))),
    }
}

fn inspect(folder: &Path, shard: Option<&Path>) -> Result<FileSystem, Errno> {
    let magic = u32::try_from(statfs(folder)?.f_type).unwrap_or_default();
    let (name, network) = match magic {
        0x6969 => ("nfs", true),
        0x0bd0_0bd0 => ("lustre", true),
        0xef53 => ("ext4", false),
        0x5846_5342 => ("xfs", false),
        0x9123_683e => ("btrfs", false),
        0x2fc1_2fc1 => ("zfs", false),
        0x0102_1994 => ("tmpfs", false),
        0x794c_7630 => ("overlayfs", false),
        0x6573_5546 => ("fuse", false),
        _ => ("", false),
    };
    let name = if name.is_empty() { format!("file system {magic:#x}") } else { name.into() };
    let answer = shard.and_then(|path| statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN).ok());
    let align = answer
        .filter(|answer| {
            answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && answer.stx_dio_offset_align > 0
        })
        .map(|answer| (answer.stx_dio_mem_align, answer.stx_dio_offset_align));
    Ok(FileSystem { name, network, align })
}

/// Reads the first page of a shard past the page cache: file systems may accept the flag and refuse the read.
fn try_direct(shard: &Path) -> Result<(), Errno> {
    let no_memory = |_| Errno::NOMEM;
    let (arena, mut free) = Arena::create(PAGE_BYTES.into(), PAGE_BYTES).map_err(no_memory)?;
    let mut page = free.take(PAGE_BYTES.into()).ok_or(Errno::NOMEM)?;
    let file = open(shard, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty())?;
    let mut slices = arena.slices_mut(&mut page, PAGE_BYTES).map_err(|_| Errno::NOMEM)?;
    slices.next().map_or(Ok(()), |slice| pread(&file, slice, 0).map(drop))
}

fn decide(mode: IoMode, file_system: &FileSystem, memory_align_bytes: u32) -> Result<Choice, String> {
    let FileSystem { name, network, align } = file_system;
    let against = match *align {
        Some((_, offset)) if offset > ALIGN_BYTES_MAX => {
            format!("{name} aligns at {offset}, shards at {ALIGN_BYTES_MAX}")
        }
        Some((memory, _)) if memory > memory_align_bytes => {
            format!("{name} wants memory aligned at {memory}, blocks are at {memory_align_bytes}")
        }
        Some((_, offset)) => return Ok(direct(offset, format!("{name} aligns at {offset}"))),
        // A network client keeps its whole depth with direct reads and one kernel worker per read with
        // buffered ones.
        None if *network => return Ok(direct(ALIGN_BYTES_MAX, format!("{name} keeps full depth so"))),
        None if mode == IoMode::Direct => {
            return Ok(direct(ALIGN_BYTES_MAX, format!("as asked, {name} names no alignment")));
        }
        None => format!("{name} names no alignment for direct reads"),
    };
    if mode == IoMode::Direct { Err(against) } else { Ok(buffered(against)) }
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
            (Auto, "ext4", false, Some((512, 512)), Ok(Some(512))),
            (Auto, "xfs", false, Some((4, 1)), Ok(Some(1))),
            (Auto, "ext4", false, Some((4096, 512)), Ok(None)),
            (Auto, "ext4", false, Some((4, 4096)), Ok(None)),
            (Auto, "tmpfs", false, None, Ok(None)),
            (Auto, "nfs", true, None, Ok(Some(512))),
            (Auto, "nfs", true, Some((1, 1)), Ok(Some(1))),
            (Auto, "lustre", true, Some((4096, 4096)), Ok(None)),
            (Direct, "ext4", false, Some((512, 512)), Ok(Some(512))),
            (Direct, "ext4", false, None, Ok(Some(512))),
            (Direct, "ext4", false, Some((4096, 4096)), Err(())),
            (Direct, "ext4", false, Some((1024, 512)), Err(())),
        ];
        for (mode, name, network, align, expected) in table {
            let file_system = FileSystem { name: name.into(), network, align };
            let got = decide(mode, &file_system, 512);
            assert_eq!(
                got.clone().map(|choice| choice.direct_align_bytes).map_err(drop),
                expected,
                "{mode:?} {file_system:?}: {got:?}"
            );
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_read_buffered_unless_direct_is_demanded() {
        let nowhere = Path::new("/nonexistent/shade");
        assert_eq!(choose(IoMode::Auto, nowhere, None, 512).unwrap().direct_align_bytes, None);
        assert!(choose(IoMode::Direct, nowhere, None, 512).is_err());
        assert_eq!(choose(IoMode::Buffered, nowhere, None, 512).unwrap().to_string(), "buffered: as asked");
    }
}
