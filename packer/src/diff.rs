//! `diff`: what a source and a dataset do not have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use shade_dataset::{Decompressor, Dictionaries, ReadMemory, RecordFault};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::Entry;

use crate::catalogue::{Bad, Catalogue, Sample};
use crate::config::Effort;
use crate::dataset::{Dataset, Shards};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pack::{Gate, SourceReader};
use crate::progress::{Progress, Shown};
use crate::report::path_as_text;
use crate::source::Source;
use crate::workers::Workers;

/// Samples that one thread compares one after the other.
const SAMPLES_PER_TASK: usize = 16;

/// Source bytes in memory at a time; a single larger record passes alone.
const MEMORY_BYTES: u64 = 256 << 20;

/// What is compared.
#[derive(Clone, Debug)]
pub struct DiffConfig {
    /// What the dataset may have been made from; only read.
    pub source: Source,
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// Leave contents alone.
    pub names_only: bool,
    /// How much of the machine may be used.
    pub effort: Effort,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Compared {
    /// The source.
    #[serde(serialize_with = "path_as_text")]
    pub source: PathBuf,
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// Whether there is no difference.
    pub same: bool,
    /// Whether contents were compared; otherwise names and classes were.
    pub contents: bool,
    /// Why contents were not compared although that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// Samples in both.
    pub in_both: u32,
    /// Paths that only the source has.
    pub only_in_source: Vec<String>,
    /// Paths that only the dataset has.
    pub only_in_dataset: Vec<String>,
    /// Samples that are not the same in both.
    pub different: Vec<Difference>,
    /// What the source has that cannot be packed; no difference by itself.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// A sample that is not the same in both.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Its path.
    pub path: String,
    /// What differs.
    pub why: String,
}

/// Compares a source with a dataset: paths, classes by their names, lengths, and contents. Fields are not compared.
///
/// # Errors
/// See [`Source::scan`] and [`Dataset::open`]; or [`Error::Interrupted`]. Differences are no error but the content of the
/// report.
pub fn diff(config: &DiffConfig, shown: Shown, stop: &Stop) -> Result<Compared, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(&config.dataset)?;
    let workers = Workers::start(config.effort.in_flight)?;
    let listing = Progress::start(shown, "listing", 0, 0);
    let catalogue = workers.install(|| config.source.scan(&listing, stop))?;
    listing.finish();
    let is_transformed = dataset.is_transformed();
    let mut compared = Compared {
        source: config.source.path.clone(),
        dataset: config.dataset.clone(),
        contents: !config.names_only && !is_transformed,
        note: (!config.names_only && is_transformed)
            .then_some("images were transformed when they were packed: names and classes were compared only"),
        ..Compared::default()
    };
    let ids = (0..dataset.index.len()).map(SampleId);
    let mut unseen: HashMap<&[u8], SampleId> =
        ids.map(|id| (dataset.index.path(id).unwrap_or_default(), id)).collect();
    let mut both = Vec::new();
    for (id, sample) in (0u32..).map(SampleId).zip(catalogue.samples()) {
        match unseen.remove(sample.path.as_bytes()) {
            Some(of_dataset) => both.push((id, of_dataset)),
            None => compared.only_in_source.push(sample.path.to_owned()),
        }
    }
    let mut unseen: Vec<SampleId> = unseen.into_values().collect();
    unseen.sort_unstable();
    compared.only_in_dataset = unseen.into_iter().map(|sample| dataset.path_text(sample)).collect();
    compared.in_both = u32::try_from(both.len()).unwrap_or(u32::MAX);
    let bytes = if compared.contents { catalogue.bytes() } else { 0 };
    let comparing = Comparing {
        catalogue: &catalogue,
        dataset: &dataset,
        files: dataset.shards(stop),
        dictionaries: dataset.dictionaries(),
        contents: compared.contents,
        memory: Gate::new(MEMORY_BYTES),
        progress: Progress::start(shown, "comparing", both.len() as u64, bytes),
        stop,
    };
    let tasks: Vec<&[(SampleId, SampleId)]> = both.chunks(SAMPLES_PER_TASK).collect();
    let found = workers.each(&tasks, stop, |pairs| comparing.pairs(pairs))?;
    comparing.progress.finish();
    compared.different = found.into_iter().flatten().collect();
    compared.bad.clone_from(&catalogue.bad);
    compared.same = compared.only_in_source.is_empty()
        && compared.only_in_dataset.is_empty()
        && compared.different.is_empty();
    compared.seconds = start.elapsed().as_secs_f64();
    Ok(compared)
}

/// What all threads share.
struct Comparing<'a> {
    catalogue: &'a Catalogue,
    dataset: &'a Dataset,
    files: Shards<'a>,
    dictionaries: Dictionaries,
    contents: bool,
    memory: Gate,
    progress: Progress,
    stop: &'a Stop,
}

/// What one thread reads with.
struct Readers {
    source: SourceReader,
    image: Vec<u8>,
    record: ReadMemory,
    raw: Vec<u8>,
    zstd: Decompressor,
}

impl Comparing<'_> {
    fn pairs(&self, pairs: &[(SampleId, SampleId)]) -> Result<Vec<Difference>, Error> {
        let mut readers = Readers {
            source: SourceReader::default(),
            image: Vec::new(),
            record: ReadMemory::default(),
            raw: Vec::new(),
            zstd: Decompressor::new(self.dictionaries.clone()),
        };
        let mut found = Vec::new();
        for &(id, of_dataset) in pairs {
            self.stop.check()?;
            let (Some(sample), Some(entry)) =
                (self.catalogue.sample(id), self.dataset.index.entry(of_dataset))
            else {
                continue;
            };
            let room = self.memory.pass(sample.bytes.into(), self.stop)?;
            if let Some(why) = self.difference(&sample, &entry, &mut readers)? {
                found.push(Difference { path: sample.path.to_owned(), why });
            }
            drop(room);
            self.progress.add(1, if self.contents { sample.bytes.into() } else { 0 });
        }
        Ok(found)
    }

    fn difference(
        &self,
        sample: &Sample<'_>,
        entry: &Entry,
        readers: &mut Readers,
    ) -> Result<Option<String>, Error> {
        let class = self.catalogue.classes.get(sample.label as usize).map_or("", String::as_str);
        let of_dataset = self.dataset.class_text(entry.label);
        if class != of_dataset {
            return Ok(Some(format!("its class is '{class}' in the source, '{of_dataset}' in the dataset")));
        }
        if !self.contents {
            return Ok(None);
        }
        let (bytes, expected) = (sample.bytes, entry.raw_len);
        if bytes != expected {
            return Ok(Some(format!("{bytes} bytes in the source, {expected} in the dataset")));
        }
        let Readers { source, image, .. } = readers;
        image.clear();
        if let Err(fault) = source.image(sample, image) {
            return Ok(Some(format!("in the source: {fault}")));
        }
        let got = crc32c(image);
        Ok(match self.raw_crc32c(entry, readers)? {
            Ok(expected) if expected == got => None,
            Ok(_) => Some("its content differs".to_owned()),
            Err(fault) => Some(format!("in the dataset: {fault}")),
        })
    }

    /// CRC32C of a record as it was before compression; of most the index knows it.
    fn raw_crc32c(&self, entry: &Entry, readers: &mut Readers) -> Result<Result<u32, RecordFault>, Error> {
        if !entry.codec.is_compressed() {
            return Ok(Ok(entry.crc32c));
        }
        let Readers { record, raw, zstd, .. } = readers;
        let end = entry.offset.saturating_add(entry.stored_len.into());
        Ok(match self.files.read(entry.shard, entry.offset..end, record)? {
            (_, Some(fault)) => Err(fault.into()),
            (stored, None) => zstd.unpack(stored, entry, raw).map(crc32c),
        })
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for path in &self.only_in_source {
            writeln!(f, "+ {path}")?;
        }
        for path in &self.only_in_dataset {
            writeln!(f, "- {path}")?;
        }
        for Difference { path, why } in &self.different {
            writeln!(f, "~ {path}: {why}")?;
        }
        for bad in &self.bad {
            writeln!(f, "cannot be packed: {bad}")?;
        }
        if let Some(note) = self.note {
            writeln!(f, "note: {note}")?;
        }
        let (source, dataset, both) = (self.source.display(), self.dataset.display(), self.in_both);
        if self.same {
            let what = if self.contents { "samples" } else { "names and classes" };
            return write!(f, "{source} and {dataset} have the same {both} {what}");
        }
        let (more, fewer) = (self.only_in_source.len(), self.only_in_dataset.len());
        let different = self.different.len();
        write!(f, "{more} only in {source}, {fewer} only in {dataset}, {different} of {both} in both differ")
    }
}
