//! The tables of a job: the weights of the samplers `weighted` and `balanced`, and the subset of
//! the dataset that it delivers.

use shade_formats::SampleId;
use shade_job::{JobSpec, Parts, Sampler, Subset, Tables, WeightTable};

use crate::samples::Samples;

/// The tables that came with a rank's job, as far as it goes by them.
///
/// # Errors
/// One is missing, or does not fit the job or the dataset.
pub(super) fn given_tables(spec: &JobSpec, given: Tables, index: &dyn Samples) -> Result<Tables, String> {
    let Tables { weights, subset } = given;
    let weights = match spec.plan.sampler {
        Sampler::Weighted => Some(fitting_weights(spec, weights, index)?),
        _ => None,
    };
    let subset = match spec.plan.subset_digest {
        0 => None,
        _ => Some(fitting_subset(spec, subset, index)?),
    };
    Ok(Tables { weights, subset })
}

fn fitting_weights(
    spec: &JobSpec,
    given: Option<WeightTable>,
    index: &dyn Samples,
) -> Result<WeightTable, String> {
    let Some(table) = given else {
        return Err("the sampler weighted needs a table of weights: give Plan(weights=...)".to_owned());
    };
    let (weights, samples) = (table.weights().len(), index.len());
    if weights != samples as usize {
        return Err(format!(
            "the table of weights has {weights} of them, and the dataset has {samples} samples: give one \
             weight for each sample"
        ));
    }
    check_digest("table of weights", table.digest(), spec.plan.weights_digest)?;
    Ok(table)
}

fn fitting_subset(spec: &JobSpec, given: Option<Subset>, index: &dyn Samples) -> Result<Subset, String> {
    let Some(subset) = given else {
        return Err("a job on a subset needs its sample ids: give Plan(indices=...)".to_owned());
    };
    subset.check_within(index.len()).map_err(|error| error.to_string())?;
    check_digest("list of indices", subset.digest(), spec.plan.subset_digest)?;
    Ok(subset)
}

fn check_digest(what: &str, given: u64, wanted: u64) -> Result<(), String> {
    if given == wanted {
        return Ok(());
    }
    Err(format!("the {what} has the digest {given:016x}, and the job asks for {wanted:016x}"))
}

/// The table of 1 / number of samples of the class, among those of `subset` if there is one, or in
/// each of `parts`.
///
/// # Errors
/// There is only one class.
pub(super) fn weights_by_class(
    index: &dyn Samples,
    subset: Option<&Subset>,
    parts: &Parts,
) -> Result<WeightTable, String> {
    let classes = index.class_count();
    if classes < 2 {
        return Err("the sampler balanced goes by the samples' labels, and this dataset has fewer than two \
                    classes: choose another sampler, or give Plan(sampler=\"weighted\", weights=...)"
            .to_owned());
    }
    let label = |id: u32| index.entry(SampleId(id)).map_or(0, |entry| entry.label) as usize;
    let is_drawn = |id: u32| subset.is_none_or(|subset| subset.has(id));
    let all = 0..index.len();
    let parts: Vec<_> = if parts.is_empty() { vec![all] } else { parts.ranges().collect() };
    let mut weights = Vec::with_capacity(index.len() as usize);
    for ids in parts {
        let mut sizes = vec![0u32; classes as usize];
        for id in ids.clone().filter(|&id| is_drawn(id)) {
            if let Some(size) = sizes.get_mut(label(id)) {
                *size += 1;
            }
        }
        weights.extend(ids.map(|id| match sizes.get(label(id)) {
            Some(&size) if is_drawn(id) => 1.0 / f64::from(size),
            _ => 0.0,
        }));
    }
    WeightTable::new(weights.into_iter()).map_err(|error| error.to_string())
}
