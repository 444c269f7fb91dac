//! Mixtures: parts of a dataset that every batch has in one ratio.
//!
//! The samples of a part follow those of the part before it, by their ids. In a document parts are
//! a list of `[samples, share]`, or `[samples, share, sampler]` where a part has a sampler of its
//! own. Shares are rounded to millionths and become whole numbers, so that every machine draws the
//! same plan.

use std::ops::Range;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use shade_formats::limits::{PARTS_MAX, SAMPLES_MAX};

use crate::strata::gcd;
use crate::{Sampler, SpecError};

/// A share of 1 in whole numbers.
const SHARE_UNIT: f64 = 1e6;
/// Smallest and largest share. It need not be part of 1: shares are compared with one another.
const SHARES: [f64; 2] = [1.0 / SHARE_UNIT, SHARE_UNIT];
/// The sum of a ratio that is not rounded further. A ratio comes again after as many batches at
/// most, and a plan looks at as many.
const RATIO_SUM: u64 = 1 << 20;

/// The parts of a mixture, in the order of their samples; none if the dataset is one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// The first ones are the parts.
    rows: [Part; PARTS_MAX],
    len: usize,
}

/// A part of a mixture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Number of its samples, at least 1.
    pub samples: u32,
    /// Its share, compared with those of the others.
    pub share: f64,
    /// What it is drawn by in place of the plan's sampler.
    pub sampler: Option<Sampler>,
}

impl From<(u32, f64)> for Part {
    /// A part that is drawn by the plan's sampler.
    fn from((samples, share): (u32, f64)) -> Self {
        Self { samples, share, sampler: None }
    }
}

/// A ratio in whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// What each part has of the sum, at least 1.
    pub terms: Vec<u64>,
    /// Their sum, at most 2²¹.
    pub sum: u64,
}

/// How long an epoch of a mixture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpochLength {
    /// Until each sample of the first part has come.
    #[default]
    First,
    /// Until each sample of every part has come.
    Longest,
    /// As many samples, at least 1.
    Samples(u32),
}

impl Parts {
    /// No mixture.
    pub const NONE: Self = Self { rows: [Part { samples: 0, share: 0.0, sampler: None }; PARTS_MAX], len: 0 };

    /// These parts.
    ///
    /// # Errors
    /// There are too many, they have too many samples, or one has no sample or a share that is
    /// none.
    pub fn new(given: &[impl Into<Part> + Copy]) -> Result<Self, SpecError> {
        let mut parts = Self { len: given.len(), ..Self::NONE };
        if given.len() > PARTS_MAX {
            return Err(SpecError::new("parts", given.len(), format_args!("at most {PARTS_MAX} datasets")));
        }
        for (row, &part) in parts.rows.iter_mut().zip(given) {
            *row = part.into();
        }
        for (number, &Part { samples, share, .. }) in parts.parts().iter().enumerate() {
            if samples == 0 {
                let got = format_args!("an empty dataset, number {number}");
                return Err(SpecError::new("parts", got, "datasets with samples"));
            }
            if !(SHARES[0]..=SHARES[1]).contains(&share) {
                let got = format_args!("{share} for dataset {number}");
                let expected = format_args!("a share of {} to {} for each dataset", SHARES[0], SHARES[1]);
                return Err(SpecError::new("parts", got, expected));
            }
        }
        let samples: u64 = parts.parts().iter().map(|part| u64::from(part.samples)).sum();
        if samples > SAMPLES_MAX {
            let expected = format_args!("at most {SAMPLES_MAX} in all");
            return Err(SpecError::new("parts", format_args!("{samples} samples"), expected));
        }
        Ok(parts)
    }

    /// Whether the dataset is one, and no mixture.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of samples in all parts.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.ranges().last().map_or(0, |range| range.end)
    }

    /// The ids of each part's samples.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> {
        let mut end = 0;
        self.parts().iter().map(move |part| {
            let start = end;
            end += part.samples;
            start..end
        })
    }

    /// What each part is drawn by, in a plan with the sampler `of_plan`.
    pub fn samplers(&self, of_plan: Sampler) -> impl Iterator<Item = Sampler> {
        self.parts().iter().map(move |part| part.sampler.unwrap_or(of_plan))
    }

    /// The same parts, with `change` applied to the samplers of their own.
    #[must_use]
    pub fn with_samplers(mut self, change: impl Fn(Sampler) -> Sampler) -> Self {
        self.rows.iter_mut().for_each(|part| part.sampler = part.sampler.map(&change));
        self
    }

    /// Refuses samplers of parts that cannot be in one plan with the sampler `of_plan`.
    pub(crate) fn check_samplers(&self, of_plan: Sampler) -> Result<(), SpecError> {
        let own = |sampler| self.parts().iter().any(|part| part.sampler == Some(sampler));
        let has = |of: &[Sampler]| self.samplers(of_plan).any(|sampler| of.contains(&sampler));
        let by_losses_kept = has(&[Sampler::Infobatch, Sampler::Seta]);
        let by_ranks = has(&[Sampler::Pads, Sampler::Iis, Sampler::Cis]);
        let refused = [
            (
                own(Sampler::Weighted),
                "weighted for a dataset",
                "weights of the whole mixture, Plan(sampler=\"weighted\", weights=...)",
            ),
            (
                has(&[Sampler::Weighted]) && has(&[Sampler::Balanced]),
                "weighted and balanced in one mixture",
                "one of them: they have one table of weights",
            ),
            (
                by_losses_kept && by_ranks,
                "infobatch or seta beside pads, iis or cis",
                "samplers of one kind: the first two go by losses, the others by their ranks in a batch",
            ),
        ];
        match refused.into_iter().find(|(is_so, ..)| *is_so) {
            Some((_, got, expected)) => Err(SpecError::new("sampler", got, expected)),
            None => Ok(()),
        }
    }

    /// The number of the part that a sample is of; 0 without parts.
    #[must_use]
    pub fn number_of(&self, sample: u32) -> usize {
        self.ranges().take_while(|range| range.end <= sample).count()
    }

    /// Whether both samples are of one part. Without parts all are.
    #[must_use]
    pub fn are_together(&self, left: u32, right: u32) -> bool {
        self.number_of(left) == self.number_of(right)
    }

    /// Their ratio.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares are between a millionth and a million"
    )]
    pub fn ratio(&self) -> Ratio {
        let terms: Vec<u64> =
            self.parts().iter().map(|part| (part.share * SHARE_UNIT).round() as u64).collect();
        let common = terms.iter().copied().fold(0, gcd).max(1);
        let sum = terms.iter().sum::<u64>() / common;
        let rounded = |term: u64| (2 * term * RATIO_SUM + sum) / (2 * sum);
        let of = |term: &u64| if sum > RATIO_SUM { rounded(term / common).max(1) } else { term / common };
        let terms: Vec<u64> = terms.iter().map(of).collect();
        Ratio { sum: terms.iter().sum(), terms }
    }

    /// Positions of an epoch in batches of `global_batch` samples of all ranks: whole batches,
    /// unless their number is given.
    #[must_use]
    pub fn positions(&self, length: EpochLength, global_batch: u64) -> u64 {
        let Ratio { terms, sum } = self.ratio();
        let until_all = self.parts().iter().zip(terms).map(|(part, term)| {
            // Samples are below 2³², and the sum is below 2²².
            (u64::from(part.samples) * sum).div_ceil(term)
        });
        let positions = match length {
            EpochLength::Samples(samples) => return samples.into(),
            EpochLength::First => until_all.take(1).sum(),
            EpochLength::Longest => until_all.max().unwrap_or(0),
        };
        positions.next_multiple_of(global_batch.max(1))
    }

    fn parts(&self) -> &[Part] {
        self.rows.get(..self.len).unwrap_or_default()
    }
}

impl Ratio {
    /// Batches of `size` rows after which every part has had its share exactly.
    #[must_use]
    pub fn period(&self, size: u64) -> u64 {
        self.sum / gcd(self.sum, size % self.sum)
    }
}

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts())
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self { samples, share, sampler } = self;
        match sampler {
            None => (samples, share).serialize(serializer),
            Some(sampler) => (samples, share, sampler).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = Vec::<Value>::deserialize(deserializer)?;
        if given.len() == 2 {
            given.push(Value::Null);
        }
        let (samples, share, sampler) = serde_json::from_value(given.into()).map_err(D::Error::custom)?;
        Ok(Self { samples, share, sampler })
    }
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&Vec::<Part>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for EpochLength {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::First => serializer.serialize_str("first"),
            Self::Longest => serializer.serialize_str("longest"),
            Self::Samples(samples) => serializer.serialize_u32(*samples),
        }
    }
}

impl<'de> Deserialize<'de> for EpochLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let samples = || u32::try_from(value.as_u64()?).ok().filter(|samples| *samples > 0);
        match value.as_str() {
            Some("first") => Some(Self::First),
            Some("longest") => Some(Self::Longest),
            _ => samples().map(Self::Samples),
        }
        .ok_or_else(|| {
            let expected = "\"first\", \"longest\", or a number of samples of at least 1";
            D::Error::custom(format_args!("got {value}, expected {expected}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(shares: &[f64]) -> (Vec<u64>, u64) {
        let given: Vec<_> = shares.iter().map(|&share| (1, share)).collect();
        let Ratio { terms, sum } = Parts::new(&given).unwrap().ratio();
        (terms, sum)
    }

    #[test]
    fn ratios_of_short_numbers_are_exact() {
        assert_eq!(ratio(&[0.7, 0.3]), (vec![7, 3], 10));
        assert_eq!(ratio(&[7.0, 3.0]), (vec![7, 3], 10));
        assert_eq!(ratio(&[0.1, 0.2, 0.7]), (vec![1, 2, 7], 10));
        assert_eq!(ratio(&[2.5]), (vec![1], 1));
        assert_eq!(ratio(&[0.333, 0.667]), (vec![333, 667], 1000));
    }

    #[test]
    fn epochs_end_with_the_first_part_or_the_longest_or_where_it_is_said() {
        let parts = Parts::new(&[(700, 0.7), (900, 0.3)]).unwrap();
        assert_eq!(parts.positions(EpochLength::First, 1), 1000);
        assert_eq!(parts.positions(EpochLength::First, 64), 1024);
        assert_eq!(parts.positions(EpochLength::Longest, 64), 3008);
        assert_eq!(parts.positions(EpochLength::Samples(77), 64), 77);
        assert!(parts.ranges().eq([0..700, 700..1600]));
        assert!(
            parts.are_together(0, 699) && !parts.are_together(699, 700) && Parts::NONE.are_together(1, 9)
        );
    }

    #[test]
    fn what_is_no_mixture_is_refused() {
        for (given, say) in [
            (vec![(1, 1.0); PARTS_MAX + 1], "at most 16"),
            (vec![(1, 1.0), (0, 1.0)], "an empty dataset, number 1"),
            (vec![(1, 0.0)], "0 for dataset 0"),
            (vec![(1, f64::NAN)], "NaN for dataset 0"),
            (vec![(1, -1.0)], "-1 for dataset 0"),
            (vec![(1, f64::INFINITY)], "inf for dataset 0"),
            (vec![(u32::MAX, 1.0), (1, 1.0)], "4294967296 samples"),
        ] {
            let text = Parts::new(&given).unwrap_err().to_string();
            assert!(text.starts_with("parts is ") && text.contains(say), "{text}");
        }
        for text in ["0", "-1", "1.5", "\"last\"", "4294967296", "null"] {
            assert!(serde_json::from_str::<EpochLength>(text).is_err(), "{text}");
        }
        for text in ["\"first\"", "\"longest\"", "1"] {
            let length: EpochLength = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&length).unwrap(), text);
        }
        let text = r#"[[3,0.5],[4,1.5,"pads"]]"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Parts>(text).unwrap()).unwrap(), text);
        for text in ["[[3]]", r#"[[3,0.5,"pads",1]]"#, r#"[[3,0.5,"none"]]"#, r#"[[3,"pads"]]"#] {
            assert!(serde_json::from_str::<Parts>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_ratio_is_that_of_the_shares(shares in prop::collection::vec(1e-6..=1e6_f64, 1..=PARTS_MAX)) {
            let (terms, sum) = ratio(&shares);
            prop_assert!(sum <= 2 * RATIO_SUM && terms.iter().sum::<u64>() == sum);
            let whole: f64 = shares.iter().sum();
            for (term, share) in terms.iter().zip(&shares) {
                // Each term is at least 1, so others may have less by as much.
                let most = (PARTS_MAX + 1) as f64 / RATIO_SUM as f64 + PARTS_MAX as f64 * 1e-6 / whole;
                let differs = (*term as f64 / sum as f64 - share / whole).abs();
                prop_assert!(*term > 0 && differs <= most, "{term} of {sum}: {share} of {whole}");
            }
        }
    }
}
