//! All or nothing: results are built in a directory next to their destination and renamed into place when complete.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::error::Error;

/// Leftovers of killed runs that had our process id; more than a few mean that something else is wrong.
const NAMES_TRIED_MAX: u32 = 100;

/// A directory that is removed again unless it is published.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    out: PathBuf,
    published: bool,
}

impl Partial {
    /// Makes `OUT.part-PID` next to `out`.
    ///
    /// # Errors
    /// `out` exists, has no name, or its parent is missing (usage); or the directory cannot be made.
    pub fn create(out: &Path) -> Result<Self, Error> {
        let (Some(name), Some(parent)) = (out.file_name(), out.parent()) else {
            return Err(Error::Usage(format!("'{}' does not name a directory to create", out.display())));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if !parent.is_dir() {
            return Err(Error::Usage(format!("there is no directory {}: create it first", parent.display())));
        }
        refuse_existing(out)?;
        for attempt in 0..NAMES_TRIED_MAX {
            let mut partial = name.to_owned();
            partial.push(format!(".part-{}", std::process::id()));
            if attempt > 0 {
                partial.push(format!("-{attempt}"));
            }
            let path = parent.join(partial);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, out: parent.join(name), published: false }),
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                Err(fault) => return Err(Error::io("create", &path)(fault)),
            }
        }
        let action = "find a free name for a partial directory next to";
        Err(Error::io(action, out)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Where to build.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the disk confirm the directory and gives it its name, both durably.
    ///
    /// # Errors
    /// The destination appeared meanwhile, or the operating system refuses; the partial directory is then removed.
    pub fn publish(mut self) -> Result<(), Error> {
        sync_dir(&self.path)?;
        let before = fs::metadata(&self.path).map_err(Error::io("look at", &self.path))?;
        match renameat_with(CWD, &self.path, CWD, &self.out, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => refuse_existing(&self.out)?,
            // File systems that cannot refuse to replace, such as NFS. A rename replaces at most an empty directory.
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
        self.published = true;
        match self.out.parent() {
            Some(parent) => sync_dir(parent),
            None => Ok(()),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.published {
            // A failure here hides nothing: the error that led here is reported, and the name says `.part`.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Has the disk confirm which names a directory holds.
///
/// # Errors
/// The operating system refuses.
pub fn sync_dir(folder: &Path) -> Result<(), Error> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync a directory; they write it through.
        Err(fault) if fault.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other.map_err(Error::io("sync", folder)),
    }
}

fn refuse_existing(out: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(out) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(fault) => Err(Error::io("look at", out)(fault)),
        Ok(_) => {
            Err(Error::Usage(format!("{} exists: remove it or choose another destination", out.display())))
        }
    }
}

fn is_same(before: &fs::Metadata, out: &Path) -> bool {
    fs::metadata(out).is_ok_and(|out| (out.dev(), out.ino()) == (before.dev(), before.ino()))
}
