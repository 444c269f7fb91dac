//! The cache's capacity, as a user gives it.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::SpecError;

/// A cache of so few bytes is none: a percentage was meant.
const PERCENT_MAX: f64 = 100.0;

/// Capacity of the cache. As text: bytes (`8GiB`), or a share of the dataset (`20%`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// Bytes of arena blocks.
    Bytes(u64),
    /// A share of what the whole dataset would take in arena blocks, 0 to 1.
    Share(f64),
}

impl Capacity {
    /// The capacity that a user gives a running daemon's cache.
    ///
    /// # Errors
    /// It is no size.
    pub fn given(text: &str) -> Result<Self, SpecError> {
        let read = Self::deserialize(Value::from(text));
        read.map_err(|error: serde_json::Error| SpecError::told("cache", format!("cache: {error}")))
    }

    /// The capacity for a dataset of `dataset_bytes`, in the same unit; it may be more.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u64, rounded down"
    )]
    pub fn of(self, dataset_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (dataset_bytes as f64 * share) as u64,
        }
    }

    /// The same, but never more than all of the dataset.
    #[must_use]
    pub fn within(self, dataset_bytes: u64) -> u64 {
        self.of(dataset_bytes).min(dataset_bytes)
    }

    /// Refuses a number without a unit that can only have been meant as a share.
    fn of_number(number: f64, given: &dyn fmt::Display) -> Result<(), CapacityError> {
        if 0.0 < number && number <= PERCENT_MAX {
            // 0.2 and 1.0 are shares, 1 and 20 are percentages.
            let has_point = given.to_string().contains('.');
            let percent = if number <= 1.0 && has_point { 100.0 * number } else { number };
            // To a millionth, so that 0.07 is no 7.000000000000001%.
            let percent = (percent * 1e6).round() / 1e6;
            return Err(CapacityError {
                got: given.to_string(),
                expected: format!("\"{percent}%\" of the dataset"),
            });
        }
        Ok(())
    }
}

/// Why a text or number is no capacity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {got}, expected {expected}, or bytes, such as \"8GiB\"")]
pub struct CapacityError {
    got: String,
    expected: String,
}

impl CapacityError {
    fn new(got: &dyn fmt::Display) -> Self {
        Self { got: got.to_string(), expected: "a share of the dataset, such as \"20%\"".to_owned() }
    }
}

impl FromStr for Capacity {
    type Err = CapacityError;

    fn from_str(given: &str) -> Result<Self, CapacityError> {
        let error = || CapacityError::new(&format_args!("{given:?}"));
        let text = given.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| error())?;
            if !(0.0..=100.0).contains(&percent) {
                return Err(error());
            }
            return Ok(Self::Share(percent / 100.0));
        }
        parse_size::parse_size(text).map(Self::Bytes).map_err(|_| error())
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            // To a millionth, so that 20 % is no 20.000000000000004 %.
            Self::Share(share) => write!(f, "{}%", (share * 1e8).round() / 1e6),
        }
    }
}

impl Serialize for Capacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Self::Share(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = value.as_str();
        if let Some(number) = text.map_or(value.as_f64(), |text| text.trim().parse().ok()) {
            Self::of_number(number, &value).map_err(D::Error::custom)?;
        }
        if let Some(text) = text {
            return text.parse().map_err(D::Error::custom);
        }
        value.as_u64().map(Self::Bytes).ok_or_else(|| D::Error::custom(CapacityError::new(&value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_bytes_or_a_share() {
        for (text, expected, shown) in [
            ("8GiB", Capacity::Bytes(8 << 30), "8589934592"),
            ("500MB", Capacity::Bytes(500_000_000), "500000000"),
            ("0", Capacity::Bytes(0), "0"),
            (" 4096 ", Capacity::Bytes(4096), "4096"),
            ("20%", Capacity::Share(0.2), "20%"),
            ("7%", Capacity::Share(0.07), "7%"),
            ("0.5 %", Capacity::Share(0.005), "0.5%"),
        ] {
            assert_eq!((text.parse(), expected.to_string()), (Ok(expected), shown.to_owned()), "{text}");
        }
        assert_eq!(Capacity::Share(0.5).of(1001), 500);
        assert_eq!((Capacity::Bytes(9).of(3), Capacity::Bytes(9).within(3)), (9, 3));
    }

    #[test]
    fn what_is_no_capacity_is_refused_with_a_hint() {
        for text in ["", "much", "-1", "101%", "-1%", "nan%", "8 parsecs"] {
            let error = text.parse::<Capacity>().unwrap_err().to_string();
            assert!(error.contains("20%") && error.contains("8GiB"), "{error}");
        }
        let hint = |json: &str| serde_json::from_str::<Capacity>(json).unwrap_err().to_string();
        for (json, share) in
            [("0.2", "20%"), ("20", "20%"), ("1", "1%"), ("1.0", "100%"), ("0.07", "7%"), ("\"20\"", "20%")]
        {
            assert!(
                hint(json).contains(&format!("expected \"{share}\" of the dataset")),
                "{json}: {}",
                hint(json)
            );
        }
        for json in ["-1", "200.5", "true", "null"] {
            assert!(hint(json).contains("a share of the dataset"), "{}", hint(json));
        }
    }
}
