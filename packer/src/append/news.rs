//! Sorts out what a source has that a dataset has not.

use shade_formats::SampleId;

use crate::catalogue::{Catalogue, Sample};
use crate::changes::{Change, Changes};
use crate::classes::{Moved, extend, moved};
use crate::dataset::{Dataset, Matched};
use crate::error::Error;
use crate::times::Times;

/// What the source has that the dataset has not.
pub(super) struct News {
    /// Labelled by the dataset's classes and new ones behind them.
    pub(super) catalogue: Catalogue,
    pub(super) new_classes: Vec<String>,
    /// Numbers of the source that mean other labels in the dataset.
    pub(super) relabelled: Vec<Moved>,
    pub(super) skipped: u32,
    /// How files that the dataset has already differ from what was packed.
    pub(super) changes: Changes,
}

impl News {
    pub(super) fn new(dataset: &Dataset, times: &Times, listed: &Catalogue) -> Result<Self, Error> {
        let is_transformed = dataset.is_transformed();
        let mut changes = Changes { fault: times.fault.clone(), is_transformed, ..Changes::default() };
        let Matched { both, only_in_source: new, .. } = Matched::new(listed, dataset);
        for (id, known) in both {
            let Some(sample) = listed.sample(id) else { continue };
            let sample = Sample { changed_ns: listed.changed_ns_of(id), ..sample };
            changes.note(&sample, change_of(dataset, is_transformed, times, known, listed, &sample)?);
        }
        let of_dataset: Vec<String> =
            (0..dataset.index.class_count()).map(|label| dataset.class_text(label)).collect();
        let more: &[String] = if new.is_empty() { &[] } else { &listed.classes };
        let of_dataset: Vec<&str> = of_dataset.iter().map(String::as_str).collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (names, labels) = extend(&of_dataset, &more);
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut catalogue = Catalogue::over(listed);
        let mut is_used = vec![false; more.len()];
        for id in new {
            let old = listed.sample(id).map_or(u32::MAX, |sample| sample.label) as usize;
            if let Some(is_used) = is_used.get_mut(old) {
                *is_used = true;
            }
            let label = labels.get(old).copied().unwrap_or(u32::MAX);
            let pushed = catalogue.push_from(listed, id, label);
            pushed.map_err(|fault| Error::source(&dataset.name, fault))?;
        }
        let mut relabelled = if listed.has_numbers { moved(&more, &labels) } else { Vec::new() };
        relabelled.retain(|moved| is_used.get(moved.from as usize) == Some(&true));
        catalogue.classes = owned(&names);
        let new_classes = owned(names.get(of_dataset.len()..).unwrap_or_default());
        let skipped = listed.len().saturating_sub(catalogue.len());
        Ok(Self { catalogue, new_classes, relabelled, skipped, changes })
    }
}

/// How a sample whose path the dataset has differs from the one that it has.
///
/// # Errors
/// It is another sample: of another class or length.
fn change_of(
    dataset: &Dataset,
    is_transformed: bool,
    times: &Times,
    known: SampleId,
    listed: &Catalogue,
    sample: &Sample<'_>,
) -> Result<Change, Error> {
    let Some(entry) = dataset.index.entry(known) else { return Ok(Change::None) };
    let class = listed.classes.get(sample.label as usize).map_or("", String::as_str);
    let of_dataset = dataset.class_text(entry.label);
    let refuse = |what: String| {
        let fault = format!("{} has a sample '{}' already, but {what}", dataset.name.display(), sample.path);
        Err(Error::Source { path: sample.file(), fault })
    };
    if class != of_dataset {
        return refuse(format!("of the class '{of_dataset}', not '{class}'"));
    }
    match Change::of(sample, &entry, times.get(known, &entry), is_transformed) {
        Change::Resized(then) => refuse(format!("of {then} bytes, not {}", sample.bytes)),
        other => Ok(other),
    }
}
