//! The mark that this machine's objects at an address have: metadata of the store's.
//!
//! An object that lies there and has it was written by a command of this machine that did not come
//! to its end, and may be removed or written again. Nothing else may.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use shade_dataset::regular;

use crate::error::Error;
use crate::files;
use crate::leftovers::{remove_file, remove_files};
use crate::owner::Owner;

/// The file that it is kept in, beside the work for the address.
const FILE: &str = "mark";
/// Hexadecimal digits of a mark.
const DIGITS: usize = 32;

/// A mark, and whether it was made just now: no object has it then.
#[derive(Debug, Default)]
pub(super) struct Mark {
    pub(super) text: String,
    pub(super) is_new: bool,
}

/// The mark for the address whose work lies in `folder`, made when it is first needed.
pub(super) fn of(folder: &Path) -> Result<Mark, Error> {
    let path = folder.join(FILE);
    match regular::read(&path).map(String::from_utf8) {
        Ok(Ok(mark)) if mark.len() == DIGITS && mark.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            return Ok(Mark { text: mark, is_new: false });
        }
        Ok(_) => {}
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => {}
        Err(fault) => return Err(Error::io("read", &path)(fault)),
    }
    // Its keys are the system's random numbers.
    let random = || RandomState::new().build_hasher().finish();
    let text = format!("{:016x}{:016x}", random(), random());
    files::put(&path, text.as_bytes(), true)?;
    Ok(Mark { text, is_new: true })
}

/// Removes it with its folder, once no object there is unfinished and no work is left.
pub(super) fn remove(folder: &Path) -> Result<(), Error> {
    if work_in(folder)?.is_empty() {
        // A command that was killed while it wrote the mark has left a part of it.
        remove_files(folder, |name| {
            unfinished(name).is_some_and(|process| Owner::current().knows_name_to_be_gone(process))
        })?;
        remove_file(&folder.join(FILE))?;
        // Another command may have begun meanwhile.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// The process that writes the mark under this temporary name.
fn unfinished(name: &str) -> Option<&str> {
    files::temporary(name).filter(|(path, _)| *path == FILE).map(|(_, process)| process)
}

/// What lies in the folder of an address besides the mark: folders of work, and claims.
pub(super) fn work_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let name = entry.file_name();
        if name != FILE && name.to_str().and_then(unfinished).is_none() {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}
