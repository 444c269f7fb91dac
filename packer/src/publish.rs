//! All or nothing: results are built in a directory next to their destination and renamed into
//! place when complete.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Stat, fchmod, fstat, lstat, mkdirat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;
use shade_dataset::regular;

use crate::claim::{Claim, path_of_new};
use crate::error::Error;
use crate::files::PartialFile;
use crate::leftovers::{
    Content, MARKER, MODE_PROBE, PROBE, Standing, WorkName, is_empty, is_marked, mark, open_folder,
    remove_of_the_dead, standing, unmark, work_folder, work_name,
};
use crate::plan::PLAN_FILE;

/// Nobody else may look into unfinished work, or put a link there.
const UNFINISHED_MODE: Mode = Mode::RWXU;
/// Folders of one process for one destination: more than killed ones ever leave.
const NAMES_MAX: u32 = 1 << 16;

/// A directory under a temporary name, `OUT.part-NAME`. One command at a time makes OUT.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    out: PathBuf,
    /// The directory itself, whatever is called `path` meanwhile.
    folder: OwnedFd,
    content: Content,
    sync: bool,
    /// Whether it stays: it is published, or the next run goes on with it.
    stays: bool,
    /// Held until the directory is published, kept or removed.
    _claim: Claim,
}

/// Work that a later run can go on with.
#[derive(Debug)]
pub(crate) struct NewWork<'a> {
    pub(crate) out: &'a Path,
    pub(crate) id: &'a str,
    /// Names of the folders in it; none for one dataset.
    pub(crate) splits: Vec<String>,
    pub(crate) sync: bool,
}

impl Partial {
    /// Makes a directory for this run alone. It is removed when it is not published.
    ///
    /// # Errors
    /// Nothing can be made at `out`; `out` exists, or another command makes it: usage.
    pub(crate) fn create(out: &Path, content: Content) -> Result<Self, Error> {
        check_destination(out)?;
        free_published(out)?;
        let claim = Claim::of_new(out)?;
        refuse_existing(out)?;
        let user = claim.user_id()?;
        for (kind, _, path) in work_folders(out)? {
            if kind == WorkName::Process {
                remove_of_the_dead(&path, user)?;
            }
        }
        for number in 0..NAMES_MAX {
            let process = std::process::id();
            let name = if number == 0 { process.to_string() } else { format!("{process}+{number}") };
            let path = work_folder(out, &name);
            match mkdirat(CWD, &path, UNFINISHED_MODE) {
                // Not known to be ours.
                Err(Errno::EXIST) => {}
                Err(fault) => return Err(Error::io("create", &path)(fault.into())),
                Ok(()) => {
                    let folder = open_fresh(&path, user)?;
                    mark(&path, folder.as_fd(), &content)?;
                    let out = out.to_owned();
                    return Ok(Self { path, out, folder, content, sync: true, stays: false, _claim: claim });
                }
            }
        }
        Err(Error::io("create", out)(io::Error::other("all temporary names are taken")))
    }

    /// Makes the directory of some work, or goes on with the one that an earlier run left. With
    /// `restart`, leftovers of all work for `out` are removed first, unless they hold one of these
    /// paths, which the source needs.
    ///
    /// # Errors
    /// As [`create`](Self::create); or other unfinished work is there, or somebody else's: usage.
    pub(crate) fn resume(work: NewWork<'_>, restart: Option<&[PathBuf]>) -> Result<Self, Error> {
        let NewWork { out, id, splits, sync } = work;
        check_destination(out)?;
        let claim = Claim::of_new(out)?;
        refuse_existing(out)?;
        let path = work_folder(out, id);
        let user = claim.user_id()?;
        for (kind, _, other) in work_folders(out)? {
            if kind == WorkName::Id && (other != path || restart.is_some()) {
                give_way(&other, user, restart)?;
            }
        }
        let content = Content::Pack(splits);
        let folder = match mkdirat(CWD, &path, UNFINISHED_MODE) {
            Err(Errno::EXIST) => take_up(&path, user, &content)?,
            Err(fault) => return Err(Error::io("create", &path)(fault.into())),
            Ok(()) => open_fresh(&path, user)?,
        };
        mark(&path, folder.as_fd(), &content)?;
        // Other machines may be at work by a plan in it.
        let stays = path.join(PLAN_FILE).exists();
        Ok(Self { path, out: out.to_owned(), folder, content, sync, stays, _claim: claim })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself: nobody can put another one in its place.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// From now on it stays when it is not published, for the next run.
    pub(crate) fn keep(&mut self) {
        self.stays = true;
    }

    /// Has the disk confirm the directory and gives it its name, both durably, and the mode that
    /// folders get here.
    pub(crate) fn publish(&mut self) -> Result<(), Error> {
        self.open_up().map_err(|errno| Error::io("change the mode of", &self.path)(errno.into()))?;
        if self.sync {
            sync_dir(&self.path)?;
        }
        if !self.is_at(&self.path) {
            return Err(self.replaced());
        }
        match renameat_with(CWD, &self.path, CWD, &self.out, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => refuse_existing(&self.out)?,
            // File systems such as NFS cannot refuse to replace. A rename replaces at most an empty
            // directory.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(&self.out)?;
                let renamed = fs::rename(&self.path, &self.out);
                if let Err(fault) = renamed
                    && !self.is_at(&self.out)
                {
                    return Err(Error::io("publish", &self.out)(fault));
                }
            }
            // NFS may repeat a rename whose answer was lost; the repetition finds no source.
            Err(Errno::NOENT) if self.is_at(&self.out) => {}
            Err(fault) => return Err(Error::io("publish", &self.out)(fault.into())),
        }
        if !self.is_at(&self.out) {
            return Err(self.replaced());
        }
        self.stays = true;
        // Only now: a run that is killed before leaves what is known to be ours.
        match unlinkat(&self.folder, MARKER, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(fault) => return Err(Error::io("remove", &self.out.join(MARKER))(fault.into())),
        }
        match parent_of(&self.out) {
            Some(parent) if self.sync => {
                sync_dir(&self.out)?;
                sync_dir(parent)
            }
            _ => Ok(()),
        }
    }

    /// Gives the directory the mode that the system gives folders here, by the umask or the rights
    /// that the folder above passes on.
    fn open_up(&self) -> rustix::io::Result<()> {
        match mkdirat(&self.folder, MODE_PROBE, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(fault) => return Err(fault),
        }
        let mode = Mode::from_raw_mode(statat(&self.folder, MODE_PROBE, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        // A folder of the user's with this name is not empty, and stays.
        let _ = unlinkat(&self.folder, MODE_PROBE, AtFlags::REMOVEDIR);
        if mode == Mode::from_raw_mode(fstat(&self.folder)?.st_mode) {
            return Ok(());
        }
        fchmod(&self.folder, mode)
    }

    /// Whether the directory has this path.
    fn is_at(&self, path: &Path) -> bool {
        let same = |there: Stat, own: Stat| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino);
        matches!((lstat(path), fstat(&self.folder)), (Ok(there), Ok(own)) if same(there, own))
    }

    fn replaced(&self) -> Error {
        let (path, out) = (self.path.display(), self.out.display());
        Error::Usage(format!(
            "somebody has put another folder in the place of {path} or {out} meanwhile: choose a destination in a folder \
             that only you can write to"
        ))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.stays {
            // A failure hides nothing: the error that led here is reported, and the name says
            // `.part`.
            let _ = self.content.remove(&self.path, self.folder.as_fd());
        }
    }
}

/// Opens a directory that was made just now. Somebody who may write to the folder above could put
/// another one in its place.
fn open_fresh(path: &Path, user: u32) -> Result<OwnedFd, Error> {
    let folder = open_folder(path).map_err(Error::io("open", path))?;
    let fault = Error::io("look at", path);
    let is_ours = fstat(&folder).map_err(|errno| fault(errno.into()))?.st_uid == user;
    let is_empty = is_empty(folder.as_fd()).map_err(Error::io("list", path))?;
    if is_ours && is_empty {
        return Ok(folder);
    }
    Err(Error::Usage(format!("somebody has put another folder in the place of {}", path.display())))
}

/// Opens the directory of this very work that an earlier run has left.
fn take_up(path: &Path, user: u32, content: &Content) -> Result<OwnedFd, Error> {
    refuse_foreign(path, || Ok(user))?;
    let folder = open_folder(path).map_err(Error::io("open", path))?;
    if is_marked(path, folder.as_fd()) {
        return Ok(folder);
    }
    // A run that was killed before it could mark it, or a dataset that was moved back.
    match content.foreign(folder.as_fd()).map_err(Error::io("list", path))? {
        None => Ok(folder),
        Some(foreign) => {
            let (path, foreign) = (path.display(), foreign.display());
            Err(Error::Usage(format!(
                "{path} is there, and its {foreign} is of no pack: choose another destination, or give that folder \
                 another name"
            )))
        }
    }
}

/// Removes unfinished work for the same destination if that is asked for, and refuses to begin
/// beside it otherwise. What is not known to be ours is left alone.
fn give_way(other: &Path, user: u32, restart: Option<&[PathBuf]>) -> Result<(), Error> {
    let name = other.display();
    let (content, needed) = match (standing(other, user)?, restart) {
        (Standing::Foreign, _) => return Ok(()),
        (Standing::Mixed(foreign), _) => {
            let foreign = foreign.display();
            return Err(Error::Usage(format!(
                "{name} holds an unfinished pack, and {foreign}, which is of no pack: move that elsewhere first"
            )));
        }
        (Standing::Leftover(_), None) => {
            return Err(Error::Usage(format!(
                "{name} holds an unfinished pack of another source or with other options: finish that one, or throw it \
                 away with --restart"
            )));
        }
        (Standing::Leftover(content), Some(needed)) => (content, needed),
    };
    let there = fs::canonicalize(other).map_err(Error::io("look at", other))?;
    let is_inside = |path: &&PathBuf| fs::canonicalize(path).is_ok_and(|path| path.starts_with(&there));
    if let Some(needed) = needed.iter().find(is_inside) {
        let needed = needed.display();
        return Err(Error::Usage(format!(
            "--restart: {name} would be removed, but the source needs {needed}"
        )));
    }
    let folder = open_folder(other).map_err(Error::io("open", other))?;
    content.remove(other, folder.as_fd()).map_err(Error::io("remove", other))
}

/// Removes what a command has left that was killed when OUT had its name already: its claim and its
/// marker.
pub(crate) fn free_published(out: &Path) -> Result<(), Error> {
    if !path_of_new(out).exists() || !out.exists() {
        return Ok(());
    }
    match Claim::of_new(out) {
        Ok(_claim) => unmark(out),
        // It is at work.
        Err(Error::Usage(_)) => Ok(()),
        Err(fault) => Err(fault),
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
    let planned = || -> Result<Vec<(String, PathBuf)>, Error> {
        let mut all = work_folders(out)?;
        // One that is no folder, or is not ours, is told below.
        let is_ours =
            |folder: &Path| open_folder(folder).map_or(true, |opened| is_marked(folder, opened.as_fd()));
        all.retain(|(kind, _, folder)| {
            *kind == WorkName::Id && folder.join(PLAN_FILE).exists() && is_ours(folder)
        });
        Ok(all.into_iter().map(|(_, id, folder)| (id, folder)).collect())
    };
    let mut all = planned()?;
    if all.is_empty() {
        look_afresh(parent_of(out).unwrap_or(Path::new(".")))?;
        all = planned()?;
    }
    let [(id, folder)] = all.as_slice() else {
        let named: Vec<String> = all.iter().map(|(_, folder)| folder.display().to_string()).collect();
        let text = format!("there are several plans, {}: remove those that are not meant", named.join(", "));
        return if all.is_empty() { Ok(None) } else { Err(Error::Usage(text)) };
    };
    refuse_foreign(folder, || look_afresh(folder))?;
    Ok(Some((folder.clone(), id.clone())))
}

/// Creates and removes a file in a folder. A client of a network file system may know for a minute
/// that a name is not there, although another machine has given it since; it forgets that when it
/// changes the folder itself. Gives the user to whom files of ours belong there.
pub(crate) fn look_afresh(folder: &Path) -> Result<u32, Error> {
    let (_probe, file) = PartialFile::create(folder.join(PROBE))?;
    Ok(fstat(&file).map_err(|errno| Error::io("look at", folder)(errno.into()))?.st_uid)
}

fn parent_of(out: &Path) -> Option<&Path> {
    out.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// What lies next to `out` under a name of unfinished work for it, of any user.
fn work_folders(out: &Path) -> Result<Vec<(WorkName, String, PathBuf)>, Error> {
    let parent = parent_of(out).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let name = entry.map_err(Error::io("list", parent))?.file_name();
        if let Some((kind, work)) = work_name(out, &name) {
            found.push((kind, work.to_owned(), out.with_file_name(&name)));
        }
    }
    found.sort_unstable_by(|(.., a), (.., b)| a.cmp(b));
    Ok(found)
}

/// Makes a folder inside unfinished work, unless it is there. A link is none.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    match fs::create_dir(folder) {
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(folder).map_err(Error::io("look at", folder))?;
            if found.is_dir() { Ok(()) } else { Err(Error::io("create", folder)(fault)) }
        }
        made => made.map_err(Error::io("create", folder)),
    }
}

/// Has the disk confirm which names a directory holds.
pub(crate) fn sync_dir(folder: &Path) -> Result<(), Error> {
    match regular::open_folder(folder).map(fs::File::from).and_then(|folder| folder.sync_all()) {
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
    let found = lstat(path).map_err(|errno| Error::io("look at", path)(errno.into()))?;
    let fault = if FileType::from_raw_mode(found.st_mode).is_dir() {
        let ours = ours()?;
        (found.st_uid != ours).then(|| format!("belongs to user {}, not {ours}", found.st_uid))
    } else {
        Some("is no directory".to_owned())
    };
    fault.map_or(Ok(()), |fault| {
        let path = path.display();
        Err(Error::Usage(format!(
            "{path} {fault}: not going on with it. Choose another destination, or give that another name"
        )))
    })
}
