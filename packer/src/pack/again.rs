//! Makes a shard once more that a dataset has lost.

use std::fs;
use std::sync::{Mutex, PoisonError};

use shade_formats::SampleId;
use shade_formats::index::{Entry, Shard};

use super::done::fields_row;
use super::packing::Packing;
use super::shard_file::PackedShard;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::locks::lock;
use crate::workers::Workers;

impl Packing<'_> {
    /// Packs its only shard, which had these `samples` in `dataset`. The file gets its name only if
    /// its bytes are those that the index tells of. Otherwise says which sample has others.
    pub(crate) fn run_again(
        &self,
        dataset: &Dataset,
        samples: &[(SampleId, Entry)],
        workers: &Workers,
    ) -> Result<Option<String>, Error> {
        let fault = Mutex::new(None);
        self.pack(vec![0], workers, &|file, made| {
            let is_free = fs::symlink_metadata(dataset.shard_path(made.shard)).is_err();
            let found = match is_free {
                true => difference(dataset, samples, &made),
                false => Some("a file of this name is there now".to_owned()),
            };
            let is_refused = found.is_some();
            *lock(&fault) = found;
            if is_refused { Ok(()) } else { file.publish() }
        })?;
        Ok(fault.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How a shard differs from what the index says of it.
fn difference(dataset: &Dataset, samples: &[(SampleId, Entry)], made: &PackedShard) -> Option<String> {
    let is_same = |row: Shard<'_>| (row.bytes, row.crc32c) == (made.bytes, made.crc32c);
    if dataset.index.shard(made.shard).is_some_and(is_same) {
        return None;
    }
    if let Some((_, bad)) = made.bad.first() {
        return Some(bad.to_string());
    }
    let other = samples.iter().zip(&made.records).find(|((sample, had), has)| {
        let then = (had.offset, had.stored_len, had.crc32c, fields_row(&dataset.index, *sample));
        then != (has.entry.offset, has.entry.stored_len, has.entry.crc32c, has.fields)
    });
    let path = other.map_or_else(|| "it".to_owned(), |((sample, _), _)| dataset.path_text(*sample));
    Some(format!("{path} has other bytes now, or was packed with other options or by another version"))
}
