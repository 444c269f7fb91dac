//! The limit of bad rows: skipped and substituted rows of an epoch are counted against `bad_max`.
//!
//! `on_error` is meant for single damaged records. Where a store or half a dataset is gone, an
//! epoch of what is left would look like a success. So the epoch ends with an error once its bad
//! rows are more than the share `bad_max` of its plan's rows for the ranks here. The limit is known
//! beforehand: it does not depend on the rows delivered so far.
//!
//! A batch whose samples were all skipped is void: it is never delivered. A single rank then has
//! one batch less. Several ranks must have the same number of batches, and some may have theirs
//! already, so there it is an error.

use std::fmt;

use shade_job::JobSpec;

use crate::ids::BatchId;

/// Bad rows that every epoch may have, unless `bad_max` is 0: 1 % of a small dataset is less than
/// one record. Draws with replacement may deliver one bad record this often.
const BAD_ROWS_ALWAYS: u64 = 8;

/// The first and the last of several faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    first: Option<String>,
    last: Option<String>,
}

impl Faults {
    /// Adds a fault.
    pub(super) fn push(&mut self, text: &str) {
        let place = if self.first.is_none() { &mut self.first } else { &mut self.last };
        *place = Some(text.to_owned());
    }

    /// Adds later faults.
    pub(super) fn extend(&mut self, later: &Self) {
        for text in [&later.first, &later.last].into_iter().flatten() {
            self.push(text);
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => write!(f, "the first: {first}; the last: {last}"),
            (Some(only), None) | (None, Some(only)) => f.write_str(only),
            (None, None) => f.write_str("no fault"),
        }
    }
}

/// Rows of an epoch: delivered and bad ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    /// Rows delivered, with substitutes.
    pub(super) rows: u64,
    /// Rows skipped.
    pub(super) skipped: u64,
    /// Rows substituted.
    pub(super) substituted: u64,
}

/// What became of the rows of a complete batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome<'a> {
    pub(super) batch: BatchId,
    pub(super) counts: RowCounts,
    pub(super) faults: &'a Faults,
    /// The rows of a batch that is void.
    pub(super) void: Option<usize>,
}

impl RowCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.skipped += other.skipped;
        self.substituted += other.substituted;
    }

    /// Why an epoch with `planned` rows for the ranks at this daemon ends here, if these are their
    /// rows; `None` if it goes on.
    pub(super) fn excess(
        &self,
        spec: &JobSpec,
        epoch: u32,
        planned: usize,
        faults: &Faults,
    ) -> Option<String> {
        let Self { rows, skipped, substituted } = *self;
        let allowed = allowed(spec.bad_max, planned);
        (skipped + substituted > allowed).then(|| {
            format!(
                "epoch {epoch} ends here: {skipped} of {} samples were skipped and {substituted} \
                 substituted so far, and at most {allowed} of the {planned} may be \
                 (Plan(bad_max={})): {faults}. Is the dataset complete, and its store reachable? \
                 To go on all the same, raise Plan(bad_max=...)",
                rows + skipped,
                spec.bad_max
            )
        })
    }
}

/// Number of rows of an epoch that may be bad.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length, rounded down"
)]
fn allowed(bad_max: f64, plan_len: usize) -> u64 {
    if bad_max > 0.0 { ((plan_len as f64 * bad_max) as u64).max(BAD_ROWS_ALWAYS) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_epoch_and_a_few_whatever_its_length() {
        assert_eq!([50, 800, 1000, 50_000].map(|len| allowed(0.01, len)), [8, 8, 10, 500]);
        assert_eq!((allowed(0.0, 1000), allowed(1.0, 1000), allowed(1.0, 3)), (0, 1000, 8));
    }

    #[test]
    fn the_first_and_the_last_fault_are_kept() {
        let mut faults = Faults::default();
        faults.push("a");
        assert_eq!(faults.to_string(), "a");
        let mut later = Faults::default();
        ["b", "c", "d"].iter().for_each(|text| later.push(text));
        faults.extend(&later);
        assert_eq!(faults.to_string(), "the first: a; the last: d");
    }
}
