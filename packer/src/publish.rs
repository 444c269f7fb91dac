//! All or nothing: results are built in a directory next to their destination and renamed into
//! place when complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::claim::Claim;
use crate::error::Error;
use crate::files::PartialFile;
use crate::plan::PLAN_FILE;

/// A file that is created and removed at once.
const PROBE: &str = "probe";

/// A directory under a temporary name, `OUT.part-NAME`. One command at a time makes OUT.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    out: PathBuf,
    sync: bool,
    /// Whether it stays: it is published, or the next run goes on with it.
    stays: bool,
    /// Held until the directory is published, kept or removed.
    _claim: Claim,
}

impl Partial {
    /// Makes a directory for this run alone. It is removed when it is not published.
    ///
    /// # Errors
    /// Nothing can be made at `out`; `out` exists, or another command makes it: usage.
    pub(crate) fn create(out: &Path) -> Result<Self, Error> {
        check_destination(out)?;
        let claim = Claim::of_new(out)?;
        refuse_existing(out)?;
        let path = partial_path(out, &std::process::id().to_string());
        // What a killed run with our process id left.
        match fs::remove_dir_all(&path) {
            Err(fault) if fault.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path)(fault))?,
            _ => fs::create_dir(&path).map_err(Error::io("create", &path))?,
        }
        Ok(Self { path, out: out.to_owned(), sync: true, stays: false, _claim: claim })
    }

    /// Makes the directory of the work `id`, or goes on with the one that an earlier run left.
    ///
    /// # Errors
    /// As [`create`](Self::create); or other unfinished work is there, or somebody else's: usage.
    pub(crate) fn resume(out: &Path, id: &str, restart: bool, sync: bool) -> Result<Self, Error> {
        check_destination(out)?;
        let claim = Claim::of_new(out)?;
        refuse_existing(out)?;
        let path = partial_path(out, id);
        for other in unfinished(out)? {
            if restart {
                fs::remove_dir_all(&other).map_err(Error::io("remove", &other))?;
            } else if other != path {
                let fault = format!(
                    "{} holds an unfinished pack of another source or with other options: finish that one, or throw it \
                     away with --restart",
                    other.display()
                );
                return Err(Error::Usage(fault));
            }
        }
        match fs::create_dir(&path) {
            Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
                refuse_foreign(&path, || claim.user_id())?;
            }
            made => made.map_err(Error::io("create", &path))?,
        }
        // Other machines may be at work by a plan in it.
        let stays = path.join(PLAN_FILE).exists();
        Ok(Self { path, out: out.to_owned(), sync, stays, _claim: claim })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on it stays when it is not published, for the next run.
    pub(crate) fn keep(&mut self) {
        self.stays = true;
    }

    /// Has the disk confirm the directory and gives it its name, both durably.
    pub(crate) fn publish(&mut self) -> Result<(), Error> {
        if self.sync {
            sync_dir(&self.path)?;
        }
        let before = fs::metadata(&self.path).map_err(Error::io("look at", &self.path))?;
        match renameat_with(CWD, &self.path, CWD, &self.out, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => refuse_existing(&self.out)?,
            // File systems such as NFS cannot refuse to replace. A rename replaces at most an empty
            // directory.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(&self.out)?;
                let renamed = fs::rename(&self.path, &self.out);
                if let Err(fault) = renamed
                    && !is_same(&before, &self.out)
                {
                    return Err(Error::io("publish", &self.out)(fault));
                }
            }
            // NFS may repeat a rename whose answer was lost; the repetition finds no source.
            Err(Errno::NOENT) if is_same(&before, &self.out) => {}
            Err(fault) => return Err(Error::io("publish", &self.out)(fault.into())),
        }
        self.stays = true;
        match parent_of(&self.out) {
            Some(parent) if self.sync => sync_dir(parent),
            _ => Ok(()),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.stays {
            // A failure hides nothing: the error that led here is reported, and the name says
            // `.part`.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes sure, before any work, that something can be made at `out`.
pub(crate) fn check_destination(out: &Path) -> Result<(), Error> {
    let (Some(_), Some(parent)) = (out.file_name(), parent_of(out)) else {
        return Err(Error::Usage(format!("'{}' does not name a directory to create", out.display())));
    };
    if parent.is_dir() {
        return Ok(());
    }
    Err(Error::Usage(format!("there is no directory {}: create it first", parent.display())))
}

/// The folder of unfinished work for `out` that has a plan, and the work's id; `None` if there is
/// none.
///
/// # Errors
/// There are several, or it is somebody else's: usage.
pub(crate) fn planned_work(out: &Path) -> Result<Option<(PathBuf, String)>, Error> {
    let planned = || -> Result<Vec<PathBuf>, Error> {
        let mut all = unfinished(out)?;
        all.retain(|folder| folder.join(PLAN_FILE).exists());
        Ok(all)
    };
    let mut all = planned()?;
    if all.is_empty() {
        look_afresh(parent_of(out).unwrap_or(Path::new(".")))?;
        all = planned()?;
    }
    let [folder] = all.as_slice() else {
        let named: Vec<String> = all.iter().map(|folder| folder.display().to_string()).collect();
        let text = format!("there are several plans, {}: remove those that are not meant", named.join(", "));
        return if all.is_empty() { Ok(None) } else { Err(Error::Usage(text)) };
    };
    refuse_foreign(folder, || look_afresh(folder))?;
    let name = folder.file_name().unwrap_or_default().as_encoded_bytes();
    let id = name.strip_prefix(part_prefix(out).as_encoded_bytes()).unwrap_or_default();
    Ok(Some((folder.clone(), String::from_utf8_lossy(id).into_owned())))
}

/// Creates and removes a file in a folder. A client of a network file system may know for a minute
/// that a name is not there, although another machine has given it since; it forgets that when it
/// changes the folder itself. Gives the user to whom files of ours belong there.
pub(crate) fn look_afresh(folder: &Path) -> Result<u32, Error> {
    let (_probe, file) = PartialFile::create(folder.join(PROBE))?;
    Ok(file.metadata().map_err(Error::io("look at", folder))?.uid())
}

fn parent_of(out: &Path) -> Option<&Path> {
    out.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

fn partial_path(out: &Path, name: &str) -> PathBuf {
    let mut partial = part_prefix(out);
    partial.push(name);
    out.with_file_name(partial)
}

fn part_prefix(out: &Path) -> OsString {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".part-");
    name
}

/// Directories of unfinished work next to `out`.
fn unfinished(out: &Path) -> Result<Vec<PathBuf>, Error> {
    let prefix = part_prefix(out);
    let parent = parent_of(out).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let name = entry.map_err(Error::io("list", parent))?.file_name();
        if name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            found.push(out.with_file_name(name));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Has the disk confirm which names a directory holds.
pub(crate) fn sync_dir(folder: &Path) -> Result<(), Error> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync a directory; they write it through.
        Err(fault) if fault.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other.map_err(Error::io("sync", folder)),
    }
}

/// Refuses a destination that exists: usage.
pub(crate) fn refuse_existing(out: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(out) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(fault) => Err(Error::io("look at", out)(fault)),
        Ok(_) => {
            Err(Error::Usage(format!("{} exists: remove it or choose another destination", out.display())))
        }
    }
}

/// Refuses to go on with a directory that is not ours: others may have put anything into it.
///
/// `ours` tells to whom files of ours belong there. That is not our user id: a server may give them
/// to another user.
fn refuse_foreign(path: &Path, ours: impl FnOnce() -> Result<u32, Error>) -> Result<(), Error> {
    let found = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
    let fault = if found.is_dir() {
        let ours = ours()?;
        (found.uid() != ours).then(|| format!("belongs to user {}, not {ours}", found.uid()))
    } else {
        Some("is no directory".to_owned())
    };
    fault.map_or(Ok(()), |fault| {
        let path = path.display();
        Err(Error::Usage(format!(
            "{path} {fault}: not going on with it. Remove it, or choose another destination"
        )))
    })
}

fn is_same(before: &fs::Metadata, out: &Path) -> bool {
    fs::metadata(out).is_ok_and(|out| (out.dev(), out.ino()) == (before.dev(), before.ino()))
}
