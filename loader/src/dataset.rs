//! Opens a packed dataset: its folder and its index.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe; this is the only such place of the loader's index"
)]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shade_formats::FormatError;
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::limits::INDEX_BYTES_MAX;

/// A dataset on disk.
#[derive(Clone)]
pub struct Dataset {
    /// The folder that holds index and shards, canonical.
    pub folder: PathBuf,
    /// The validated index.
    pub index: Arc<Index>,
}

/// Why a dataset cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// Not there, or not readable.
    #[error("cannot open the dataset at {path}: {source}")]
    Io {
        /// What was tried.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// There, but no packed dataset.
    #[error("{path} holds no {INDEX_FILE}: pack the ImageFolder first (shade-pack create {path} OUT)")]
    NotPacked {
        /// The folder.
        path: PathBuf,
    },
    /// The index is damaged or of another version.
    #[error("{path}: {source}")]
    Format {
        /// The index file.
        path: PathBuf,
        /// What is wrong and where.
        source: FormatError,
    },
}

impl Dataset {
    /// Opens the dataset in folder `path`, or the one whose `dataset.shade` is `path`.
    ///
    /// # Errors
    /// [`DatasetError`]: not there, not a dataset, or damaged.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        Self::open_in(Self::folder(path)?)
    }

    /// The folder of the dataset at `path`, canonical: what it is known by before its index is read.
    ///
    /// # Errors
    /// There is nothing at `path`.
    pub fn folder(path: &Path) -> Result<PathBuf, DatasetError> {
        let path = path.canonicalize().map_err(io(path))?;
        Ok(if path.is_file() { path.parent().unwrap_or(Path::new("/")).to_owned() } else { path })
    }

    /// Opens the dataset in `folder`, as [`folder`](Self::folder) gives it.
    ///
    /// # Errors
    /// [`DatasetError`]: not a dataset, or damaged.
    pub fn open_in(folder: PathBuf) -> Result<Self, DatasetError> {
        let file_path = folder.join(INDEX_FILE);
        let file = match File::open(&file_path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(DatasetError::NotPacked { path: folder });
            }
            Err(error) => return Err(io(&file_path)(error)),
        };
        let bytes = file.metadata().map_err(io(&file_path))?.len();
        let opened = if bytes >= MAPPED_FROM_BYTES && is_local(&file) {
            Index::open(map(&file).map_err(io(&file_path))?)
        } else {
            let mut bytes = Vec::new();
            file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes).map_err(io(&file_path))?;
            Index::open(bytes)
        };
        let index = opened.map_err(|source| DatasetError::Format { path: file_path, source })?;
        Ok(Self { folder, index: Arc::new(index) })
    }
}

/// For `map_err`: names what was tried.
fn io(path: &Path) -> impl FnOnce(std::io::Error) -> DatasetError {
    let path = path.to_owned();
    move |source| DatasetError::Io { path, source }
}

fn map(file: &File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: shade-pack never writes to a published index: it renames another file into its place, which leaves this one
    // as it is. Only local file systems come here, so no server can change it under the mapping. A user can, by writing
    // into the file (`cp` or `rsync --inplace` onto it). `Index` never trusts such bytes twice: values may be wrong, which
    // each record's checksum tells. A file that is cut short ends the daemon (SIGBUS); README says so, and how to replace a
    // dataset instead.
    unsafe { memmap2::Mmap::map(file) }
}

/// An index from this size on is mapped where it may be. Smaller ones, up to about a million samples, are read: memory that
/// nobody can cut short costs little then.
const MAPPED_FROM_BYTES: u64 = 128 << 20;

/// Is the file on a file system of this machine? On network ones a mapping can raise SIGBUS when the file changes, so
/// anything not known to be local is read into memory instead. So is what overlayfs shows: what lies below may be anything.
fn is_local(file: &File) -> bool {
    const EXT4: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683E;
    const TMPFS: i64 = 0x0102_1994;
    #[expect(clippy::useless_conversion, reason = "f_type's width differs between architectures")]
    rustix::fs::fstatfs(file)
        .is_ok_and(|status| [EXT4, XFS, BTRFS, TMPFS].contains(&i64::from(status.f_type)))
}

#[cfg(test)]
mod tests {
    use shade_formats::index::{Codec, Entry, IndexBuilder, Media, Shard};
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
            crc32c: 7,
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
}
