//! Writes whole files, and hears what the file system says when they are closed.
//!
//! NFS and many FUSE file systems take writes into memory and send them when the file is closed: only then can they say
//! that there is no room. A `File` that is dropped loses that answer.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Closes a file.
///
/// # Errors
/// What the file system says of writes before: no room, over quota, the server refused them.
pub(crate) fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

/// Has `file` sent to where it is stored, and hears whether it could be, without closing it. Waits for no disk.
///
/// # Errors
/// See [`close`].
pub(crate) fn flush_to_store(file: &File) -> io::Result<()> {
    // Every descriptor that is closed flushes its file, a second one to the same file as well.
    close(file.try_clone()?)
}

/// Puts a file of these bytes at `path`, in place of one that is there: readers see the one or the other.
///
/// # Errors
/// The operating system refuses.
pub(crate) fn put(path: &Path, bytes: &[u8], sync: bool) -> Result<(), Error> {
    let mut partial = path.to_owned().into_os_string();
    partial.push(format!(".part-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        if sync {
            file.sync_all()?;
        }
        close(file)
    };
    write().map_err(Error::io("write", &partial))?;
    fs::rename(&partial, path).map_err(Error::io("name", &partial))
}
