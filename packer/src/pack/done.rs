//! A shard's record of completion, `shard-000000.tar.done`: what the next run needs to know instead
//! of packing it again.
//!
//! It is an index of that one shard, in the index's own format with the index's own checks. Keys
//! tell the samples; names and classes are empty; the options hold what was left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shade_dataset::{ReadMemory, regular};
use shade_formats::checksum::crc32c_append;
use shade_formats::index::{Entry, Index, IndexBuilder, Shard};
use shade_formats::{FormatError, SampleId, ShardId};

use super::not_decodable::NotDecodable;
use super::shard_file::PackedShard;
use super::stretch::PlacedRecord;
use crate::bucket::ShardsTo;
use crate::catalogue::Bad;
use crate::dataset::Shards;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::leftovers::{done_of, done_shards, remove_file};
use crate::part::Part;
use crate::plan::shard_name;

/// A shard is read back in pieces of this size: large enough for the full rate of a disk.
const PIECE_BYTES: u64 = 4 << 20;

/// The options of such an index.
#[derive(Serialize, Deserialize)]
struct DoneOptions {
    /// Identifies the pack, in hexadecimal.
    pack: String,
    /// What was left out: sample, path, fault.
    bad: Vec<(u32, String, String)>,
    #[serde(skip_serializing_if = "NotDecodable::is_empty", default)]
    not_decodable: NotDecodable,
    /// The part that made it, of several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    part: Option<Part>,
    /// The version of the object that it became, if it is in a bucket.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    placed: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pack<'a> {
    /// Identifies the pack, in hexadecimal.
    pub(crate) id: &'a str,
    pub(crate) classes: usize,
    /// The dictionary of compressed records; empty for none.
    pub(crate) dictionary: &'a [u8],
    pub(crate) part: Part,
    /// The version of the object that the shard became, if it is in a bucket.
    pub(crate) placed: Option<&'a str>,
}

/// A shard that is complete, read back.
#[derive(Debug)]
pub struct DoneShard {
    index: Arc<Index>,
    /// What was left out of it.
    pub bad: Vec<Bad>,
    pub(crate) not_decodable: NotDecodable,
    /// The part that made it, of several.
    pub(crate) part: Option<Part>,
    /// The version of the object that it became; `None` if its file is in the folder.
    pub(super) placed: Option<String>,
}

/// A record of a complete shard.
#[derive(Clone, Copy, Debug)]
pub struct DoneRecord {
    /// The sample, by its id in the catalogue.
    pub sample: SampleId,
    /// Its entry. The shard's number is 0.
    pub(crate) entry: Entry,
    /// Its id in the shard's index, which says where its fields are.
    pub(crate) in_shard: SampleId,
}

fn path_of(folder: &Path, shard: ShardId) -> PathBuf {
    done_of(folder, &shard_name(shard.0))
}

/// Writes the record of completion, durably if `sync`.
pub(super) fn write(folder: &Path, pack: &Pack<'_>, shard: PackedShard, sync: bool) -> Result<(), Error> {
    let path = path_of(folder, shard.shard);
    let bytes = encode(pack, shard).map_err(|source| Error::Index { path: path.clone(), source })?;
    files::put(&path, &bytes, sync)
}

/// Removes the record of completion that this run has written.
pub(super) fn forget(folder: &Path, shard: ShardId) -> Result<(), Error> {
    remove_file(&path_of(folder, shard))
}

fn encode(pack: &Pack<'_>, shard: PackedShard) -> Result<Vec<u8>, FormatError> {
    let mut index = IndexBuilder::new();
    let records = u32::try_from(shard.records.len()).unwrap_or(u32::MAX);
    let name = shard_name(shard.shard.0);
    index.push_shard(Shard { name: &name, bytes: shard.bytes, crc32c: shard.crc32c, records })?;
    for _ in 0..pack.classes {
        index.push_class(b"")?;
    }
    if !pack.dictionary.is_empty() {
        index.push_dictionary(pack.dictionary)?;
    }
    for record in &shard.records {
        // This index has only this one shard.
        index.push_sample(&Entry { shard: ShardId(0), ..record.entry }, b"")?;
        record.ends().try_for_each(|end| index.push_field_end(end))?;
    }
    index.set_keys(shard.records.iter().map(|record| record.sample.0).collect());
    index.set_fields(shard.records.iter().map(PlacedRecord::fields).collect());
    let bad = shard.bad.into_iter().map(|(sample, bad)| (sample.0, bad.path, bad.fault)).collect();
    let (not_decodable, part) = (shard.not_decodable, (pack.part != Part::WHOLE).then_some(pack.part));
    let (pack, placed) = (pack.id.to_owned(), pack.placed.map(str::to_owned));
    let outcome = DoneOptions { pack, bad, not_decodable, part, placed };
    // Plain fields always serialise.
    index.set_options(&serde_json::to_string(&outcome).unwrap_or_default());
    index.finish()
}

/// Reads the record of completion of a shard in `folder`. `None` unless there is one, whole, of the
/// pack `pack`, with a file as long as the shard beside it if it is not in a bucket.
///
/// # Errors
/// There is one that cannot be read.
pub fn read(folder: &Path, shard: ShardId, pack: &str) -> Result<Option<DoneShard>, Error> {
    let path = path_of(folder, shard);
    let bytes = match regular::read(&path) {
        Ok(bytes) => bytes,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(Error::io("read", &path)(fault)),
    };
    let Ok(index) = Index::open(bytes) else { return Ok(None) };
    let outcome: DoneOptions = match serde_json::from_str(index.options()) {
        Ok(outcome) => outcome,
        Err(_) => return Ok(None),
    };
    let Some(row) = index.shard(ShardId(0)) else { return Ok(None) };
    let is_whole = || fs::metadata(folder.join(row.name)).is_ok_and(|found| found.len() == row.bytes);
    if outcome.pack != pack || (outcome.placed.is_none() && !is_whole()) {
        return Ok(None);
    }
    let bad = outcome.bad.iter().cloned().map(|(_, path, fault)| Bad { path, fault }).collect();
    let DoneOptions { not_decodable, part, placed, .. } = outcome;
    Ok(Some(DoneShard { index: Arc::new(index), bad, not_decodable, part, placed }))
}

/// A shard that a bucket has by a record of completion.
#[derive(Debug)]
pub(crate) struct PlacedShard {
    pub(crate) name: String,
    /// The ETag of its object, empty if the store says none.
    pub(crate) etag: String,
}

/// The shards in a bucket that `folder` has records of completion of, whatever pack they are of.
///
/// # Errors
/// The folder or a record cannot be read.
pub(crate) fn placed_in(folder: &Path) -> Result<Vec<PlacedShard>, Error> {
    let mut placed = Vec::new();
    for number in done_shards(folder)? {
        let path = path_of(folder, ShardId(number));
        let bytes = regular::read(&path).map_err(Error::io("read", &path))?;
        let Ok(index) = Index::open(bytes) else { continue };
        let outcome = serde_json::from_str(index.options()).map(|outcome: DoneOptions| outcome.placed);
        let etag = outcome.ok().flatten();
        placed.extend(etag.map(|etag| PlacedShard { name: shard_name(number), etag }));
    }
    Ok(placed)
}

/// Whether the file of shard number `id` is what was written there: a file of the length and
/// checksum of `shard`, no link. If `sync`, the disk confirms it first: the run that wrote it may
/// not have asked for that.
pub(crate) fn is_shard_written(
    shards: &Shards<'_>,
    id: ShardId,
    shard: Shard<'_>,
    sync: bool,
) -> Result<bool, Error> {
    let path = shards.files.path(id)?;
    if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.len() == shard.bytes) {
        return Ok(false);
    }
    if sync {
        sync_file(&path)?;
    }
    let (mut memory, mut crc, mut at) = (ReadMemory::default(), 0, 0);
    while at < shard.bytes {
        shards.stop.check()?;
        let end = shard.bytes.min(at + PIECE_BYTES);
        let (bytes, fault) = shards.read(id, at..end, &mut memory)?;
        if fault.is_some() {
            return Ok(false);
        }
        crc = crc32c_append(crc, bytes);
        at = end;
    }
    Ok(crc == shard.crc32c)
}

/// Has the disk confirm a file that an earlier run has written.
pub(crate) fn sync_file(path: &Path) -> Result<(), Error> {
    match regular::open(path).and_then(|file| file.sync_all()) {
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::io("sync", path)),
    }
}

impl DoneShard {
    /// Whether the shard is what was written, see [`is_shard_written`].
    pub(super) fn is_written(&self, folder: &Path, sync: bool, stop: &Stop) -> Result<bool, Error> {
        let Some(shard) = self.shard() else { return Ok(false) };
        if sync {
            sync_file(&folder.join(format!("{}.done", shard.name)))?;
        }
        is_shard_written(&Shards::new(folder, &self.index, stop), ShardId(0), shard, sync)
    }

    /// Whether the shard is in the bucket, in the version that was written.
    pub(super) fn is_placed(&self, to: ShardsTo<'_>) -> Result<bool, Error> {
        let (Some(shard), Some(placed)) = (self.shard(), &self.placed) else { return Ok(false) };
        to.bucket.has(&to.name(shard.name), shard.bytes, placed)
    }

    /// Has the disk confirm the shard and its record of completion.
    pub(crate) fn sync(&self, folder: &Path) -> Result<(), Error> {
        let name = self.shard().map_or("", |shard| shard.name);
        sync_file(&folder.join(name))?;
        sync_file(&folder.join(format!("{name}.done")))
    }

    /// Whether its records were compressed with this dictionary, empty for none.
    pub(crate) fn has_dictionary(&self, dictionary: &[u8]) -> bool {
        self.index.dictionaries().next().unwrap_or_default() == dictionary
    }

    /// Its own index.
    pub(crate) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    pub(crate) fn shard(&self) -> Option<Shard<'_>> {
        self.index.shard(ShardId(0))
    }

    /// Its records in their order on disk.
    pub fn records(&self) -> impl Iterator<Item = DoneRecord> {
        let record = |sample| {
            let (key, entry) = (self.index.key(sample), self.index.entry(sample)?);
            Some(DoneRecord { sample: SampleId(key), entry, in_shard: sample })
        };
        (0..self.index.len()).map(SampleId).filter_map(record)
    }
}
