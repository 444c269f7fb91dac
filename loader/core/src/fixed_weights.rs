//! The table of weights of a job with the sampler `weighted` or `balanced`.

use shade_formats::SampleId;
use shade_formats::control::{JobSpec, Sampler, WeightTable};

use crate::samples::Samples;

/// The table that came with a rank's job, if the sampler goes by one.
///
/// # Errors
/// It is missing, or does not fit the job or the dataset.
pub(super) fn given_weights(
    spec: &JobSpec,
    given: Option<WeightTable>,
    index: &dyn Samples,
) -> Result<Option<WeightTable>, String> {
    if spec.plan.sampler != Sampler::Weighted {
        return Ok(None);
    }
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
    if table.digest() != spec.plan.weights_digest {
        return Err(format!(
            "the table of weights has the digest {:016x}, and the job asks for {:016x}",
            table.digest(),
            spec.plan.weights_digest
        ));
    }
    Ok(Some(table))
}

/// The table of 1 / number of samples of the class.
///
/// # Errors
/// There is only one class.
pub(super) fn weights_by_class(index: &dyn Samples) -> Result<WeightTable, String> {
    let classes = index.class_count();
    if classes < 2 {
        return Err("the sampler balanced goes by the samples' labels, and this dataset has fewer than two \
                    classes: choose another sampler, or give Plan(sampler=\"weighted\", weights=...)"
            .to_owned());
    }
    let label = |id: u32| index.entry(SampleId(id)).map_or(0, |entry| entry.label) as usize;
    let mut sizes = vec![0u32; classes as usize];
    for id in 0..index.len() {
        if let Some(size) = sizes.get_mut(label(id)) {
            *size += 1;
        }
    }
    let weight = |id| sizes.get(label(id)).map_or(0.0, |&size| 1.0 / f64::from(size));
    WeightTable::new((0..index.len()).map(weight)).map_err(|error| error.to_string())
}
