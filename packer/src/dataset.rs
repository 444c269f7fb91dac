//! A dataset that exists: its directory, its checked index, and the way to its bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shade_dataset::{Address, Dictionaries, Files, ReadFault, ReadMemory, Url, shards_address};
use shade_formats::index::{Entry, Index, PlacesKind, Shard};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::shard::padded_len;
use shade_formats::{SampleId, ShardId};

use crate::bucket::is_address;
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::PackOptions;

/// A dataset whose index was read and found whole.
#[derive(Debug)]
pub struct Dataset {
    /// Its directory. Where it lies at an address, the folder of the user's cache for that.
    pub dir: PathBuf,
    /// The directory or the address, as users know it: for what they are told.
    pub name: PathBuf,
    /// Its index.
    pub index: Arc<Index>,
}

/// The samples of a source and of a dataset, matched by their paths. Each list is in the order of
/// its ids.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    /// Ids in the source and in the dataset.
    pub(crate) both: Vec<(SampleId, SampleId)>,
    pub(crate) only_in_source: Vec<SampleId>,
    pub(crate) only_in_dataset: Vec<SampleId>,
}

impl Matched {
    pub(crate) fn new(catalogue: &Catalogue, dataset: &Dataset) -> Self {
        let mut matched = Self::default();
        let path = |id| dataset.index.path(id).unwrap_or_default();
        let mut unseen: HashMap<&[u8], SampleId> = dataset.ids().map(|id| (path(id), id)).collect();
        for (id, sample) in (0u32..).map(SampleId).zip(catalogue.samples()) {
            match unseen.remove(sample.path.as_bytes()) {
                Some(of_dataset) => matched.both.push((id, of_dataset)),
                None => matched.only_in_source.push(id),
            }
        }
        matched.only_in_dataset = unseen.into_values().collect();
        matched.only_in_dataset.sort_unstable();
        matched
    }
}

impl Dataset {
    /// Reads the index of the dataset in `dir`, which may be the address of an object store.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let folder = match Address::of_path(dir) {
            Ok(Address::Path(_)) => dir.to_owned(),
            Ok(Address::Url(_)) | Err(_) => shade_dataset::Dataset::folder(dir)?,
        };
        let shade_dataset::Dataset { folder, index } = shade_dataset::Dataset::open_in(folder)?;
        Ok(Self { dir: folder, name: dir.to_owned(), index })
    }

    /// Its shards, readable until `stop`.
    pub(crate) fn shards<'a>(&self, stop: &'a Stop) -> Shards<'a> {
        Shards::new(&self.dir, &self.index, stop)
    }

    pub(crate) fn dictionaries(&self) -> Dictionaries {
        Dictionaries::prepare(&self.index)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SampleId> + use<> {
        (0..self.index.len()).map(SampleId)
    }

    pub(crate) fn shard_ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.index.shard_count()).map(ShardId)
    }

    pub(crate) fn shard_rows(&self) -> impl Iterator<Item = Shard<'_>> {
        self.shard_ids().filter_map(|shard| self.index.shard(shard))
    }

    /// The length of a shard's file according to the index.
    pub(crate) fn shard_bytes(&self, shard: ShardId) -> u64 {
        self.index.shard(shard).map_or(0, |shard| shard.bytes)
    }

    /// The names of its classes, by label.
    pub(crate) fn class_names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.index.class_count()).map(|label| self.index.class_name(label).unwrap_or_default())
    }

    /// The samples of each shard, in their order on disk.
    #[must_use]
    pub fn samples_by_shard(&self) -> Vec<Vec<(SampleId, Entry)>> {
        let mut shards = vec![Vec::new(); self.index.shard_count() as usize];
        for sample in self.ids() {
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

    /// The file of a shard, or its address.
    #[must_use]
    pub fn shard_path(&self, shard: ShardId) -> PathBuf {
        shade_dataset::shard_path(&self.dir, &self.index, shard).unwrap_or_else(|| self.dir.clone())
    }

    /// Whether it is an index of files that shade has not written.
    pub(crate) fn is_in_place(&self) -> bool {
        self.index.is_of_others()
    }

    /// Whether it is an index of other datasets' shards (`merge --in-place`): paths may be in it
    /// more than once, and no shard is its own.
    pub(crate) fn is_merged_in_place(&self) -> bool {
        self.index.places().is_some_and(|places| places.kind == PlacesKind::Shards)
    }

    /// Two samples with one path, of an [index of other datasets'
    /// shards](Self::is_merged_in_place).
    pub(crate) fn equal_paths(&self) -> Option<[SampleId; 2]> {
        if !self.is_merged_in_place() {
            return None;
        }
        let mut known: HashMap<&[u8], SampleId> = HashMap::new();
        self.ids().find_map(|id| {
            let path = self.index.path(id).unwrap_or_default();
            Some([known.insert(path, id)?, id])
        })
    }

    /// The folder of the dataset that a sample's shard is of.
    pub(crate) fn part_of(&self, sample: SampleId) -> PathBuf {
        let shard =
            self.index.entry(sample).map_or_else(|| self.dir.clone(), |entry| self.shard_path(entry.shard));
        shard.parent().unwrap_or(&shard).to_owned()
    }

    /// Where its shards are, if they are objects in a bucket. It may have been opened as the folder
    /// of the user's cache with a copy of its index.
    pub(crate) fn address(&self) -> Option<Url> {
        shards_address(&self.dir, &self.index)
    }

    /// Samples whose checksum is not known: nobody has read them yet.
    pub(crate) fn without_checksum(&self) -> u64 {
        let is_unknown = |id: &SampleId| self.index.entry(*id).is_some_and(|entry| entry.crc32c.is_none());
        if self.is_in_place() { self.ids().filter(is_unknown).count() as u64 } else { 0 }
    }

    /// Refuses what has no shards of its own, for a `command` that needs them: an index of files,
    /// with its remedy, an index of other datasets' shards, with its own, or the copy of an index.
    ///
    /// # Errors
    /// It is one: usage.
    pub(crate) fn refuse_in_place(
        &self,
        command: &str,
        of_files: &str,
        of_datasets: &str,
    ) -> Result<(), Error> {
        let Some(places) = self.index.places() else { return self.refuse_copy() };
        let (dir, base) = (self.name.display(), String::from_utf8_lossy(places.base));
        Err(Error::Usage(match places.kind {
            PlacesKind::Shards => format!(
                "{dir} is an index of other datasets' shards, and {command} needs shards of its own: {of_datasets}"
            ),
            PlacesKind::Tars | PlacesKind::Files => format!(
                "{dir} is an index of files in {base}, and {command} needs records in shards of its own: {of_files}"
            ),
        }))
    }

    /// Refuses the folder of the user's cache that has a copy of an index in a bucket: shards that
    /// were written there would be nobody's.
    ///
    /// # Errors
    /// It is one: usage.
    pub(crate) fn refuse_copy(&self) -> Result<(), Error> {
        let is_copy = self.index.places().is_none() && !is_address(&self.name);
        match self.address().filter(|_| is_copy) {
            Some(url) => {
                let dir = self.name.display();
                Err(Error::Usage(format!("{dir} has only a copy of the index in {url}: give that address")))
            }
            None => Ok(()),
        }
    }

    /// The bytes of its shard that the index vouches for: the record's header, the record, its
    /// fields. In an index of places, the record and what lies between it and its fields.
    #[must_use]
    pub fn extent(&self, sample: SampleId, entry: &Entry) -> Range<u64> {
        if self.is_in_place() {
            let end = entry.offset.saturating_add(entry.stored_len.into());
            let fields = self.index.fields(sample);
            let fields =
                fields.map_or(entry.offset..end, |span| span.offset..span.offset.saturating_add(span.len));
            return entry.offset.min(fields.start)..end.max(fields.end);
        }
        let record_end = entry.offset.saturating_add(padded_len(entry.stored_len.into()));
        let fields = self.index.fields(sample).map_or(0, |fields| fields.len);
        entry.offset.saturating_sub(SHARD_ALIGN_BYTES)..record_end.saturating_add(fields)
    }

    /// The record of `entry` in `bytes`, which are those of its extent.
    pub(crate) fn record_in<'b>(&self, sample: SampleId, entry: &Entry, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let start = self.extent(sample, entry).start;
        slice(bytes, entry.offset.checked_sub(start)?, entry.stored_len.into())
    }

    /// The bytes of the fields' span in those of a sample's extent; `None` if it has no fields.
    pub(crate) fn fields_in<'b>(&self, sample: SampleId, entry: &Entry, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let span = self.index.fields(sample)?;
        let start = self.extent(sample, entry).start;
        Some(slice(bytes, span.offset.saturating_sub(start), span.len).unwrap_or_default())
    }

    /// The class of a sample, for people; empty for an unknown label.
    pub(crate) fn class_text(&self, label: u32) -> String {
        String::from_utf8_lossy(self.index.class_name(label).unwrap_or_default()).into_owned()
    }

    /// The original path of a sample, for people.
    #[must_use]
    pub fn path_text(&self, sample: SampleId) -> String {
        String::from_utf8_lossy(self.index.path(sample).unwrap_or_default()).into_owned()
    }

    /// Whether images were transformed on their way into the dataset, or into one that was merged
    /// or appended to it.
    pub(crate) fn is_transformed(&self) -> bool {
        PackOptions::all(self.index.options()).iter().any(|options| options.transform.is_some())
    }

    /// How it was made. Text of another tool that is no JSON stays text.
    pub(crate) fn options(&self) -> serde_json::Value {
        serde_json::from_str(self.index.options()).unwrap_or_else(|_| self.index.options().into())
    }
}

fn slice(bytes: &[u8], from: u64, len: u64) -> Option<&[u8]> {
    let (from, len) = (usize::try_from(from).ok()?, usize::try_from(len).ok()?);
    bytes.get(from..from.checked_add(len)?)
}

/// The shards of a dataset, read past the page cache. The daemon reads them so, and on NFS direct
/// and buffered readers of one file hold each other up; what is read once needs no cache anyway.
#[derive(Debug)]
pub(crate) struct Shards<'a> {
    pub(crate) files: Files,
    pub(crate) stop: &'a Stop,
}

impl<'a> Shards<'a> {
    /// The shards in `folder`, which `index` describes.
    pub(crate) fn new(folder: &Path, index: &Arc<Index>, stop: &'a Stop) -> Self {
        Self { files: Files::new(folder, Arc::clone(index), true), stop }
    }

    /// Reads the bytes `range` of a shard into `memory`. Gives as much of their beginning as could
    /// be read, and if that is not all, why.
    pub(crate) fn read<'m>(
        &self,
        shard: ShardId,
        range: Range<u64>,
        memory: &'m mut ReadMemory,
    ) -> Result<(&'m mut [u8], Option<ReadFault>), Error> {
        match self.files.read(shard, range, memory, &|| self.stop.check().is_err()) {
            (_, Some(ReadFault::Stopped)) => Err(Error::Interrupted),
            read => Ok(read),
        }
    }

    /// The length of a shard's file in bytes, if it can be opened.
    pub(crate) fn len(&self, shard: ShardId) -> Result<Result<u64, ReadFault>, Error> {
        match self.files.shard_len(shard, &|| self.stop.check().is_err()) {
            Err(ReadFault::Stopped) => Err(Error::Interrupted),
            len => Ok(len),
        }
    }
}
