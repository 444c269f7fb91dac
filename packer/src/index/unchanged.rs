//! Tells whether an index is still right: the folders and tars of its source are as they were.

use std::path::Path;

use rayon::prelude::*;
use rustix::fs::stat;
use serde::{Deserialize, Serialize};
use shade_dataset::{changed_ns, shard_path, shards_folder};
use shade_formats::ShardId;
use shade_formats::index::{Index, PlacesKind};

use crate::catalogue::ListedFolder;
use crate::dataset::Dataset;
use crate::source::{Source, SourceKind};
use crate::workers::Workers;

/// How an index was made, as its options say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexOptions {
    pub(super) tool: String,
    pub(super) indexed: Indexing,
}

/// What was asked for, and the folders that were listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Indexing {
    pub(super) source: SourceKind,
    /// `--labels` as it was given, and a hash of what is in the file.
    pub(super) labels: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) labels_hash: Option<String>,
    pub(super) exclude: Vec<String>,
    pub(super) checksums: bool,
    /// Files were left out, so that another run may find more.
    pub(super) has_bad: bool,
    pub(super) folders: Vec<ListedFolder>,
}

impl Indexing {
    /// Whether the same was asked for.
    fn is_alike(&self, other: &Self) -> bool {
        let Self { source, labels, labels_hash, exclude, checksums, .. } = self;
        let asked = (source, labels, labels_hash, exclude, checksums);
        asked == (&other.source, &other.labels, &other.labels_hash, &other.exclude, &other.checksums)
    }
}

/// Why an index must be made again; `None` if it is still right. `wanted` is what is asked for now,
/// of the `source` at `base`. A source in a bucket was listed.
pub(super) fn why_changed(
    dataset: &Dataset,
    wanted: &Indexing,
    source: &Source,
    base: &Path,
    workers: &Workers,
) -> Option<String> {
    let options: Result<IndexOptions, _> = serde_json::from_str(dataset.index.options());
    let Ok(IndexOptions { indexed, .. }) = options else {
        return Some("it was made by another version".to_owned());
    };
    if shards_folder(&dataset.dir, &dataset.index) != base {
        return Some(format!("it was of {}", shards_folder(&dataset.dir, &dataset.index).display()));
    }
    if !indexed.is_alike(wanted) {
        return Some("it was made with other options".to_owned());
    }
    if indexed.has_bad {
        return Some("some files were left out".to_owned());
    }
    if let Some(state) = source.state_of_objects() {
        let is_same = indexed.folders.iter().all(|folder| folder.changed_ns == state);
        return (!is_same).then(|| format!("something below {} was changed", base.display()));
    }
    workers.install(|| changed_folder(&indexed.folders, base).or_else(|| changed_tar(&dataset.index, base)))
}

fn changed_folder(folders: &[ListedFolder], base: &Path) -> Option<String> {
    folders.par_iter().find_map_any(|folder| {
        let path = if folder.path.is_empty() { base.to_owned() } else { base.join(&folder.path) };
        match stat(&path).map(|found| changed_ns(&found)) {
            Ok(now) if now == folder.changed_ns => None,
            Ok(_) => Some(format!("the folder {} was changed", path.display())),
            Err(errno) => Some(format!("the folder {}: {errno}", path.display())),
        }
    })
}

fn changed_tar(index: &Index, base: &Path) -> Option<String> {
    if index.places()?.kind == PlacesKind::Files {
        return None;
    }
    (0..index.shard_count()).into_par_iter().map(ShardId).find_map_any(|id| {
        let (shard, path) = (index.shard(id)?, shard_path(base, index, id)?);
        let is_same = stat(&path).is_ok_and(|found| {
            Some(changed_ns(&found)) == index.changed_ns(id)
                && u64::try_from(found.st_size) == Ok(shard.bytes)
        });
        (!is_same).then(|| format!("{} was changed", path.display()))
    })
}
