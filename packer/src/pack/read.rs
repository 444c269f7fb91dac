//! Reads samples from their source with as few system calls as can notice a change: open, fstat,
//! read, fstat, close.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use shade_dataset::regular;

use super::state::FileState;
use crate::catalogue::{Field, FieldContent, Sample, SampleStore};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::source::image_folder::open_folder;
use crate::source_bucket::{Identity, ObjectFault};

/// Why a sample could not be read, in words that go behind its path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceFault {
    #[error("its folder cannot be opened: {0}")]
    Folder(io::Error),
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be looked at: {0}")]
    Stat(io::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("changed while packing: it had {listed} bytes when listed, {now} when read")]
    Resized { listed: i64, now: i64 },
    #[error("changed while packing: it had {listed} bytes when listed, more when read")]
    Grown { listed: i64 },
    #[error("changed while packing: it was written to since it was listed")]
    Touched,
    #[error("changed while packing: it was written to while it was read")]
    Torn,
    #[error("its tar changed while packing: it was written to since it was listed")]
    TarTouched,
    #[error("its {name}, {path}: {fault}", path = path.display())]
    Paired { name: String, path: PathBuf, fault: Box<SourceFault> },
    #[error("its field {0} is said to be in a container, but it has none")]
    NoContainer(String),
    #[error(transparent)]
    Object(#[from] ObjectFault),
}

impl SourceFault {
    /// The error of a command that reads `sample`, if its store and not the sample is the trouble:
    /// no command leaves out samples for that.
    pub(crate) fn of_the_store(&self, sample: &Sample<'_>) -> Option<Error> {
        let Self::Object(fault) = self else { return None };
        let (url, fault) = (sample.file().display().to_string(), fault.of_the_store()?.clone());
        Some(Error::Store { action: "read", url, fault })
    }
}

/// Reads samples one after the other. Keeps open the folders of the source, from which a path is
/// shorter than from the root, or the container that it read from last.
#[derive(Debug)]
pub(crate) struct SourceReader<'s> {
    /// Ends a wait for a store.
    stop: &'s Stop,
    folders: HashMap<PathBuf, OwnedFd>,
    container: Option<(PathBuf, OpenContainer)>,
    /// A file of this process.
    piece: Option<(PathBuf, File)>,
}

/// A file as it was listed.
struct ListedFile<'a> {
    /// Below its folder.
    path: &'a str,
    bytes: u32,
    changed_ns: i64,
}

/// A tar, and the state in which it was found as it was listed.
#[derive(Debug)]
struct OpenContainer {
    file: File,
    state: FileState,
}

impl<'s> SourceReader<'s> {
    pub(crate) fn new(stop: &'s Stop) -> Self {
        Self { stop, folders: HashMap::new(), container: None, piece: None }
    }

    /// Appends the sample's image to `bytes`: exactly as many bytes as were listed.
    pub(crate) fn image(&mut self, sample: &Sample<'_>, bytes: &mut Vec<u8>) -> Result<(), SourceFault> {
        match sample.store {
            SampleStore::Folder(folder) => {
                let Sample { path, bytes: len, changed_ns, .. } = *sample;
                read_file(self.folder(folder)?, &ListedFile { path, bytes: len, changed_ns }, bytes)
            }
            SampleStore::Container(file) => {
                self.span(file, sample.changed_ns, sample.offset, sample.bytes, bytes)
            }
            SampleStore::Piece { path, .. } => self.own_span(path, sample.offset, sample.bytes, bytes),
            SampleStore::Bucket(_) | SampleStore::BucketTar(_) => {
                self.object_span(sample, sample.offset, sample.bytes, bytes)
            }
        }
    }

    /// Appends the first bytes of the sample's image, `most` of them if it is longer.
    pub(crate) fn head(
        &mut self,
        sample: &Sample<'_>,
        most: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        if sample.bytes <= most {
            return self.image(sample, bytes);
        }
        self.part(sample, 0, most, bytes)
    }

    /// Appends the bytes of the sample's image from `from` on, `most` of them if there are more.
    pub(crate) fn part(
        &mut self,
        sample: &Sample<'_>,
        from: u32,
        most: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        let len = sample.bytes.saturating_sub(from).min(most);
        let offset = sample.offset.saturating_add(from.into());
        match sample.store {
            SampleStore::Folder(folder) => {
                let Sample { path, bytes: listed, changed_ns, .. } = *sample;
                let file = ListedFile { path, bytes: listed, changed_ns };
                read_part(self.folder(folder)?, &file, from, len, bytes)
            }
            SampleStore::Container(file) => self.span(file, sample.changed_ns, offset, len, bytes),
            SampleStore::Piece { path, .. } => self.own_span(path, offset, len, bytes),
            SampleStore::Bucket(_) | SampleStore::BucketTar(_) => {
                self.object_span(sample, offset, len, bytes)
            }
        }
    }

    /// Appends the content of a field to `bytes`.
    pub(crate) fn field(
        &mut self,
        sample: &Sample<'_>,
        field: &Field<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        match (field.content, sample.store) {
            (FieldContent::Inline(content), _) => {
                bytes.extend_from_slice(content);
                Ok(())
            }
            (FieldContent::Stored { offset, bytes: len }, SampleStore::Container(file)) => {
                self.span(file, sample.changed_ns, offset, len, bytes)
            }
            (FieldContent::Stored { offset, bytes: len }, SampleStore::Piece { path, .. }) => {
                self.own_span(path, offset, len, bytes)
            }
            (FieldContent::Stored { offset, bytes: len }, SampleStore::BucketTar(_)) => {
                self.object_span(sample, offset, len, bytes)
            }
            (FieldContent::File { pair, bytes: len, changed_ns }, _) => {
                let path = pair.file_of(sample.path);
                let file = ListedFile { path: &path, bytes: len, changed_ns };
                let read = self.folder(&pair.folder).and_then(|folder| read_file(folder, &file, bytes));
                read.map_err(|fault| SourceFault::Paired {
                    name: field.name.to_owned(),
                    path: pair.folder.join(&path),
                    fault: Box::new(fault),
                })
            }
            (FieldContent::Stored { .. }, SampleStore::Folder(_) | SampleStore::Bucket(_)) => {
                Err(SourceFault::NoContainer(field.name.to_owned()))
            }
        }
    }

    /// Reads bytes of a sample's object; nothing of one in a file.
    fn object_span(
        &self,
        sample: &Sample<'_>,
        offset: u64,
        len: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        let is_stopped = || self.stop.check().is_err();
        let range = offset..offset.saturating_add(len.into());
        match sample.store {
            SampleStore::Bucket(bucket) => {
                let listed = Identity { bytes: sample.bytes.into(), version: sample.changed_ns };
                bucket.read(sample.path, range, listed, bytes, &is_stopped)?;
            }
            SampleStore::BucketTar(tar) => tar.read(range, bytes, &is_stopped)?,
            SampleStore::Folder(_) | SampleStore::Container(_) | SampleStore::Piece { .. } => {}
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path) -> Result<&OwnedFd, SourceFault> {
        Ok(match self.folders.entry(path.to_owned()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => free.insert(open_folder(path).map_err(SourceFault::Folder)?),
        })
    }

    fn span(
        &mut self,
        path: &PathBuf,
        listed_ns: i64,
        offset: u64,
        len: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        let open = match self.container.take().filter(|(open, _)| open == path) {
            Some(open) => open,
            None => {
                let file = regular::open(path).map_err(SourceFault::Open)?;
                let state = FileState::settled(&file).map_err(SourceFault::Stat)?;
                if state.changed_ns != listed_ns {
                    return Err(SourceFault::TarTouched);
                }
                (path.clone(), OpenContainer { file, state })
            }
        };
        let (_, OpenContainer { file, state }) = &*self.container.insert(open);
        let start = bytes.len();
        bytes.resize(start.saturating_add(len as usize), 0);
        let target = bytes.get_mut(start..).unwrap_or_default();
        file.read_exact_at(target, offset).map_err(SourceFault::Read)?;
        match FileState::now(file).map_err(SourceFault::Stat)? == *state {
            true => Ok(()),
            false => Err(SourceFault::TarTouched),
        }
    }
}

impl SourceReader<'_> {
    /// Reads a file that this process has written, and nobody else writes to.
    fn own_span(
        &mut self,
        path: &PathBuf,
        offset: u64,
        len: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SourceFault> {
        let open = match self.piece.take().filter(|(open, _)| open == path) {
            Some(open) => open,
            None => (path.clone(), regular::open(path).map_err(SourceFault::Open)?),
        };
        let (_, file) = &*self.piece.insert(open);
        let start = bytes.len();
        bytes.resize(start.saturating_add(len as usize), 0);
        file.read_exact_at(bytes.get_mut(start..).unwrap_or_default(), offset).map_err(SourceFault::Read)
    }
}

/// Opens a file that must be as it was listed. Returns its state, too.
fn open_listed(folder: &OwnedFd, listed_file: &ListedFile<'_>) -> Result<(File, FileState), SourceFault> {
    let opened = regular::open_at(folder, Path::new(listed_file.path), OFlags::RDONLY);
    let file = File::from(opened.map_err(SourceFault::Open)?);
    let before = FileState::settled(&file).map_err(SourceFault::Stat)?;
    let listed = i64::from(listed_file.bytes);
    if before.bytes != listed {
        return Err(SourceFault::Resized { listed, now: before.bytes });
    }
    if before.changed_ns != listed_file.changed_ns {
        return Err(SourceFault::Touched);
    }
    Ok((file, before))
}

/// Appends `len` bytes of a file, from `from` on.
fn read_part(
    folder: &OwnedFd,
    listed_file: &ListedFile<'_>,
    from: u32,
    len: u32,
    bytes: &mut Vec<u8>,
) -> Result<(), SourceFault> {
    let (file, before) = open_listed(folder, listed_file)?;
    let start = bytes.len();
    bytes.resize(start.saturating_add(len as usize), 0);
    let target = bytes.get_mut(start..).unwrap_or_default();
    file.read_exact_at(target, from.into()).map_err(SourceFault::Read)?;
    match FileState::now(&file).map_err(SourceFault::Stat)? == before {
        true => Ok(()),
        false => Err(SourceFault::Torn),
    }
}

fn read_file(folder: &OwnedFd, listed_file: &ListedFile<'_>, bytes: &mut Vec<u8>) -> Result<(), SourceFault> {
    let (file, before) = open_listed(folder, listed_file)?;
    let start = bytes.len();
    read_listed(&file, listed_file.bytes, bytes)?;
    if FileState::now(&file).map_err(SourceFault::Stat)? != before {
        bytes.truncate(start);
        return Err(SourceFault::Torn);
    }
    Ok(())
}

/// Appends as many bytes as were listed, which must be all that the file has.
fn read_listed(file: &File, listed: u32, bytes: &mut Vec<u8>) -> Result<(), SourceFault> {
    let (listed, expected) = (i64::from(listed), listed as usize);
    let start = bytes.len();
    // One byte more than the file has: a short read is then the file's end, and a file that grew
    // shows.
    bytes.reserve(expected.saturating_add(1));
    loop {
        let room = bytes.capacity() - bytes.len();
        let got = match rustix::io::read(file, spare_capacity(bytes)) {
            Ok(got) => got,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(SourceFault::Read(errno.into())),
        };
        let have = bytes.len() - start;
        if have == expected && got < room {
            return Ok(());
        }
        if have > expected || got == 0 {
            bytes.truncate(start);
            let now = i64::try_from(have).unwrap_or(i64::MAX);
            let is_grown = have > expected;
            return Err(if is_grown {
                SourceFault::Grown { listed }
            } else {
                SourceFault::Resized { listed, now }
            });
        }
    }
}
