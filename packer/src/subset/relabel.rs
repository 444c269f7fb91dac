//! `relabel`: the same samples and shards under other labels.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Map;
use shade_formats::SampleId;

use super::run::{OverArgs, Report, Taken, make};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::PackOptions;
use crate::report::Printed;
use crate::source::{GivenLabels, LabelMeaning, read_labels};

#[derive(Debug, Args)]
pub(crate) struct RelabelArgs {
    /// The dataset and the new one.
    #[command(flatten)]
    pub(crate) new: OverArgs,
    /// A CSV file with the columns `path` and `label`, as `ls` names paths, or `id` and `label`.
    ///
    /// It names each sample once, in any order. Labels that are whole numbers are classes of that
    /// number; other texts become classes in their sorted order. Further columns do not count.
    #[arg(long, value_name = "FILE")]
    labels: PathBuf,
    /// A JSON file with the class of each label, as of `create --labels`: ["CLASS 0", "CLASS 1"],
    /// {"CLASS NAME": INDEX} or {"LABEL": "CLASS NAME"}.
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    classes: Option<PathBuf>,
    /// Samples that FILE does not name keep their labels; FILE then names classes.
    ///
    /// All classes keep their numbers. New ones come behind them, in their sorted order. Where
    /// several classes share a name, a sample of one of them keeps its label, and any other sample
    /// with that name is refused.
    #[arg(long)]
    keep: bool,
}

/// What `relabel` made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RelabelReport {
    #[serde(flatten)]
    report: Report,
    /// Samples that have another class now.
    changed: u32,
    /// Whether shards hold the old labels, too, as `.cls` members for readers of WebDataset.
    has_old_labels: bool,
}

/// Makes a dataset of the same samples with other labels.
///
/// # Errors
/// The dataset cannot be opened; the file of labels cannot be read, or names samples that are not
/// there, or not all; a label is no class, or may be several; or as of `subset`. There is no
/// dataset then.
pub(crate) fn relabel(args: &RelabelArgs, stop: &Stop) -> Result<RelabelReport, Error> {
    let dataset = Dataset::open(&args.new.dataset)?;
    let of_datasets = "relabel the datasets that it was merged of, and merge those";
    dataset.refuse_in_place("relabel", "index SOURCE again, with other labels", of_datasets)?;
    let meaning = match (&args.classes, args.keep) {
        (_, true) => LabelMeaning::Names,
        (Some(file), false) => LabelMeaning::File(file),
        (None, false) => LabelMeaning::Own,
    };
    let given = read_labels(&args.labels, meaning, stop)?;
    let classes: Vec<Vec<u8>> = match args.keep {
        false => given.classes.iter().map(|name| name.clone().into_bytes()).collect(),
        true => dataset.class_names().map(<[u8]>::to_vec).collect(),
    };
    let mut relabelling = Relabelling { dataset: &dataset, file: &args.labels, classes };
    let labels = relabelling.labels(&given, args.keep)?;
    let classes = relabelling.classes;
    let known = classes.iter().map(Vec::as_slice).take(dataset.index.class_count() as usize);
    let keeps_numbers = known.eq(dataset.class_names());
    let name = |label: u32| classes.get(label as usize).map(Vec::as_slice);
    let is_changed = |(id, label): &(SampleId, &u32)| {
        let before = dataset.index.entry(*id).map(|entry| entry.label);
        // Two classes may share a name, so names are compared only where numbers mean others.
        match keeps_numbers {
            true => before != Some(**label),
            false => before.and_then(|label| dataset.index.class_name(label)) != name(**label),
        }
    };
    let changed = dataset.ids().zip(&labels).filter(is_changed).count();
    let changed = u32::try_from(changed).unwrap_or(u32::MAX);
    let has_old_labels = PackOptions::all(dataset.index.options()).iter().any(|options| options.cls);
    let told = Map::from_iter([("relabelled".to_owned(), changed.into())]);
    let taken = Taken { samples: dataset.ids().collect(), classes, labels: Some(labels), told };
    let report = make(&args.new, &dataset, &taken, stop)?;
    Ok(RelabelReport { report, changed, has_old_labels })
}

struct Relabelling<'a> {
    dataset: &'a Dataset,
    file: &'a Path,
    /// Names of all classes, by label.
    classes: Vec<Vec<u8>>,
}

/// What a class of the file means.
#[derive(Clone, Copy, Debug)]
enum Meaning<'a> {
    /// The class with this label.
    Label(u32),
    /// One of several classes, which share this name.
    Shared(&'a str),
}

impl Relabelling<'_> {
    /// The new label of each sample.
    fn labels(&mut self, given: &GivenLabels, keep: bool) -> Result<Vec<u32>, Error> {
        let meanings = self.meanings(given, keep)?;
        let mut labels: Vec<Option<u32>> = vec![None; self.dataset.index.len() as usize];
        let ids = self.ids_by_path(given);
        for line in &given.lines {
            let wrong = |fault: String| Error::source(self.file, format!("line {}: {fault}", line.line));
            let id = match (given.has_ids, line.sample.parse::<u32>()) {
                (true, Ok(id)) => Some(SampleId(id)),
                (true, Err(_)) => None,
                (false, _) => ids.get(line.sample.as_str()).copied(),
            };
            let found = id.and_then(|id| Some((id, labels.get_mut(id.index())?)));
            let (id, label) = found.ok_or_else(|| {
                let dataset = self.dataset.name.display();
                wrong(format!("{dataset} has no sample '{}'; `shade-pack ls` lists its samples", line.sample))
            })?;
            if label.is_some() {
                return Err(wrong(format!("'{}' comes twice", line.sample)));
            }
            *label = match meanings.get(line.label as usize) {
                Some(Meaning::Label(label)) => Some(*label),
                Some(Meaning::Shared(name)) => {
                    let own = self.label_named(id, name);
                    Some(own.ok_or_else(|| wrong(shared(name, &line.sample)))?)
                }
                None => None,
            };
        }
        let kept = |id: SampleId| self.dataset.index.entry(id).map(|entry| entry.label).filter(|_| keep);
        let missing = labels.iter().filter(|label| label.is_none()).count();
        let whole = self.dataset.ids().zip(labels).map(|(id, label)| {
            label.or_else(|| kept(id)).ok_or_else(|| {
                let (path, samples) = (self.dataset.path_text(id), self.dataset.index.len());
                let fault = format!(
                    "it names no label for {missing} of {samples} samples, such as {path}; --keep keeps theirs"
                );
                Error::source(self.file, fault)
            })
        });
        whole.collect()
    }

    /// The sample's label, if its class has this name.
    fn label_named(&self, id: SampleId, name: &str) -> Option<u32> {
        let label = self.dataset.index.entry(id)?.label;
        (self.dataset.index.class_name(label) == Some(name.as_bytes())).then_some(label)
    }

    /// What each of the file's classes means. With `keep` they go by name, and new ones come behind
    /// those that are there.
    ///
    /// # Errors
    /// With `keep`, one is a number and no class's name: it may be meant as that class's number.
    fn meanings<'g>(&mut self, given: &'g GivenLabels, keep: bool) -> Result<Vec<Meaning<'g>>, Error> {
        if !keep {
            return Ok((0u32..).take(given.classes.len()).map(Meaning::Label).collect());
        }
        // No label stands for a name that several classes share.
        let mut known: HashMap<&[u8], Option<u32>> = HashMap::new();
        let before = self.classes.clone();
        for (label, name) in (0u32..).zip(&before) {
            known.entry(name.as_slice()).and_modify(|first| *first = None).or_insert(Some(label));
        }
        let mut new: Vec<&String> =
            given.classes.iter().filter(|name| !known.contains_key(name.as_bytes())).collect();
        if let Some(number) = new.iter().find(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            let dataset = self.dataset.name.display();
            let fault =
                format!("'{number}' is no name of a class in {dataset}: --keep takes names, not numbers");
            return Err(Error::source(self.file, fault));
        }
        new.sort_unstable();
        for name in new {
            known.insert(name.as_bytes(), Some(u32::try_from(self.classes.len()).unwrap_or(u32::MAX)));
            self.classes.push(name.clone().into_bytes());
        }
        let meaning = |name: &'g String| match known.get(name.as_bytes())? {
            Some(label) => Some(Meaning::Label(*label)),
            None => Some(Meaning::Shared(name)),
        };
        Ok(given.classes.iter().filter_map(meaning).collect())
    }

    fn ids_by_path(&self, given: &GivenLabels) -> HashMap<String, SampleId> {
        match given.has_ids {
            true => HashMap::new(),
            false => self.dataset.ids().map(|id| (self.dataset.path_text(id), id)).collect(),
        }
    }
}

/// Why a sample of another class cannot get a name that several classes share.
fn shared(name: &str, sample: &str) -> String {
    format!(
        "'{name}' is that of several classes, and '{sample}' is of none of them. Without --keep numbers tell classes \
         apart, and --classes names them"
    )
}

impl Printed for RelabelReport {}

impl fmt::Display for RelabelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, changed, .. } = self;
        writeln!(f, "{changed} samples have another class now")?;
        if self.has_old_labels {
            writeln!(
                f,
                "note: .cls members in the shards still have the old labels, for readers of WebDataset"
            )?;
        }
        report.fmt(f)
    }
}
