//! Tells what earlier runs left unfinished from what is the user's, and removes it. Nothing else in
//! the packer removes what its own process has not made.
//!
//! A folder beside OUT is a leftover if all of this holds: its name is `OUT.part-` and a name of
//! ours to the last character; it is a folder, no link, and our user's; the [`MARKER`] that was
//! made with it names it; it holds nothing but what a pack makes. So is an empty one of a process,
//! which was killed before it wrote a marker. In a dataset's own folder a file
//! is a leftover if it is no link, has one of our names to the last character and, where others may
//! use such a name, content of ours.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use shade_dataset::regular;
use shade_formats::index::{HEADER_BYTES, INDEX_FILE, Index};

use crate::claim::CLAIM_FILE;
use crate::error::Error;
use crate::files;
use crate::interrupt::step;
use crate::owner::Owner;
use crate::plan::{PLAN_FILE, UPLOAD, shard_number};
use crate::times::TIMES_FILE;

/// The file that a folder of unfinished work has from its first moment on.
pub(crate) const MARKER: &str = "dataset.unfinished";
/// What it begins with; the folder's name and its process follow, a line each, then the splits.
const MARKER_MAGIC: &str = "shade-pack unfinished 1";
/// Longest marker that is read: a name has 255 bytes, and there may be hundreds of splits.
const MARKER_BYTES_MAX: u64 = 1 << 20;
/// What the plan's file begins with.
pub(crate) const PLAN_MAGIC: &str = "shade-pack plan ";

/// A folder that is made and removed at once, to see which mode folders get here.
pub(crate) const MODE_PROBE: &str = ".mode";
/// A file that is created and removed at once.
pub(crate) const PROBE: &str = "probe";

/// What stands between OUT's name and that of the work.
const PART: &str = ".part-";
/// Hexadecimal digits of a work's id.
const ID_DIGITS: usize = 16;
/// Most digits of a process id.
const PROCESS_DIGITS_MAX: usize = 10;

/// Times that a folder is emptied: another machine may put its last file there meanwhile.
const ROUNDS_MAX: usize = 8;

/// What a folder of unfinished work holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Shards and what belongs to them, of one dataset or of these splits.
    Pack(Vec<String>),
    /// Any folders and files.
    Tree,
}

/// What is known of a folder whose name is one of ours.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It may be removed.
    Leftover(Content),
    /// It has our marker, and something that is not ours: its path in the folder.
    Mixed(PathBuf),
    /// It is not known to be ours.
    Foreign,
}

impl Content {
    /// Whether a pack makes a thing of this name and kind. `depth` is 0 for the folder itself.
    fn has(&self, name: &OsStr, kind: FileType, depth: usize) -> bool {
        let Self::Pack(splits) = self else { return true };
        let Some(name) = name.to_str() else { return false };
        match kind {
            FileType::Directory => {
                depth == 0 && (name == MODE_PROBE || splits.iter().any(|split| split == name))
            }
            FileType::RegularFile => is_own(name),
            // `subset --symlink` makes such shards. What they point to stays.
            FileType::Symlink => shard_number(name).is_some(),
            _ => false,
        }
    }

    /// The first thing below `folder` that no pack makes, by its path there.
    pub(crate) fn foreign(&self, folder: BorrowedFd<'_>) -> io::Result<Option<PathBuf>> {
        self.foreign_at(folder, 0)
    }

    fn foreign_at(&self, folder: BorrowedFd<'_>, depth: usize) -> io::Result<Option<PathBuf>> {
        for (name, kind) in entries(folder)? {
            if !self.has(&name, kind, depth) {
                return Ok(Some(name.into()));
            }
            if kind.is_dir()
                && let Some(inner) = self.foreign_at(open_below(folder, &name)?.as_fd(), depth + 1)?
            {
                return Ok(Some(Path::new(&name).join(inner)));
            }
        }
        Ok(None)
    }

    /// Removes all that a pack makes below `folder`, the marker last: a folder that is emptied by
    /// half stays a leftover. Follows no link.
    fn empty(&self, folder: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for (name, kind) in entries(folder)? {
            if (depth == 0 && name == MARKER) || !self.has(&name, kind, depth) {
                continue;
            }
            let flags = if kind.is_dir() {
                self.empty(open_below(folder, &name)?.as_fd(), depth + 1)?;
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            unless_gone(unlinkat(folder, &name, flags))?;
            step();
        }
        Ok(())
    }

    /// Removes the folder at `path`, which is open, and what a pack has made in it. Anything else
    /// stays, and the folder with it.
    pub(crate) fn remove(&self, path: &Path, folder: BorrowedFd<'_>) -> io::Result<()> {
        for _ in 0..ROUNDS_MAX {
            self.empty(folder, 0)?;
            unless_gone(unlinkat(folder, MARKER, AtFlags::empty()))?;
            match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                removed => return Ok(unless_gone(removed)?),
            }
        }
        Err(Errno::NOTEMPTY.into())
    }
}

/// Whether there is nothing in a folder.
pub(crate) fn is_empty(folder: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(entries(folder)?.is_empty())
}

/// The names and kinds of what is in a folder.
fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                found => FileType::from_raw_mode(found?.st_mode),
            },
            kind => kind,
        };
        found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
    }
    Ok(found)
}

fn open_below(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Opens a folder of unfinished work, which is no link.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    open_below(CWD, path.as_os_str())
}

fn unless_gone(done: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Marks a folder as unfinished work of this content, if it is not marked yet.
pub(crate) fn mark(path: &Path, folder: BorrowedFd<'_>, content: &Content) -> Result<(), Error> {
    let marker = path.join(MARKER);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat(folder, MARKER, flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) => return Ok(()),
        created => fs::File::from(created.map_err(|errno| Error::io("create", &marker)(errno.into()))?),
    };
    let mut text = marker_head(path);
    let splits = if let Content::Pack(splits) = content { splits.as_slice() } else { &[] };
    for line in std::iter::once(&Owner::current().name()).chain(splits) {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    file.write_all(&text).and_then(|()| files::close(file)).map_err(Error::io("write", &marker))
}

fn marker_head(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [MARKER_MAGIC.as_bytes(), b"\n", name, b"\n"].concat()
}

/// What a marker says.
struct Marker {
    /// The process that made the folder.
    owner: String,
    splits: Vec<String>,
}

/// The marker in the folder at `path`; `None` without one that names it.
fn read_marker(path: &Path, folder: BorrowedFd<'_>) -> Option<Marker> {
    let file = regular::open_at(folder, Path::new(MARKER), OFlags::RDONLY | OFlags::NOFOLLOW).ok()?;
    let mut text = Vec::new();
    fs::File::from(file).take(MARKER_BYTES_MAX).read_to_end(&mut text).ok()?;
    let rest = std::str::from_utf8(text.strip_prefix(marker_head(path).as_slice())?).ok()?;
    let mut lines = rest.lines().map(str::to_owned);
    Some(Marker { owner: lines.next()?, splits: lines.collect() })
}

/// Whether the marker that was made with the folder at `path` is in it.
pub(crate) fn is_marked(path: &Path, folder: BorrowedFd<'_>) -> bool {
    read_marker(path, folder).is_some()
}

/// Judges a folder whose name is one of ours. `user` is the one to whom files of ours belong there.
pub(crate) fn standing(path: &Path, user: u32) -> Result<Standing, Error> {
    let Ok(folder) = open_folder(path) else { return Ok(Standing::Foreign) };
    let look = Error::io("look at", path);
    if fstat(&folder).map_err(|errno| look(errno.into()))?.st_uid != user {
        return Ok(Standing::Foreign);
    }
    let Some(Marker { splits, .. }) = read_marker(path, folder.as_fd()) else {
        return Ok(Standing::Foreign);
    };
    let content = Content::Pack(splits);
    let foreign = content.foreign(folder.as_fd()).map_err(Error::io("list", path))?;
    Ok(foreign.map_or(Standing::Leftover(content), Standing::Mixed))
}

/// Removes the leftover at `path` of a process that is gone, with which nobody goes on. Whatever is
/// not known to be one stays.
pub(crate) fn remove_of_the_dead(path: &Path, user: u32) -> Result<(), Error> {
    let content = match standing(path, user)? {
        Standing::Leftover(content) => content,
        Standing::Foreign => return remove_unbegun(path, user),
        Standing::Mixed(_) => return Ok(()),
    };
    let folder = open_folder(path).map_err(Error::io("open", path))?;
    let marker = read_marker(path, folder.as_fd());
    if marker.is_some_and(|marker| Owner::current().knows_name_to_be_gone(&marker.owner)) {
        content.remove(path, folder.as_fd()).map_err(Error::io("remove", path))?;
    }
    Ok(())
}

/// Removes a folder of our name in which nothing is, or a marker without a byte: a process was
/// killed that had just made it. One command at a time makes OUT, and this process has the right
/// to: so no other one is about to mark it.
fn remove_unbegun(path: &Path, user: u32) -> Result<(), Error> {
    let Ok(folder) = open_folder(path) else { return Ok(()) };
    let of = |found: rustix::io::Result<rustix::fs::Stat>| {
        found.map_err(|errno| Error::io("look at", path)(errno.into()))
    };
    let listed = entries(folder.as_fd()).map_err(Error::io("list", path))?;
    let is_unmarked = match listed.as_slice() {
        [] => true,
        [(name, FileType::RegularFile)] if name == MARKER => {
            of(statat(&folder, MARKER, AtFlags::SYMLINK_NOFOLLOW))?.st_size == 0
        }
        _ => false,
    };
    if is_unmarked && of(fstat(&folder))?.st_uid == user {
        let nothing = Content::Pack(Vec::new());
        nothing.remove(path, folder.as_fd()).map_err(Error::io("remove", path))?;
    }
    Ok(())
}

/// Whose name a folder beside OUT has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkName {
    /// Work that can be gone on with: an id, of sources and options.
    Id,
    /// Work of one process.
    Process,
}

/// `OUT.part-NAME`.
pub(crate) fn work_folder(out: &Path, name: &str) -> PathBuf {
    let mut folder = out.file_name().unwrap_or_default().to_owned();
    folder.push(PART);
    folder.push(name);
    out.with_file_name(folder)
}

/// The name of the work whose folder beside `out` has this name; `None` for all others.
pub(crate) fn work_name<'n>(out: &Path, folder: &'n OsStr) -> Option<(WorkName, &'n str)> {
    let rest = folder.as_bytes().strip_prefix(out.file_name()?.as_bytes())?;
    let name = std::str::from_utf8(rest.strip_prefix(PART.as_bytes())?).ok()?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if name.len() == ID_DIGITS && name.bytes().all(is_hex) {
        return Some((WorkName::Id, name));
    }
    let (process, number) = name.split_once('+').unwrap_or((name, "0"));
    let is_number = |text: &str| {
        (1..=PROCESS_DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    (is_number(process) && is_number(number)).then_some((WorkName::Process, name))
}

/// Whether a file of this name is one that only the packer writes into its own folders.
fn is_own(name: &str) -> bool {
    is_final(name) || temporary(name).is_some()
}

fn is_final(name: &str) -> bool {
    [INDEX_FILE, TIMES_FILE, PLAN_FILE, MARKER, CLAIM_FILE, PROBE].contains(&name)
        || shard_number(name).is_some()
        || done_shard(name).is_some()
        || uploaded(name).is_some()
}

/// The file whose upload to a bucket is remembered by a file of this name.
pub(crate) fn uploaded(name: &str) -> Option<&str> {
    let file = name.strip_suffix(UPLOAD)?;
    ([INDEX_FILE, TIMES_FILE].contains(&file) || shard_number(file).is_some()).then_some(file)
}

/// The record of completion of the shard of this name.
pub(crate) fn done_of(folder: &Path, shard: &str) -> PathBuf {
    folder.join(format!("{shard}.done"))
}

/// The shard whose record of completion has this name.
pub(crate) fn done_shard(name: &str) -> Option<u32> {
    shard_number(name.strip_suffix(".done")?)
}

/// The process that writes a file of a dataset under this temporary name.
fn temporary(name: &str) -> Option<&str> {
    let (path, process) = files::temporary(name)?;
    is_final(path).then_some(process)
}

/// Removes all records of completion, what killed runs left in a dataset's `folder`, and at last a
/// plan: the dataset is whole without them.
pub(crate) fn clean(folder: &Path) -> Result<(), Error> {
    remove_files(folder, |name| {
        temporary(name).is_some() || (done_shard(name).is_some() && is_record(&folder.join(name)))
    })?;
    let plan = folder.join(PLAN_FILE);
    if start_of(&plan, PLAN_MAGIC.len()).is_some_and(|start| start == PLAN_MAGIC.as_bytes()) {
        remove_file(&plan)?;
    }
    Ok(())
}

/// Removes the marker of a folder in which nothing is unfinished any more.
pub(crate) fn unmark(folder: &Path) -> Result<(), Error> {
    let path = folder.join(MARKER);
    match start_of(&path, MARKER_MAGIC.len()).is_some_and(|start| start == MARKER_MAGIC.as_bytes()) {
        true => remove_file(&path),
        false => Ok(()),
    }
}

/// The shards in a dataset's `folder` that have a record of completion.
pub(crate) fn done_shards(folder: &Path) -> Result<Vec<u32>, Error> {
    let mut shards = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let shard = entry.file_name().to_str().and_then(done_shard);
        shards.extend(shard.filter(|_| is_record(&entry.path())));
    }
    shards.sort_unstable();
    Ok(shards)
}

/// Whether a folder has records of completion.
pub(crate) fn has_records(folder: &Path) -> bool {
    done_shards(folder).is_ok_and(|shards| !shards.is_empty())
}

/// Number of shards below `folder` that the next run need not pack again.
pub(crate) fn complete_shards(folder: &Path) -> usize {
    // A dataset that is whole has no records of completion any more, unless it goes to a bucket.
    let is_whole = folder.join(INDEX_FILE).exists() && !has_records(folder);
    let complete: &[u8] = if is_whole { b".tar" } else { b".done" };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => complete_shards(&entry.path()),
            _ => usize::from(entry.file_name().as_encoded_bytes().ends_with(complete)),
        })
        .sum()
}

/// Removes what killed runs left unfinished in `folder`, as far as this machine knows that they
/// have ended. Another one may be at work.
pub(crate) fn clean_unfinished(folder: &Path) -> Result<(), Error> {
    remove_files(folder, |name| {
        temporary(name).is_some_and(|process| Owner::current().knows_name_to_be_gone(process))
    })
}

/// Removes the files in `folder` that `is_leftover`: no folders, no links.
pub(crate) fn remove_files(folder: &Path, is_leftover: impl Fn(&str) -> bool) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(&is_leftover) {
            remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file of ours, if it is there: another command may clean, too.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io("remove", path)),
    }
}

/// Whether a file is a record of completion: an index. Others may note by such a name that they
/// have copied a shard.
fn is_record(path: &Path) -> bool {
    start_of(path, HEADER_BYTES).is_some_and(|start| Index::content_id_at_start(&start).is_ok())
}

/// The first bytes of a file of at least this length.
fn start_of(path: &Path, bytes: usize) -> Option<Vec<u8>> {
    let mut start = vec![0; bytes];
    regular::open_no_link(path, OFlags::RDONLY).ok()?.read_exact(&mut start).ok()?;
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_to_the_last_character_count() {
        let out = Path::new("/data/train");
        for (name, expected) in [
            ("train.part-0123456789abcdef", Some(WorkName::Id)),
            ("train.part-4711", Some(WorkName::Process)),
            ("train.part-4711+3", Some(WorkName::Process)),
            ("train.part-", None),
            ("train.part-+1", None),
            ("train.part-4711+", None),
            ("train.part-47110000000", None),
            ("train.part-0123456789abcde", None),
            ("train.part-0123456789abcdef0", None),
            ("train.part-0123456789ABCDEF", None),
            ("train.part-0123456789abcdef.zip", None),
            ("train.part-0", Some(WorkName::Process)),
            ("train.part-b.part-0123456789abcdef", None),
            ("train.part-a", None),
            ("train.part-1.zip", None),
            ("train", None),
            ("xtrain.part-0123456789abcdef", None),
            ("train2.part-0123456789abcdef", None),
        ] {
            assert_eq!(work_name(out, OsStr::new(name)).map(|(kind, _)| kind), expected, "{name}");
        }
        let process = Owner::current().name();
        for name in ["shard-000000.tar", "dataset.shade", "dataset.times", "shard-1234567.tar.done"] {
            assert!(is_own(name) && is_own(&format!("{name}.part-{process}")), "{name}");
            assert!(is_own(&format!("{name}.part-{process}+12")), "{name}");
            for more in ["x", ".part-", ".part-2", ".part-a-b-c-d", ".done.done", "+1"] {
                assert!(!is_own(&format!("{name}{more}")), "{name}{more}");
            }
        }
        for name in ["shard-00000.tar", "shard-0000001.tar", "README.done", "labels.part-2.csv", "", ".done"]
        {
            assert!(!is_own(name) && !is_own(&format!("{name}.part-{process}")), "{name}");
        }
    }

    #[test]
    fn a_folder_is_ours_by_its_marker_and_its_content() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("train.part-0123456789abcdef");
        let user = rustix::process::geteuid().as_raw();
        fs::create_dir(&path).unwrap();
        let folder = open_folder(&path).unwrap();
        let is_foreign = || matches!(standing(&path, user).unwrap(), Standing::Foreign);
        assert!(is_foreign(), "no marker");
        mark(&path, folder.as_fd(), &Content::Pack(vec!["val".to_owned()])).unwrap();
        fs::create_dir(path.join("val")).unwrap();
        fs::write(path.join("val/shard-000000.tar"), b"x").unwrap();
        fs::write(path.join("dataset.plan"), b"x").unwrap();
        assert!(matches!(standing(&path, user).unwrap(), Standing::Leftover(_)));
        assert!(matches!(standing(&path, user + 1).unwrap(), Standing::Foreign), "another user's");
        for foreign in ["thesis.tex", "val/notes", "other/", "val/inner/", "shard-000000.tar.bak"] {
            let there = path.join(foreign);
            if foreign.ends_with('/') { fs::create_dir(&there) } else { fs::write(&there, b"x") }.unwrap();
            let Standing::Mixed(found) = standing(&path, user).unwrap() else { panic!("{foreign}") };
            assert_eq!(found, Path::new(foreign.trim_end_matches('/')));
            if foreign.ends_with('/') { fs::remove_dir(&there) } else { fs::remove_file(&there) }.unwrap();
        }
        // A copy under another name does not count, nor what a link leads to.
        let moved = temp.path().join("train.part-fedcba9876543210");
        fs::rename(&path, &moved).unwrap();
        assert!(matches!(standing(&moved, user).unwrap(), Standing::Foreign));
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        assert!(is_foreign());
        fs::remove_file(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        let Standing::Leftover(content) = standing(&path, user).unwrap() else { panic!("not ours") };
        content.remove(&path, open_folder(&path).unwrap().as_fd()).unwrap();
        assert!(!path.exists());
    }
}
