//! The file that comes with a Hello: what a job has to say of single samples.

use crate::PlanSpec;
use crate::Sampler;
use crate::SpecError;
use crate::Subset;
use crate::WeightTable;

/// The tables of a job. The file has those that there are, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// What the sampler `weighted` draws by. Others have none.
    pub weights: Option<WeightTable>,
    /// The samples that the job delivers; all of the dataset without it.
    pub subset: Option<Subset>,
}

impl Tables {
    /// Whether there is none, and so no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.is_none() && self.subset.is_none()
    }

    /// The content of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.weights.as_ref().map_or_else(Vec::new, WeightTable::to_bytes);
        bytes.extend(self.subset.iter().flat_map(Subset::to_bytes));
        bytes
    }

    /// Writes the tables' digests into a plan.
    pub fn name_in(&self, plan: &mut PlanSpec) {
        plan.weights_digest = self.weights.as_ref().map_or(0, WeightTable::digest);
        plan.subset_digest = self.subset.as_ref().map_or(0, Subset::digest);
    }

    /// Refuses tables of another dataset than one of `samples` samples.
    ///
    /// # Errors
    /// Names the table.
    pub fn check_within(&self, samples: u32) -> Result<(), SpecError> {
        if let Some(weights) = &self.weights {
            WeightTable::check_len(4 * weights.weights().len() as u64, samples)?;
        }
        self.subset.as_ref().map_or(Ok(()), |subset| subset.check_within(samples))
    }

    /// Refuses a file of `bytes` bytes that cannot have the tables of such a plan, before it is
    /// read.
    ///
    /// # Errors
    /// Says both.
    pub fn check_len(plan: &PlanSpec, bytes: u64, samples: u32) -> Result<(), SpecError> {
        let weights = if plan.sampler == Sampler::Weighted { 4 * u64::from(samples) } else { 0 };
        if plan.subset_digest == 0 {
            return if weights == 0 { Ok(()) } else { WeightTable::check_len(bytes, samples) };
        }
        let most = weights + Subset::bytes_max(samples);
        if bytes > weights && bytes <= most {
            return Ok(());
        }
        let got = format_args!("in a file of {bytes} bytes");
        let expected = format_args!("{} to {most} bytes, for a dataset of {samples} samples", weights + 4);
        Err(SpecError::new("indices", got, expected))
    }

    /// Reads the file of a job with this plan, on a dataset of `samples` samples.
    ///
    /// # Errors
    /// It has other tables.
    pub fn from_bytes(plan: &PlanSpec, bytes: &[u8], samples: u32) -> Result<Self, SpecError> {
        Self::check_len(plan, bytes.len() as u64, samples)?;
        let weights = if plan.sampler == Sampler::Weighted { 4 * samples as usize } else { 0 };
        let (weights, subset) = bytes.split_at_checked(weights).unwrap_or((bytes, &[]));
        let is_weighted = plan.sampler == Sampler::Weighted;
        Ok(Self {
            weights: is_weighted.then(|| WeightTable::from_bytes(weights, samples)).transpose()?,
            subset: (plan.subset_digest != 0).then(|| Subset::from_bytes(subset, samples)).transpose()?,
        })
    }
}

impl From<Option<WeightTable>> for Tables {
    fn from(weights: Option<WeightTable>) -> Self {
        Self { weights, subset: None }
    }
}

impl From<WeightTable> for Tables {
    fn from(weights: WeightTable) -> Self {
        Some(weights).into()
    }
}

impl From<Subset> for Tables {
    fn from(subset: Subset) -> Self {
        Self { weights: None, subset: Some(subset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_come_back_from_one_file() {
        let weights = WeightTable::new([1.0, 0.0, 2.0, 4.0].into_iter()).unwrap();
        let subset = Subset::new(vec![3, 1]).unwrap();
        for tables in [
            Tables::default(),
            weights.clone().into(),
            subset.clone().into(),
            Tables { weights: Some(weights), subset: Some(subset) },
        ] {
            let sampler = if tables.weights.is_some() { Sampler::Weighted } else { Sampler::Uniform };
            let mut plan = PlanSpec { sampler, ..PlanSpec::default() };
            tables.name_in(&mut plan);
            let bytes = tables.to_bytes();
            assert_eq!(Tables::from_bytes(&plan, &bytes, 4).unwrap(), tables);
            tables.check_within(4).unwrap();
            assert_eq!(tables.is_empty(), tables.check_within(3).is_ok(), "{tables:?}");
            if let Some(short) = bytes.len().checked_sub(1) {
                assert!(Tables::from_bytes(&plan, &bytes[..short], 4).is_err(), "{tables:?}");
            }
        }
    }
}
