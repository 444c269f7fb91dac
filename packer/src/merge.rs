//! `merge`: several datasets become one.
//!
//! Records are not touched: shards are copied or linked under new numbers, or stay where they are,
//! and the index is put together from the others.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use shade_dataset::{ReadMemory, Url, regular};
use shade_formats::checksum::crc32c_append;
use shade_formats::index::{INDEX_FILE, Index, Shard};
use shade_formats::{FormatError, ShardId};

use crate::args::{JobsArgs, OutputArgs};
use crate::assemble::{Assembled, Assembly};
use crate::bucket::{Made, is_address, out};
use crate::classes::{Relabelled, United, moved, told, unite};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::options::{PackOptions, TOOL};
use crate::plan::shard_name;
use crate::progress::CommandProgress;
use crate::report::{Printed, Speed, human_bytes, path_as_text};
use crate::times::Times;
use crate::workers::Workers;

/// Bytes that are read of an object at a time.
const PIECE_BYTES: u64 = 8 << 20;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The new dataset's directory. It must not exist. Or an address (s3://bucket/prefix) where
    /// nothing is.
    #[arg(value_parser = out())]
    out: PathBuf,
    /// What is merged. Ids follow one another in this order; classes are those of all, by name.
    /// Addresses (s3://bucket/prefix) may be among them.
    #[arg(required = true)]
    datasets: Vec<PathBuf>,
    /// Give labels new numbers where the class tables ask for it, and name them in the report.
    ///
    /// Labels stay what they are if every class table is the beginning of the longest one. If one
    /// is not, merge ends and says which labels would change; with --relabel they change. The
    /// classes are then those of the table that has all others in its order, else all names,
    /// sorted: by number if all are whole numbers. Trained models keep the old labels.
    #[arg(long)]
    relabel: bool,
    /// Link shards instead of copying them: takes no room, but needs one file system. Shards are
    /// never changed in place.
    #[arg(long)]
    link: bool,
    /// Write an index alone: shards stay where they are, and must be left there.
    ///
    /// The datasets may lie on several file systems, or all in one bucket, and may have equal
    /// paths. Nothing can be added to such a dataset.
    #[arg(long, conflicts_with = "link")]
    in_place: bool,
    /// Threads.
    #[command(flatten)]
    jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `merge` made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Merged {
    /// The new dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    dataset: PathBuf,
    /// What identifies its content, in hexadecimal.
    content_id: String,
    /// Datasets that it was made of.
    merged: usize,
    /// Its samples.
    samples: u32,
    /// Its classes.
    classes: u32,
    /// Its shards.
    shards: u32,
    /// Whether its shards are links to those of the others.
    linked: bool,
    /// Whether its shards are those of the others, which lie where they are.
    in_place: bool,
    /// Bytes of its shards.
    bytes: u64,
    /// Whether it was there already, made by a run that was killed before it could say so.
    unchanged: bool,
    /// Labels that are others than in the datasets they are from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    relabelled: Vec<Relabelled>,
    #[serde(flatten)]
    speed: Speed,
}

/// A shard on its way.
struct Move<'a> {
    dataset: &'a Dataset,
    /// Whether it is in an object store.
    is_object: bool,
    shard: ShardId,
    row: Shard<'a>,
    to: PathBuf,
}

/// Merges datasets. Classes are those of all, see [`unite`]; ids follow one another.
///
/// # Errors
/// Labels would change, and nobody asked for that; one of them cannot be opened; two have the same
/// path; a shard is not as long as its index says or cannot be copied; the destination exists; or
/// [`Error::Interrupted`]. There is no dataset then.
pub(crate) fn merge(args: &MergeArgs, stop: &Stop) -> Result<Merged, Error> {
    let start = Instant::now();
    let mut datasets: Vec<Dataset> =
        args.datasets.iter().map(|dir| Dataset::open(dir)).collect::<Result<_, _>>()?;
    if let (true, Some(address)) = (args.link, args.datasets.iter().find(|dir| is_address(dir))) {
        let address = address.display();
        return Err(Error::Usage(format!(
            "--link: {address} is in an object store: leave --link out to copy"
        )));
    }
    if args.in_place && is_address(&args.out) {
        let address = args.out.display();
        let text = format!("--in-place: {address} is in an object store: give a folder for the index");
        return Err(Error::Usage(text));
    }
    let remedy = "`shade-pack create` packs its source, and that can be merged";
    let of_datasets = "merge the datasets that it was merged of with the others";
    datasets.iter().try_for_each(|dataset| dataset.refuse_in_place("merge", remedy, of_datasets))?;
    let bucket = if args.in_place { common_bucket(&datasets)? } else { None };
    if args.in_place {
        for dataset in datasets.iter_mut().filter(|_| bucket.is_none()) {
            dataset.dir = fs::canonicalize(&dataset.dir).map_err(Error::io("look at", &dataset.dir))?;
        }
    } else {
        refuse_twice(&datasets)?;
    }
    let tables: Vec<Vec<&[u8]>> = datasets.iter().map(|dataset| dataset.class_names().collect()).collect();
    let classes = unite(&tables);
    let relabelled = relabelled(&datasets, &tables, &classes);
    if !relabelled.is_empty() && !args.relabel {
        let remedy = "--relabel changes these labels; models that were trained on the old ones then name other classes";
        return Err(Error::Relabels { relabelled: told(&relabelled), remedy });
    }
    if !args.in_place {
        refuse_stale_labels(&datasets, &classes)?;
    }
    // Before anything is copied: what cannot be read is told at once.
    // Nothing is added to an index of shards that stay, so nobody asks for times in a bucket.
    let times_of = |dir: &PathBuf| if bucket.is_some() { Ok(Times::default()) } else { Times::read(dir) };
    let times: Vec<Times> = args.datasets.iter().map(times_of).collect::<Result<_, _>>()?;
    let workers = Workers::start(args.jobs.jobs)?;
    let mut made = Made::begin_or_find(&args.out)?;
    let moves = if args.in_place { Vec::new() } else { moves(args, &datasets, made.folder()) };
    let bytes = datasets.iter().flat_map(Dataset::shard_rows).map(|row| row.bytes).sum();
    let records = datasets.iter().map(|dataset| u64::from(dataset.index.len())).sum();
    let progress = CommandProgress::start(args.output.shown(), "merging", records, bytes);
    workers.each(&moves, stop, |shard| {
        shard.make(args.link, stop)?;
        progress.add(shard.row.records.into(), shard.row.bytes);
        Ok(())
    })?;
    let fault = |source| Error::Index { path: args.out.clone(), source };
    let base = args.in_place.then(|| bucket.unwrap_or_else(|| common_folder(&datasets)));
    let assembled = assemble(base.as_deref(), &datasets, &times, &classes)?.map_err(fault)?;
    assembled.write(made.folder(), true)?;
    let index = Index::open(assembled.index).map_err(fault)?;
    progress.finish();
    let unchanged = made.publish(stop)?;
    Ok(Merged {
        dataset: args.out.clone(),
        content_id: index.content_id().to_string(),
        merged: datasets.len(),
        samples: index.len(),
        classes: index.class_count(),
        shards: index.shard_count(),
        linked: args.link,
        in_place: args.in_place,
        bytes,
        unchanged,
        relabelled,
        speed: Speed::since(start, bytes),
    })
}

/// A path stands for one sample.
fn refuse_twice(datasets: &[Dataset]) -> Result<(), Error> {
    let mut known: HashMap<&[u8], &Dataset> = HashMap::new();
    for dataset in datasets {
        for sample in dataset.ids() {
            let path = dataset.index.path(sample).unwrap_or_default();
            if let Some(other) = known.insert(path, dataset) {
                let path = String::from_utf8_lossy(path);
                let (first, second) = (other.name.display(), dataset.name.display());
                let fault = format!("'{path}' is in {first} and in {second}: a dataset holds a path once");
                return Err(Error::Source { path: dataset.name.join(INDEX_FILE), fault });
            }
        }
    }
    Ok(())
}

/// All shards in their new order.
fn moves<'a>(args: &MergeArgs, datasets: &'a [Dataset], folder: &Path) -> Vec<Move<'a>> {
    let of_dataset = |(dir, dataset): (&PathBuf, &'a Dataset)| {
        let is_object = is_address(dir);
        let shard = move |shard| Some((dataset, is_object, shard, dataset.index.shard(shard)?));
        dataset.shard_ids().filter_map(shard).collect::<Vec<_>>()
    };
    (0u32..)
        .zip(args.datasets.iter().zip(datasets).flat_map(of_dataset))
        .map(|(number, (dataset, is_object, shard, row))| Move {
            dataset,
            is_object,
            shard,
            row,
            to: folder.join(shard_name(number)),
        })
        .collect()
}

impl Move<'_> {
    fn make(&self, link: bool, stop: &Stop) -> Result<(), Error> {
        if self.is_object {
            return self.fetch(stop);
        }
        let path = self.dataset.shard_path(self.shard);
        let found = fs::metadata(&path).map_err(Error::io("look at", &path))?.len();
        if found != self.row.bytes {
            let fault = format!("{found} bytes, expected {}", self.row.bytes);
            return Err(Error::Damaged { path, fault });
        }
        if !link {
            let mut from = regular::open(&path).map_err(Error::io("open", &path))?;
            let mut to = File::create_new(&self.to).map_err(Error::io("create", &self.to))?;
            // The kernel copies, and shares the blocks where the file system can.
            io::copy(&mut from, &mut to).map_err(Error::io("copy", &path))?;
            to.sync_all().map_err(Error::io("sync", &self.to))?;
            return files::close(to).map_err(Error::io("close", &self.to));
        }
        // A shard may be a link itself, and this one should not depend on it.
        let from = fs::canonicalize(&path).map_err(Error::io("look at", &path))?;
        match fs::hard_link(&from, &self.to) {
            Err(fault) if fault.kind() == io::ErrorKind::CrossesDevices => {
                let from = path.display();
                let text = format!("--link: {from} is on another file system: leave --link out to copy");
                Err(Error::Usage(text))
            }
            linked => linked.map_err(Error::io("link", &path)),
        }
    }

    /// Reads the shard from an object store.
    fn fetch(&self, stop: &Stop) -> Result<(), Error> {
        let shards = self.dataset.shards(stop);
        let mut to = File::create_new(&self.to).map_err(Error::io("create", &self.to))?;
        let (mut memory, mut crc, mut at) = (ReadMemory::default(), 0, 0);
        while at < self.row.bytes {
            stop.check()?;
            let end = self.row.bytes.min(at + PIECE_BYTES);
            let (bytes, fault) = shards.read(self.shard, at..end, &mut memory)?;
            if let Some(fault) = fault {
                return Err(fault.into());
            }
            crc = crc32c_append(crc, bytes);
            to.write_all(bytes).map_err(Error::io("write", &self.to))?;
            at = end;
        }
        if crc != self.row.crc32c {
            let path = shards.files.path(self.shard)?;
            let fault = format!("crc32c {crc:08x}, expected {:08x}", self.row.crc32c);
            return Err(Error::Damaged { path, fault });
        }
        files::close(to).map_err(Error::io("close", &self.to))
    }
}

/// The labels of each dataset that become others.
fn relabelled(datasets: &[Dataset], tables: &[Vec<&[u8]>], classes: &United<&[u8]>) -> Vec<Relabelled> {
    let of_dataset = |((dataset, table), labels): ((&Dataset, &Vec<&[u8]>), &Vec<u32>)| {
        let labels = moved(table, labels);
        (!labels.is_empty()).then(|| Relabelled { of: dataset.name.display().to_string(), labels })
    };
    datasets.iter().zip(tables).zip(&classes.labels).filter_map(of_dataset).collect()
}

/// Shards are not written again, so labels that stand in them must stay what they are.
fn refuse_stale_labels(datasets: &[Dataset], classes: &United<&[u8]>) -> Result<(), Error> {
    for (dataset, labels) in datasets.iter().zip(&classes.labels) {
        let says_labels = PackOptions::all(dataset.index.options()).iter().any(|options| options.cls);
        if says_labels && (0u32..).zip(labels).any(|(old, new)| old != *new) {
            let fault = "its shards hold labels (--cls) that would no longer be right among the classes of all: \
                         pack it again without --cls";
            return Err(Error::Source { path: dataset.name.clone(), fault: fault.to_owned() });
        }
    }
    Ok(())
}

/// Puts the index together. An index of shards that lie where they are names them by their paths
/// below `base`.
fn assemble(
    base: Option<&Path>,
    datasets: &[Dataset],
    times: &[Times],
    classes: &United<&[u8]>,
) -> Result<Result<Assembled, FormatError>, Error> {
    let mut names: Vec<String> = Vec::new();
    for dataset in datasets {
        for shard in dataset.shard_ids() {
            names.push(match base {
                Some(base) => name_below(base, &dataset.shard_path(shard))?,
                None => shard_name(u32::try_from(names.len()).unwrap_or(u32::MAX)),
            });
        }
    }
    Ok(united(base, &names, datasets, times, classes))
}

fn united(
    base: Option<&Path>,
    names: &[String],
    datasets: &[Dataset],
    times: &[Times],
    classes: &United<&[u8]>,
) -> Result<Assembled, FormatError> {
    let mut assembly = Assembly::new(classes.names.iter().copied())?;
    let mut rest = names;
    for ((dataset, times), labels) in datasets.iter().zip(times).zip(&classes.labels) {
        let (own, others) = rest.split_at(dataset.index.shard_count() as usize);
        let name = |shard: ShardId| own.get(shard.index()).cloned().unwrap_or_default();
        assembly.add_index(&dataset.index, times, labels, name)?;
        rest = others;
    }
    if let Some(base) = base {
        assembly.set_base(base);
    }
    let options: Vec<_> = datasets.iter().map(Dataset::options).collect();
    assembly.finish(&serde_json::json!({ "tool": TOOL, "merged": options }))
}

/// The deepest folder that has all datasets in it.
fn common_folder(datasets: &[Dataset]) -> PathBuf {
    let mut folders = datasets.iter().map(|dataset| dataset.dir.parent().unwrap_or(&dataset.dir));
    let first = folders.next().unwrap_or(Path::new("/")).to_owned();
    folders.fold(first, |common, folder| {
        let same = common.components().zip(folder.components()).take_while(|(left, right)| left == right);
        same.map(|(part, _)| part).collect()
    })
}

/// The deepest prefix of a bucket that has all datasets in it; `None` if all are in folders.
fn common_bucket(datasets: &[Dataset]) -> Result<Option<PathBuf>, Error> {
    let urls: Vec<Url> = datasets.iter().filter_map(Dataset::address).collect();
    let Some(first) = urls.first() else { return Ok(None) };
    let is_beside = |other: &&Url| (other.scheme(), other.bucket()) == (first.scheme(), first.bucket());
    if urls.len() < datasets.len() || !urls.iter().all(|url| is_beside(&url)) {
        let names: Vec<String> = datasets.iter().map(|dataset| dataset.name.display().to_string()).collect();
        return Err(Error::Usage(format!(
            "--in-place: {} are not all in folders, or all in one bucket: leave --in-place out to copy",
            names.join(", ")
        )));
    }
    // The parts of a web server's address are decoded, and those of a shard's name are not.
    let is_encoded = |url: &&Url| url.scheme().starts_with("http") && url.prefix().contains('%');
    if let Some(url) = urls.iter().find(is_encoded) {
        return Err(Error::Usage(format!(
            "--in-place: {url} has an encoded character: write it as it is, or leave --in-place out to copy"
        )));
    }
    // The last part is the dataset's own name.
    let parents = |url: &Url| -> Vec<String> {
        let parents = url.prefix().rsplit_once('/').map(|(parents, _)| parents.split('/'));
        parents.into_iter().flatten().map(str::to_owned).collect()
    };
    let common = urls.iter().map(parents).reduce(|common, parents| {
        let same = common.into_iter().zip(parents).take_while(|(left, right)| left == right);
        same.map(|(part, _)| part).collect()
    });
    let bucket = format!("{}://{}", first.scheme(), first.bucket());
    let base = common.into_iter().flatten().fold(bucket, |base, part| format!("{base}/{part}"));
    Ok(Some(base.into()))
}

/// The path of a shard within `base`, as an index has it.
fn name_below(base: &Path, shard: &Path) -> Result<String, Error> {
    // As text: a path would lose the two slashes of an address.
    let text = base
        .to_str()
        .zip(shard.to_str())
        .and_then(|(base, shard)| shard.strip_prefix(base.trim_end_matches('/'))?.strip_prefix('/'));
    let below = text.or_else(|| shard.strip_prefix(base).ok().and_then(Path::to_str));
    let fault = "its path is not UTF-8, which an index of shards in place needs: rename its folder";
    below.map(str::to_owned).ok_or_else(|| Error::source(shard, fault))
}

impl Printed for Merged {}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { merged, samples, classes, shards, speed, content_id, .. } = self;
        let (dataset, bytes) = (self.dataset.display(), human_bytes(self.bytes));
        let how = match (self.linked, self.in_place) {
            (true, _) => "linked",
            (false, true) => "left in place",
            (false, false) => "copied",
        };
        for relabelled in &self.relabelled {
            writeln!(f, "note: {relabelled}")?;
        }
        writeln!(
            f,
            "{dataset}: {samples} samples of {classes} classes in {shards} shards, from {merged} datasets"
        )?;
        if self.unchanged {
            return write!(f, "it is there already, and whole: nothing was written, content id {content_id}");
        }
        write!(f, "{bytes} {how} in {speed}, content id {content_id}")
    }
}
