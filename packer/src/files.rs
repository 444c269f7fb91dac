//! Writes whole files, and notices what the file system says when they are closed.
//!
//! NFS and many FUSE file systems take writes into memory and send them when the file is closed:
//! only then can they say that there is no room. A `File` that is dropped loses that answer.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::Error;
use crate::owner::Owner;

pub(crate) fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

/// What temporary names have between the path and the process.
const PART: &str = ".part-";

/// Files that one process may have under temporary names of one path.
const NAMES_MAX: u32 = 1 << 16;

/// A file under a temporary name of this process, `PATH.part-PROCESS`. It is removed unless it is
/// published. Processes on any machines may write the same path: each has a name of its own, and
/// the last one to publish stays.
#[derive(Debug)]
pub(crate) struct PartialFile {
    path: PathBuf,
    partial: PathBuf,
}

impl PartialFile {
    /// Creates the file that will become `path`.
    pub(crate) fn create(path: PathBuf) -> Result<(Self, File), Error> {
        for number in 0..NAMES_MAX {
            let partial = temporary_name(&path, number);
            match File::create_new(&partial) {
                // Another file of this process, or what is left of one that looks like it.
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                created => {
                    let file = created.map_err(Error::io("create", &partial))?;
                    return Ok((Self { path, partial }, file));
                }
            }
        }
        let fault = io::Error::other("all temporary names are taken");
        Err(Error::io("create", &path)(fault))
    }

    /// Where the file is until it is published.
    pub(crate) fn temporary_path(&self) -> &Path {
        &self.partial
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
        match fs::rename(&self.partial, &self.path) {
            // NFS may repeat a rename whose answer was lost; the repetition finds no source.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && self.is_named(file) => Ok(()),
            renamed => renamed.map_err(self.fault("name")),
        }
    }

    /// Whether the open file has its name already.
    fn is_named(&self, file: &File) -> bool {
        let same = |(named, open): (fs::Metadata, fs::Metadata)| {
            (named.dev(), named.ino()) == (open.dev(), open.ino())
        };
        fs::metadata(&self.path).ok().zip(file.metadata().ok()).is_some_and(same)
    }
}

/// `PATH.part-PROCESS`; `PATH.part-PROCESS+1` and so on if that is taken.
fn temporary_name(path: &Path, number: u32) -> PathBuf {
    static PROCESS: OnceLock<String> = OnceLock::new();
    let process = PROCESS.get_or_init(|| Owner::current().name());
    let mut name = path.to_owned().into_os_string();
    name.push(PART);
    name.push(process);
    if number > 0 {
        name.push(format!("+{number}"));
    }
    PathBuf::from(name)
}

/// The path and the process of a temporary name; `None` for all other names.
pub(crate) fn temporary(name: &str) -> Option<(&str, &str)> {
    let (path, process) = name.split_once(PART)?;
    let (process, number) = process.split_once('+').unwrap_or((process, "1"));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && Owner::is_name(process)).then_some((path, process))
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
