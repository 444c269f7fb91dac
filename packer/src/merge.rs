//! `merge`: several datasets become one.
//!
//! Records are not touched: shards are copied or linked under new numbers, and the index is put together from the others.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::{SampleId, ShardId};

use crate::assemble::{Assembled, Assembly};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::options::Options;
use crate::plan::shard_name;
use crate::progress::{Progress, Shown};
use crate::publish::Partial;
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::times::Times;
use crate::workers::Workers;

/// How to merge.
#[derive(Clone, Debug)]
pub struct MergeConfig {
    /// The new dataset's directory, which must not exist.
    pub out: PathBuf,
    /// What is merged, in the order of the new ids.
    pub datasets: Vec<PathBuf>,
    /// Whether shards are linked instead of copied.
    pub link: bool,
    /// Shards copied at a time.
    pub jobs: NonZeroUsize,
}

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    /// Its directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// What identifies its content, in hexadecimal.
    pub content_id: String,
    /// Number of datasets that went in.
    pub merged: usize,
    /// Number of samples.
    pub samples: u32,
    /// Number of classes.
    pub classes: u32,
    /// Number of shards.
    pub shards: u32,
    /// Whether its shards are links to those of the others.
    pub linked: bool,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
}

/// A shard and what becomes of it.
struct Move {
    from: PathBuf,
    to: PathBuf,
    bytes: u64,
    records: u32,
}

/// Merges datasets. Classes are those of all, sorted by the bytes of their names; ids follow one another.
///
/// # Errors
/// One of them cannot be opened; two have the same path; a shard is not as long as its index says or cannot be copied; the
/// destination exists; or [`Error::Interrupted`]. There is no dataset then.
pub fn merge(config: &MergeConfig, shown: Shown, stop: &Stop) -> Result<Merged, Error> {
    let start = Instant::now();
    let datasets: Vec<Dataset> =
        config.datasets.iter().map(|dir| Dataset::open(dir)).collect::<Result<_, _>>()?;
    refuse_twice(&datasets)?;
    let classes = classes_of(&datasets);
    refuse_stale_labels(&datasets, &classes)?;
    // Before anything is copied: what cannot be read is told at once.
    let times: Vec<Times> =
        datasets.iter().map(|dataset| Times::read(&dataset.dir)).collect::<Result<_, _>>()?;
    let workers = Workers::start(config.jobs)?;
    let mut partial = Partial::create(&config.out)?;
    let moves = moves(&datasets, partial.path());
    let bytes = moves.iter().map(|shard| shard.bytes).sum();
    let records = datasets.iter().map(|dataset| u64::from(dataset.index.len())).sum();
    let progress = Progress::start(shown, "merging", records, bytes);
    workers.each(&moves, stop, |shard| {
        shard.make(config.link)?;
        progress.add(shard.records.into(), shard.bytes);
        Ok(())
    })?;
    let assembled = assemble(&datasets, &times, &classes)
        .map_err(|source| Error::Index { path: config.out.clone(), source })?;
    assembled.write(partial.path(), true)?;
    let index =
        Index::open(assembled.index).map_err(|source| Error::Index { path: config.out.clone(), source })?;
    progress.finish();
    stop.check()?;
    partial.publish()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Merged {
        dataset: config.out.clone(),
        content_id: index.content_id().to_string(),
        merged: datasets.len(),
        samples: index.len(),
        classes: index.class_count(),
        shards: index.shard_count(),
        linked: config.link,
        bytes,
        seconds,
        mb_per_s: megabytes_per_second(bytes, seconds),
    })
}

/// A path stands for one sample.
fn refuse_twice(datasets: &[Dataset]) -> Result<(), Error> {
    let mut known: HashMap<&[u8], &Dataset> = HashMap::new();
    for dataset in datasets {
        for sample in (0..dataset.index.len()).map(SampleId) {
            let path = dataset.index.path(sample).unwrap_or_default();
            if let Some(other) = known.insert(path, dataset) {
                let path = String::from_utf8_lossy(path);
                let fault = format!(
                    "'{path}' is in {} and in {}: a dataset holds a path once",
                    other.dir.display(),
                    dataset.dir.display()
                );
                return Err(Error::Source { path: dataset.dir.join(INDEX_FILE), fault });
            }
        }
    }
    Ok(())
}

/// All shards in their new order.
fn moves(datasets: &[Dataset], folder: &Path) -> Vec<Move> {
    let shards = datasets.iter().flat_map(|dataset| {
        let ids = (0..dataset.index.shard_count()).map(ShardId);
        ids.filter_map(move |shard| Some((dataset.shard_path(shard), dataset.index.shard(shard)?)))
    });
    (0u32..)
        .zip(shards)
        .map(|(number, (from, row))| {
            let to = folder.join(shard_name(number));
            Move { from, to, bytes: row.bytes, records: row.records }
        })
        .collect()
}

impl Move {
    fn make(&self, link: bool) -> Result<(), Error> {
        let found = fs::metadata(&self.from).map_err(Error::io("look at", &self.from))?.len();
        if found != self.bytes {
            let fault = format!("{found} bytes, expected {}", self.bytes);
            return Err(Error::Damaged { path: self.from.clone(), fault });
        }
        if !link {
            let mut from = File::open(&self.from).map_err(Error::io("open", &self.from))?;
            let mut to = File::create_new(&self.to).map_err(Error::io("create", &self.to))?;
            // The kernel copies, and shares the blocks where the file system can.
            io::copy(&mut from, &mut to).map_err(Error::io("copy", &self.from))?;
            to.sync_all().map_err(Error::io("sync", &self.to))?;
            return files::close(to).map_err(Error::io("close", &self.to));
        }
        match fs::hard_link(&self.from, &self.to) {
            Err(fault) if fault.kind() == io::ErrorKind::CrossesDevices => {
                let from = self.from.display();
                Err(Error::Usage(format!(
                    "--link: {from} is on another file system: leave --link out to copy"
                )))
            }
            linked => linked.map_err(Error::io("link", &self.from)),
        }
    }
}

/// All class names, sorted by their bytes.
fn classes_of(datasets: &[Dataset]) -> Vec<Vec<u8>> {
    let union: BTreeSet<Vec<u8>> = datasets.iter().flat_map(names).collect();
    union.into_iter().collect()
}

fn names(dataset: &Dataset) -> Vec<Vec<u8>> {
    let labels = 0..dataset.index.class_count();
    labels.map(|label| dataset.index.class_name(label).unwrap_or_default().to_owned()).collect()
}

/// What each label of a dataset becomes.
fn labels_among(classes: &[Vec<u8>], dataset: &Dataset) -> Vec<u32> {
    let label = |name: Vec<u8>| u32::try_from(classes.partition_point(|known| *known < name));
    names(dataset).into_iter().map(|name| label(name).unwrap_or(u32::MAX)).collect()
}

/// Shards are not written again, so labels that stand in them must stay what they are.
fn refuse_stale_labels(datasets: &[Dataset], classes: &[Vec<u8>]) -> Result<(), Error> {
    for dataset in datasets {
        let says_labels = Options::all(dataset.index.options()).iter().any(|options| options.cls);
        let moved =
            labels_among(classes, dataset).into_iter().zip(0..).any(|(new, old): (u32, u32)| new != old);
        if says_labels && moved {
            let fault = "its shards hold labels (--cls) that would no longer be right among the classes of all: pack it \
                         again without --cls";
            return Err(Error::Source { path: dataset.dir.clone(), fault: fault.to_owned() });
        }
    }
    Ok(())
}

/// The index of all, and the times of all their source files.
fn assemble(
    datasets: &[Dataset],
    times: &[Times],
    classes: &[Vec<u8>],
) -> Result<Assembled, shade_formats::FormatError> {
    let mut assembly = Assembly::new(classes.iter().map(Vec::as_slice))?;
    let mut first = 0u32;
    let mut options = Vec::new();
    for (dataset, times) in datasets.iter().zip(times) {
        let labels = labels_among(classes, dataset);
        let name = |shard: ShardId| shard_name(first.saturating_add(shard.0));
        assembly.add_index((&dataset.index, times), &labels, name)?;
        first = first.saturating_add(dataset.index.shard_count());
        options.push(options_of(dataset));
    }
    let tool = concat!("shade-pack ", env!("CARGO_PKG_VERSION"));
    assembly.finish(&serde_json::json!({ "tool": tool, "merged": options }))
}

/// How a dataset was made; text of another tool that is no JSON stays text.
pub(crate) fn options_of(dataset: &Dataset) -> serde_json::Value {
    let options = dataset.index.options();
    serde_json::from_str(options).unwrap_or_else(|_| options.into())
}

impl std::fmt::Display for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { merged, samples, classes, shards, seconds, .. } = self;
        let (dataset, bytes, rate) = (self.dataset.display(), human_bytes(self.bytes), self.mb_per_s);
        let how = if self.linked { "linked" } else { "copied" };
        writeln!(
            f,
            "{dataset}: {samples} samples of {classes} classes in {shards} shards, from {merged} datasets"
        )?;
        write!(f, "{bytes} {how} in {seconds:.1} s, {rate:.1} MB/s, content id {}", self.content_id)
    }
}
