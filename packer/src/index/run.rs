//! Lists, looks, builds, publishes.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use shade_dataset::{DatasetError, regular};
use shade_formats::SampleId;
use shade_formats::index::{INDEX_FILE, Index, PlacesKind};
use xxhash_rust::xxh3::xxh3_64;

use super::args::IndexArgs;
use super::look::Looking;
use super::make::{Made, Making};
use super::probe::{FILES, Probe, probe};
use super::report::Indexed;
use super::unchanged::{IndexOptions, Indexing, why_changed};
use crate::bucket::{Made as MadeThere, is_address, refuse_local_source};
use crate::catalogue::{Catalogue, SampleStore};
use crate::claim::{CLAIM_FILE, Claim};
use crate::config::OnBad;
use crate::create::{refuse_inside, refuse_left, refuse_listed};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::leftovers::{Content, clean_unfinished};
use crate::options::TOOL;
use crate::progress::CommandProgress;
use crate::publish::Partial;
use crate::report::Speed;
use crate::source::{Source, SourceKind};
use crate::workers::Workers;

/// Makes the index, or finds that the one that is there is still right.
///
/// # Errors
/// The arguments are wrong; the source cannot be listed, or changes meanwhile; a file cannot be a
/// sample; the index cannot be written. What was there is then what it was.
pub(crate) fn index(args: &IndexArgs, stop: &Stop) -> Result<Indexed, Error> {
    let start = Instant::now();
    let source = args.source.source()?;
    if source.bucket.is_none() {
        refuse_local_source(&args.out)?;
    }
    source.look(args.output.shown(), stop)?;
    let wanted = wanted(args, &source)?;
    refuse_inside(&args.out, &source.path)?;
    let base = match &source.bucket {
        Some(bucket) => bucket.url().as_str().into(),
        None => fs::canonicalize(&source.path).map_err(Error::io("find", &source.path))?,
    };
    let workers = Workers::start(args.threads.in_flight())?;
    let there = there(args)?;
    let report = |changed| Indexed {
        dataset: args.out.clone(),
        source: args.source.path.clone(),
        checksums: args.checksums,
        changed,
        ..Indexed::default()
    };
    let changed = match &there {
        There::Nothing => None,
        There::Damaged(fault) => Some(fault.clone()),
        There::Index(there) => match why_changed(there, &wanted, &source, &base, &workers) {
            None => {
                clean_claimed(&args.out)?;
                return Ok(Indexed { speed: Speed::since(start, 0), ..unchanged(there, report(None)) });
            }
            changed => changed,
        },
    };
    let mut indexed = report(changed);
    let mut catalogue = source.list(&workers, args.output.shown(), stop)?;
    refuse_listed(&[(source.path.as_path(), &catalogue)], args.accept())?;
    indexed.notes = std::mem::take(&mut catalogue.notes);
    let made = made(args, &source, &base, &mut catalogue, wanted, &workers, stop)?;
    if !args.no_probe {
        indexed.probe = probed(&catalogue, &workers);
    }
    write(args, !matches!(there, There::Nothing), &made, stop)?;
    indexed.content_id = content_id(&made, &source.path)?;
    (indexed.samples, indexed.classes, indexed.files) = (made.samples, catalogue.classes.len(), made.files);
    (indexed.source_bytes, indexed.index_bytes) = (made.bytes, made.index.len() as u64);
    (indexed.bad, indexed.not_decodable) = (made.bad, made.not_decodable);
    indexed.speed = Speed::since(start, if args.checksums { made.bytes } else { 0 });
    Ok(indexed)
}

/// What is asked for; usage if it cannot be had of this kind of source.
fn wanted(args: &IndexArgs, source: &Source) -> Result<Indexing, Error> {
    let kind = source.kind()?;
    let path = source.path.display();
    let fault = match kind {
        SourceKind::List => format!("{path} is a list of files, which only `shade-pack create` packs"),
        _ if !source.pairs.is_empty() => {
            "--pair: an index has no fields of other folders; `shade-pack create` packs them".to_owned()
        }
        _ if source.coco.is_some() => {
            "--coco: an index has no fields of its own; `shade-pack create` packs them".to_owned()
        }
        SourceKind::ImageFolder | SourceKind::Webdataset => {
            let labels = args.source.labels.as_ref().map(|labels| labels.display().to_string());
            let exclude = source.selection.patterns().to_vec();
            let labels_hash = args.source.labels.as_deref().and_then(hash_of);
            let (checksums, folders) = (args.checksums, Vec::new());
            let has_bad = false;
            return Ok(Indexing { source: kind, labels, labels_hash, exclude, checksums, has_bad, folders });
        }
    };
    Err(Error::Usage(fault))
}

/// A hash of a file's content; `None` if it is none, as the word of an option.
fn hash_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    regular::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(format!("{:016x}", xxh3_64(&bytes)))
}

/// What is at OUT.
enum There {
    Nothing,
    Index(Dataset),
    /// An index that cannot be read, and why.
    Damaged(String),
}

/// What is at OUT, if it may be made again.
fn there(args: &IndexArgs) -> Result<There, Error> {
    if !args.update || !(is_address(&args.out) || args.out.exists()) {
        return Ok(There::Nothing);
    }
    match Dataset::open(&args.out) {
        Err(Error::Dataset(DatasetError::NotPackedAt { .. })) => Ok(There::Nothing),
        Ok(dataset) if dataset.is_in_place() => Ok(There::Index(dataset)),
        Ok(dataset) => {
            let dir = dataset.name.display();
            Err(Error::Usage(format!("{dir} is a packed dataset: --update is for indexes of files")))
        }
        Err(Error::Dataset(fault)) if fault.is_damage() && is_alone(&args.out)? => {
            Ok(There::Damaged(fault.to_string()))
        }
        Err(fault) => Err(fault),
    }
}

/// Whether the folder has nothing except an index: a packed dataset has shards beside it.
fn is_alone(folder: &Path) -> Result<bool, Error> {
    if is_address(folder) {
        return Ok(false);
    }
    let mut names = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    Ok(names.all(|entry| entry.is_ok_and(|entry| entry.file_name() == INDEX_FILE)))
}

/// Removes what one has left that was killed before it gave its claim back.
fn clean_claimed(out: &Path) -> Result<(), Error> {
    if !out.join(CLAIM_FILE).exists() {
        return Ok(());
    }
    match Claim::take(out) {
        Ok(_claim) => clean_unfinished(out),
        // Another command is at work.
        Err(Error::Usage(_)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

fn unchanged(there: &Dataset, report: Indexed) -> Indexed {
    let index = &there.index;
    let entries = there.ids().filter_map(|id| index.entry(id));
    Indexed {
        unchanged: true,
        content_id: index.content_id().to_string(),
        samples: index.len(),
        classes: index.class_count() as usize,
        files: index.shard_count(),
        source_bytes: entries.map(|entry| u64::from(entry.stored_len)).sum(),
        index_bytes: fs::metadata(there.dir.join(INDEX_FILE)).map_or(0, |found| found.len()),
        ..report
    }
}

fn made(
    args: &IndexArgs,
    source: &Source,
    base: &Path,
    catalogue: &mut Catalogue,
    mut wanted: Indexing,
    workers: &Workers,
    stop: &Stop,
) -> Result<Made, Error> {
    let bytes = if args.checksums { catalogue.bytes() } else { 0 };
    let progress = CommandProgress::start(args.output.shown(), "indexing", catalogue.len().into(), bytes);
    let looked = Looking::new(catalogue, args.checksums, &progress, stop).all(workers)?;
    progress.finish();
    let accept = args.accept();
    let mut bad: Vec<_> = std::mem::take(&mut catalogue.bad);
    let found = looked.iter().filter_map(|looked| looked.as_ref().err());
    if accept.on_bad == OnBad::Fail
        && let Some(first) = found.clone().next()
    {
        return Err(Error::Bad { first: first.clone(), more: found.count() - 1 });
    }
    wanted.has_bad = !bad.is_empty() || found.count() > 0;
    wanted.folders = std::mem::take(&mut catalogue.folders);
    let kind = match wanted.source {
        SourceKind::Webdataset => PlacesKind::Tars,
        SourceKind::ImageFolder | SourceKind::List => PlacesKind::Files,
    };
    let options = IndexOptions { tool: TOOL.to_owned(), indexed: wanted };
    let options = serde_json::to_string(&options).map_err(|fault| Error::Defect(fault.to_string()))?;
    let mut made = Making::new(catalogue, kind, &source.path, base).all(looked, &options)?;
    bad.append(&mut made.bad);
    made.bad = bad;
    if accept.on_bad != OnBad::Skip && !made.bad.is_empty() {
        return Err(match accept.on_bad {
            OnBad::List => Error::AllBad { bad: made.bad },
            _ => Error::Bad { first: made.bad.swap_remove(0), more: made.bad.len() },
        });
    }
    refuse_left(catalogue, &made.bad, made.samples, &made.lost, accept)?;
    Ok(made)
}

/// Files all over the source.
fn probed(catalogue: &Catalogue, workers: &Workers) -> Option<Probe> {
    if !catalogue.stores.iter().all(|store| matches!(store, SampleStore::Folder(_))) {
        return None;
    }
    let count = (catalogue.len() as usize).min(FILES);
    let step = (catalogue.len() as usize).checked_div(count)?;
    let at = |number: usize| u32::try_from(number * step).ok().and_then(|id| catalogue.sample(SampleId(id)));
    let paths: Vec<PathBuf> = (0..count).filter_map(at).map(|sample| sample.file()).collect();
    workers.install(|| probe(&paths))
}

/// Puts the index into its folder. Readers see the old one or the new one.
fn write(args: &IndexArgs, is_there: bool, made: &Made, stop: &Stop) -> Result<(), Error> {
    if is_address(&args.out) {
        return write_there(args, is_there, made, stop);
    }
    if is_there {
        let _claim = Claim::take(&args.out)?;
        files::put(&args.out.join(INDEX_FILE), &made.index, true)?;
        // What one left that was killed before its index had its name.
        return clean_unfinished(&args.out);
    }
    let mut partial = Partial::create(&args.out, Content::Pack(Vec::new()))?;
    files::put(&partial.path().join(INDEX_FILE), &made.index, true)?;
    partial.publish()
}

/// The same in a bucket.
fn write_there(args: &IndexArgs, is_there: bool, made: &Made, stop: &Stop) -> Result<(), Error> {
    let begin = if is_there { MadeThere::begin_again } else { MadeThere::begin };
    let mut out = begin(&args.out)?;
    files::put(&out.folder().join(INDEX_FILE), &made.index, false)?;
    out.publish(stop).map(drop)
}

fn content_id(made: &Made, path: &Path) -> Result<String, Error> {
    let id = Index::content_id_at_start(&made.index);
    id.map(|id| id.to_string()).map_err(|source| Error::Index { path: path.to_owned(), source })
}
