//! `plan`: everything that must be known before the first shard is made, in a file for all parts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::bucket::refuse_address;
use crate::create::{Begun, Created, Listed, NewArgs, begin, list_all, notes_of, plan_all, sources_of};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::plan::PLAN_FILE;
use crate::plan_file::{read_lists, write_plan};
use crate::publish::{make_folder, sync_dir};
use crate::report::{Printed, Speed, path_as_text};
use crate::source::{Labels, Source, SourceKind};
use crate::workers::Workers;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The new dataset.
    #[command(flatten)]
    pub(crate) new: NewArgs,
    /// Take the samples from the lists of `shade-pack list`, instead of listing SOURCE.
    ///
    /// Exit code 5 if there are not all lists. `finish` removes them.
    #[arg(long)]
    listed: bool,
}

/// What `plan` decided.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlanMade {
    /// The plan's file; none if the dataset is there already.
    #[serde(serialize_with = "plan_as_text", skip_serializing_if = "Option::is_none")]
    plan: Option<PathBuf>,
    /// Shards of all datasets together: more parts than these have nothing to do.
    shards: usize,
    #[serde(flatten)]
    created: Created,
}

/// Lists and plans, and leaves the plan in the folder of unfinished work.
///
/// # Errors
/// As those of `create` before it writes; or lists are missing.
pub(crate) fn plan(args: &PlanArgs, stop: &Stop) -> Result<PlanMade, Error> {
    let start = Instant::now();
    let new = &args.new;
    refuse_address(&new.out, "plan")?;
    let (source, layout) = new.checked()?;
    source.refuse_bucket("plan")?;
    if source.coco.is_some() {
        let text = "--coco: a plan has no arrays: pack on one machine, by `shade-pack create`";
        return Err(Error::Usage(text.to_owned()));
    }
    let effort = new.pack.effort();
    let readers = Workers::start(effort.in_flight)?;
    let sources = sources_of(&source, &new.splits);
    let folders: Vec<PathBuf> = sources.iter().map(|(_, source)| source.path.clone()).collect();
    let listed = match args.listed {
        true => from_lists(&new.out, sources)?,
        false => list_all(sources, &readers, new.pack.output.shown(), stop)?,
    };
    let planned = plan_all(listed, &layout, new.pack.accept())?;
    let mut created = Created {
        dataset: new.out.clone(),
        source: new.pack.source.path.clone(),
        parts: planned.iter().map(|planned| planned.outline()).collect(),
        bad: planned.iter().flat_map(|planned| planned.catalogue.bad.iter().cloned()).collect(),
        notes: notes_of(&planned),
        ..Created::default()
    };
    let shards = planned.iter().map(|planned| planned.plan.shard_count()).sum();
    let Begun { work, mut partial, .. } = match begin(new, &planned, effort.sync)? {
        Ok(begun) => begun,
        Err(created) => return Ok(PlanMade { plan: None, shards, created }),
    };
    let mut datasets = Vec::new();
    for (planned, folder) in planned.into_iter().zip(folders) {
        let prepared = planned.prepare(&layout, &readers, stop)?;
        if prepared.planned.split.is_some() {
            make_folder(&prepared.planned.folder(partial.path()))?;
        }
        datasets.push((folder, prepared));
    }
    for (part, (_, prepared)) in created.parts.iter_mut().zip(&datasets) {
        part.zstd_would_save_percent = prepared.forgone_percent;
    }
    stop.check()?;
    write_plan(partial.path(), &work, new.pack.accept(), &datasets, effort.sync)?;
    partial.keep();
    if effort.sync {
        sync_dir(partial.path())?;
    }
    created.speed = Speed::since(start, 0);
    Ok(PlanMade { plan: Some(partial.path().join(PLAN_FILE)), shards, created })
}

/// What `list` has found, as if all of it were listed now.
fn from_lists(out: &Path, sources: Vec<(Option<String>, Source)>) -> Result<Vec<Listed>, Error> {
    let root = |split: Option<&str>| {
        let found = sources.iter().find(|(name, _)| name.as_deref() == split);
        found.map(|(_, source)| source.path.clone()).unwrap_or_default()
    };
    let (lists, catalogues) = read_lists(out, root)?;
    let differs = |what: &str| {
        let text = format!(
            "--listed: {what} is not what was said to `shade-pack list`: list again, or say the same"
        );
        Err(Error::Usage(text))
    };
    let splits: Vec<Option<String>> = lists.splits.iter().map(|listed| listed.split.clone()).collect();
    if !sources.iter().map(|(split, _)| split).eq(&splits) {
        return differs("--splits");
    }
    let mut all = Vec::new();
    for ((split, source), catalogue) in sources.into_iter().zip(catalogues) {
        let is_by_class = matches!(source.labels, Labels::Own | Labels::Folders) && source.pairs.is_empty();
        if source.kind()? != SourceKind::ImageFolder || !is_by_class {
            return differs("--from");
        }
        if source.selection.patterns() != lists.exclude {
            return differs("--exclude");
        }
        all.push(Listed { split, source, catalogue });
    }
    Ok(all)
}

#[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
fn plan_as_text<S: serde::Serializer>(plan: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path_as_text(plan.as_deref().unwrap_or(Path::new("")), serializer)
}

impl Printed for PlanMade {
    /// Samples that are left out are told, but are no reason for a script to end: `finish` says 4,
    /// and 1 with `--on-bad list`.
    fn exit_code(&self) -> u8 {
        if self.plan.is_some() { 0 } else { Printed::exit_code(&self.created) }
    }
}

impl fmt::Display for PlanMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.created.told(f)?;
        let Some(plan) = &self.plan else { return f.write_str("nothing was written: it is there already") };
        let (out, source) = (self.created.dataset.display(), self.created.source.display());
        writeln!(f, "{}: a plan of {} shards", plan.display(), self.shards)?;
        writeln!(f, "each part, on any machine: shade-pack create {source} {out} --part I/N")?;
        write!(f, "then, once:                 shade-pack finish {out}")
    }
}
