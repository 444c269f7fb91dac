//! A dataset that exists: its directory, its checked index, and the way to its bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shade_dataset::{Dictionaries, Files, ReadFault, ReadMemory};
use shade_formats::index::{Entry, Index};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::shard::padded_len;
use shade_formats::{SampleId, ShardId};

use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::Options;

/// A dataset whose index was read and found whole.
#[derive(Debug)]
pub struct Dataset {
    /// Where it lies.
    pub dir: PathBuf,
    /// Its index.
    pub index: Arc<Index>,
}

impl Dataset {
    /// Reads the index of the dataset in `dir`.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let shade_dataset::Dataset { folder, index } = shade_dataset::Dataset::open_in(dir.to_owned())?;
        Ok(Self { dir: folder, index })
    }

    /// Its shards, to be read until `stop`.
    #[must_use]
    pub fn shards<'a>(&self, stop: &'a Stop) -> Shards<'a> {
        Shards::new(&self.dir, &self.index, stop)
    }

    /// Its dictionaries, ready for use.
    pub(crate) fn dictionaries(&self) -> Dictionaries {
        Dictionaries::prepare(&self.index)
    }

    /// The samples of each shard, in their order on disk.
    #[must_use]
    pub fn samples_by_shard(&self) -> Vec<Vec<(SampleId, Entry)>> {
        let mut shards = vec![Vec::new(); self.index.shard_count() as usize];
        for sample in (0..self.index.len()).map(SampleId) {
            if let Some(entry) = self.index.entry(sample)
                && let Some(shard) = shards.get_mut(entry.shard.index())
            {
                shard.push((sample, entry));
            }
        }
        for shard in &mut shards {
            shard.sort_unstable_by_key(|(_, entry)| entry.offset);
        }
        shards
    }

    /// The file of a shard.
    #[must_use]
    pub fn shard_path(&self, shard: ShardId) -> PathBuf {
        self.dir.join(self.index.shard(shard).map_or("", |shard| shard.name))
    }

    /// The bytes of its shard that the index vouches for: the record's header, the record, its fields.
    #[must_use]
    pub fn extent(&self, sample: SampleId, entry: &Entry) -> Range<u64> {
        let record_end = entry.offset.saturating_add(padded_len(entry.stored_len.into()));
        let fields = self.index.fields(sample).map_or(0, |fields| fields.len);
        entry.offset.saturating_sub(SHARD_ALIGN_BYTES)..record_end.saturating_add(fields)
    }

    /// The class of a sample, for people; empty for a label that there is not.
    #[must_use]
    pub fn class_text(&self, label: u32) -> String {
        String::from_utf8_lossy(self.index.class_name(label).unwrap_or_default()).into_owned()
    }

    /// Whether images were transformed on their way into the dataset, or into one that was merged or appended to it.
    #[must_use]
    pub fn is_transformed(&self) -> bool {
        Options::all(self.index.options()).iter().any(|options| options.transform.is_some())
    }

    /// The original path of a sample, for people.
    #[must_use]
    pub fn path_text(&self, sample: SampleId) -> String {
        String::from_utf8_lossy(self.index.path(sample).unwrap_or_default()).into_owned()
    }
}

/// The shards of a dataset, read past the page cache. The daemon reads them so, and on NFS direct and
/// buffered readers of one file hold each other up; what is read once needs no cache besides.
#[derive(Debug)]
pub struct Shards<'a> {
    /// Their files.
    pub(crate) files: Files,
    pub(crate) stop: &'a Stop,
}

impl<'a> Shards<'a> {
    /// The shards in `folder`, which `index` describes.
    pub(crate) fn new(folder: &Path, index: &Arc<Index>, stop: &'a Stop) -> Self {
        Self { files: Files::new(folder, Arc::clone(index), true), stop }
    }

    /// Reads the bytes `range` of a shard into `memory`: gives as much of their beginning as could be
    /// read, and if that is not all, why.
    pub(crate) fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
    ) -> Result<(&'m mut [u8], Option<ReadFault>), Error> {
        let is_stopped = || self.stop.check().is_err();
        match self.files.read(shard, range, memory, &is_stopped) {
            (_, Some(ReadFault::Stopped)) => Err(Error::Interrupted),
            read => Ok(read),
        }
    }

    /// The length of a shard's file in bytes, if it can be opened.
    pub(crate) fn len(&self, shard: ShardId) -> Result<Result<u64, ReadFault>, Error> {
        let is_stopped = || self.stop.check().is_err();
        match self.files.shard_len(shard, &is_stopped) {
            Err(ReadFault::Stopped) => Err(Error::Interrupted),
            len => Ok(len),
        }
    }
}
