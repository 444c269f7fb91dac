//! Reads samples from their source with as few system calls as can notice a change: open, fstat, read, close.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, Stat};

use crate::catalogue::{Field, FieldContent, Sample, Store};
use crate::source::image_folder::{changed_ns, open_folder};

/// Reads samples one after the other; keeps what it read from last open: the folder, from which a path is shorter than
/// from the root, or the container.
#[derive(Debug, Default)]
pub(crate) struct SourceReader {
    folder: Option<(PathBuf, OwnedFd)>,
    container: Option<(PathBuf, File)>,
}

impl SourceReader {
    /// Appends the sample's image to `bytes`: exactly as many bytes as were listed.
    ///
    /// # Errors
    /// It cannot be read, or it is not the file that was listed, said in words for [`Bad`](crate::catalogue::Bad).
    pub(crate) fn image(&mut self, sample: &Sample<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        match sample.store {
            Store::Folder(folder) => read_file(self.folder(folder)?, sample, bytes),
            Store::Container(file) => self.span(file, sample.changed_ns, sample.offset, sample.bytes, bytes),
        }
    }

    /// Appends the content of a field to `bytes`.
    ///
    /// # Errors
    /// As [`image`](Self::image).
    pub(super) fn field(
        &mut self,
        sample: &Sample<'_>,
        field: &Field<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        match (field.content, sample.store) {
            (FieldContent::Inline(content), _) => {
                bytes.extend_from_slice(content);
                Ok(())
            }
            (FieldContent::Stored { offset, bytes: len }, Store::Container(file)) => {
                self.span(file, sample.changed_ns, offset, len, bytes)
            }
            (FieldContent::Stored { .. }, Store::Folder(_)) => {
                Err(format!("its field {} is said to be in a container, but it has none", field.name))
            }
        }
    }

    fn folder(&mut self, path: &PathBuf) -> Result<&OwnedFd, String> {
        let open = match self.folder.take().filter(|(open, _)| open == path) {
            Some(open) => open,
            None => {
                let folder = open_folder(path);
                (path.clone(), folder.map_err(|fault| format!("its folder cannot be opened: {fault}"))?)
            }
        };
        Ok(&self.folder.insert(open).1)
    }

    fn span(
        &mut self,
        path: &PathBuf,
        listed_ns: i64,
        offset: u64,
        len: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        if self.container.as_ref().is_none_or(|(open, _)| open != path) {
            let file = File::open(path).map_err(|fault| format!("cannot be opened: {fault}"))?;
            let found = look(&file)?;
            if changed_ns(&found) != listed_ns {
                return Err("its tar changed while packing".to_owned());
            }
            self.container = Some((path.clone(), file));
        }
        let Some((_, file)) = &self.container else { return Err("its tar is not open".to_owned()) };
        let start = bytes.len();
        bytes.resize(start.saturating_add(len as usize), 0);
        let target = bytes.get_mut(start..).unwrap_or_default();
        file.read_exact_at(target, offset).map_err(|fault| format!("cannot be read: {fault}"))
    }
}

fn look(file: &File) -> Result<Stat, String> {
    rustix::fs::fstat(file).map_err(|fault| format!("cannot be looked at: {}", io::Error::from(fault)))
}

fn read_file(folder: &OwnedFd, sample: &Sample<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
    let opened = rustix::fs::openat(folder, sample.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let cannot = |fault| format!("cannot be opened: {}", io::Error::from(fault));
    let file = File::from(opened.map_err(cannot)?);
    let found = look(&file)?;
    let listed = i64::from(sample.bytes);
    if found.st_size != listed {
        let now = found.st_size;
        return Err(format!("changed while packing: it had {listed} bytes when listed, {now} when read"));
    }
    if changed_ns(&found) != sample.changed_ns {
        return Err("changed while packing: it was written to since it was listed".to_owned());
    }
    let start = bytes.len();
    let wanted = sample.bytes as usize;
    // One byte more than the file has: the kernel giving less than was asked for is then the file's end, and a file that
    // grew shows.
    bytes.reserve(wanted.saturating_add(1));
    loop {
        let room = bytes.capacity() - bytes.len();
        let got = match rustix::io::read(&file, spare_capacity(bytes)) {
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(fault) => return Err(format!("cannot be read: {}", io::Error::from(fault))),
        };
        let have = bytes.len() - start;
        if have == wanted && got < room {
            return Ok(());
        }
        if have > wanted || got == 0 {
            bytes.truncate(start);
            let now = if have > wanted { "more".to_owned() } else { have.to_string() };
            return Err(format!("changed while packing: it had {listed} bytes when listed, {now} when read"));
        }
    }
}
