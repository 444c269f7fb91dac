//! Lists, plans, packs, publishes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use shade_formats::index::INDEX_FILE;

use super::planned::Planned;
use super::report::Created;
use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::config::{CreateConfig, OnBad};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{Options, Work};
use crate::progress::{Progress, Shown};
use crate::publish::{Partial, check_destination};
use crate::report::megabytes_per_second;
use crate::source::Source;
use crate::times::Times;
use crate::workers::Workers;

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
    let (dataset, source) = (config.out.clone(), config.source.path.clone());
    let mut created = Created { dataset, source, ..Created::default() };
    created.bad = planned.iter().flat_map(|planned| planned.catalogue.bad.iter().cloned()).collect();
    let there = there(config, &planned)?;
    if config.dry_run || there.is_some() {
        return Ok(unchanged(created, &planned, there));
    }
    let work = Work::of(planned.iter().map(|planned| (&planned.options, &planned.catalogue)));
    let mut partial = match Partial::resume(&config.out, &work.id, config.restart, config.effort.sync) {
        Ok(partial) => partial,
        // Another run of this very command may have ended while this one was listing.
        Err(refused) => match self::there(config, &planned)? {
            None => return Err(explained(refused, config, &planned)),
            there => return Ok(unchanged(created, &planned, there)),
        },
    };
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
    partial.publish().map_err(|source| unfinished(source, &mut partial))?;
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

/// How the source differs from the datasets at the destination, if these are what is planned, as when a finished command
/// is given again. Names and lengths are then the same.
fn there(config: &CreateConfig, planned: &[Planned]) -> Result<Option<Vec<Changes>>, Error> {
    let mut all = Vec::new();
    for planned in planned {
        let folder = planned.folder(&config.out);
        let Some(dataset) = planned.found_in(&folder) else { return Ok(None) };
        all.push(Changes::of(&dataset, &Times::read(&folder)?, &planned.catalogue));
    }
    Ok(Some(all))
}

/// Says that nothing was written. `there` is how the source differs from each part, if the parts are there.
fn unchanged(mut created: Created, planned: &[Planned], there: Option<Vec<Changes>>) -> Created {
    created.unchanged = true;
    created.parts = planned.iter().map(Planned::outline).collect();
    for (part, changes) in created.parts.iter_mut().zip(there.into_iter().flatten()) {
        part.changes = Some(changes);
    }
    created
}

/// Says of a destination that exists how it differs from what is planned.
fn explained(refused: Error, config: &CreateConfig, planned: &[Planned]) -> Error {
    let Error::Usage(mut text) = refused else { return refused };
    for planned in planned {
        let folder = planned.folder(&config.out);
        if let (Ok(dataset), Ok(times)) = (Dataset::open(&folder), Times::read(&folder)) {
            let changes = Changes::of(&dataset, &times, &planned.catalogue);
            text += &changes.differences(&dataset, &planned.options);
        }
    }
    Error::Usage(text)
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

/// Number of shards below `folder` that the next run need not pack again.
fn complete_shards(folder: &Path) -> usize {
    // A dataset that is whole has no records of completion any more.
    let complete: &[u8] = if folder.join(INDEX_FILE).exists() { b".tar" } else { b".done" };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => complete_shards(&entry.path()),
            _ => usize::from(entry.file_name().as_encoded_bytes().ends_with(complete)),
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
