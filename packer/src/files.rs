//! Writes whole files, and notices what the file system says when they are closed.
//!
//! NFS and many FUSE file systems take writes into memory and send them when the file is closed:
//! only then can they say that there is no room. A `File` that is dropped loses that answer.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

pub(crate) fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

/// A file under a temporary name of this process, `PATH.part-PROCESS`. It is removed unless it is
/// published.
#[derive(Debug)]
pub(crate) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
}

impl PartialFile {
    /// Creates the file that will become `path`.
    pub(crate) fn create(path: PathBuf) -> Result<(Self, File), Error> {
        let mut partial = path.clone().into_os_string();
        partial.push(format!(".part-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        // A killed process of our number may have left one.
        let _ = fs::remove_file(&partial);
        let file = File::create_new(&partial).map_err(Error::io("create", &partial))?;
        Ok((Self { path, partial }, file))
    }

    /// The file, opened once more for writing.
    pub(crate) fn open(&self) -> Result<File, Error> {
        File::options().write(true).open(&self.partial).map_err(self.fault("open"))
    }

    /// For `map_err`: the temporary file could not be treated so.
    pub(crate) fn fault(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        Error::io(action, &self.partial)
    }

    /// Gives the file its name, in place of one that is there: readers see the one or the other. If
    /// `sync`, the disk has confirmed it by then. `file` is open for writing.
    pub(crate) fn publish(&self, file: &File, sync: bool) -> Result<(), Error> {
        if sync {
            file.sync_all().map_err(self.fault("sync"))?;
        }
        // Every descriptor that is closed sends the writes, so a second one to the same file does.
        file.try_clone().and_then(close).map_err(self.fault("write"))?;
        fs::rename(&self.partial, &self.path).map_err(self.fault("name"))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename there is no such name.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Puts a file of these bytes at `path`, in place of one that is there.
pub(crate) fn put(path: &Path, bytes: &[u8], sync: bool) -> Result<(), Error> {
    let (partial, mut file) = PartialFile::create(path.to_owned())?;
    file.write_all(bytes).map_err(partial.fault("write"))?;
    partial.publish(&file, sync)
}
