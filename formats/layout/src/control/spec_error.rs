//! Why no daemon can serve a specification.

use std::fmt;

/// A specification that no daemon can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}, but must be {expected}")]
pub struct SpecError {
    /// The field, such as "batch_size".
    pub field: &'static str,
    /// Its value.
    pub got: String,
    /// What it may be.
    pub expected: String,
}

impl SpecError {
    pub(super) fn new(field: &'static str, got: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { field, got: got.to_string(), expected: expected.to_string() }
    }

    /// Refuses a share that is not from 0 to 1.
    pub(super) fn check_share(field: &'static str, share: f64) -> Result<(), Self> {
        // NaN is in no range.
        if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(Self::new(field, share, "0 to 1")) }
    }
}
