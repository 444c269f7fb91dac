//! What the samplers `weighted` and `balanced` go by: a file of weights, and the samples' classes.
#![warn(clippy::indexing_slicing)]

use std::path::Path;

use shade_formats::SampleId;
use shade_formats::index::Index;
use shade_job::{Sampler, WeightTable};

use crate::cli::Simulate;
use crate::error::SimulateError;
use crate::lines::Source;

/// Weights and classes of a training's samples.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// The table of the sampler `weighted`.
    pub(super) weights: Option<WeightTable>,
    /// Label of each sample for the sampler `balanced`; otherwise empty.
    pub(super) labels: Vec<u32>,
}

impl Classes {
    /// The weights and classes that the sampler in `args` needs, for the samples of `index` if
    /// there is one.
    ///
    /// # Errors
    /// They are missing, not needed, or do not fit the samples.
    pub(super) fn load(args: &Simulate, samples: u32, index: Option<&Index>) -> Result<Self, SimulateError> {
        let sampler = args.training.plan().sampler;
        let usage = |what: &str| Err(SimulateError::Usage(what.to_owned()));
        let weights = match (sampler, &args.training.weights) {
            (Sampler::Weighted, Some(path)) => Some(read(path, samples)?),
            (Sampler::Weighted, None) => {
                return usage("--sampler weighted draws by a table of weights: give --weights FILE");
            }
            (_, Some(_)) => return usage("--weights: only --sampler weighted draws by them"),
            (_, None) => None,
        };
        let labels = match (sampler, index, args.class_sizes.as_slice()) {
            (Sampler::Balanced, Some(index), _) => index_labels(index),
            (Sampler::Balanced, None, []) => {
                return usage("--sampler balanced goes by classes: give --class-sizes N,N,...");
            }
            (Sampler::Balanced, None, sizes) => labels(sizes, samples)?,
            (_, _, []) => Vec::new(),
            _ => return usage("--class-sizes: only --sampler balanced goes by classes"),
        };
        Ok(Self { weights, labels })
    }
}

/// The weights in a file, one a line.
fn read(path: &Path, samples: u32) -> Result<WeightTable, SimulateError> {
    let refused = |what| SimulateError::File { path: path.to_owned(), what };
    let mut values: Vec<f64> = Vec::with_capacity(samples as usize);
    Source::open(path)?.each(|line| {
        values.push(line.parse().map_err(|_| format!("{line:?} is no weight: write one number a line"))?);
        Ok(())
    })?;
    if values.len() != samples as usize {
        return Err(refused(format!("it has {} weights, and there are {samples} samples", values.len())));
    }
    WeightTable::new(values.iter().copied()).map_err(|error| refused(error.to_string()))
}

fn index_labels(index: &Index) -> Vec<u32> {
    (0..index.len()).map(|id| index.entry(SampleId(id)).map_or(0, |entry| entry.label)).collect()
}

/// Labels of classes with these sizes, one class after the other.
fn labels(sizes: &[u32], samples: u32) -> Result<Vec<u32>, SimulateError> {
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    if total != u64::from(samples) {
        let what = format!("--class-sizes: the classes have {total} samples, but --samples is {samples}");
        return Err(SimulateError::Usage(what));
    }
    let of_class = |(label, &size)| std::iter::repeat_n(label, size as usize);
    Ok((0..).zip(sizes).flat_map(of_class).collect())
}
