//! Facts about a path: its mount, how shards there would be read, the dataset in it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::Serialize;
use shade_core::{block_bytes_for, capacity_bytes};
use shade_dataset::{Choice, Dataset, DatasetError, choose, shards_folder};
use shade_formats::index::{Index, PlacesKind};
use shade_formats::{SampleId, ShardId};
use shade_job::{Capacity, IoMode};
use shade_reads::any_shard;

use super::cli::DoctorError;
use super::mountstats::reads_so_far;
use super::nfs::Nfs;
use crate::proc::mountinfo::{self, Mount};
use crate::proc::text;

/// Alignment of blocks where there is no dataset to tell their size.
const PAGE_BYTES: u32 = 4096;
/// Most entries of a folder that are examined to find a file.
const FILES_MAX: usize = 1000;

/// Facts about a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PathFacts {
    /// The path, without links.
    pub(super) path: PathBuf,
    /// The mount that it is on.
    pub(super) mount: Option<Mount>,
    /// For an NFS mount.
    pub(super) nfs: Option<Nfs>,
    /// Read-ahead of buffered reads.
    pub(super) read_ahead_kib: Option<u64>,
    /// How shards would be read with `--io auto`; `None` where there is no file to ask about.
    pub(super) io: Option<Io>,
    /// The packed dataset; `None` if there is none.
    pub(super) dataset: Option<DatasetFacts>,
    /// Why there is no dataset to probe.
    pub(super) no_dataset: Option<String>,
}

/// Past the page cache or through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Io {
    /// Past the page cache.
    pub(super) direct: bool,
    /// What direct reads are aligned to.
    pub(super) align_bytes: Option<u32>,
    /// The reason.
    pub(super) why: String,
}

impl From<Choice> for Io {
    fn from(choice: Choice) -> Self {
        let align_bytes = choice.direct_align_bytes;
        Self { direct: align_bytes.is_some(), align_bytes, why: choice.why }
    }
}

/// A packed dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DatasetFacts {
    /// Its samples.
    pub(super) samples: u32,
    /// Its shards.
    pub(super) shards: u32,
    /// Bytes of all shards.
    pub(super) shard_bytes: u64,
    /// Bytes of all records as stored.
    pub(super) record_bytes: u64,
    /// Mean size of a record.
    pub(super) record_mean_bytes: u64,
    /// The 99th percentile.
    pub(super) record_p99_bytes: u32,
    /// The largest.
    pub(super) record_max_bytes: u32,
    /// Size of a block of the arena.
    pub(super) block_bytes: u32,
    /// Memory of a cache that holds the whole dataset.
    pub(super) cached_bytes: u64,
}

/// Examines `path`; also returns the dataset if there is one.
pub(super) fn look(path: &Path, mounts: &[Mount]) -> Result<(PathFacts, Option<Dataset>), DoctorError> {
    let no_path = |source| DoctorError::Path { path: path.to_owned(), source };
    let path = path.canonicalize().map_err(no_path)?;
    let (dataset, no_dataset) = match Dataset::open(&path) {
        Ok(dataset) => (Some(dataset), None),
        Err(error @ DatasetError::NotPacked { .. }) => (None, Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let facts = dataset.as_ref().map(|dataset| facts(&dataset.index));
    // Records may lie elsewhere than their index.
    let path = match &dataset {
        Some(dataset) => records_folder(&path, &dataset.index),
        None => path,
    };
    let mount = mount_of(&path, mounts);
    let nfs = mount.as_ref().and_then(nfs);
    let found = PathFacts {
        read_ahead_kib: mount.as_ref().and_then(|mount| read_ahead_kib(&mount.device)),
        io: io(&path, dataset.as_ref(), facts.as_ref(), nfs.is_some()),
        mount,
        nfs,
        dataset: facts,
        no_dataset,
        path,
    };
    Ok((found, dataset))
}

/// Where the records of the dataset in `folder` are. Those of several datasets have one folder in
/// common, which may be on another mount: one dataset's counts.
fn records_folder(folder: &Path, index: &Index) -> PathBuf {
    let is_of_datasets = index.places().is_some_and(|places| places.kind == PlacesKind::Shards);
    let shard = if is_of_datasets { any_shard(folder, index) } else { None };
    shard.as_deref().and_then(Path::parent).unwrap_or_else(|| shards_folder(folder, index)).to_owned()
}

/// The mount of a path without links.
pub(super) fn mount_of(path: &Path, mounts: &[Mount]) -> Option<Mount> {
    mountinfo::of_path(mounts, path, mount_id(path)).cloned()
}

/// `None` before Linux 5.8.
fn mount_id(path: &Path) -> Option<u64> {
    let answer = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (answer.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(answer.stx_mnt_id)
}

fn nfs(mount: &Mount) -> Option<Nfs> {
    let nfs = Nfs::of(mount)?;
    let slots = text("/sys/module/nfs/parameters/max_session_slots");
    Some(Nfs {
        session_slots_max: slots.trim().parse().ok(),
        reads: reads_so_far(&text("/proc/self/mountstats"), &mount.mount_point),
        ..nfs
    })
}

/// The setting of the file system, else that of its disk: a partition has none.
fn read_ahead_kib(device: &str) -> Option<u64> {
    let files = [
        format!("/sys/class/bdi/{device}/read_ahead_kb"),
        format!("/sys/dev/block/{device}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{device}/../queue/read_ahead_kb"),
    ];
    files.iter().find_map(|file| text(file).trim().parse().ok())
}

/// How shards in `path` would be read. A folder without a dataset is judged by any file in it; NFS
/// needs none.
fn io(path: &Path, dataset: Option<&Dataset>, facts: Option<&DatasetFacts>, is_nfs: bool) -> Option<Io> {
    let file = match dataset {
        Some(dataset) => any_shard(&dataset.folder, &dataset.index),
        None if path.is_file() => Some(path.to_owned()),
        None => any_file(path),
    };
    if file.is_none() && !is_nfs {
        return None;
    }
    // The arena's alignment of blocks.
    let block_bytes = facts.map_or(PAGE_BYTES, |facts| facts.block_bytes);
    let align_bytes = PAGE_BYTES.min(1 << block_bytes.trailing_zeros());
    choose(IoMode::Auto, path, file.as_deref(), align_bytes).ok().map(Io::from)
}

fn any_file(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().take(FILES_MAX);
    entries.map(|entry| entry.path()).find(|path| path.is_file())
}

/// Facts about a dataset, by its index.
pub(super) fn facts(index: &Index) -> DatasetFacts {
    let stored_len = |id| index.entry(SampleId(id)).map(|entry| entry.stored_len);
    let mut lens: Vec<u32> = (0..index.len()).filter_map(stored_len).collect();
    let block_bytes = block_bytes_for(lens.iter().copied());
    let record_bytes: u64 = lens.iter().map(|&len| u64::from(len)).sum();
    lens.sort_unstable();
    let p99 = (lens.len() * 99).div_ceil(100).saturating_sub(1);
    let shards = (0..index.shard_count()).filter_map(|id| index.shard(ShardId(id)));
    DatasetFacts {
        samples: index.len(),
        shards: index.shard_count(),
        shard_bytes: shards.map(|shard| shard.bytes).sum(),
        record_bytes,
        record_mean_bytes: record_bytes / lens.len().max(1) as u64,
        record_p99_bytes: lens.get(p99).copied().unwrap_or(0),
        record_max_bytes: lens.last().copied().unwrap_or(0),
        block_bytes,
        cached_bytes: capacity_bytes(Capacity::Share(1.0), index, block_bytes),
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::index::{INDEX_FILE, IndexBuilder, Shard};

    use super::*;

    #[test]
    fn a_folder_without_files_leaves_open_how_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (found, dataset) = look(folder.path(), &[]).unwrap();
        assert!(dataset.is_none() && found.dataset.is_none() && found.mount.is_none());
        assert_eq!(found.io, None);
        assert!(found.no_dataset.unwrap().contains("shade-pack create"));
        fs::write(folder.path().join("a"), "a").unwrap();
        assert!(look(folder.path(), &[]).unwrap().0.io.is_some());
    }

    #[test]
    fn of_several_datasets_one_that_is_there_is_judged_and_not_their_common_folder() {
        let base = tempfile::tempdir().unwrap();
        let (part, there) = (base.path().join("b"), base.path().join("index"));
        for folder in [&part, &there] {
            fs::create_dir(folder).unwrap();
        }
        let mut index = IndexBuilder::new();
        for name in ["a/shard-000000.tar", "b/shard-000000.tar"] {
            index.push_shard(Shard { name, bytes: 1024, crc32c: 0, records: 0 }).unwrap();
        }
        index.set_places(PlacesKind::Shards, base.path().as_os_str().as_encoded_bytes(), Vec::new());
        fs::write(there.join(INDEX_FILE), index.finish().unwrap()).unwrap();
        assert_eq!(look(&there, &[]).unwrap().0.path, base.path(), "no shard is there");
        fs::write(part.join("shard-000000.tar"), [0; 1024]).unwrap();
        assert_eq!(look(&there, &[]).unwrap().0.path, part);
    }

    #[test]
    fn a_path_that_is_not_there_cannot_be_looked_at() {
        let Err(error) = look(Path::new("/nonexistent/shade"), &[]) else { panic!("nothing is there") };
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("/nonexistent/shade"), "{error}");
    }
}
