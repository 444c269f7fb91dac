//! What runs that did not come to their end have left in a dataset's folder.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use shade_formats::ShardId;

use super::numbers::number_of;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::pack::read_done;

/// Removes shards that unfinished runs have completed, unless they are of the work `keep`.
pub(super) fn discard(dataset: &Dataset, keep: Option<&str>) -> Result<(), Error> {
    let dir = &dataset.dir;
    let shards = (0..dataset.index.shard_count()).filter_map(|shard| dataset.index.shard(ShardId(shard)));
    let in_use: HashSet<&str> = shards.map(|shard| shard.name).collect();
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
                Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &shard)(fault));
                }
                _ => {}
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
