//! Sorts out what a source has that a dataset has not.

use std::collections::HashMap;

use shade_formats::SampleId;

use crate::catalogue::{Catalogue, Sample};
use crate::changes::{Change, Changes};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::times::Times;

/// What the source has that the dataset has not.
pub(super) struct News {
    /// Labelled by the dataset's classes and new ones behind them.
    pub(super) catalogue: Catalogue,
    pub(super) new_classes: Vec<String>,
    pub(super) skipped: u32,
    /// What the source's files show of those that the dataset has already.
    pub(super) changes: Changes,
}

impl News {
    /// Sorts out what is new.
    pub(super) fn of(dataset: &Dataset, times: &Times, listed: &Catalogue) -> Result<Self, Error> {
        let index = &dataset.index;
        let ids = (0..index.len()).map(SampleId);
        let known: HashMap<&[u8], SampleId> =
            ids.map(|id| (index.path(id).unwrap_or_default(), id)).collect();
        let is_transformed = dataset.is_transformed();
        let mut changes = Changes { fault: times.fault.clone(), is_transformed, ..Changes::default() };
        let mut new_ids = Vec::new();
        for (id, sample) in (0u32..).map(SampleId).zip(listed.samples()) {
            match known.get(sample.path.as_bytes()) {
                Some(&known) => {
                    let change = change_of((dataset, is_transformed), times, known, listed, &sample)?;
                    changes.note(&sample, change);
                }
                None => new_ids.push(id),
            }
        }
        let mut labels: HashMap<&[u8], u32> = HashMap::new();
        let mut classes: Vec<String> = Vec::new();
        for label in 0..index.class_count() {
            labels.entry(index.class_name(label).unwrap_or_default()).or_insert(label);
            classes.push(dataset.class_text(label));
        }
        let mut new_classes = Vec::new();
        for class in listed.classes.iter().filter(|_| !new_ids.is_empty()) {
            if !labels.contains_key(class.as_bytes()) {
                let label = u32::try_from(classes.len()).unwrap_or(u32::MAX);
                labels.insert(class.as_bytes(), label);
                classes.push(class.clone());
                new_classes.push(class.clone());
            }
        }
        let mut catalogue = Catalogue::new(listed.stores.clone());
        for &id in &new_ids {
            let class = listed.sample(id).and_then(|sample| listed.classes.get(sample.label as usize));
            let label = class.and_then(|class| labels.get(class.as_bytes())).copied().unwrap_or(u32::MAX);
            let pushed = catalogue.push_from(listed, id, label);
            pushed.map_err(|fault| Error::Source { path: dataset.dir.clone(), fault })?;
        }
        catalogue.classes = classes;
        let skipped = listed.len().saturating_sub(catalogue.len());
        Ok(Self { catalogue, new_classes, skipped, changes })
    }
}

/// How a sample whose path the dataset has differs from the one that it has.
///
/// # Errors
/// It is another sample: of another class or length.
fn change_of(
    (dataset, is_transformed): (&Dataset, bool),
    times: &Times,
    known: SampleId,
    listed: &Catalogue,
    sample: &Sample<'_>,
) -> Result<Change, Error> {
    let Some(entry) = dataset.index.entry(known) else { return Ok(Change::None) };
    let class = listed.classes.get(sample.label as usize).map_or("", String::as_str);
    let of_dataset = dataset.class_text(entry.label);
    let refuse = |what: String| {
        let fault = format!("{} has a sample '{}' already, but {what}", dataset.dir.display(), sample.path);
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
