//! Strata: equal parts of the dataset, each drawn on its own.
//!
//! A bijection of the samples, keyed by the dataset's content, says which sample is in which
//! stratum: `x(i) mod P`. So all jobs of a dataset, on all nodes, have the same strata. Position p
//! of a plan has seat p mod P, and each seat has one stratum (`Seats` of `shade-formats`), the one
//! of its number unless others are cached there. If the number of ranks divides P, a sample always
//! goes to the same rank. Then no node needs another's scores, deliveries or cache. Where P grows
//! by a factor, each stratum is divided.
//!
//! A job on a subset of the dataset has one stratum, whose members are the subset: all samplers and
//! orders draw from it as from any other stratum.

use std::sync::Arc;

use shade_formats::SampleId;
use shade_job::Subset;

use super::bijection::Bijection;
use crate::number::to_u32;

/// More strata than samples, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "strata is {count}, but must be 1 to the number of samples, {samples}: choose fewer with Plan(strata=...)"
)]
pub struct StrataError {
    samples: u32,
    count: u32,
}

/// The strata of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strata {
    samples: u32,
    count: u32,
    bijection: Bijection,
    /// Strata in their order, each with the number of its first sample, if samples are numbered by
    /// [`of_some`](Self::of_some).
    numbered: Option<Arc<[(u32, u32)]>>,
    /// The samples that there are; `None`: all of the dataset.
    subset: Option<Subset>,
}

impl Strata {
    /// Whether the plan after one with these strata has them, too: if they are `own`, those that
    /// the ranks ask for, or if all ranks have equally many.
    pub(crate) fn stay(&self, own: &Self, world_size: u32) -> bool {
        self == own || self.count().is_multiple_of(world_size)
    }

    /// `count` strata of the samples `0..samples`. The key is the dataset's content id.
    ///
    /// # Errors
    /// A stratum would be empty.
    pub fn new(samples: u32, count: u32, key: u128) -> Result<Self, StrataError> {
        if count == 0 || (count > 1 && count > samples) {
            return Err(StrataError { samples, count });
        }
        Ok(Self { samples, count, bijection: Bijection::new(samples, key), numbered: None, subset: None })
    }

    /// The samples `0..samples` as one stratum.
    #[must_use]
    pub fn one(samples: u32) -> Self {
        Self { samples, count: 1, bijection: Bijection::new(samples, 0), numbered: None, subset: None }
    }

    /// A subset of the dataset as one stratum.
    #[must_use]
    pub fn of_subset(subset: Subset) -> Self {
        Self { subset: Some(subset.clone()), ..Self::one(subset.len()) }
    }

    /// The samples that there are, unless these are all of the dataset.
    #[must_use]
    pub fn subset(&self) -> Option<&Subset> {
        self.subset.as_ref()
    }

    /// Whether the sample is in any stratum.
    #[must_use]
    pub fn has(&self, id: SampleId) -> bool {
        self.subset.as_ref().is_none_or(|subset| subset.has(id.0))
    }

    /// These strata where nobody needs the samples but those of `held`, and only they are numbered:
    /// by stratum, and within one in the order of [`members`](Self::members). Also returns what
    /// they are numbered here.
    #[must_use]
    pub fn of_some(&self, mut held: Vec<u32>) -> (Self, Vec<SampleId>) {
        held.sort_unstable();
        let mut before = Vec::new();
        let mut numbered = Vec::with_capacity(held.len());
        for stratum in held {
            numbered.push((stratum, to_u32(before.len())));
            before.extend(self.members(stratum));
        }
        (Self { numbered: Some(numbered.into()), ..self.clone() }, before)
    }

    /// Number of samples in all strata.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Their number, P.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The sample's stratum. With one stratum it is 0.
    #[must_use]
    pub fn of(&self, id: SampleId) -> u32 {
        match &self.numbered {
            _ if self.count == 1 => 0,
            None => self.bijection.apply(id.0) % self.count,
            Some(numbered) => {
                let at = numbered.partition_point(|&(_, first)| first <= id.0);
                at.checked_sub(1).and_then(|at| numbered.get(at)).map_or(0, |&(stratum, _)| stratum)
            }
        }
    }

    /// Number of samples in a stratum. The first ones may have one more than others.
    #[must_use]
    pub fn len(&self, stratum: u32) -> u32 {
        self.samples.saturating_sub(stratum).div_ceil(self.count)
    }

    /// The samples of a stratum, in an order of their own: member j is the sample at place
    /// stratum + P·j of the bijection. One stratum has the samples as they are numbered.
    #[must_use]
    pub fn members(&self, stratum: u32) -> Vec<SampleId> {
        if let Some(subset) = &self.subset {
            return subset.ids().iter().copied().map(SampleId).collect();
        }
        if let Some(numbered) = &self.numbered {
            let at = numbered.binary_search_by_key(&stratum, |&(stratum, _)| stratum);
            let first = at.ok().and_then(|at| numbered.get(at)).map(|&(_, first)| first);
            return first.map_or_else(Vec::new, |first| {
                (first..first.saturating_add(self.len(stratum))).map(SampleId).collect()
            });
        }
        let places = (stratum..self.samples).step_by(self.count as usize);
        if self.count == 1 {
            return places.map(SampleId).collect();
        }
        places.map(|place| SampleId(self.bijection.invert(place))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: u128 = 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe;

    #[test]
    fn one_stratum_has_the_samples_as_they_are_numbered() {
        let all: Vec<SampleId> = (0..9).map(SampleId).collect();
        assert_eq!(Strata::new(9, 1, KEY).unwrap().members(0), all);
        assert_eq!(Strata::one(9).members(0), all);
        assert_eq!(Strata::one(9).of(SampleId(7)), 0);
        assert!(Strata::new(0, 1, KEY).unwrap().members(0).is_empty());
    }

    #[test]
    fn an_empty_stratum_is_refused() {
        assert!(Strata::new(9, 9, KEY).is_ok());
        for (samples, count) in [(9, 10), (9, 0), (0, 2)] {
            let text = Strata::new(samples, count, KEY).unwrap_err().to_string();
            assert!(text.contains(&format!("strata is {count}")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn strata_are_a_division_and_differ_by_one_at_most(
            samples in 1..3000_u32, count in 1..200_u32, factor in 1..6_u32, key: u128
        ) {
            prop_assume!(count * factor <= samples);
            let strata = Strata::new(samples, count, key).unwrap();
            let finer = Strata::new(samples, count * factor, key).unwrap();
            let mut seen = vec![false; samples as usize];
            for stratum in 0..count {
                let members = strata.members(stratum);
                prop_assert_eq!(members.len(), strata.len(stratum) as usize);
                prop_assert!(strata.len(stratum).abs_diff(samples / count) <= 1);
                for id in members {
                    prop_assert!(!std::mem::replace(&mut seen[id.index()], true));
                    prop_assert_eq!(strata.of(id), stratum);
                    prop_assert_eq!(finer.of(id) % count, stratum);
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
