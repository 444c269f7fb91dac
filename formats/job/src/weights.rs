//! The table of weights behind the samplers `weighted` and `balanced`.
//!
//! A table is sent as one u32 for each sample, little-endian, in the order of the samples. Weights
//! are whole numbers from the start: every sum of them is exact, so every machine draws the same
//! plan.

use xxhash_rust::xxh3::Xxh3;

use crate::SpecError;

/// Bytes of a weight.
const WEIGHT_BYTES: u64 = 4;
/// The largest weight has its highest bit here.
const TOP_BIT: i32 = 31;
/// Exponent bias and mantissa bits of f64.
const BIAS: i32 = 1023;
const MANTISSA_BITS: u32 = 52;

/// Weights of all samples, at least one of them above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightTable {
    /// By sample.
    weights: Vec<u32>,
    /// Their sum. There are fewer than 2³² of them.
    total: u64,
    digest: u64,
}

impl WeightTable {
    /// The table of these values, one for each sample.
    ///
    /// All are multiplied by the power of two that brings the largest between 2³¹ and 2³², and
    /// rounded. So values with 24 bits, as those of f32, are exact down to 1/256 of the largest. A
    /// value above 0 gets a weight of at least 1, which is at most 2⁻³¹ of the largest.
    ///
    /// # Errors
    /// A value is negative or not finite, or none is above 0.
    pub fn new(values: impl Iterator<Item = f64> + Clone) -> Result<Self, SpecError> {
        let is_weight = |value: &f64| value.is_finite() && *value >= 0.0;
        if let Some((sample, bad)) = values.clone().enumerate().find(|(_, value)| !is_weight(value)) {
            let got = format_args!("{bad} for sample {sample}");
            return Err(SpecError::new("weights", got, "a finite number of at least 0 for each sample"));
        }
        let exponent = exponent(values.clone().fold(0.0, f64::max));
        Self::of(values.map(|value| quantised(value, exponent)).collect())
    }

    /// Reads the bytes of a table.
    ///
    /// # Errors
    /// They are no table of `samples` weights.
    pub fn from_bytes(bytes: &[u8], samples: u32) -> Result<Self, SpecError> {
        Self::check_len(bytes.len() as u64, samples)?;
        let words = bytes.chunks_exact(4).filter_map(|word| word.first_chunk());
        Self::of(words.map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Refuses a table of `bytes` bytes unless these are the weights of `samples` samples.
    ///
    /// # Errors
    /// Says both.
    pub fn check_len(bytes: u64, samples: u32) -> Result<(), SpecError> {
        if bytes == u64::from(samples) * WEIGHT_BYTES {
            return Ok(());
        }
        let got = format_args!("a table for {} samples", bytes as f64 / WEIGHT_BYTES as f64);
        let expected = format_args!("a table for the dataset's {samples} samples, one weight for each");
        Err(SpecError::new("weights", got, expected))
    }

    fn of(weights: Vec<u32>) -> Result<Self, SpecError> {
        let total = weights.iter().map(|&weight| u64::from(weight)).sum();
        if total == 0 {
            return Err(SpecError::new("weights", "0 for every sample", "above 0 for at least one sample"));
        }
        let mut digest = Xxh3::new();
        weights.iter().for_each(|weight| digest.update(&weight.to_le_bytes()));
        Ok(Self { weights, total, digest: digest.digest() })
    }

    /// The bytes of the table.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect()
    }

    /// By sample.
    #[must_use]
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Sum of all weights, above 0.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// XXH3-64 of the bytes. Ranks of one job have tables with equal digests.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// ⌊log₂ value⌋ of a normal number above 0. For 0 and subnormal numbers: less than that of all
/// others.
fn exponent(value: f64) -> i32 {
    (value.to_bits() >> MANTISSA_BITS) as i32 - BIAS
}

/// value · 2^(31 - exponent), rounded half up, and at least 1 if the value is above 0. f64 holds
/// the product exactly, as one factor is a power of two.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and the cast saturates"
)]
fn quantised(value: f64, exponent: i32) -> u32 {
    // Two powers of two: the exponent of one alone may be out of range.
    let shift = TOP_BIT - exponent;
    let scaled = value * power_of_two(shift / 2) * power_of_two(shift - shift / 2);
    ((scaled + 0.5) as u32).max(u32::from(value > 0.0))
}

/// 2^exponent for -1022 to 1023.
#[expect(clippy::cast_sign_loss, reason = "the sum is not negative in this range")]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &[f64]) -> Result<WeightTable, String> {
        WeightTable::new(values.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn ratios_are_exact_and_a_power_of_two_changes_nothing() {
        let weights = table(&[3.0, 1.0, 0.0, 2.5, 200.0]).unwrap();
        let unit = 1 << 24;
        assert_eq!(weights.weights(), [3 * unit, unit, 0, 5 * unit / 2, 200 * unit]);
        assert_eq!(weights.total(), 413 * u64::from(unit) / 2);
        for factor in [2.0, 0.25, 2.0f64.powi(-900), 2.0f64.powi(900)] {
            let scaled = table(&[3.0, 1.0, 0.0, 2.5, 200.0].map(|value| value * factor)).unwrap();
            assert_eq!(scaled, weights, "{factor}");
        }
        assert_ne!(table(&[3.0, 1.0, 0.0, 2.5, 201.0]).unwrap().digest(), weights.digest());
    }

    #[test]
    fn what_is_above_0_stays_above_0() {
        for least in [1e-40, f64::MIN_POSITIVE, 5e-324] {
            assert_eq!(table(&[least, 1.0, 0.0]).unwrap().weights(), [1, 1 << 31, 0]);
            assert!(table(&[least, 0.0]).unwrap().weights()[0] >= 1);
        }
        // The largest f64 is below 2³² units.
        assert!(table(&[f64::MAX, f64::MAX]).unwrap().weights()[0] >= 1 << 31);
    }

    #[test]
    fn what_is_no_weight_is_refused_with_its_sample() {
        for (values, expected) in [
            (&[1.0, f64::NAN][..], "weights is NaN for sample 1,"),
            (&[f64::INFINITY], "weights is inf for sample 0,"),
            (&[1.0, 2.0, -0.5], "weights is -0.5 for sample 2,"),
            (&[0.0, -0.0], "weights is 0 for every sample,"),
            (&[], "weights is 0 for every sample,"),
        ] {
            let error = table(values).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn bytes_come_back_and_others_are_refused() {
        let weights = table(&[0.5, 0.0, 7.0]).unwrap();
        let bytes = weights.to_bytes();
        assert_eq!(WeightTable::from_bytes(&bytes, 3).unwrap(), weights);
        for (bytes, samples) in [(&bytes[..], 2), (&bytes, 4), (&bytes[..11], 3), (&[], 1), (&[0; 12], 3)] {
            let error = WeightTable::from_bytes(bytes, samples).unwrap_err();
            assert_eq!(error.field, "weights", "{error}");
        }
    }
}
