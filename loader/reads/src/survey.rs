//! Checks the shards' files before the first read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::fs::stat;
use rustix::io::Errno;
use shade_dataset::{Found, Objects, changed_ns, shard_path, version_of};
use shade_formats::ShardId;
use shade_formats::index::{Index, PlacesKind};

use crate::ShardWarning;

/// Shards that are checked at a time: on a network file system each check is a round trip.
const SURVEY_THREADS: usize = 16;

/// Checks all shards. Returns those that are missing, or have another size than the index says or
/// another time, in order. Images' own files are not checked: there may be millions, and each is
/// compared when it is opened.
pub(super) fn survey(folder: &Path, index: &Index) -> Vec<(ShardId, ShardWarning)> {
    if index.places().is_some_and(|places| places.kind == PlacesKind::Files) {
        return Vec::new();
    }
    let ids: Vec<ShardId> = (0..index.shard_count()).map(ShardId).collect();
    let look = |ids: &[ShardId]| {
        ids.iter().filter_map(|&id| Some((id, look_at(folder, index, id)?))).collect::<Vec<_>>()
    };
    let each = ids.len().div_ceil(SURVEY_THREADS).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = ids.chunks(each).map(|ids| scope.spawn(move || look(ids))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn look_at(folder: &Path, index: &Index, id: ShardId) -> Option<ShardWarning> {
    let shard = index.shard(id)?;
    let path = shard_path(folder, index, id)?;
    let found = match stat(&path) {
        Ok(found) => found,
        Err(errno) => return Some(ShardWarning::Missing { path, errno }),
    };
    let (got, expected) = (u64::try_from(found.st_size).unwrap_or_default(), shard.bytes);
    if got != expected {
        return Some(ShardWarning::Size { path, got, expected });
    }
    let is_changed = index.changed_ns(id).is_some_and(|expected| expected != changed_ns(&found));
    is_changed.then_some(ShardWarning::Changed { path })
}

/// Compares the objects of a bucket with the index, by one list of them, or by one of each dataset
/// that shards are of; not images' own objects, as each is compared when it is read. Where these
/// keys may not list, or the store cannot now, the first read of each shard tells the same.
pub(super) fn survey_objects(objects: &Objects, index: &Index) -> Vec<(ShardId, ShardWarning)> {
    let kind = index.places().map(|places| places.kind);
    if kind == Some(PlacesKind::Files) {
        return Vec::new();
    }
    // Beside the datasets whose shards these are, a bucket may have anything.
    let folder_of = |name: &str| match kind {
        Some(PlacesKind::Shards) => name.rsplit_once('/').map(|(folder, _)| folder.to_owned()),
        _ => None,
    };
    let names = (0..index.shard_count()).filter_map(|id| index.shard(ShardId(id)).map(|shard| shard.name));
    let folders: BTreeSet<Option<String>> = names.map(folder_of).collect();
    let list = |folder: Option<String>| {
        let listed = folder.as_deref().map_or_else(|| objects.list(), |folder| objects.list_in(folder));
        match listed {
            Ok(there) => {
                let by_name = there.into_iter().map(|found| (found.name.clone(), found)).collect();
                Some((folder, by_name))
            }
            Err(fault) => {
                tracing::debug!("{}: shards are not compared with the index: {fault}", objects.url());
                None
            }
        }
    };
    let there: BTreeMap<Option<String>, HashMap<String, Found>> =
        folders.into_iter().filter_map(list).collect();
    let warning = |id| {
        let shard = index.shard(id)?;
        let (path, expected) = (objects.url().join(shard.name).as_str().into(), shard.bytes);
        let Some(found) = there.get(&folder_of(shard.name))?.get(shard.name) else {
            return Some(ShardWarning::Missing { path, errno: Errno::NOENT });
        };
        if found.bytes != expected {
            return Some(ShardWarning::Size { path, got: found.bytes, expected });
        }
        let version = found.etag.as_deref().map(version_of);
        let is_changed =
            index.changed_ns(id).is_some_and(|indexed| version.is_some_and(|now| now != indexed));
        is_changed.then_some(ShardWarning::Changed { path })
    };
    let ids = (0..index.shard_count()).map(ShardId);
    ids.filter_map(|id| Some((id, warning(id)?))).collect()
}

/// A shard that exists.
#[must_use]
pub fn any_shard(folder: &Path, index: &Index) -> Option<PathBuf> {
    (0..index.shard_count())
        .filter_map(|id| shard_path(folder, index, ShardId(id)))
        .find(|path| stat(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_formats::index::{IndexBuilder, Shard};

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn the_survey_names_what_is_not_as_the_index_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard-000000.tar");
        std::fs::write(&path, [7; 1024]).unwrap();
        let mut index = IndexBuilder::new();
        index.push_shard(Shard { name: "shard-000000.tar", bytes: 1024, crc32c: 0, records: 0 }).unwrap();
        let index = Index::open(index.finish().unwrap()).unwrap();
        assert_eq!(survey(folder.path(), &index), []);
        assert_eq!(any_shard(folder.path(), &index), Some(path.clone()));
        std::fs::write(&path, [7; 512]).unwrap();
        let size = ShardWarning::Size { path: path.clone(), got: 512, expected: 1024 };
        assert_eq!(survey(folder.path(), &index), [(SHARD, size)]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            survey(folder.path(), &index),
            [(SHARD, ShardWarning::Missing { path, errno: Errno::NOENT })]
        );
        assert_eq!(any_shard(folder.path(), &index), None);
    }
}
