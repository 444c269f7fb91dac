//! Why no daemon can serve a job.

use std::fmt;

/// A job that no daemon can serve, or a document that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SpecError {
    /// The field, such as "batch_size".
    pub field: &'static str,
    text: String,
}

impl SpecError {
    pub(crate) fn new(field: &'static str, got: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::told(field, format!("{field} is {got}, but must be {expected}"))
    }

    /// The error about a field with a text of its own.
    pub(crate) fn told(field: &'static str, text: String) -> Self {
        Self { field, text }
    }

    /// Refuses a number outside `least..=most`; NaN is in no range.
    pub(crate) fn check<T: PartialOrd + fmt::Display>(
        field: &'static str,
        value: T,
        range: [T; 2],
    ) -> Result<(), Self> {
        Self::check_as(field, value, range, "")
    }

    /// As [`check`](Self::check), with words for the range unless they are empty.
    pub(crate) fn check_as<T: PartialOrd + fmt::Display>(
        field: &'static str,
        value: T,
        [least, most]: [T; 2],
        words: &str,
    ) -> Result<(), Self> {
        if (&least..=&most).contains(&&value) {
            return Ok(());
        }
        Err(if words.is_empty() {
            Self::new(field, value, format_args!("{least} to {most}"))
        } else {
            Self::new(field, value, words)
        })
    }

    /// Refuses what is no range within `least..=most`.
    pub(crate) fn check_range<T: PartialOrd + Copy + fmt::Display>(
        field: &'static str,
        [from, to]: [T; 2],
        [least, most]: [T; 2],
    ) -> Result<(), Self> {
        if least <= from && from <= to && to <= most {
            return Ok(());
        }
        let expected = format_args!("two numbers from {least} to {most}, the smaller one first");
        Err(Self::new(field, format_args!("({from}, {to})"), expected))
    }

    /// Refuses what is no range of numbers above 0 up to `most`.
    pub(crate) fn check_above_0<T: PartialOrd + Copy + Default + fmt::Display>(
        field: &'static str,
        [from, to]: [T; 2],
        most: T,
    ) -> Result<(), Self> {
        if from > T::default() && from <= to && to <= most {
            return Ok(());
        }
        let expected = format_args!("two numbers above 0 and up to {most}, the smaller one first");
        Err(Self::new(field, format_args!("({from}, {to})"), expected))
    }
}
