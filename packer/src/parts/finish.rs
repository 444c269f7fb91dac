//! `finish`: the dataset, once the shards of all parts are there.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use shade_formats::ShardId;
use shade_formats::index::INDEX_FILE;

use crate::args::{InFlightArgs, OutputArgs, SyncArgs, local};
use crate::catalogue::Bad;
use crate::claim::Claim;
use crate::config::{Effort, OnBad};
use crate::create::{Created, PackJob, Prepared};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::{MARKER, clean, unmark};
use crate::options::Work;
use crate::pack::read_done;
use crate::part::Part;
use crate::plan::{PLAN_FILE, shard_name};
use crate::plan_file::{PlanFile, remove_lists};
use crate::progress::CommandProgress;
use crate::publish::{
    NewWork, Partial, check_destination, free_published, look_afresh, planned_work, sync_dir,
};
use crate::report::{Printed, Speed, path_as_text};
use crate::workers::Workers;

/// Missing parts, or shards, that are named to people.
const NAMED_MAX: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct FinishArgs {
    /// The dataset's directory, as it was said to `plan`.
    #[arg(value_parser = local())]
    out: PathBuf,
    /// Threads that read.
    #[command(flatten)]
    in_flight: InFlightArgs,
    /// Whether the disk confirms.
    #[command(flatten)]
    sync: SyncArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `finish` made, or what it lacks.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finished {
    /// Shards of all parts.
    shards_total: usize,
    /// Shards that no part has completed, by their paths in the dataset.
    missing_shards: Vec<String>,
    /// The parts that these belong to; none where parts of several counts were packed, or none was.
    missing_parts: Vec<Part>,
    /// Where complete shards are, if some are missing.
    #[serde(serialize_with = "path_as_text")]
    folder: PathBuf,
    #[serde(flatten)]
    created: Created,
}

/// A shard of a plan, where parts put it.
struct PlannedShard {
    position: usize,
    dataset: usize,
    id: ShardId,
    folder: PathBuf,
    /// Its path in the dataset.
    name: String,
}

/// What is known of a shard that is complete.
struct Complete {
    part: Option<Part>,
    bad: Vec<Bad>,
}

/// Makes the dataset of the shards that all parts have packed.
///
/// # Errors
/// There is no plan, or it is damaged; another command makes the dataset; a sample could not be
/// listed or packed and none may be left out; a file cannot be written. Complete shards stay.
pub(crate) fn finish(args: &FinishArgs, stop: &Stop) -> Result<Finished, Error> {
    let start = Instant::now();
    let (out, sync) = (&args.out, args.sync.sync());
    check_destination(out)?;
    let Some((_, id)) = planned_work(out)? else { return finished_before(out) };
    let readers = Workers::start(args.in_flight.in_flight())?;
    let mut partial = Partial::resume(NewWork { out, id: &id, splits: Vec::new(), sync }, None)?;
    let plan = PlanFile::open(partial.path())?;
    let shards = shards_of(&plan, partial.path());
    for (split, _) in plan.datasets() {
        look_afresh(&split.map_or_else(|| partial.path().to_owned(), |split| partial.path().join(split)))?;
    }
    let progress = &CommandProgress::start(args.output.shown(), "finishing", shards.len() as u64, 0);
    let complete = readers.each(&shards, stop, |shard| {
        let complete = look(shard, &plan, sync)?;
        progress.add(1, 0);
        Ok(complete)
    })?;
    progress.finish();
    let mut finished = Finished { shards_total: shards.len(), ..Finished::default() };
    finished.created.dataset.clone_from(out);
    if complete.iter().any(Option::is_none) {
        finished.folder = partial.path().to_owned();
        finished.note_missing(&shards, &complete);
        return Ok(finished);
    }
    let packed = complete.into_iter().flatten().flat_map(|complete| complete.bad);
    refuse_bad(plan.bad().cloned().chain(packed), plan.accept().on_bad)?;
    let datasets = whole(&plan)?;
    let effort = Effort { jobs: args.in_flight.in_flight(), in_flight: args.in_flight.in_flight(), sync };
    let job = PackJob {
        id: plan.work(),
        bucket: None,
        accept: plan.accept(),
        effort,
        readers: &readers,
        progress,
        stop,
    };
    let mut splits = Vec::new();
    for prepared in datasets {
        let folder = prepared.planned.folder(partial.path());
        splits.extend(prepared.planned.split.clone());
        finished.created.bad.extend(prepared.planned.catalogue.bad.iter().cloned());
        let (part, packed) = prepared.assemble(&folder, &job)?;
        if sync {
            sync_dir(&folder)?;
        }
        finished.created.source_bytes += packed.source_bytes;
        finished.created.bad.extend(packed.bad);
        finished.created.parts.push(part);
    }
    stop.check()?;
    partial.publish()?;
    // Only now: a run that is killed before can go on, and a part that came late has nothing any
    // more where it could put a file.
    clean_published(out, &splits)?;
    finished.created.speed = Speed::since(start, 0);
    Ok(finished)
}

/// All shards in their order over all datasets.
fn shards_of(plan: &PlanFile, folder: &Path) -> Vec<PlannedShard> {
    let datasets = plan.datasets();
    let ends = datasets.iter().skip(1).map(|(_, first)| *first).chain([plan.shard_count()]);
    let mut shards = Vec::new();
    for ((dataset, (split, first)), end) in datasets.iter().enumerate().zip(ends) {
        for (number, position) in (0u32..).zip(*first..end) {
            let file = shard_name(number);
            shards.push(PlannedShard {
                position,
                dataset,
                id: ShardId(number),
                folder: split.map_or_else(|| folder.to_owned(), |split| folder.join(split)),
                name: split.map_or_else(|| file.clone(), |split| format!("{split}/{file}")),
            });
        }
    }
    shards
}

/// What is known of a shard; `None` if it is not complete. If `sync`, the disk confirms it.
fn look(shard: &PlannedShard, plan: &PlanFile, sync: bool) -> Result<Option<Complete>, Error> {
    let done = read_done(&shard.folder, shard.id, plan.work())?;
    let Some(done) = done.filter(|done| done.has_dictionary(plan.dictionary(shard.dataset))) else {
        return Ok(None);
    };
    if sync {
        done.sync(&shard.folder)?;
    }
    Ok(Some(Complete { part: done.part, bad: done.bad }))
}

/// All of the plan's datasets. They must be the work that the shards were packed for.
fn whole(plan: &PlanFile) -> Result<Vec<Prepared>, Error> {
    let numbers = plan.datasets().into_iter().enumerate();
    // No sample is read any more: the source may be anywhere.
    let whole = |(number, (_, first))| plan.whole(number, first, Path::new("."));
    let datasets: Vec<Prepared> = numbers.map(whole).collect::<Result<_, _>>()?;
    let parts = datasets.iter().map(|dataset| (&dataset.planned.options, &dataset.planned.catalogue));
    plan.check_work(&Work::of(parts))?;
    Ok(datasets)
}

/// As `create` does once all shards are packed.
fn refuse_bad(bad: impl Iterator<Item = Bad>, on_bad: OnBad) -> Result<(), Error> {
    let bad: Vec<Bad> = bad.collect();
    match (on_bad, bad.first()) {
        (OnBad::Skip, _) | (_, None) => Ok(()),
        (OnBad::Fail, Some(first)) => Err(Error::BadInPart { first: first.clone(), more: bad.len() - 1 }),
        (OnBad::List, Some(_)) => Err(Error::AllBad { bad }),
    }
}

/// The report if there is no plan any more because the dataset is there.
fn finished_before(out: &Path) -> Result<Finished, Error> {
    let has_index = |folder: &Path| folder.join(INDEX_FILE).is_file();
    let subfolders = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let splits: Vec<PathBuf> = subfolders.filter(|folder| has_index(folder)).collect();
    if !has_index(out) && splits.is_empty() {
        let out = out.display();
        let text = format!("{out} has no plan to finish: `shade-pack plan SOURCE {out}` makes one");
        return Err(Error::Usage(text));
    }
    // It was published, but the run did not live to clean it.
    if out.join(PLAN_FILE).exists() || out.join(MARKER).exists() {
        let names = splits.iter().filter_map(|split| Some(split.file_name()?.to_str()?.to_owned()));
        clean_published(out, &names.collect::<Vec<_>>())?;
    }
    free_published(out)?;
    let created = Created { dataset: out.to_owned(), unchanged: true, ..Created::default() };
    Ok(Finished { created, ..Finished::default() })
}

/// Removes what only unfinished datasets have; the plan last.
fn clean_published(out: &Path, splits: &[String]) -> Result<(), Error> {
    for split in splits {
        clean_alone(&out.join(split))?;
    }
    remove_lists(out)?;
    clean_alone(out)
}

/// Cleans a folder, unless another command changes it: that command has unfinished files of its
/// own there, and cleans at its end.
fn clean_alone(folder: &Path) -> Result<(), Error> {
    match Claim::take(folder) {
        Ok(_claim) => clean(folder).and_then(|()| unmark(folder)),
        Err(Error::Usage(_)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

impl Finished {
    /// Names what is missing, also by its part, if all that is there is of parts of one count.
    fn note_missing(&mut self, shards: &[PlannedShard], complete: &[Option<Complete>]) {
        let counts = complete.iter().flatten().map(|complete| complete.part.map(Part::count));
        let counts: BTreeSet<Option<u32>> = counts.collect();
        let count = match counts.iter().collect::<Vec<_>>().as_slice() {
            [Some(count)] => Some(*count),
            _ => None,
        };
        let missing = shards.iter().zip(complete).filter(|(_, complete)| complete.is_none());
        let mut parts = BTreeSet::new();
        for (shard, _) in missing {
            self.missing_shards.push(shard.name.clone());
            parts.extend(count.and_then(|count| Part::of(shard.position, count)));
        }
        self.missing_parts = parts.into_iter().collect();
    }
}

impl Printed for Finished {
    fn exit_code(&self) -> u8 {
        if self.missing_shards.is_empty() { Printed::exit_code(&self.created) } else { 5 }
    }
}

fn some<T: ToString>(all: &[T]) -> String {
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(T::to_string).collect();
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = self.created.dataset.display();
        if self.created.unchanged {
            return write!(f, "{out} is finished already: nothing was written");
        }
        let missing = self.missing_shards.len();
        if missing == 0 {
            self.created.told(f)?;
            return write!(f, "finished in {:.1} s", self.created.speed.seconds());
        }
        let (folder, total) = (self.folder.display(), self.shards_total);
        writeln!(f, "{missing} of {total} shards are missing in {folder}: {}", some(&self.missing_shards))?;
        match self.missing_parts.first() {
            Some(first) => {
                writeln!(f, "{} parts are missing: {}", self.missing_parts.len(), some(&self.missing_parts))?;
                write!(f, "each makes its own: shade-pack create SOURCE {out} --part {first}")
            }
            None => write!(f, "parts make them: shade-pack create SOURCE {out} --part I/N"),
        }
    }
}
