//! Lists, plans, packs, publishes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use shade_formats::index::INDEX_FILE;

use super::planned::{CreateJob, Planned};
use super::report::Created;
use crate::args::PackArgs;
use crate::catalogue::{Bad, Catalogue};
use crate::changes::Changes;
use crate::config::{Layout, OnBad};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{PackOptions, Work};
use crate::progress::CommandProgress;
use crate::publish::{Partial, check_destination};
use crate::report::Speed;
use crate::source::Source;
use crate::times::Times;
use crate::workers::Workers;

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What is packed, and how.
    #[command(flatten)]
    pub(crate) pack: PackArgs,
    /// The dataset's directory. It must not exist and must not lie inside SOURCE.
    out: PathBuf,
    /// Make a dataset of each of these folders of SOURCE: OUT/train, OUT/val.
    ///
    /// The datasets' classes are those of all splits together, so that equal labels mean equal
    /// classes. OUT appears when all are complete.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    splits: Vec<String>,
    /// Go on where an earlier run of the same command was interrupted. This is the default.
    #[arg(long, overrides_with = "restart")]
    resume: bool,
    /// Throw away what earlier runs left unfinished for OUT, and begin anew.
    #[arg(long, overrides_with = "resume")]
    restart: bool,
    /// List and plan only: tell what would be packed, write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Makes the dataset.
///
/// # Errors
/// The arguments are wrong; the source cannot be listed; a sample cannot be packed; a file cannot
/// be written. There is no dataset then; complete shards are kept for the next run.
pub(crate) fn create(args: &CreateArgs, stop: &Stop) -> Result<Created, Error> {
    let start = Instant::now();
    let plain = |name: &String| !name.contains('/') && !matches!(name.as_str(), "" | "." | "..");
    if let Some(name) = args.splits.iter().find(|name| !plain(name)) {
        return Err(Error::Usage(format!("--splits: '{name}' is not a folder's name")));
    }
    let (source, layout) = (args.pack.source.source()?, args.pack.layout.for_new()?);
    let effort = args.pack.effort();
    refuse_inside(&args.out, &source.path)?;
    check_destination(&args.out)?;
    let readers = Workers::start(effort.in_flight)?;
    let planned = plan_all(args, source, &layout, &readers, stop)?;
    let mut created =
        Created { dataset: args.out.clone(), source: args.pack.source.path.clone(), ..Created::default() };
    created.bad = planned.iter().flat_map(|planned| planned.catalogue.bad.iter().cloned()).collect();
    let there = there(&args.out, &planned)?;
    if args.dry_run || there.is_some() {
        return Ok(unchanged(created, &planned, there));
    }
    let work = Work::of(planned.iter().map(|planned| (&planned.options, &planned.catalogue)));
    let mut partial = match Partial::resume(&args.out, &work.id, args.restart, effort.sync) {
        Ok(partial) => partial,
        // Another run of this very command may have ended while this one was listing.
        Err(refused) => match self::there(&args.out, &planned)? {
            None => return Err(explained(refused, &args.out, &planned)),
            there => return Ok(unchanged(created, &planned, there)),
        },
    };
    let records = planned.iter().map(|planned| u64::from(planned.catalogue.len())).sum();
    let bytes = planned.iter().map(|planned| planned.catalogue.bytes()).sum();
    let progress = CommandProgress::start(args.pack.output.shown(), "packing", records, bytes);
    let (layout, progress) = (&layout, &progress);
    let job = CreateJob {
        layout,
        work: &work,
        on_bad: args.pack.on_bad,
        effort,
        readers: &readers,
        progress,
        stop,
    };
    for planned in planned {
        let made = planned.make(partial.path(), &job);
        let (part, packed) = made.map_err(|source| unfinished(source, &mut partial))?;
        created.source_bytes += packed.source_bytes;
        created.bad.extend(packed.bad);
        created.parts.push(part);
    }
    progress.finish();
    if args.pack.on_bad == OnBad::List && !created.bad.is_empty() {
        return Err(Error::AllBad { bad: created.bad });
    }
    stop.check().and_then(|()| partial.publish()).map_err(|source| unfinished(source, &mut partial))?;
    created.read_bytes = progress.bytes_of_this_run();
    created.speed = Speed::since(start, created.read_bytes);
    Ok(created)
}

fn plan_all(
    args: &CreateArgs,
    source: Source,
    layout: &Layout,
    readers: &Workers,
    stop: &Stop,
) -> Result<Vec<Planned>, Error> {
    let in_split = |split: &String| {
        let path = source.path.join(split);
        (Some(split.clone()), Source { path, ..source.clone() })
    };
    let mut sources: Vec<(Option<String>, Source)> = args.splits.iter().map(in_split).collect();
    if sources.is_empty() {
        sources.push((None, source));
    }
    let list = |(split, source): (_, Source)| {
        let catalogue = source.list(readers, args.pack.output.shown(), stop)?;
        Ok((split, source, catalogue))
    };
    let mut listed: Vec<_> = sources.into_iter().map(list).collect::<Result<_, Error>>()?;
    // A class that one split lacks would shift all labels behind it: splits are labelled alike.
    if listed.len() > 1 {
        crate::source::splits::unify(listed.iter_mut().map(|(_, _, catalogue)| catalogue));
    }
    let plan = |(split, source, catalogue): (_, Source, Catalogue)| {
        refuse_bad(&catalogue.bad, args.pack.on_bad)?;
        let options = PackOptions::new(&source, layout)?;
        let (plan, plan_id) = (options.plan(&catalogue), options.plan_id(&catalogue));
        Ok(Planned { split, catalogue, plan, plan_id, options })
    };
    listed.into_iter().map(plan).collect()
}

/// Ends a run at the first bad file that listing found, unless such files are skipped. `list` still
/// reads everything.
pub(crate) fn refuse_bad(bad: &[Bad], on_bad: OnBad) -> Result<(), Error> {
    match (on_bad, bad.first()) {
        (OnBad::Fail, Some(first)) => Err(Error::Bad { first: first.clone(), more: bad.len() - 1 }),
        _ => Ok(()),
    }
}

/// How the source differs from the datasets at `out`, if these are what is planned: a finished
/// command was given again. Names and lengths are then the same.
fn there(out: &Path, planned: &[Planned]) -> Result<Option<Vec<Changes>>, Error> {
    let mut all = Vec::new();
    for planned in planned {
        let folder = planned.folder(out);
        let Some(dataset) = planned.found_in(&folder) else { return Ok(None) };
        all.push(Changes::of(&dataset, &Times::read(&folder)?, &planned.catalogue));
    }
    Ok(Some(all))
}

/// The report when nothing was written. `there` is how the source differs from each part, if the
/// parts are there.
fn unchanged(mut created: Created, planned: &[Planned], there: Option<Vec<Changes>>) -> Created {
    created.unchanged = true;
    created.parts = planned.iter().map(Planned::outline).collect();
    for (part, changes) in created.parts.iter_mut().zip(there.into_iter().flatten()) {
        part.changes = Some(changes);
    }
    created
}

/// Adds to the refusal of a destination that exists how it differs from what is planned.
fn explained(refused: Error, out: &Path, planned: &[Planned]) -> Error {
    let Error::Usage(mut text) = refused else { return refused };
    for planned in planned {
        let folder = planned.folder(out);
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
