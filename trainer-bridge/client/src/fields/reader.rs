//! Reads the fields of many samples at once.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shade_formats::checksum::crc32c;
use shade_formats::index::{FieldsSpan, INDEX_FILE, Index};
use shade_formats::limits::INDEX_BYTES_MAX;
use shade_formats::shard::parse_fields;
use shade_formats::{ContentId, SampleId, ShardId};

use super::shards::{Buffer, Shards};
use crate::ClientError;
use crate::dialogue::lock;
use crate::fork::Owner;

/// Threads that read for one call: as many reads are in flight, which is what hides a distant store's delay.
const THREADS_MAX: usize = 16;

/// One extra field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, such as `json` or `caption.txt`.
    pub name: String,
    /// Its bytes, as packed.
    pub bytes: Vec<u8>,
}

/// Reads fields of a dataset's samples. Costs nothing until it is first asked. Threads may share it.
#[derive(Debug)]
pub struct FieldsReader {
    owner: Owner,
    folder: PathBuf,
    content_id: ContentId,
    buffered: bool,
    opened: Mutex<Option<Opened>>,
}

#[derive(Clone, Debug)]
enum Opened {
    /// The dataset has no fields at all; its index is not kept.
    Empty {
        samples: u32,
    },
    Fields(Arc<Source>),
}

#[derive(Debug)]
struct Source {
    index: Index,
    shards: Shards,
}

/// Fields to be read: the place in the answer, the sample, where its shard has them.
struct Wanted {
    row: usize,
    sample: SampleId,
    shard: ShardId,
    span: FieldsSpan,
}

impl FieldsReader {
    /// For the dataset in `folder`, which must still hold the content of this id when it is opened. `buffered` reads
    /// through the page cache; it should be what the daemon does, as both kinds at once on one NFS file stall each other.
    #[must_use]
    pub fn new(folder: &Path, content_id: ContentId, buffered: bool) -> Self {
        Self {
            owner: Owner::here(),
            folder: folder.to_owned(),
            content_id,
            buffered,
            opened: Mutex::default(),
        }
    }

    /// The fields of each of `samples`, in their order; none for a sample that has none. Where a dataset has no fields,
    /// nothing but the index is ever read, once.
    ///
    /// # Errors
    /// The index cannot be opened or is another dataset's, a sample is not in it, or fields cannot be read or are
    /// damaged. What was read for other samples is lost then.
    pub fn read(&self, samples: &[i64]) -> Result<Vec<Vec<Field>>, ClientError> {
        let opened = self.open()?;
        let (count, source) = match &opened {
            Opened::Empty { samples } => (*samples, None),
            Opened::Fields(source) => (source.index.len(), Some(source)),
        };
        let mut wanted = Vec::new();
        for (row, &sample) in samples.iter().enumerate() {
            let id = u32::try_from(sample).ok().filter(|&id| id < count).ok_or_else(|| {
                let expected = format!("an id below {count}, the samples of the dataset");
                ClientError::Argument { what: "sample", got: sample.to_string(), expected }
            })?;
            let sample = SampleId(id);
            let entry =
                source.and_then(|source| Some((source.index.entry(sample)?, source.index.fields(sample)?)));
            wanted.extend(entry.map(|(entry, span)| Wanted { row, sample, shard: entry.shard, span }));
        }
        let mut fields = vec![Vec::new(); samples.len()];
        if let Some(source) = source {
            for (row, read) in source.read_all(&wanted)? {
                if let Some(place) = fields.get_mut(row) {
                    *place = read;
                }
            }
        }
        Ok(fields)
    }

    /// Where a sample lies, for messages: its shard's file name.
    ///
    /// # Errors
    /// The index cannot be opened.
    pub fn shard_of(&self, sample: u32) -> Result<String, ClientError> {
        let Opened::Fields(source) = self.open()? else { return Ok(String::new()) };
        let entry = source.index.entry(SampleId(sample));
        let shard = entry.and_then(|entry| source.index.shard(entry.shard));
        Ok(shard.map_or_else(String::new, |shard| shard.name.to_owned()))
    }

    /// The index, read by the first who asks. A failure is not kept: the next one tries again.
    fn open(&self) -> Result<Opened, ClientError> {
        // Before the lock: one may have been taken by a thread that the fork left behind.
        self.owner.check()?;
        let mut opened = lock(&self.opened);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let index = self.read_index()?;
        let now = if index.has_fields() {
            let shards = Shards::new(self.folder.clone(), !self.buffered);
            Opened::Fields(Arc::new(Source { index, shards }))
        } else {
            Opened::Empty { samples: index.len() }
        };
        Ok(opened.insert(now).clone())
    }

    fn read_index(&self) -> Result<Index, ClientError> {
        let path = self.folder.join(INDEX_FILE);
        let fault = |text: &dyn Display| ClientError::Index { path: path.clone(), text: text.to_string() };
        let len = std::fs::metadata(&path).map_err(|error| fault(&error))?.len();
        if len > INDEX_BYTES_MAX {
            return Err(fault(&format_args!("{len} bytes, expected at most {INDEX_BYTES_MAX}")));
        }
        // Read, not mapped: on a network file system a mapping can end the process when the file changes.
        let bytes = std::fs::read(&path).map_err(|error| fault(&error))?;
        let index = Index::open(bytes).map_err(|error| fault(&error))?;
        if index.content_id() != self.content_id {
            let (got, expected) = (index.content_id(), self.content_id);
            let text =
                format_args!("content id {got}, expected {expected}: the dataset was replaced meanwhile");
            return Err(fault(&text));
        }
        Ok(index)
    }
}

impl Source {
    /// Reads all of `wanted`, each with its row, in any order. The first failure ends it.
    fn read_all(&self, wanted: &[Wanted]) -> Result<Vec<(usize, Vec<Field>)>, ClientError> {
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = || {
            let mut buffer = Buffer::default();
            let mut done = Vec::new();
            while !failed.load(Ordering::Relaxed)
                && let Some(wanted) = wanted.get(next.fetch_add(1, Ordering::Relaxed))
            {
                match self.read_one(wanted, &mut buffer) {
                    Ok(fields) => done.push((wanted.row, fields)),
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err((wanted.row, error));
                    }
                }
            }
            Ok(done)
        };
        let threads = wanted.len().min(THREADS_MAX);
        if threads <= 1 {
            return work().map_err(|(_, error)| error);
        }
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut all = Vec::with_capacity(wanted.len());
        let mut first: Option<(usize, ClientError)> = None;
        for answer in answers {
            match answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(done) => all.extend(done),
                // Of several, the one of the first row, so that the same damage gives the same message more often.
                Err(error) if first.as_ref().is_none_or(|(row, _)| error.0 < *row) => first = Some(error),
                Err(_) => {}
            }
        }
        first.map_or(Ok(all), |(_, error)| Err(error))
    }

    fn read_one(&self, wanted: &Wanted, buffer: &mut Buffer) -> Result<Vec<Field>, ClientError> {
        let Wanted { sample, shard, span, .. } = *wanted;
        let name = self.index.shard(shard).map_or("", |shard| shard.name);
        let fault = |text: &dyn Display| ClientError::Fields {
            sample: sample.0,
            path: String::from_utf8_lossy(self.index.path(sample).unwrap_or_default()).into_owned(),
            shard: name.to_owned(),
            offset: span.offset,
            text: text.to_string(),
        };
        let bytes =
            self.shards.read(shard, name, span.offset, span.len, buffer).map_err(|text| fault(&text))?;
        let got = crc32c(bytes);
        if got != span.crc32c {
            let expected = span.crc32c;
            return Err(fault(&format_args!("bytes with checksum {got:08x}, expected {expected:08x}")));
        }
        let fields =
            parse_fields(bytes, self.index.key(sample), span.offset).map_err(|error| fault(&error))?;
        let owned =
            fields.iter().map(|field| Field { name: field.name.to_owned(), bytes: field.bytes.to_vec() });
        Ok(owned.collect())
    }
}
