//! `create`: a source becomes a dataset.
//!
//! Everything is listed and planned before anything is written. What is written goes to `OUT.part-ID`, where ID stands
//! for the source and the options: the same command finds it again and goes on after the shards that are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::{SampleId, ShardId};

use crate::assemble::{Assembly, Packed, write_index};
use crate::catalogue::{Bad, Catalogue};
use crate::config::{CreateConfig, OnBad};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{Options, Work};
use crate::pack::{Packing, Recipe, choose_zstd, clean, clean_unfinished};
use crate::plan::Plan;
use crate::progress::{Progress, Shown};
use crate::publish::{Partial, check_destination, sync_dir};
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::source::Source;
use crate::workers::Workers;

/// What was made, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Created {
    /// The dataset's directory; with splits, the directory of their datasets.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// Whether nothing was written: `--dry-run`, or the dataset was there already.
    pub unchanged: bool,
    /// One for the dataset, or one for each split.
    pub parts: Vec<CreatedPart>,
    /// Bytes of the images that are in it.
    pub source_bytes: u64,
    /// Bytes of those that this run has read: fewer when it went on where an earlier one was interrupted.
    pub read_bytes: u64,
    /// What was left out.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) read a second.
    pub mb_per_s: f64,
}

/// One dataset of those that were made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CreatedPart {
    /// The split's name; none for a dataset of the whole source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// What identifies its content, in hexadecimal; none before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Number of samples.
    pub samples: u32,
    /// Number of classes.
    pub classes: usize,
    /// Number of shards.
    pub shards: usize,
    /// Bytes of all shards and the index; before it is made, of the images in the source.
    pub bytes: u64,
    /// Records stored compressed.
    pub compressed: u64,
}

/// A source that is listed and planned.
struct Planned {
    split: Option<String>,
    catalogue: Catalogue,
    plan: Plan,
    plan_id: String,
    options: Options,
}

/// Makes the dataset.
///
/// # Errors
/// See [`Source::scan`], [`Packing::run`] and [`Partial`]. There is no dataset then; complete shards are kept for the next
/// run.
pub fn create(config: &CreateConfig, shown: Shown, stop: &Stop) -> Result<Created, Error> {
    let start = Instant::now();
    refuse_inside(&config.out, &config.source.path)?;
    check_destination(&config.out)?;
    let readers = Workers::start(config.effort.in_flight)?;
    let planned = plan_all(config, &readers, shown, stop)?;
    let mut created = Created { dataset: config.out.clone(), ..Created::default() };
    created.bad = planned.iter().flat_map(|planned| planned.catalogue.bad.iter().cloned()).collect();
    if config.dry_run || is_there(config, &planned) {
        created.unchanged = true;
        created.parts = planned.iter().map(Planned::outline).collect();
        return Ok(created);
    }
    let work = Work::of(planned.iter().map(|planned| (&planned.options, &planned.catalogue)));
    let mut partial = Partial::resume(&config.out, &work.id, config.restart, config.effort.sync)?;
    let records = planned.iter().map(|planned| u64::from(planned.catalogue.len())).sum();
    let bytes = planned.iter().map(|planned| planned.catalogue.bytes()).sum();
    let progress = Progress::start(shown, "packing", records, bytes);
    for planned in planned {
        let folder = planned.folder(partial.path());
        let made = planned.make(&folder, config, &work, &readers, &progress, stop);
        let (part, packed) = made.map_err(|source| unfinished(source, &mut partial))?;
        created.source_bytes += packed.source_bytes;
        created.bad.extend(packed.bad);
        created.parts.push(part);
    }
    progress.finish();
    if config.on_bad == OnBad::List && !created.bad.is_empty() {
        return Err(Error::AllBad { bad: created.bad });
    }
    stop.check().map_err(|source| unfinished(source, &mut partial))?;
    partial.publish()?;
    created.seconds = start.elapsed().as_secs_f64();
    created.read_bytes = progress.bytes_of_this_run();
    created.mb_per_s = megabytes_per_second(created.read_bytes, created.seconds);
    Ok(created)
}

/// Lists and plans the source, or each of its splits.
fn plan_all(
    config: &CreateConfig,
    readers: &Workers,
    shown: Shown,
    stop: &Stop,
) -> Result<Vec<Planned>, Error> {
    let splits: Vec<Option<String>> = match config.splits.as_slice() {
        [] => vec![None],
        splits => splits.iter().cloned().map(Some).collect(),
    };
    let mut planned = Vec::new();
    for split in splits {
        let path = match &split {
            Some(split) => config.source.path.join(split),
            None => config.source.path.clone(),
        };
        let source = Source { path, ..config.source.clone() };
        let listing = Progress::start(shown, "listing", 0, 0);
        let catalogue = readers.install(|| source.scan(&listing, stop))?;
        listing.finish();
        planned.push((split, source, catalogue));
    }
    // A class that one split lacks would shift all labels behind it: splits are labelled alike.
    if planned.len() > 1 {
        crate::source::splits::unify(planned.iter_mut().map(|(_, _, catalogue)| catalogue));
    }
    let mut done = Vec::new();
    for (split, source, mut catalogue) in planned {
        catalogue.bad.sort_by(|a, b| a.path.cmp(&b.path));
        refuse_bad(&catalogue.bad, config.on_bad)?;
        let options = Options::new(&source, &config.layout)?;
        let plan = options.plan(&catalogue);
        let plan_id = options.plan_id(&catalogue);
        done.push(Planned { split, catalogue, plan, plan_id, options });
    }
    Ok(done)
}

/// What listing found bad ends a run that is not to skip it; `list` still reads everything.
pub(crate) fn refuse_bad(bad: &[Bad], on_bad: OnBad) -> Result<(), Error> {
    match (on_bad, bad.first()) {
        (OnBad::Fail, Some(first)) => Err(Error::Bad { first: first.clone(), more: bad.len() - 1 }),
        _ => Ok(()),
    }
}

/// Whether the destination holds this very work already, as when a finished command is given again.
fn is_there(config: &CreateConfig, planned: &[Planned]) -> bool {
    planned.iter().all(|planned| planned.found_in(&planned.folder(&config.out)).is_some())
}

/// Keeps what is complete, and says so; removes the rest.
fn unfinished(source: Error, partial: &mut Partial) -> Error {
    let shards = complete_shards(partial.path());
    if shards == 0 {
        return source;
    }
    partial.keep();
    Error::Unfinished { source: Box::new(source), partial: partial.path().to_owned(), shards }
}

fn complete_shards(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => complete_shards(&entry.path()),
            _ => usize::from(entry.file_name().as_encoded_bytes().ends_with(b".done")),
        })
        .sum()
}

/// A dataset inside its source would be a class of it the next time.
fn refuse_inside(out: &Path, source: &Path) -> Result<(), Error> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(inside)) = (fs::canonicalize(parent), fs::canonicalize(source)) else {
        return Ok(());
    };
    if parent.starts_with(&inside) {
        let text =
            format!("{} lies inside {}: choose a destination outside", out.display(), source.display());
        return Err(Error::Usage(text));
    }
    Ok(())
}

impl Planned {
    fn folder(&self, out: &Path) -> PathBuf {
        self.split.as_ref().map_or_else(|| out.to_owned(), |split| out.join(split))
    }

    fn outline(&self) -> CreatedPart {
        CreatedPart {
            split: self.split.clone(),
            samples: self.catalogue.len(),
            classes: self.catalogue.classes.len(),
            shards: self.plan.shard_count(),
            bytes: self.catalogue.bytes(),
            ..CreatedPart::default()
        }
    }

    /// The dataset in `folder`, if it is the one that is planned.
    fn found_in(&self, folder: &Path) -> Option<Dataset> {
        let dataset = Dataset::open(folder).ok()?;
        (Options::plan_id_in(dataset.index.options()).as_ref() == Some(&self.plan_id)).then_some(dataset)
    }

    /// What an earlier run has finished but not published: one split of several, or all but the last rename.
    fn made_before(
        &self,
        dataset: &Dataset,
        folder: &Path,
        progress: &Progress,
    ) -> Result<(CreatedPart, Packed), Error> {
        clean(folder)?;
        let index = &dataset.index;
        progress.skip(self.catalogue.len().into(), self.catalogue.bytes());
        let entries = (0..index.len()).filter_map(|id| index.entry(SampleId(id)));
        let packed = Packed {
            bytes: (0..index.shard_count()).filter_map(|n| Some(index.shard(ShardId(n))?.bytes)).sum(),
            source_bytes: self.catalogue.bytes(),
            compressed: entries.filter(|entry| entry.codec.is_compressed()).count() as u64,
            bad: Vec::new(),
        };
        let mut part = self.outline();
        (part.samples, part.bytes, part.compressed) = (index.len(), packed.bytes, packed.compressed);
        part.bytes += fs::metadata(folder.join(INDEX_FILE)).map_or(0, |found| found.len());
        part.content_id = Some(index.content_id().to_string());
        Ok((part, packed))
    }

    /// Packs it into `folder`, which then holds shards and index and nothing else.
    fn make(
        self,
        folder: &Path,
        config: &CreateConfig,
        work: &Work,
        readers: &Workers,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<(CreatedPart, Packed), Error> {
        if !folder.is_dir() {
            fs::create_dir(folder).map_err(Error::io("create", folder))?;
        }
        // With samples left out it is made again, to know which.
        if let Some(dataset) = self.found_in(folder)
            && dataset.index.len() == self.catalogue.len()
        {
            return self.made_before(&dataset, folder, progress);
        }
        clean_unfinished(folder)?;
        let layout = &config.layout;
        let mut recipe = Recipe { transform: layout.transform, zstd: None, cls: layout.cls };
        recipe.zstd = readers.install(|| choose_zstd(&self.catalogue, &recipe, layout.compression, stop))?;
        let packing = Packing {
            catalogue: &self.catalogue,
            plan: &self.plan,
            recipe: &recipe,
            id: &work.id,
            folder,
            first_shard: 0,
            first_key: 0,
            on_bad: config.on_bad,
            effort: config.effort,
            progress,
            stop,
        };
        packing.run(readers)?;
        let fault = |source| Error::Index { path: folder.to_owned(), source };
        let classes = self.catalogue.classes.iter().map(String::as_bytes);
        let mut assembly = Assembly::new(classes).map_err(fault)?;
        let packed = assembly.add_packed(&packing)?;
        let options = self.options.text(Some(&self.plan_id));
        let mut part = self.outline();
        part.bytes = packed.bytes;
        part.compressed = packed.compressed;
        // The catalogue is not needed any more, and its memory may be: the index is as large.
        drop(self);
        let index = assembly.finish(&options).map_err(fault)?;
        part.bytes += index.len() as u64;
        write_index(folder, &index, config.effort.sync)?;
        clean(folder)?;
        if config.effort.sync {
            sync_dir(folder)?;
        }
        let index = Index::open(index).map_err(fault)?;
        part.samples = index.len();
        part.content_id = Some(index.content_id().to_string());
        Ok((part, packed))
    }
}

impl std::fmt::Display for Created {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        for part in &self.parts {
            let name = part.split.as_ref().map_or_else(|| self.dataset.clone(), |s| self.dataset.join(s));
            let CreatedPart { samples, classes, shards, compressed, .. } = part;
            let bytes = human_bytes(part.bytes);
            writeln!(f, "{}: {samples} samples of {classes} classes in {shards} shards", name.display())?;
            match &part.content_id {
                Some(id) => writeln!(f, "{bytes} written, {compressed} records compressed, content id {id}")?,
                None => writeln!(f, "{bytes} in the source")?,
            }
        }
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        if self.unchanged {
            return f.write_str("nothing was written");
        }
        let (read, rate) = (human_bytes(self.read_bytes), self.mb_per_s);
        write!(f, "{read} read in {:.1} s, {rate:.1} MB/s", self.seconds)
    }
}
