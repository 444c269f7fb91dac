//! Sorts out what a source has that a dataset has not.

use std::collections::HashMap;

use shade_formats::SampleId;

use crate::catalogue::{Catalogue, Sample};
use crate::changes::{Change, Changes};
use crate::dataset::{Dataset, Matched};
use crate::error::Error;
use crate::times::Times;

/// What the source has that the dataset has not.
pub(super) struct News {
    /// Labelled by the dataset's classes and new ones behind them.
    pub(super) catalogue: Catalogue,
    pub(super) new_classes: Vec<String>,
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
            changes.note(&sample, change_of((dataset, is_transformed), times, known, listed, &sample)?);
        }
        let mut labels: HashMap<&[u8], u32> = HashMap::new();
        for (label, name) in (0..).zip(dataset.class_names()) {
            labels.entry(name).or_insert(label);
        }
        let mut classes: Vec<String> =
            (0..dataset.index.class_count()).map(|label| dataset.class_text(label)).collect();
        let mut new_classes = Vec::new();
        for class in listed.classes.iter().filter(|_| !new.is_empty()) {
            if !labels.contains_key(class.as_bytes()) {
                let label = u32::try_from(classes.len()).unwrap_or(u32::MAX);
                labels.insert(class.as_bytes(), label);
                classes.push(class.clone());
                new_classes.push(class.clone());
            }
        }
        let mut catalogue = Catalogue::new(listed.stores.clone());
        for id in new {
            let class = listed.sample(id).and_then(|sample| listed.classes.get(sample.label as usize));
            let label = class.and_then(|class| labels.get(class.as_bytes())).copied().unwrap_or(u32::MAX);
            let pushed = catalogue.push_from(listed, id, label);
            pushed.map_err(|fault| Error::source(&dataset.dir, fault))?;
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
