//! The samples that a job trains on, where these are not all of the dataset.
//!
//! A subset is sent as one u32 for each of its samples, little-endian, in rising order. So ranks
//! that list the same samples in another order have equal subsets.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::SpecError;

/// Bytes of a sample id.
const ID_BYTES: u64 = 4;

/// Some samples of a dataset, at least one, each once. A clone is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subset {
    /// Rising.
    ids: Arc<[u32]>,
    digest: u64,
}

impl Subset {
    /// The subset of these samples, in any order.
    ///
    /// # Errors
    /// There are none, or one is there twice.
    pub fn new(mut ids: Vec<u32>) -> Result<Self, SpecError> {
        ids.sort_unstable();
        Self::of_rising(ids)
    }

    /// Reads the bytes of a subset of a dataset with `samples` samples.
    ///
    /// # Errors
    /// They are no such subset.
    pub fn from_bytes(bytes: &[u8], samples: u32) -> Result<Self, SpecError> {
        let (words, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            let got = format_args!("a list of {} bytes", bytes.len());
            return Err(SpecError::new("indices", got, format_args!("{ID_BYTES} bytes for each sample")));
        }
        let subset = Self::of_rising(words.iter().map(|word| u32::from_le_bytes(*word)).collect())?;
        subset.check_within(samples)?;
        Ok(subset)
    }

    fn of_rising(ids: Vec<u32>) -> Result<Self, SpecError> {
        if ids.is_empty() {
            return Err(SpecError::new("indices", "empty", "at least one sample id"));
        }
        let wrong = ids.array_windows().find(|[left, right]| left >= right);
        if let Some([left, right]) = wrong {
            let (got, expected) = if left == right {
                (
                    format!("{left}, twice"),
                    "each sample at most once; Plan(weights=...) draws some more often",
                )
            } else {
                (format!("{right} behind {left}"), "rising sample ids")
            };
            return Err(SpecError::new("indices", got, expected));
        }
        let mut subset = Self { ids: ids.into(), digest: 0 };
        subset.digest = xxh3_64(&subset.to_bytes()).max(1);
        Ok(subset)
    }

    /// Refuses a subset of a dataset with more than these `samples` samples.
    ///
    /// # Errors
    /// Names the last sample.
    pub fn check_within(&self, samples: u32) -> Result<(), SpecError> {
        match self.ids.last() {
            Some(&last) if last >= samples => {
                let expected =
                    format_args!("the id of one of the dataset's {samples} samples, which count from 0");
                Err(SpecError::new("indices", last, expected))
            }
            _ => Ok(()),
        }
    }

    /// Most bytes of a subset of `samples` samples.
    #[must_use]
    pub fn bytes_max(samples: u32) -> u64 {
        u64::from(samples) * ID_BYTES
    }

    /// The bytes of the subset.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    /// Its sample ids, rising.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of its samples, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u32 {
        // Different numbers of 32 bits; 2³² of them would be all.
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    /// Whether the sample is one of them.
    #[must_use]
    pub fn has(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// XXH3-64 of the bytes, never 0. Ranks of one job have subsets with equal digests.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<Subset, SpecError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn the_order_of_a_list_does_not_matter() {
        let subset = Subset::new(vec![7, 0, 3]).unwrap();
        assert_eq!(subset.ids(), [0, 3, 7]);
        assert_eq!(subset, Subset::new(vec![3, 7, 0]).unwrap());
        assert_ne!(subset.digest(), Subset::new(vec![3, 7, 1]).unwrap().digest());
        assert!((0..9).filter(|&id| subset.has(id)).eq([0, 3, 7]));
        assert_eq!(Subset::from_bytes(&subset.to_bytes(), 8).unwrap(), subset);
    }

    #[test]
    fn a_list_that_is_no_subset_is_refused() {
        assert!(refused(Subset::new(Vec::new())).starts_with("indices is empty,"));
        assert!(refused(Subset::new(vec![5, 1, 5])).starts_with("indices is 5, twice,"));
        let bytes = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
        assert!(refused(Subset::from_bytes(&bytes(&[1, 0]), 9)).contains("0 behind 1"));
        assert!(refused(Subset::from_bytes(&bytes(&[1, 9]), 9)).starts_with("indices is 9,"));
        assert!(refused(Subset::from_bytes(&bytes(&[1])[..3], 9)).contains("a list of 3 bytes"));
        assert!(refused(Subset::from_bytes(&[], 9)).contains("empty"));
    }
}
