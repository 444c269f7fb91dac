//! Which samples of a dataset a subset has: listed ones, those of classes, or a share.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use shade_dataset::regular;
use shade_formats::SampleId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::dataset::Dataset;
use crate::error::Error;

/// The file name that stands for standard input.
const STDIN: &str = "-";

/// Which samples a subset has.
#[derive(Clone, Debug, Args, Serialize)]
#[group(required = true, multiple = true)]
pub(super) struct Choice {
    /// Take the samples with these ids: one decimal number a line, in any order, each once. '-'
    /// reads standard input. Ids are those that `ls` and `batch.ids` show.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["classes", "fraction"])]
    // Where a list lay is nothing that a dataset's bytes should depend on.
    #[serde(skip)]
    ids: Option<PathBuf>,
    /// Take the samples of the class with this name; may be given again for more classes.
    #[arg(long = "class", value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<String>,
    /// Take this share of the samples, above 0 and at most 1, drawn at random: of all, or of those
    /// of --class.
    ///
    /// The same seed draws the same samples, and a larger share has all samples of a smaller one. A
    /// draw goes by the samples' paths, so it stays when the dataset is packed again or grows.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
}

/// How a share is drawn.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub(super) struct Draw {
    /// Seed of --fraction, 0 to 2^64 - 1. Change it for another draw.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "fraction")]
    seed: u64,
    /// Draw the share of each class by itself, at least one sample of each, so that all classes are
    /// as frequent as before.
    #[arg(long, requires = "fraction")]
    per_class: bool,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a number above 0 and at most 1".to_owned()),
    }
}

impl Choice {
    /// The chosen samples, in the order of their ids.
    ///
    /// # Errors
    /// Usage: there is no such id or class, an id is listed twice, or nothing is chosen.
    pub(super) fn samples(&self, draw: Draw, dataset: &Dataset) -> Result<Vec<SampleId>, Error> {
        let mut chosen = match &self.ids {
            Some(path) => listed(path, dataset)?,
            None => self.of_classes(dataset)?,
        };
        if let Some(share) = self.fraction {
            chosen = draw.share(dataset, chosen, share);
        }
        chosen.sort_unstable();
        if chosen.is_empty() {
            return Err(Error::Usage("no sample is chosen, and a dataset has at least one".to_owned()));
        }
        Ok(chosen)
    }

    fn of_classes(&self, dataset: &Dataset) -> Result<Vec<SampleId>, Error> {
        if self.classes.is_empty() {
            return Ok(dataset.ids().collect());
        }
        let names: Vec<&[u8]> = dataset.class_names().collect();
        if let Some(missing) = self.classes.iter().find(|name| !names.contains(&name.as_bytes())) {
            let dataset = dataset.name.display();
            let text =
                format!("--class: {dataset} has no class {missing:?}; `shade-pack info` lists its classes");
            return Err(Error::Usage(text));
        }
        let is_wanted: Vec<bool> =
            names.iter().map(|name| self.classes.iter().any(|wanted| wanted.as_bytes() == *name)).collect();
        let has_class = |id: &SampleId| {
            let label = dataset.index.entry(*id).map_or(u32::MAX, |entry| entry.label);
            is_wanted.get(label as usize) == Some(&true)
        };
        Ok(dataset.ids().filter(has_class).collect())
    }
}

impl Draw {
    /// This share of the samples: those with the lowest hashes.
    fn share(self, dataset: &Dataset, samples: Vec<SampleId>, share: f64) -> Vec<SampleId> {
        let label = |id: SampleId| match dataset.index.entry(id) {
            Some(entry) if self.per_class => entry.label,
            _ => 0,
        };
        let hash = |id: SampleId| xxh3_64_with_seed(dataset.index.path(id).unwrap_or_default(), self.seed);
        let mut ranked: Vec<(u32, u64, SampleId)> =
            samples.into_iter().map(|id| (label(id), hash(id), id)).collect();
        ranked.sort_unstable();
        let of_a_label = ranked.chunk_by(|(left, ..), (right, ..)| left == right);
        of_a_label.flat_map(|all| all.iter().take(part(all.len(), share))).map(|&(.., id)| id).collect()
    }
}

/// This share of `all`, rounded, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count, and the cast saturates"
)]
fn part(all: usize, share: f64) -> usize {
    ((all as f64 * share).round() as usize).clamp(1, all.max(1))
}

/// The ids in a file.
fn listed(path: &Path, dataset: &Dataset) -> Result<Vec<SampleId>, Error> {
    let mut text = String::new();
    if path == Path::new(STDIN) {
        io::stdin().read_to_string(&mut text).map_err(Error::io("read", path))?;
    } else {
        let file = regular::open_to_read_once(path);
        file.and_then(|mut file| file.read_to_string(&mut text)).map_err(Error::io("read", path))?;
    }
    let samples = dataset.index.len();
    let mut known = HashSet::new();
    let mut ids = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |expected: String| {
            let (file, got) = (path.display(), line.trim());
            Error::Usage(format!("--ids: line {number} of {file} is {got:?}, expected {expected}"))
        };
        let id: u32 = line.trim().parse().map_err(|_| wrong("a sample id, a decimal number".to_owned()))?;
        if id >= samples {
            return Err(wrong(format!("an id of the dataset's {samples} samples, from 0 on")));
        }
        if !known.insert(id) {
            return Err(wrong("each id once".to_owned()));
        }
        ids.push(SampleId(id));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_share_of_a_class_is_rounded_and_never_empty() {
        for (all, share, expected) in [(10, 0.25, 3), (10, 0.01, 1), (10, 1.0, 10), (1, 0.5, 1), (0, 0.5, 0)]
        {
            assert_eq!(part(all, share).min(all), expected, "{share} of {all}");
        }
    }
}
