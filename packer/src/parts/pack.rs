//! `create --part`: the shards of one part of a plan.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use crate::bucket::refuse_address;
use crate::catalogue::Bad;
use crate::config::OnBad;
use crate::create::{CreateArgs, PackJob, refuse_inside};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::clean_unfinished;
use crate::pack::Packing;
use crate::part::Part;
use crate::plan::shard_name;
use crate::plan_file::PlanFile;
use crate::progress::CommandProgress;
use crate::publish::planned_work;
use crate::report::{Printed, Speed, human_bytes, path_as_text};
use crate::workers::Workers;

/// What `create --part` did.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PackedPart {
    /// The directory that the dataset will have.
    #[serde(serialize_with = "path_as_text")]
    dataset: PathBuf,
    /// Where its shards are until all are there.
    #[serde(serialize_with = "path_as_text")]
    folder: PathBuf,
    /// The part.
    part: Part,
    /// Shards of this part, all of them complete.
    shards: usize,
    /// Shards of all parts.
    shards_total: usize,
    /// Samples in its shards.
    samples: u64,
    /// Bytes of the images that this run has read: fewer when it went on with an earlier run.
    read_bytes: u64,
    /// What was left out.
    bad: Vec<Bad>,
    #[serde(flatten)]
    speed: Speed,
}

/// Packs the shards of `part`.
///
/// # Errors
/// There is no plan, or it is damaged; a sample cannot be packed; a file cannot be written. Shards
/// that are complete stay.
pub(crate) fn create_part(args: &CreateArgs, part: Part, stop: &Stop) -> Result<PackedPart, Error> {
    let start = Instant::now();
    let pack = &args.new.pack;
    let (out, source, effort) = (&args.new.out, &pack.source.path, pack.effort());
    refuse_address(out, "--part")?;
    if let Err(fault) = fs::metadata(source) {
        return Err(Error::Usage(format!("cannot use {} as a source: {fault}", source.display())));
    }
    refuse_inside(out, source)?;
    let Some((folder, _)) = planned_work(out)? else {
        let (source, out) = (source.display(), out.display());
        return Err(Error::Usage(format!("{out} has no plan: `shade-pack plan {source} {out}` makes one")));
    };
    let plan = PlanFile::open(&folder)?;
    let readers = Workers::start(effort.in_flight)?;
    let mut datasets = Vec::new();
    for (number, (split, first)) in plan.datasets().into_iter().enumerate() {
        let source = split.map_or_else(|| source.clone(), |split| source.join(split));
        let prepared = plan.part(number, first, &source, part)?;
        datasets.push((prepared.planned.folder(&folder), first, prepared));
    }
    let records = datasets.iter().map(|(_, _, prepared)| u64::from(prepared.planned.catalogue.len())).sum();
    let bytes = datasets.iter().map(|(_, _, prepared)| prepared.planned.catalogue.bytes()).sum();
    let progress = &CommandProgress::start(pack.output.shown(), "packing", records, bytes);
    let job = PackJob {
        id: plan.work(),
        bucket: None,
        accept: plan.accept(),
        effort,
        readers: &readers,
        progress,
        stop,
    };
    let packings: Vec<Packing<'_>> = datasets
        .iter()
        .map(|(folder, first, prepared)| prepared.packing(folder, part, *first, &job))
        .collect();
    let bad = packings.iter().try_fold(Vec::new(), |mut bad, packing| {
        bad.extend(run(packing, &readers)?);
        Ok(bad)
    });
    let bad = bad.map_err(|fault| explained(fault, &folder, part, &packings))?;
    progress.finish();
    if plan.accept().on_bad == OnBad::List && !bad.is_empty() {
        return Err(Error::AllBad { bad });
    }
    let read_bytes = progress.bytes_of_this_run();
    Ok(PackedPart {
        dataset: out.clone(),
        folder,
        part,
        shards: packings.iter().map(|packing| packing.shards().len()).sum(),
        shards_total: plan.shard_count(),
        samples: records,
        read_bytes,
        bad,
        speed: Speed::since(start, read_bytes),
    })
}

/// Packs what is missing; gives what was left out of all its shards.
fn run(packing: &Packing<'_>, readers: &Workers) -> Result<Vec<Bad>, Error> {
    clean_unfinished(packing.folder)?;
    packing.run(readers)?;
    let bad = readers.each(&packing.shards(), packing.stop, |&number| {
        Ok(packing.done(number)?.map_or_else(Vec::new, |done| done.bad))
    })?;
    Ok(bad.into_iter().flatten().collect())
}

/// Says what is kept, and what to do about a source that is not what was planned.
fn explained(fault: Error, folder: &Path, part: Part, packings: &[Packing<'_>]) -> Error {
    if !folder.is_dir() {
        let gone = format!("is gone: it was finished or begun anew meanwhile ({fault})");
        return Error::source(folder, gone);
    }
    let source = Box::new(match fault {
        Error::Bad { first, more } => Error::BadInPart { first, more },
        other => other,
    });
    let all = |packing: &Packing<'_>| {
        packing.shards().into_iter().map(|number| done_path(packing, number)).collect()
    };
    let all: Vec<Vec<PathBuf>> = packings.iter().map(all).collect();
    let all = all.concat();
    let done = all.iter().filter(|path| path.exists()).count();
    Error::PartUnfinished { source, part, done, shards: all.len() }
}

fn done_path(packing: &Packing<'_>, number: usize) -> PathBuf {
    packing.folder.join(format!("{}.done", shard_name(packing.shard_id(number).0)))
}

impl Printed for PackedPart {}

impl fmt::Display for PackedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, part, shards, shards_total, samples, read_bytes, bad, speed, .. } = self;
        for bad in bad {
            writeln!(f, "left out {bad}")?;
        }
        let folder = folder.display();
        writeln!(
            f,
            "{folder}: part {part} is complete, {samples} samples in {shards} of {shards_total} shards"
        )?;
        write!(f, "{} read in {speed}", human_bytes(*read_bytes))
    }
}
