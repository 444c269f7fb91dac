//! Lists a source and plans its datasets; nothing is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::args::NewArgs;
use super::checks::refuse_listed;
use super::planned::Planned;
use super::report::Created;
use crate::bucket::{Bucket, Place, Work as InBucket, is_left};
use crate::catalogue::{Catalogue, SampleStore};
use crate::changes::Changes;
use crate::classes::told;
use crate::config::{Accept, Layout};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::{complete_shards, unmark};
use crate::options::{PackOptions, Work};
use crate::progress::Shown;
use crate::publish::{NewWork, Partial, free_published};
use crate::source::{Source, splits};
use crate::times::Times;
use crate::workers::Workers;

/// A source, or one split of it, and its samples.
pub(crate) struct Listed {
    pub(crate) split: Option<String>,
    pub(crate) source: Source,
    pub(crate) catalogue: Catalogue,
}

/// Unfinished work, this command's to go on with.
pub(crate) struct Begun {
    pub(crate) work: Work,
    /// Where it goes, if OUT is an address.
    pub(crate) bucket: Option<Bucket>,
    pub(crate) partial: Partial,
}

/// Each split with its folder in the source; the whole source if there are none.
pub(crate) fn sources_of(source: &Source, splits: &[String]) -> Vec<(Option<String>, Source)> {
    let in_split = |split: &String| (Some(split.clone()), source.below(split));
    match splits {
        [] => vec![(None, source.clone())],
        _ => splits.iter().map(in_split).collect(),
    }
}

/// Lists the source, split by split.
pub(crate) fn list_all(
    sources: Vec<(Option<String>, Source)>,
    readers: &Workers,
    shown: Shown,
    stop: &Stop,
) -> Result<Vec<Listed>, Error> {
    let list = |(split, source): (_, Source)| {
        let catalogue = source.list(readers, shown, stop)?;
        Ok(Listed { split, source, catalogue })
    };
    sources.into_iter().map(list).collect()
}

/// Plans all that is listed.
pub(crate) fn plan_all(
    mut listed: Vec<Listed>,
    layout: &Layout,
    accept: Accept,
) -> Result<Vec<Planned>, Error> {
    // A class that one split lacks would shift all labels behind it: splits are labelled alike.
    if listed.len() > 1 {
        let name = |split: &'_ Option<String>| split.clone().unwrap_or_default();
        let names: Vec<String> = listed.iter().map(|listed| name(&listed.split)).collect();
        let mut all: Vec<_> = names
            .iter()
            .map(String::as_str)
            .zip(listed.iter_mut().map(|listed| &mut listed.catalogue))
            .collect();
        splits::unify(&mut all).map_err(|relabelled| {
            let remedy =
                "labels of one split are numbers, those of another are not: name the classes with --labels";
            Error::Relabels { relabelled: told(&relabelled), remedy }
        })?;
    }
    let all: Vec<_> = listed.iter().map(|listed| (listed.source.path.as_path(), &listed.catalogue)).collect();
    refuse_listed(&all, accept)?;
    let plan = |Listed { split, source, catalogue }| {
        let options = PackOptions::new(&source, &catalogue, layout)?;
        let (plan, plan_id) = (options.plan(&catalogue), options.plan_id(&catalogue));
        Ok(Planned { split, catalogue, plan, plan_id, options })
    };
    listed.into_iter().map(plan).collect()
}

/// Goes on with the unfinished work of this plan, or begins it. `Err` is the report if the datasets
/// are there already.
pub(crate) fn begin(
    args: &NewArgs,
    planned: &[Planned],
    sync: bool,
) -> Result<Result<Begun, Created>, Error> {
    let work = Work::of(planned.iter().map(|planned| (&planned.options, &planned.catalogue)));
    let splits: Vec<String> = planned.iter().filter_map(|planned| planned.split.clone()).collect();
    if let Some(there) = there(&args.out, planned)? {
        // A run that was killed right after it gave the dataset its name.
        let _ = unmark(&args.out).and_then(|()| free_published(&args.out));
        if is_left(&args.out) {
            let Place { local, bucket } = Place::take(&args.out, &splits)?;
            // It goes when it is dropped.
            Partial::resume(NewWork { out: &local, id: &work.id, splits, sync }, None)?;
            bucket.iter().for_each(Bucket::note_finished);
        }
        return Ok(Err(unchanged(args, planned, Some(there))));
    }
    let Place { local, bucket } = Place::take(&args.out, &splits)?;
    let new = NewWork { out: &local, id: &work.id, splits, sync };
    let needed = args.restart.then(|| needed(args, planned));
    match Partial::resume(new, needed.as_deref()) {
        Ok(mut partial) => {
            if let Some(bucket) = &bucket {
                let folder = partial.path().to_owned();
                let ready =
                    bucket.prepare(&args.out, InBucket { folder: Some(&folder), restart: args.restart });
                if ready.is_err() && complete_shards(&folder) > 0 {
                    partial.keep();
                }
                ready?;
            }
            Ok(Ok(Begun { work, bucket, partial }))
        }
        // Another run of this very command may have ended while this one was listing.
        Err(refused) => match self::there(&args.out, planned)? {
            None => Err(explained(refused, &args.out, planned)),
            there => Ok(Err(unchanged(args, planned, there))),
        },
    }
}

/// Paths of the source that must stay: what was said, and where its samples lie.
fn needed(args: &NewArgs, planned: &[Planned]) -> Vec<PathBuf> {
    let source = &args.pack.source;
    let said = [Some(&source.path), source.labels.as_ref(), source.coco.as_ref()];
    let mut needed: BTreeSet<PathBuf> = said.into_iter().flatten().cloned().collect();
    for catalogue in planned.iter().map(|planned| &planned.catalogue) {
        needed.extend(catalogue.pairs.iter().map(|pair| pair.folder.clone()));
        for sample in catalogue.samples() {
            match sample.store {
                SampleStore::Container(tar) | SampleStore::Piece { path: tar, .. } => {
                    needed.insert(tar.clone())
                }
                SampleStore::Bucket(_) | SampleStore::BucketTar(_) => continue,
                SampleStore::Folder(_) => {
                    needed.insert(sample.file().parent().unwrap_or(Path::new("/")).to_owned())
                }
            };
        }
    }
    needed.into_iter().collect()
}

/// How the source differs from the datasets at `out`, if these are what is planned: a finished
/// command was given again. Names and lengths are then the same.
pub(super) fn there(out: &Path, planned: &[Planned]) -> Result<Option<Vec<Changes>>, Error> {
    let mut all = Vec::new();
    for planned in planned {
        let folder = planned.folder(out);
        let Some(dataset) = planned.found_in(&folder) else { return Ok(None) };
        all.push(Changes::of(&dataset, &Times::read(&folder)?, &planned.catalogue));
    }
    Ok(Some(all))
}

/// What people should know of the sources.
pub(crate) fn notes_of(planned: &[Planned]) -> Vec<String> {
    let of_split = |planned: &'_ Planned| {
        let split = planned.split.as_ref().map_or_else(String::new, |split| format!("{split}: "));
        planned.catalogue.notes.iter().map(|note| format!("{split}{note}")).collect::<Vec<_>>()
    };
    planned.iter().flat_map(of_split).collect()
}

/// What is known before anything is made.
pub(super) fn report(args: &NewArgs, planned: &[Planned]) -> Created {
    let bad = planned.iter().flat_map(|planned| planned.catalogue.bad.iter().cloned()).collect();
    let notes = notes_of(planned);
    let (dataset, source) = (args.out.clone(), args.pack.source.path.clone());
    Created { dataset, source, bad, notes, ..Created::default() }
}

/// The report when nothing was written. `there` is how the source differs from each part, if the
/// parts are there.
pub(super) fn unchanged(args: &NewArgs, planned: &[Planned], there: Option<Vec<Changes>>) -> Created {
    let mut created = report(args, planned);
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
        // Datasets that were merged in place have a source each.
        if let (Ok(dataset), Ok(times)) = (Dataset::open(&folder), Times::read(&folder))
            && !dataset.is_merged_in_place()
        {
            let changes = Changes::of(&dataset, &times, &planned.catalogue);
            text += &changes.differences(&dataset, &planned.options);
            planned.catalogue.notes.iter().for_each(|note| text += &format!("\n  note: {note}"));
        }
    }
    Error::Usage(text)
}
