//! `extract`: gives the ImageFolder back, byte for byte.
//!
//! The index's paths alone say what is written where, never names in a shard, and only below a
//! fresh folder. A dataset of pairs becomes a folder of images and one for each pair, as `create
//! --pair` takes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use serde::Serialize;
use shade_dataset::{Decompressor, Dictionaries, Mismatch, ReadFault, ReadMemory};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, INDEX_FILE};

use crate::args::{JobsArgs, OutputArgs, local};
use crate::catalogue::is_safe_path;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::leftovers::Content;
use crate::options::PackOptions;
use crate::pair::{IMAGES, file_of, is_pair, stem};
use crate::progress::CommandProgress;
use crate::publish::Partial;
use crate::report::{Printed, Speed, human_bytes, path_as_text};
use crate::spans::{Span, SpanReader};
use crate::workers::Workers;

/// The note on datasets whose images were transformed.
const TRANSFORMED: &str = "images were transformed when they were packed: the files keep their names, but hold \
                           the transformed images";

#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// The dataset's directory, or its address: s3://bucket/prefix.
    dataset: PathBuf,
    /// The ImageFolder's directory. It must not exist. A sample's fields are written beside its
    /// image; of a dataset of pairs, images to OUT/images and the files of a pair to OUT/NAME.
    #[arg(value_parser = local())]
    out: PathBuf,
    /// Threads.
    #[command(flatten)]
    jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `extract` wrote.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Extracted {
    /// Where the files are.
    #[serde(serialize_with = "path_as_text")]
    folder: PathBuf,
    /// Samples written, a file each.
    samples: u32,
    /// Their bytes.
    bytes: u64,
    /// Number of extra fields written, a file each.
    fields: u64,
    /// Something to know about the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(flatten)]
    speed: Speed,
}

/// Writes every sample of a dataset to its original path, and its fields beside it.
///
/// The files are not individually synced to disk: the dataset is still there.
///
/// # Errors
/// There is no dataset, it is damaged, names a path outside the destination or one path twice; a
/// field would take the place of another file; the destination exists; the operating system
/// refuses; or [`Error::Interrupted`]. Nothing is left behind then.
pub(crate) fn extract(args: &ExtractArgs, stop: &Stop) -> Result<Extracted, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(&args.dataset)?;
    let pairs = pairs_of(&dataset)?;
    let folders = with_pairs(&check_paths(&dataset)?, &pairs);
    let workers = Workers::start(args.jobs.jobs)?;
    let mut partial = Partial::create(&args.out, Content::Tree)?;
    let folder = partial.folder().try_clone_to_owned().map_err(Error::io("open", partial.path()))?;
    // Parents come first in the set's order.
    for path in &folders {
        stop.check()?;
        make_below(&folder, path)
            .map_err(|errno| Error::io("create", &partial.path().join(path))(errno.into()))?;
    }
    let shards = dataset.samples_by_shard();
    let bytes = shards.iter().flatten().map(|(_, entry)| u64::from(entry.raw_len)).sum();
    let extracting = Extracting {
        reader: SpanReader::new(&dataset, &shards, stop),
        dictionaries: dataset.dictionaries(),
        pairs,
        folder,
        progress: CommandProgress::start(
            args.output.shown(),
            "extracting",
            dataset.index.len().into(),
            bytes,
        ),
    };
    let spans = dataset.shard_ids().flat_map(|shard| extracting.reader.spans_of(shard));
    let spans: Vec<Span> = spans.filter(|span| !span.samples.is_empty()).collect();
    let fields = workers.each(&spans, stop, |span| extracting.span(span))?.into_iter().sum();
    extracting.progress.finish();
    partial.publish()?;
    Ok(Extracted {
        folder: args.out.clone(),
        samples: dataset.index.len(),
        bytes,
        fields,
        note: dataset.is_transformed().then_some(TRANSFORMED),
        speed: Speed::since(start, bytes),
    })
}

struct Extracting<'a> {
    reader: SpanReader<'a>,
    dictionaries: Dictionaries,
    /// Names of pairs, and how their files are called.
    pairs: BTreeMap<String, String>,
    /// Everything is written below it.
    folder: OwnedFd,
    progress: CommandProgress,
}

impl Extracting<'_> {
    /// Writes the samples of a span; gives the number of their fields.
    fn span(&self, span: &Span) -> Result<u64, Error> {
        let dataset = self.reader.dataset;
        self.reader.read(span, |samples, bytes, fault| {
            if let Some(fault) = fault.filter(ReadFault::is_not_the_record_s) {
                return Err(fault.into());
            }
            let mut zstd = (Decompressor::new(self.dictionaries.clone()), Vec::new());
            let mut again = ReadMemory::default();
            let mut fields = 0;
            for (sample, entry) in samples {
                self.reader.stop.check()?;
                let damaged = |fault: &dyn Display| {
                    let (path, offset) = (dataset.path_text(*sample), entry.offset);
                    let fault = format!("sample {sample} ({path}) at byte {offset}: {fault}");
                    Error::Damaged { path: dataset.shard_path(span.shard), fault }
                };
                let extent = dataset.extent(*sample, entry);
                let read = self.reader.sample(span, bytes, extent, &mut again)?;
                let read = read.map_err(|fault| damaged(&format_args!("cannot be read: {fault}")))?;
                fields += self.sample(*sample, entry, read, &mut zstd, &damaged)?;
                self.progress.add(1, entry.raw_len.into());
            }
            Ok(fields)
        })
    }

    /// Writes a sample and its fields; gives their number. `bytes` are those of its extent.
    fn sample(
        &self,
        sample: SampleId,
        entry: &Entry,
        bytes: &[u8],
        (zstd, raw): &mut (Decompressor, Vec<u8>),
        damaged: &dyn Fn(&dyn Display) -> Error,
    ) -> Result<u64, Error> {
        let index = &self.reader.dataset.index;
        let path = self.reader.dataset.path_text(sample);
        let image = if self.pairs.is_empty() { path.clone() } else { format!("{IMAGES}/{path}") };
        let dataset = self.reader.dataset;
        let stored = dataset.record_in(sample, entry, bytes).unwrap_or_default();
        let record = zstd.unpack(stored, entry, raw).map_err(|fault| damaged(&fault))?;
        self.write(&image, record, &|| "another sample's field has this very name".to_owned())?;
        let Some(span) = index.fields(sample) else { return Ok(0) };
        let fields = dataset.fields_in(sample, entry, bytes).unwrap_or_default();
        Mismatch::compare(crc32c(fields), span.crc32c)
            .map_err(|fault| damaged(&format_args!("its fields: {fault}")))?;
        let fields = index.fields_in(sample, fields).map_err(|fault| damaged(&fault))?;
        for field in &fields {
            let name = match self.pairs.get(field.name) {
                Some(files) => format!("{}/{}", field.name, file_of(files, &path)),
                None => format!("{}.{}", stem(&image), field.name),
            };
            let taken =
                || format!("it is there already, and the field '{}' of {path} would be, too", field.name);
            self.write(&name, field.bytes, &taken)?;
        }
        Ok(fields.len() as u64)
    }

    /// Makes a file. `taken` says what it means if the file exists.
    fn write(&self, path: &str, bytes: &[u8], taken: &dyn Fn() -> String) -> Result<(), Error> {
        match create_below(&self.folder, path) {
            // There is no sync, so the store tells of errors only when the file is closed.
            Ok(mut file) => file
                .write_all(bytes)
                .and_then(|()| files::close(file))
                .map_err(Error::io("write", Path::new(path))),
            Err(Errno::EXIST) => Err(Error::Source { path: path.into(), fault: taken() }),
            Err(fault) => Err(Error::io("create", Path::new(path))(fault.into())),
        }
    }
}

/// Creates the file `path` below `folder`.
fn create_below(folder: &OwnedFd, path: &str) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    open_below(folder, path, flags, Mode::from_raw_mode(0o666)).map(File::from)
}

/// Makes the folder `path` below `folder`, in a folder that is there.
fn make_below(folder: &OwnedFd, path: &str) -> Result<(), Errno> {
    let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    match path.rsplit_once('/') {
        None => mkdirat(folder, path, mode),
        Some((parent, name)) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            mkdirat(open_below(folder, parent, flags, Mode::empty())?, name, mode)
        }
    }
}

/// Opens `path` below `folder`. A link that somebody plants there meanwhile does not lead it
/// elsewhere.
fn open_below(folder: &OwnedFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match openat2(folder, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6 and some containers do not have it. Nobody else may write to `folder`.
        Err(Errno::NOSYS | Errno::PERM) => openat(folder, path, flags, mode),
        other => other,
    }
}

/// The pairs that a dataset, or a part of it, was made of. Where parts differ in how files are
/// called, the first one counts.
fn pairs_of(dataset: &Dataset) -> Result<BTreeMap<String, String>, Error> {
    let mut pairs = BTreeMap::new();
    for (name, files) in PackOptions::all(dataset.index.options()).into_iter().flat_map(|all| all.pairs) {
        if !is_pair(&name, &files) {
            let fault =
                format!("its options have a pair {name:?} of files {files:?}, which may lead elsewhere");
            return Err(Error::Damaged { path: dataset.name.join(INDEX_FILE), fault });
        }
        pairs.entry(name).or_insert(files);
    }
    Ok(pairs)
}

/// The folders that extraction makes, parents first. With pairs they lie in a folder for each.
fn with_pairs(folders: &BTreeSet<&str>, pairs: &BTreeMap<String, String>) -> BTreeSet<String> {
    if pairs.is_empty() {
        return folders.iter().map(|&folder| folder.to_owned()).collect();
    }
    let tops = || pairs.keys().map(String::as_str).chain([IMAGES]);
    let below = folders.iter().flat_map(|folder| tops().map(move |top| format!("{top}/{folder}")));
    below.chain(tops().map(str::to_owned)).collect()
}

/// Makes certain that no sample's path leads out of the folder it will be joined to, and that each
/// sample has its own. Gives the folders that the paths need, parents first.
fn check_paths(dataset: &Dataset) -> Result<BTreeSet<&str>, Error> {
    let refuse = |fault| Error::Damaged { path: dataset.name.join(INDEX_FILE), fault };
    // Datasets that were merged in place may have the same paths: each of them is whole.
    let clash = |fault: String, samples: [SampleId; 2]| match dataset.is_merged_in_place() {
        false => refuse(fault),
        true => {
            let ([one, other], dir) = (samples.map(|sample| dataset.part_of(sample)), dataset.name.display());
            let (one, other) = (one.display(), other.display());
            Error::Usage(format!(
                "{dir}: {fault}: they are of {one} and of {other}, so extract each of these datasets by itself"
            ))
        }
    };
    let mut paths = Vec::with_capacity(dataset.index.len() as usize);
    let mut folders = BTreeSet::new();
    for sample in dataset.ids() {
        let bytes = dataset.index.path(sample).unwrap_or_default();
        let path = std::str::from_utf8(bytes).ok().filter(|path| is_safe_path(path)).ok_or_else(|| {
            let text = String::from_utf8_lossy(bytes);
            refuse(format!("sample {sample} has the path {text:?}, which may lead elsewhere"))
        })?;
        paths.push((path, sample));
        let mut folder = path;
        while let Some((parent, _)) = folder.rsplit_once('/') {
            if !folders.insert(parent) {
                break;
            }
            folder = parent;
        }
    }
    paths.sort_unstable();
    for pair in paths.windows(2) {
        if let [(path, first), (again, second)] = pair
            && path == again
        {
            let fault = format!("samples {first} and {second} have the same path '{path}'");
            return Err(clash(fault, [*first, *second]));
        }
    }
    let Some((path, sample)) = paths.iter().find(|(path, _)| folders.contains(path)) else {
        return Ok(folders);
    };
    let is_below =
        |(other, _): &&(&str, SampleId)| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    let below = paths.iter().find(is_below).map_or(*sample, |(_, below)| *below);
    let fault = format!("sample {sample} has the path '{path}', which is another's folder");
    Err(clash(fault, [*sample, below]))
}

impl Printed for Extracted {}

impl Display for Extracted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(note) = self.note {
            writeln!(f, "note: {note}")?;
        }
        let (folder, samples, bytes) = (self.folder.display(), self.samples, human_bytes(self.bytes));
        let fields = if self.fields == 0 { String::new() } else { format!(", {} fields", self.fields) };
        write!(f, "{folder}: {samples} files, {bytes}{fields} in {}", self.speed)
    }
}
