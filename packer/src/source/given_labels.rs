//! Labels of samples that are packed already: a CSV with their paths or ids.

use std::path::Path;

use csv::StringRecord;
use shade_dataset::regular;

use super::labels::{Classes, Labels, Texts, checked};
use crate::error::Error;
use crate::interrupt::Stop;

/// What such a file says.
#[derive(Debug)]
pub(crate) struct GivenLabels {
    pub(crate) lines: Vec<GivenLabel>,
    /// Whether samples are named by their ids, not by their paths.
    pub(crate) has_ids: bool,
    /// Names of classes, by label.
    pub(crate) classes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct GivenLabel {
    pub(crate) line: u64,
    /// A path or an id.
    pub(crate) sample: String,
    pub(crate) label: u32,
}

/// What labels mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LabelMeaning<'a> {
    /// Classes, as the labels of any source.
    Own,
    /// What this JSON file says.
    File(&'a Path),
    /// Names of classes, in the order of their first lines.
    Names,
}

/// Reads labels from the CSV file `file`.
///
/// # Errors
/// A file cannot be read or has another form; labels cannot be classes; or [`Error::Interrupted`].
pub(crate) fn read_labels(file: &Path, meaning: LabelMeaning<'_>, stop: &Stop) -> Result<GivenLabels, Error> {
    let given = match meaning {
        LabelMeaning::File(path) => Classes::given(&Labels::File(path.to_owned()))?,
        LabelMeaning::Own | LabelMeaning::Names => None,
    };
    let opened = regular::open_to_read_once(file).map_err(Error::io("read", file))?;
    let mut reader = csv::Reader::from_reader(opened);
    let header = reader.headers().map_err(|fault| Error::source(file, fault))?;
    let place = |name: &str| header.iter().position(|column| column == name);
    let (sample, has_ids) = match (place("path"), place("id")) {
        (Some(path), _) => (Some(path), false),
        (None, id) => (id, true),
    };
    let (Some(sample), Some(label)) = (sample, place("label")) else {
        let names: Vec<&str> = header.iter().collect();
        let fault = format!(
            "line 1: the columns 'path' (or 'id') and 'label', separated by commas, are needed; found {}",
            names.join(", ")
        );
        return Err(Error::source(file, fault));
    };
    let (mut texts, mut lines) = (Texts::default(), Vec::new());
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|fault| Error::source(file, fault))? {
        stop.check()?;
        let line = record.position().map_or(0, csv::Position::line);
        let text = checked(record.get(label).unwrap_or_default());
        let text = text.map_err(|fault| Error::source(file, format!("line {line}: {fault}")))?;
        let label = texts.number(text);
        lines.push(GivenLabel { line, sample: record.get(sample).unwrap_or_default().to_owned(), label });
    }
    let texts = texts.into_distinct();
    if matches!(meaning, LabelMeaning::Names) {
        return Ok(GivenLabels { lines, has_ids, classes: texts });
    }
    let classes = match given {
        Some(classes) => classes,
        None => Classes::of_texts(texts.iter().map(String::as_str)).map_err(|f| Error::source(file, f))?,
    };
    let label = |text: &String| classes.label(text).map_err(|fault| Error::source(file, fault));
    let labels: Vec<u32> = texts.iter().map(label).collect::<Result<_, Error>>()?;
    for line in &mut lines {
        line.label = labels.get(line.label as usize).copied().unwrap_or(line.label);
    }
    Ok(GivenLabels { lines, has_ids, classes: classes.names })
}
