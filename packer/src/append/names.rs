//! Shards and keys in a dataset's folder: those that are free, and those that unfinished runs left.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use shade_formats::ShardId;

use crate::catalogue::Catalogue;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::pack::read_done;
use crate::plan::shard_name;

/// The first number that no shard of the dataset has in its name.
pub(super) fn first_shard(dataset: &Dataset) -> u32 {
    let numbers = dataset.shard_rows().filter_map(|shard| number_of(shard.name));
    numbers.map(|number| number.saturating_add(1)).max().unwrap_or(0).max(dataset.index.shard_count())
}

fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("shard-")?.strip_suffix(".tar")?.parse().ok()?;
    (shard_name(number) == name).then_some(number)
}

/// The first key that no sample of the dataset has and none will have.
pub(super) fn first_key(dataset: &Dataset, catalogue: &Catalogue) -> Result<u32, Error> {
    let keys = dataset.ids().map(|sample| dataset.index.key(sample));
    let first = keys.max().map_or(Some(0), |last| last.checked_add(1));
    let first = first.filter(|first| first.checked_add(catalogue.len()).is_some());
    first.ok_or_else(|| {
        let fault = "there are not enough keys left for so many samples".to_owned();
        Error::Source { path: dataset.dir.clone(), fault }
    })
}

/// Removes shards that unfinished runs have completed, unless they belong to the work `keep`.
pub(super) fn discard(dataset: &Dataset, keep: Option<&str>) -> Result<(), Error> {
    let dir = &dataset.dir;
    let in_use: HashSet<&str> = dataset.shard_rows().map(|shard| shard.name).collect();
    for name in unfinished_shards(dir)? {
        let number = number_of(&name).filter(|_| !in_use.contains(name.as_str()));
        if let (Some(number), Some(keep)) = (number, keep)
            && read_done(dir, ShardId(number), keep)?.is_some()
        {
            continue;
        }
        let done = dir.join(format!("{name}.done"));
        fs::remove_file(&done).map_err(Error::io("remove", &done))?;
        if number.is_some() {
            let shard = dir.join(&name);
            match fs::remove_file(&shard) {
                Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io("remove", &shard))?,
            }
        }
    }
    Ok(())
}

/// Names of shards that have a record of completion.
fn unfinished_shards(dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".done")).map(str::to_owned));
    }
    Ok(names)
}

/// Says what is kept for the next run.
pub(super) fn unfinished(source: Error, dataset: &Dataset) -> Error {
    match unfinished_shards(&dataset.dir).map_or(0, |shards| shards.len()) {
        0 => source,
        shards => Error::Unfinished { source: Box::new(source), partial: dataset.dir.clone(), shards },
    }
}
