//! `diff`: what a source and a dataset do not have in common.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use shade_dataset::{Decompressor, Dictionaries, Mismatch, ReadMemory, RecordFault};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::Entry;
use shade_formats::printable::OneLine;

use crate::args::{OutputArgs, SourceArgs, ThreadsArgs};
use crate::catalogue::{Bad, Catalogue, Field, FieldContent, Sample};
use crate::dataset::{Dataset, Matched, Shards};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pack::{Gate, SourceReader};
use crate::progress::CommandProgress;
use crate::report::{Printed, path_as_text};
use crate::workers::Workers;

/// Samples that one thread compares one after the other.
const SAMPLES_PER_TASK: usize = 16;

/// Source bytes in memory at a time; a single larger record passes alone.
const MEMORY_BYTES: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Source.
    #[command(flatten)]
    source: SourceArgs,
    /// The dataset's directory, or its address: s3://bucket/prefix.
    dataset: PathBuf,
    /// Compare paths and classes only, not lengths and contents: lists SOURCE, but reads none of
    /// its images.
    #[arg(long)]
    names_only: bool,
    /// Threads.
    #[command(flatten)]
    threads: ThreadsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `diff` found.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Compared {
    /// What was compared.
    #[serde(serialize_with = "path_as_text")]
    source: PathBuf,
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    dataset: PathBuf,
    /// Whether nothing differs.
    same: bool,
    /// Whether contents were compared; otherwise names and classes were.
    contents: bool,
    /// Why contents were not compared although that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// Samples in both.
    in_both: u32,
    /// Paths that the dataset does not have.
    only_in_source: Vec<String>,
    /// Paths that the source does not have.
    only_in_dataset: Vec<String>,
    /// Samples in both that differ.
    different: Vec<Difference>,
    /// What the source has that cannot be packed; no difference by itself.
    bad: Vec<Bad>,
    /// Wall-clock time.
    seconds: f64,
}

/// A sample that differs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Difference {
    /// Its path.
    path: String,
    /// What differs.
    why: String,
}

/// Compares a source with a dataset: paths, classes by their names, lengths, and contents, also
/// those of the files of pairs. Other fields are not compared.
///
/// # Errors
/// The source cannot be listed, the dataset cannot be opened; or [`Error::Interrupted`].
/// Differences are no error but the content of the report.
pub(crate) fn diff(args: &DiffArgs, stop: &Stop) -> Result<Compared, Error> {
    let start = Instant::now();
    let shown = args.output.shown();
    let source = args.source.source()?;
    let dataset = Dataset::open(&args.dataset)?;
    refuse_equal_paths(&dataset)?;
    let workers = Workers::start(args.threads.in_flight())?;
    let catalogue = source.list(&workers, shown, stop)?;
    let is_transformed = dataset.is_transformed();
    let contents = !args.names_only && !is_transformed;
    let Matched { both, only_in_source, only_in_dataset } = Matched::new(&catalogue, &dataset);
    let source_path = |id| Some(catalogue.sample(id)?.path.to_owned());
    let mut compared = Compared {
        source: source.path,
        dataset: args.dataset.clone(),
        contents,
        note: (!args.names_only && is_transformed)
            .then_some("images were transformed when they were packed: names and classes were compared only"),
        in_both: u32::try_from(both.len()).unwrap_or(u32::MAX),
        only_in_source: only_in_source.into_iter().filter_map(source_path).collect(),
        only_in_dataset: only_in_dataset.into_iter().map(|id| dataset.path_text(id)).collect(),
        ..Compared::default()
    };
    let bytes = if contents { catalogue.bytes() } else { 0 };
    let comparing = Comparing {
        catalogue: &catalogue,
        dataset: &dataset,
        files: dataset.shards(stop),
        dictionaries: dataset.dictionaries(),
        contents,
        memory: Gate::new(MEMORY_BYTES),
        progress: CommandProgress::start(shown, "comparing", both.len() as u64, bytes),
        stop,
    };
    let tasks: Vec<&[(SampleId, SampleId)]> = both.chunks(SAMPLES_PER_TASK).collect();
    let found = workers.each(&tasks, stop, |pairs| comparing.pairs(pairs))?;
    comparing.progress.finish();
    compared.different = found.into_iter().flatten().collect();
    compared.bad = catalogue.bad;
    compared.same = compared.only_in_source.is_empty()
        && compared.only_in_dataset.is_empty()
        && compared.different.is_empty();
    compared.seconds = start.elapsed().as_secs_f64();
    Ok(compared)
}

/// Samples of a source and a dataset belong together if their paths are equal. Where two of the
/// dataset have one path, one of them would not be compared.
fn refuse_equal_paths(dataset: &Dataset) -> Result<(), Error> {
    let Some([first, second]) = dataset.equal_paths() else { return Ok(()) };
    let (dir, path) = (dataset.name.display(), dataset.path_text(first));
    let [one, other] = [first, second].map(|sample| dataset.part_of(sample));
    let (one, other) = (one.display(), other.display());
    Err(Error::Usage(format!(
        "{dir}: samples {first} and {second} have the same path '{path}': they are of {one} and of {other}, so compare \
         each of these datasets with its own source"
    )))
}

struct Comparing<'a> {
    catalogue: &'a Catalogue,
    dataset: &'a Dataset,
    files: Shards<'a>,
    dictionaries: Dictionaries,
    contents: bool,
    memory: Gate,
    progress: CommandProgress,
    stop: &'a Stop,
}

struct CompareMemory<'a> {
    source: SourceReader<'a>,
    image: Vec<u8>,
    record: ReadMemory,
    raw: Vec<u8>,
    zstd: Decompressor,
}

impl Comparing<'_> {
    fn pairs(&self, pairs: &[(SampleId, SampleId)]) -> Result<Vec<Difference>, Error> {
        let mut readers = CompareMemory {
            source: SourceReader::new(self.stop),
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
            let bytes = self.catalogue.bytes_of(id);
            let room = self.memory.pass(bytes, self.stop)?;
            let mut why = self.difference(&sample, &entry, &mut readers)?;
            if why.is_none() && self.contents {
                why = self.pair_difference(id, of_dataset, &mut readers)?;
            }
            if let Some(why) = why {
                found.push(Difference { path: sample.path.to_owned(), why });
            }
            drop(room);
            self.progress.add(1, if self.contents { bytes } else { 0 });
        }
        Ok(found)
    }

    fn difference(
        &self,
        sample: &Sample<'_>,
        entry: &Entry,
        readers: &mut CompareMemory,
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
        let CompareMemory { source, image, .. } = readers;
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

    /// How the files of pairs of a sample differ from the fields in the dataset.
    fn pair_difference(
        &self,
        id: SampleId,
        of_dataset: SampleId,
        readers: &mut CompareMemory,
    ) -> Result<Option<String>, Error> {
        let is_file = |field: &Field<'_>| matches!(field.content, FieldContent::File { .. });
        let files: Vec<Field<'_>> = self.catalogue.fields(id).filter(is_file).collect();
        let index = &self.dataset.index;
        let (Some(sample), Some(entry), false) =
            (self.catalogue.sample(id), index.entry(of_dataset), files.is_empty())
        else {
            return Ok(None);
        };
        let CompareMemory { source, image, record, .. } = readers;
        let Some(span) = index.fields(of_dataset) else {
            return Ok(files.first().map(|file| format!("it has no {} in the dataset", file.name)));
        };
        let end = span.offset.saturating_add(span.len);
        let (stored, fault) = self.files.read(entry.shard, span.offset..end, record)?;
        let fault = fault.map(|fault| fault.to_string());
        let fault = fault.or_else(|| {
            let mismatch = Mismatch::compare(crc32c(stored), span.crc32c).err();
            mismatch.map(|fault| format!("its fields: {fault}"))
        });
        let stored = match (fault, index.fields_in(of_dataset, stored)) {
            (Some(fault), _) => return Ok(Some(format!("in the dataset: {fault}"))),
            (None, Err(fault)) => return Ok(Some(format!("in the dataset: its fields: {fault}"))),
            (None, Ok(stored)) => stored,
        };
        for file in files {
            image.clear();
            if let Err(fault) = source.field(&sample, &file, image) {
                return Ok(Some(format!("in the source: {fault}")));
            }
            match stored.iter().find(|field| field.name == file.name) {
                Some(field) if field.bytes == image.as_slice() => {}
                Some(_) => return Ok(Some(format!("the content of its {} differs", file.name))),
                None => return Ok(Some(format!("it has no {} in the dataset", file.name))),
            }
        }
        Ok(None)
    }

    /// CRC32C of a record as it was before compression. The index has that of an uncompressed
    /// record.
    fn raw_crc32c(
        &self,
        entry: &Entry,
        readers: &mut CompareMemory,
    ) -> Result<Result<u32, RecordFault>, Error> {
        if let Some(crc32c) = entry.crc32c.filter(|_| !entry.codec.is_compressed()) {
            return Ok(Ok(crc32c));
        }
        let CompareMemory { record, raw, zstd, .. } = readers;
        let end = entry.offset.saturating_add(entry.stored_len.into());
        Ok(match self.files.read(entry.shard, entry.offset..end, record)? {
            (_, Some(fault)) => Err(fault.into()),
            (stored, None) => zstd.unpack(stored, entry, raw).map(crc32c),
        })
    }
}

impl Printed for Compared {
    fn exit_code(&self) -> u8 {
        u8::from(!self.same)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for path in &self.only_in_source {
            writeln!(f, "+ {}", OneLine(path))?;
        }
        for path in &self.only_in_dataset {
            writeln!(f, "- {}", OneLine(path))?;
        }
        for Difference { path, why } in &self.different {
            writeln!(f, "~ {}: {}", OneLine(path), OneLine(why))?;
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
