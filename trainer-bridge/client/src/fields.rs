//! Extra fields of samples, read in the trainer's process on request.
//!
//! They do not come through the ring: most trainings never read them, and the daemon has no memory
//! to spare for data that it cannot rank. The index is opened at the first request. Reads use or
//! bypass the page cache as the daemon's do.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use shade_dataset::{Content, Dataset, Mismatch, ReadMemory};
use shade_formats::checksum::crc32c;
use shade_formats::index::{FieldsSpan, Index};
use shade_formats::printable::OneLine;
use shade_formats::{SampleId, ShardId};

use crate::ClientError;
use crate::dataset::{Shards, read_together};
use crate::error::unknown_sample;
use crate::fork::{Owner, lock};

/// One extra field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, such as `json` or `caption.txt`.
    pub name: String,
    /// Its bytes, as packed.
    pub bytes: Vec<u8>,
}

/// Reads fields of a dataset's samples. It opens nothing before the first request. Threads may
/// share it.
#[derive(Debug)]
pub struct FieldsReader {
    owner: Owner,
    folder: PathBuf,
    content: Content,
    buffered: bool,
    opened: Mutex<Option<Opened>>,
}

#[derive(Clone, Debug)]
enum Opened {
    /// The dataset has no fields; its index is not kept.
    Empty,
    Fields(Arc<Files>),
}

/// An index, and the files that it is of.
#[derive(Debug)]
struct Files {
    index: Arc<Index>,
    shards: Shards,
}

/// Where fields are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) index: &'a Index,
    pub(crate) shards: &'a Shards,
}

/// A sample of a dataset of `count`.
fn known(sample: i64, count: u32) -> Result<SampleId, ClientError> {
    let id = u32::try_from(sample).ok().filter(|&id| id < count);
    id.map(SampleId).ok_or_else(|| unknown_sample(sample, count))
}

/// Fields to read: their row in the answer, their sample, and their span in a shard.
struct Wanted {
    row: usize,
    sample: SampleId,
    shard: ShardId,
    span: FieldsSpan,
}

impl FieldsReader {
    /// A reader of the dataset in `folder`, which must still have this content when it is opened,
    /// perhaps with more at its end. `buffered` reads through the page cache. Choose what the
    /// daemon does: on one NFS file buffered and direct reads stall each other.
    #[must_use]
    pub fn new(folder: &Path, content: Content, buffered: bool) -> Self {
        Self { owner: Owner::here(), folder: folder.to_owned(), content, buffered, opened: Mutex::default() }
    }

    /// The fields of each of `samples`, in their order. A dataset without fields costs one reading
    /// of its index.
    ///
    /// # Errors
    /// The index cannot be opened or is another dataset's, a sample is not in it, or fields cannot
    /// be read or are damaged. Then no fields are returned, not even other samples'.
    pub fn read(&self, samples: &[i64]) -> Result<Vec<Vec<Field>>, ClientError> {
        let count = self.content.samples;
        if let Opened::Fields(files) = self.open()? {
            let Files { index, shards } = &*files;
            return Source { index, shards }.read(samples, count);
        }
        samples.iter().try_for_each(|&sample| known(sample, count).map(drop))?;
        Ok(vec![Vec::new(); samples.len()])
    }

    /// File name of a sample's shard, for messages.
    ///
    /// # Errors
    /// The index cannot be opened.
    pub fn shard_of(&self, sample: u32) -> Result<String, ClientError> {
        let Opened::Fields(files) = self.open()? else { return Ok(String::new()) };
        let entry = files.index.entry(SampleId(sample));
        let shard = entry.and_then(|entry| files.index.shard(entry.shard));
        Ok(shard.map_or_else(String::new, |shard| shard.name.to_owned()))
    }

    /// The index, read at the first request. After a failure the next request tries again.
    fn open(&self) -> Result<Opened, ClientError> {
        // Before the lock: another thread may have held it during the fork.
        self.owner.check()?;
        let mut opened = lock(&self.opened);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let Dataset { folder, index } = Dataset::open_same(self.folder.clone(), self.content)?;
        let now = if index.has_fields() {
            let shards = Shards::new(&folder, &index, !self.buffered);
            Opened::Fields(Arc::new(Files { index, shards }))
        } else {
            Opened::Empty
        };
        Ok(opened.insert(now).clone())
    }
}

impl Source<'_> {
    /// The fields of each of `samples`, in their order, of a dataset of `count`.
    ///
    /// # Errors
    /// As for [`FieldsReader::read`].
    pub(crate) fn read(self, samples: &[i64], count: u32) -> Result<Vec<Vec<Field>>, ClientError> {
        let mut wanted = Vec::new();
        for (row, &sample) in samples.iter().enumerate() {
            let sample = known(sample, count)?;
            let place = self.index.entry(sample).zip(self.index.fields(sample));
            wanted.extend(place.map(|(entry, span)| Wanted { row, sample, shard: entry.shard, span }));
        }
        let read =
            read_together(&wanted, ReadMemory::default, |wanted, memory| self.read_one(wanted, memory))?;
        let mut fields = vec![Vec::new(); samples.len()];
        for (wanted, read) in wanted.iter().zip(read) {
            if let Some(place) = fields.get_mut(wanted.row) {
                *place = read;
            }
        }
        Ok(fields)
    }

    fn read_one(self, wanted: &Wanted, memory: &mut ReadMemory) -> Result<Vec<Field>, ClientError> {
        let Wanted { sample, shard, span, .. } = *wanted;
        let name = self.index.shard(shard).map_or("", |shard| shard.name);
        let fault = |text: &dyn Display| ClientError::Fields {
            sample: sample.0,
            path: OneLine(String::from_utf8_lossy(self.index.path(sample).unwrap_or_default())).to_string(),
            shard: name.to_owned(),
            offset: span.offset,
            text: text.to_string(),
        };
        let range = span.offset..span.offset.saturating_add(span.len);
        // Not stopped by Ctrl-C: the read ends unseen on its own thread.
        let read = self.shards.read(shard, range, memory, &|| false);
        let bytes = read.map_err(|text| fault(&text))?;
        Mismatch::compare(crc32c(bytes), span.crc32c).map_err(|text| fault(&text))?;
        let fields = self.index.fields_in(sample, bytes).map_err(|error| fault(&error))?;
        let owned =
            fields.iter().map(|field| Field { name: field.name.to_owned(), bytes: field.bytes.to_vec() });
        Ok(owned.collect())
    }
}
