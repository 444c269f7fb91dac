//! Numbers of shards and keys of samples that a dataset does not use yet.

use shade_formats::{SampleId, ShardId};

use crate::catalogue::Catalogue;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::plan::shard_name;

/// The first number that no shard of the dataset has in its name.
pub(super) fn first_shard(dataset: &Dataset) -> u32 {
    let names = (0..dataset.index.shard_count()).filter_map(|shard| dataset.index.shard(ShardId(shard)));
    let numbers = names.filter_map(|shard| number_of(shard.name));
    numbers.map(|number| number.saturating_add(1)).max().unwrap_or(0).max(dataset.index.shard_count())
}

/// The number in a shard's name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("shard-")?.strip_suffix(".tar")?.parse().ok()?;
    (shard_name(number) == name).then_some(number)
}

/// The first key that no sample of the dataset has and none will have.
pub(super) fn first_key(dataset: &Dataset, catalogue: &Catalogue) -> Result<u32, Error> {
    let keys = (0..dataset.index.len()).map(|sample| dataset.index.key(SampleId(sample)));
    let first = keys.max().map_or(Some(0), |last| last.checked_add(1));
    let first = first.filter(|first| first.checked_add(catalogue.len()).is_some());
    first.ok_or_else(|| {
        let fault = "there are not enough keys left for so many samples".to_owned();
        Error::Source { path: dataset.dir.clone(), fault }
    })
}
