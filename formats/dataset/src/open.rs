//! Opens a packed dataset, its folder and its index, and tells whether it is still the same.
#![expect(unsafe_code, reason = "mapping a file is unsafe; this is the only place where an index is mapped")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shade_formats::index::{HEADER_BYTES, INDEX_FILE, Index};
use shade_formats::limits::INDEX_BYTES_MAX;
use shade_formats::{ContentId, FormatError, ShardId};
use shade_store::{Address, Url};

use crate::direct::{FileSystem, Locality};
use crate::error::DatasetError;
use crate::origin::Origin;
use crate::regular;

/// A dataset on disk.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The folder that holds index and shards.
    pub folder: PathBuf,
    /// The validated index.
    pub index: Arc<Index>,
}

/// The content of a dataset, from its index's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Number of samples.
    pub samples: u32,
    /// Number of classes.
    pub classes: u32,
    /// The dataset's content id.
    pub id: ContentId,
}

impl Dataset {
    /// Opens the dataset in folder `path`, or the one whose `dataset.shade` is `path`, or the one
    /// at an address such as `s3://bucket/prefix`. Its folder is canonical.
    ///
    /// # Errors
    /// [`DatasetError`]: not there, not a dataset, or damaged.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        Self::open_in(Self::folder(path)?)
    }

    /// The canonical folder of the dataset at `path`. It identifies the dataset before its index is
    /// read. Where `path` is the address of an object store it is a folder of this user's with a
    /// copy of the index ([`Origin`]).
    ///
    /// # Errors
    /// There is nothing at `path`, or the store does not give the index.
    pub fn folder(path: &Path) -> Result<PathBuf, DatasetError> {
        if let Address::Url(url) = Address::of_path(path)? {
            return Origin::fetch(&url);
        }
        let path = path.canonicalize().map_err(io(path))?;
        Ok(if path.is_file() { path.parent().unwrap_or(Path::new("/")).to_owned() } else { path })
    }

    /// Whether its shards are objects in a bucket. Its index may be a file.
    #[must_use]
    pub fn are_objects(&self) -> bool {
        shards_address(&self.folder, &self.index).is_some()
    }

    /// Opens the dataset in `folder`.
    ///
    /// # Errors
    /// [`DatasetError`]: not a dataset, or damaged.
    pub fn open_in(folder: PathBuf) -> Result<Self, DatasetError> {
        let (path, file) = open_index(&folder)?;
        let len = file.metadata().map_err(io(&path))?.len();
        if len > INDEX_BYTES_MAX {
            let got = format_args!("{len} bytes");
            let source = FormatError::new("index", 0, got, format_args!("at most {INDEX_BYTES_MAX}"));
            return Err(DatasetError::Format { path, source });
        }
        let opened = if len >= MAPPED_FROM_BYTES && is_local(&file) {
            Index::open(map(&file).map_err(io(&path))?)
        } else {
            let mut bytes = Vec::new();
            let no_memory = |_| io(&path)(io::ErrorKind::OutOfMemory.into());
            bytes.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX)).map_err(no_memory)?;
            file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes).map_err(io(&path))?;
            Index::open(bytes)
        };
        // The copy of an index is what its bucket has.
        let origin = || Origin::of_folder(&folder).ok().flatten();
        let named = |path| origin().map_or(path, |origin| origin.url.join(INDEX_FILE).as_str().into());
        let index = opened.map_err(|source| DatasetError::Format { path: named(path), source })?;
        Ok(Self { folder, index: Arc::new(index) })
    }

    /// Opens the dataset in `folder`, which must have the content `expected`, perhaps with samples
    /// and classes that were added at its end since.
    ///
    /// # Errors
    /// [`DatasetError`]: not a dataset, damaged, or another one.
    pub fn open_same(folder: PathBuf, expected: Content) -> Result<Self, DatasetError> {
        let dataset = Self::open_in(folder)?;
        let got = dataset.index.content_id();
        let of_first = || dataset.index.content_id_of_first(expected.samples, expected.classes);
        if got == expected.id || of_first() == Some(expected.id) {
            return Ok(dataset);
        }
        Err(DatasetError::Replaced { path: dataset.folder.join(INDEX_FILE), got, expected: expected.id })
    }
}

impl Content {
    /// The present content of the dataset in `folder`, from its index's first bytes.
    ///
    /// # Errors
    /// [`DatasetError`]: not a dataset, or damaged.
    pub fn now(folder: &Path) -> Result<Self, DatasetError> {
        let (path, file) = open_index(folder)?;
        let mut start = Vec::new();
        file.take(HEADER_BYTES as u64).read_to_end(&mut start).map_err(io(&path))?;
        let format = |source| DatasetError::Format { path: path.clone(), source };
        let id = Index::content_id_at_start(&start).map_err(&format)?;
        let samples = Index::samples_at_start(&start).map_err(&format)?;
        let classes = Index::classes_at_start(&start).map_err(format)?;
        Ok(Self { samples, classes, id })
    }

    /// The content of an open dataset.
    #[must_use]
    pub fn of(index: &Index) -> Self {
        Self { samples: index.len(), classes: index.class_count(), id: index.content_id() }
    }

    /// Checks that the dataset in `folder` still has the content `expected`, perhaps with more
    /// added at its end. Only then it reads the whole index.
    ///
    /// # Errors
    /// [`DatasetError`]: not a dataset, damaged, or another one.
    pub fn check(folder: &Path, expected: Self) -> Result<(), DatasetError> {
        if Self::now(folder)?.id == expected.id {
            return Ok(());
        }
        Dataset::open_same(folder.to_owned(), expected).map(drop)
    }
}

/// The folder that holds the shards of the dataset in `folder`: it, or the base of its places.
#[must_use]
pub fn shards_folder<'a>(folder: &'a Path, index: &'a Index) -> &'a Path {
    index.places().map_or(folder, |places| Path::new(OsStr::from_bytes(places.base)))
}

/// The file of a shard of the dataset in `folder`, or its address; `None` if the index has no such
/// shard.
#[must_use]
pub fn shard_path(folder: &Path, index: &Index, shard: ShardId) -> Option<PathBuf> {
    let name = index.shard(shard)?.name;
    Some(match shards_address(folder, index) {
        Some(url) => url.join(name).as_str().into(),
        None => shards_folder(folder, index).join(name),
    })
}

/// The address that the shards of the dataset in `folder` lie at; `None` if they are files.
///
/// A damaged origin is written anew when its address is opened.
#[must_use]
pub fn shards_address(folder: &Path, index: &Index) -> Option<Url> {
    let Some(places) = index.places() else { return Some(Origin::of_folder(folder).ok()??.url) };
    match Address::parse(std::str::from_utf8(places.base).ok()?) {
        Ok(Address::Url(url)) => Some(url),
        Ok(Address::Path(_)) | Err(_) => None,
    }
}

fn open_index(folder: &Path) -> Result<(PathBuf, File), DatasetError> {
    let path = folder.join(INDEX_FILE);
    match regular::open(&path) {
        Ok(file) => Ok((path, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DatasetError::NotPacked { folder: folder.to_owned() })
        }
        Err(error) => Err(io(&path)(error)),
    }
}

/// For `map_err`: adds the path.
fn io(path: &Path) -> impl FnOnce(io::Error) -> DatasetError {
    let path = path.to_owned();
    move |source| DatasetError::Io { path, source }
}

fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: shade-pack never writes to a published index: it renames another file into its place,
    // which leaves this one unchanged. Only files on local file systems are mapped, so no server
    // can change one under the mapping. A user can, by writing into the file (`cp` or `rsync
    // --inplace` onto it). `Index` never trusts such bytes twice: values may be wrong, which each
    // record's checksum tells. Truncating the file ends the process (SIGBUS); README says so, and
    // how to replace a dataset instead.
    unsafe { memmap2::Mmap::map(file) }
}

/// From this size on an index is mapped where possible. Smaller ones, up to about a million
/// samples, are read into memory, which cannot be truncated and is little then.
const MAPPED_FROM_BYTES: u64 = 128 << 20;

/// Whether the file is on a file system of this machine. On a network one a mapping raises SIGBUS
/// when the file is truncated, so a file that is not known to be local is read into memory.
fn is_local(file: &File) -> bool {
    FileSystem::of_file(file).is_ok_and(|found| found.locality == Locality::Local)
}

#[cfg(test)]
mod tests {
    use shade_formats::index::{Codec, Entry, IndexBuilder, Media, PlacesKind, Shard};
    use shade_formats::{SampleId, ShardId};

    use super::*;

    #[test]
    fn an_index_that_is_overwritten_in_place_stays_what_it_was() {
        // On a file system that indexes are mapped on.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = IndexBuilder::new();
        builder.push_class(b"class").unwrap();
        let shard = Shard { name: "shard-000000.tar", bytes: 2048, crc32c: 0, records: 1 };
        builder.push_shard(shard).unwrap();
        let entry = Entry {
            shard: ShardId(0),
            offset: 512,
            stored_len: 3,
            raw_len: 3,
            crc32c: Some(7),
            label: 0,
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Other,
        };
        builder.push_sample(&entry, b"class/1.png").unwrap();
        let path = folder.path().join(INDEX_FILE);
        std::fs::write(&path, builder.finish().unwrap()).unwrap();
        let dataset = Dataset::open(folder.path()).unwrap();
        // As `cp other/dataset.shade .` begins.
        File::options().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(dataset.index.entry(SampleId(0)), Some(entry));
    }

    #[test]
    fn an_index_in_a_folder_may_be_of_objects() {
        for (base, are_objects) in [("s3://bucket/photos", true), ("/photos", false)] {
            let folder = tempfile::tempdir().unwrap();
            let mut index = IndexBuilder::new();
            index.set_places(PlacesKind::Files, base.as_bytes(), Vec::new());
            std::fs::write(folder.path().join(INDEX_FILE), index.finish().unwrap()).unwrap();
            assert_eq!(Dataset::open(folder.path()).unwrap().are_objects(), are_objects, "{base}");
        }
    }

    #[test]
    fn what_is_no_dataset_or_another_one_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_owned();
        let none = Dataset::open_in(there.clone()).unwrap_err();
        assert!(matches!(none, DatasetError::NotPacked { .. }) && !none.is_damage(), "{none}");
        assert!(none.to_string().contains("is no dataset") && none.to_string().contains("shade-pack create"));
        let path = there.join(INDEX_FILE);
        std::fs::write(&path, IndexBuilder::new().finish().unwrap()).unwrap();
        let content = Content::now(&there).unwrap();
        assert_eq!(content, Content::of(&Dataset::open(&path).unwrap().index));
        assert_eq!((content.samples, content.classes), (0, 0));
        Content::check(&there, content).unwrap();
        let other = Content { id: ContentId(5), ..content };
        for told in [
            Content::check(&there, other).unwrap_err(),
            Dataset::open_same(there.clone(), other).unwrap_err(),
        ] {
            let text = told.to_string();
            assert!(text.contains(&content.id.to_string()) && text.contains("was replaced"), "{text}");
        }
        std::fs::write(&path, b"no index").unwrap();
        for told in [Dataset::open_in(there.clone()).map(drop), Content::now(&there).map(drop)] {
            assert!(told.unwrap_err().is_damage());
        }
        // A file of that length takes no room on disk.
        File::options().write(true).open(&path).unwrap().set_len(INDEX_BYTES_MAX + 1).unwrap();
        let long = Dataset::open_in(there.clone()).unwrap_err();
        assert!(long.is_damage() && long.to_string().contains("at most"), "{long}");
        std::fs::remove_dir_all(&there).unwrap();
        assert!(matches!(Dataset::open(&there), Err(DatasetError::Io { .. })));
    }
}
