//! Shards and keys in a dataset's folder: those that are free, and those that unfinished runs left.

use std::collections::HashSet;
use std::os::fd::AsFd;

use shade_formats::ShardId;

use crate::bucket::Bucket;
use crate::catalogue::Catalogue;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::leftovers::{
    Content, clean_unfinished, done_shards, is_marked, mark, open_folder, remove_file, unmark,
};
use crate::pack::{placed_in, read_done};
use crate::plan::{shard_name, shard_number};

/// The first number that no shard of the dataset has in its name.
pub(super) fn first_shard(dataset: &Dataset) -> u32 {
    let numbers = dataset.shard_rows().filter_map(|shard| shard_number(shard.name));
    numbers.map(|number| number.saturating_add(1)).max().unwrap_or(0).max(dataset.index.shard_count())
}

/// The first key that no sample of the dataset has and none will have.
pub(super) fn first_key(dataset: &Dataset, catalogue: &Catalogue) -> Result<u32, Error> {
    let keys = dataset.ids().map(|sample| dataset.index.key(sample));
    let first = keys.max().map_or(Some(0), |last| last.checked_add(1));
    let first = first.filter(|first| first.checked_add(catalogue.len()).is_some());
    first.ok_or_else(|| {
        let fault = "there are not enough keys left for so many samples".to_owned();
        Error::Source { path: dataset.name.clone(), fault }
    })
}

/// Removes shards that unfinished runs have completed, unless they belong to the work `keep`.
pub(super) fn discard(dataset: &Dataset, bucket: Option<&Bucket>, keep: Option<&str>) -> Result<(), Error> {
    let dir = &dataset.dir;
    let in_use: HashSet<&str> = dataset.shard_rows().map(|shard| shard.name).collect();
    let placed = placed_in(dir)?;
    for number in done_shards(dir)? {
        let name = shard_name(number);
        let is_used = in_use.contains(name.as_str());
        if let (false, Some(keep)) = (is_used, keep)
            && read_done(dir, ShardId(number), keep)?.is_some()
        {
            continue;
        }
        remove_file(&dir.join(format!("{name}.done")))?;
        if !is_used {
            remove_file(&dir.join(&name))?;
            let placed = placed.iter().find(|placed| placed.name == name);
            if let (Some(bucket), Some(placed)) = (bucket, placed) {
                bucket.remove_placed(placed)?;
            }
        }
    }
    Ok(())
}

/// Refuses to write a shard over a file that no run of ours has left: usage. Once the dataset is
/// marked, such files are those of a killed run.
pub(super) fn refuse_taken(dataset: &Dataset, first: u32, shards: usize) -> Result<(), Error> {
    let dir = &dataset.dir;
    let folder = open_folder(dir).map_err(Error::io("open", dir))?;
    if is_marked(dir, folder.as_fd()) {
        return Ok(());
    }
    let done: HashSet<u32> = done_shards(dir)?.into_iter().collect();
    for number in (first..).take(shards).filter(|number| !done.contains(number)) {
        let shard = shard_name(number);
        for path in [dir.join(format!("{shard}.done")), dir.join(shard)] {
            if path.symlink_metadata().is_ok() {
                let (path, dir) = (path.display(), dataset.name.display());
                let text = format!("{path} is there, and is not of {dir}: give it another name first");
                return Err(Error::Usage(text));
            }
        }
    }
    mark(dir, folder.as_fd(), &Content::Pack(Vec::new()))
}

/// Says what is kept for the next run.
pub(super) fn unfinished(source: Error, dataset: &Dataset) -> Error {
    let dir = &dataset.dir;
    match done_shards(dir).map_or(0, |shards| shards.len()) {
        0 => {
            // The dataset is what it was. If that fails, too, the first failure is the one to tell.
            let _ = clean_unfinished(dir).and_then(|()| unmark(dir));
            source
        }
        shards => Error::Unfinished { source: Box::new(source), partial: dataset.name.clone(), shards },
    }
}
