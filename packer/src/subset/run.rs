//! Links or copies the shards, and puts the new index together.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shade_formats::index::{Entry, Index, Shard};
use shade_formats::{SampleId, ShardId};

use super::choose::{Choice, Draw};
use super::copy::{Written, copy_shard};
use crate::args::{JobsArgs, OutputArgs};
use crate::assemble::Assembly;
use crate::bucket::{Made, is_address, out};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{LINKED, TOOL};
use crate::plan::shard_name;
use crate::progress::CommandProgress;
use crate::report::{Printed, Speed, human_bytes, path_as_text};
use crate::times::Times;
use crate::workers::Workers;

/// What the options of a subset say of shards of its own.
const COPIED: &str = "copied";

#[derive(Debug, Args)]
pub(crate) struct SubsetArgs {
    /// The dataset and the new one.
    #[command(flatten)]
    pub(crate) new: OverArgs,
    /// Samples.
    #[command(flatten)]
    choice: Choice,
    /// Draws.
    #[command(flatten)]
    draw: Draw,
}

/// A dataset over shards of another one.
#[derive(Debug, Args)]
pub(crate) struct OverArgs {
    /// The dataset's directory, or with --copy its address. It is only read.
    pub(super) dataset: PathBuf,
    /// The new dataset's directory. It must not exist. Or an address (s3://bucket/prefix) where
    /// nothing is; it gets shards of its own then.
    #[arg(value_parser = out())]
    pub(super) out: PathBuf,
    /// Shards.
    #[command(flatten)]
    how: How,
    /// Threads.
    #[command(flatten)]
    jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What the new dataset takes from the other one.
#[derive(Debug)]
pub(super) struct Taken {
    /// In the order of their ids.
    pub(super) samples: Vec<SampleId>,
    /// Names of classes, by label.
    pub(super) classes: Vec<Vec<u8>>,
    /// The label of each of the other dataset's samples, if they get others.
    pub(super) labels: Option<Vec<u32>>,
    /// What the options say of it.
    pub(super) told: Map<String, Value>,
}

/// How the new dataset gets its shards.
#[derive(Clone, Copy, Debug, Args)]
struct How {
    /// Give DATASET's shards a second name (hard links): no byte is copied, and OUT stays
    /// whole if DATASET is removed. This is the default. It needs one file system.
    #[arg(long, conflicts_with_all = ["symlink", "copy"])]
    link: bool,
    /// Point to DATASET's shards by symbolic links: no byte is copied, on any file system. DATASET
    /// must stay where it is.
    #[arg(long, conflicts_with = "copy")]
    symlink: bool,
    /// Write shards again that hold the samples of OUT alone. Choose it to move OUT elsewhere, or
    /// for a small share on a store that is read in whole shards.
    #[arg(long)]
    copy: bool,
}

/// What `subset` or `relabel` made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// The new dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    dataset: PathBuf,
    /// What identifies its content, in hexadecimal.
    content_id: String,
    /// Its samples.
    samples: u32,
    /// Number of samples of the dataset that it was made of.
    of_samples: u32,
    /// Its classes.
    classes: u32,
    /// Number of classes without a sample. They keep their labels.
    empty_classes: u32,
    /// Its shards.
    shards: u32,
    /// Whether its shards are those of the other dataset.
    linked: bool,
    /// Bytes written into new shards.
    copied_bytes: u64,
    /// Whether it was there already, made by a run that was killed before it could say so.
    unchanged: bool,
    #[serde(flatten)]
    speed: Speed,
}

/// A shard with chosen samples, in their order on disk.
struct Chosen {
    shard: ShardId,
    samples: Vec<(SampleId, Entry)>,
    to: PathBuf,
}

/// Makes a dataset of some samples of another one. They keep their order, get new ids from 0 on,
/// and keep their labels.
///
/// # Errors
/// The dataset cannot be opened or is damaged; the choice names what is not there; a shard cannot
/// be linked; the destination exists; or [`Error::Interrupted`]. There is no dataset then.
pub(crate) fn subset(args: &SubsetArgs, stop: &Stop) -> Result<Report, Error> {
    let dataset = Dataset::open(&args.new.dataset)?;
    let remedy =
        "Plan(indices=...) trains on some of its samples, `shade-pack index --exclude` leaves files out";
    let of_datasets = "Plan(indices=...) trains on some of its samples; or take subsets of the datasets that it was \
                       merged of, and merge those";
    dataset.refuse_in_place("subset", remedy, of_datasets)?;
    let samples = args.choice.samples(args.draw, &dataset)?;
    let classes = dataset.class_names().map(<[u8]>::to_vec).collect();
    let told = [("choice", json!(args.choice)), ("draw", json!(args.draw))];
    let told = told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    make(&args.new, &dataset, &Taken { samples, classes, labels: None, told }, stop)
}

/// Makes a dataset of what is taken of another one.
pub(super) fn make(args: &OverArgs, dataset: &Dataset, taken: &Taken, stop: &Stop) -> Result<Report, Error> {
    let start = Instant::now();
    if is_address(&args.dataset) && !args.how.copy {
        let dataset = args.dataset.display();
        return Err(Error::Usage(format!(
            "{dataset} is in an object store, where nothing can be linked: add --copy"
        )));
    }
    let times = Times::read(&args.dataset)?;
    let mut made = Made::begin_or_find(&args.out)?;
    let chosen = chosen(dataset, &taken.samples, made.folder());
    let written = if args.how.copy {
        copied(args, dataset, &chosen, stop)?
    } else {
        linked(args, dataset, &chosen, stop)?
    };
    let linked = !args.how.copy && !is_address(&args.out);
    let copied_bytes = if linked { 0 } else { written.iter().map(|shard| shard.bytes).sum() };
    let index = write_index(args, dataset, &times, taken, written, made.folder())?;
    let unchanged = made.publish(stop)?;
    Ok(Report {
        dataset: args.out.clone(),
        content_id: index.content_id().to_string(),
        samples: index.len(),
        of_samples: dataset.index.len(),
        classes: index.class_count(),
        empty_classes: empty_classes(&index),
        shards: index.shard_count(),
        linked,
        copied_bytes,
        unchanged,
        speed: Speed::since(start, copied_bytes),
    })
}

/// The shards that have chosen samples.
fn chosen(dataset: &Dataset, samples: &[SampleId], folder: &Path) -> Vec<Chosen> {
    let by_shard = dataset.samples_by_shard();
    let is_chosen = |(sample, _): &(SampleId, Entry)| samples.binary_search(sample).is_ok();
    let shards = dataset.shard_ids().zip(by_shard).map(|(shard, mut all)| {
        all.retain(is_chosen);
        (shard, all)
    });
    (0u32..)
        .zip(shards.filter(|(_, samples)| !samples.is_empty()))
        .map(|(number, (shard, samples))| Chosen { shard, samples, to: folder.join(shard_name(number)) })
        .collect()
}

fn copied(args: &OverArgs, dataset: &Dataset, chosen: &[Chosen], stop: &Stop) -> Result<Vec<Written>, Error> {
    let workers = Workers::start(args.jobs.jobs)?;
    let shards = dataset.shards(stop);
    let extent = |(sample, entry): &(SampleId, Entry)| {
        let extent = dataset.extent(*sample, entry);
        extent.end - extent.start
    };
    let records = chosen.iter().map(|shard| shard.samples.len() as u64).sum();
    let bytes = chosen.iter().flat_map(|shard| &shard.samples).map(extent).sum();
    let progress = CommandProgress::start(args.output.shown(), "copying", records, bytes);
    let written = workers.each(chosen, stop, |shard| {
        let written = copy_shard(dataset, &shards, shard.shard, &shard.samples, &shard.to)?;
        progress.add(shard.samples.len() as u64, shard.samples.iter().map(extent).sum());
        Ok(written)
    })?;
    progress.finish();
    Ok(written)
}

/// Links the shards. Their files stay what they are, with all members.
fn linked(args: &OverArgs, dataset: &Dataset, chosen: &[Chosen], stop: &Stop) -> Result<Vec<Written>, Error> {
    chosen
        .iter()
        .map(|Chosen { shard, samples, to }| {
            let named = dataset.shard_path(*shard);
            stop.check()?;
            // A shard may be a link itself, and this one should not depend on it.
            let from = fs::canonicalize(&named).map_err(Error::io("look at", &named))?;
            let expected = dataset.shard_bytes(*shard);
            let found = fs::metadata(&from).map_err(Error::io("look at", &from))?.len();
            if found != expected {
                let fault = format!("{found} bytes, expected {expected}");
                return Err(Error::Damaged { path: named, fault });
            }
            // What goes to a bucket is read here once.
            if args.how.symlink || is_address(&args.out) {
                symlink(&from, to).map_err(Error::io("link", &from))?;
            } else {
                fs::hard_link(&from, to).map_err(|fault| why_not_linked(&from, fault))?;
            }
            let crc32c = dataset.index.shard(*shard).map_or(0, |row| row.crc32c);
            Ok(Written { bytes: expected, crc32c, entries: samples.clone() })
        })
        .collect()
}

fn why_not_linked(from: &Path, fault: io::Error) -> Error {
    let why = match fault.kind() {
        io::ErrorKind::CrossesDevices => "it is on another file system",
        io::ErrorKind::PermissionDenied => "the system does not let you (it is not your file)",
        io::ErrorKind::Unsupported | io::ErrorKind::TooManyLinks => "its file system cannot",
        _ => return Error::io("link", from)(fault),
    };
    let from = from.display();
    Error::Usage(format!("{from} cannot be given a second name, {why}: choose --symlink or --copy"))
}

/// Writes the index of these shards into `folder`, and reads it back.
fn write_index(
    args: &OverArgs,
    dataset: &Dataset,
    times: &Times,
    taken: &Taken,
    written: Vec<Written>,
    folder: &Path,
) -> Result<Index, Error> {
    let fault = |source| Error::Index { path: args.out.clone(), source };
    let mut assembly = Assembly::new(taken.classes.iter().map(Vec::as_slice)).map_err(fault)?;
    let mut samples = Vec::new();
    for (number, shard) in (0u32..).zip(written) {
        let records = u32::try_from(shard.entries.len()).unwrap_or(u32::MAX);
        let Written { bytes, crc32c, entries } = shard;
        let row = Shard { name: &shard_name(number), bytes, records, crc32c };
        assembly.add_shard(row).map_err(fault)?;
        let label = |sample: SampleId, entry: &Entry| match &taken.labels {
            Some(labels) => labels.get(sample.index()).copied().unwrap_or(entry.label),
            None => entry.label,
        };
        samples.extend(entries.into_iter().map(|(sample, entry)| {
            (sample, Entry { shard: ShardId(number), label: label(sample, &entry), ..entry })
        }));
    }
    samples.sort_unstable_by_key(|(sample, _)| *sample);
    assembly.add_samples(&dataset.index, times, &samples).map_err(fault)?;
    let shards = if args.how.copy { COPIED } else { LINKED };
    let mut subset = taken.told.clone();
    subset.insert("content_id".to_owned(), dataset.index.content_id().to_string().into());
    subset.insert("samples".to_owned(), dataset.index.len().into());
    subset.insert("shards".to_owned(), shards.into());
    subset.insert("of".to_owned(), dataset.options());
    let options = json!({ "tool": TOOL, "subset": subset });
    let assembled = assembly.finish(&options).map_err(fault)?;
    assembled.write(folder, true)?;
    Index::open(assembled.index).map_err(fault)
}

fn empty_classes(index: &Index) -> u32 {
    let mut has_sample = vec![false; index.class_count() as usize];
    for entry in (0..index.len()).filter_map(|id| index.entry(SampleId(id))) {
        has_sample.get_mut(entry.label as usize).into_iter().for_each(|slot| *slot = true);
    }
    u32::try_from(has_sample.iter().filter(|has_sample| !**has_sample).count()).unwrap_or(u32::MAX)
}

impl Printed for Report {}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, of_samples, classes, empty_classes, shards, content_id, speed, .. } = self;
        let dataset = self.dataset.display();
        writeln!(f, "{dataset}: {samples} of {of_samples} samples, in {shards} shards")?;
        if *empty_classes > 0 {
            writeln!(f, "{empty_classes} of {classes} classes have no sample; all keep their labels")?;
        }
        if self.unchanged {
            write!(f, "it is there already, and whole: nothing was written")?;
        } else if self.linked {
            write!(f, "its shards are those of the other dataset, no byte was copied")?;
        } else {
            write!(f, "{} copied in {speed}", human_bytes(self.copied_bytes))?;
        }
        write!(f, ", content id {content_id}")
    }
}
