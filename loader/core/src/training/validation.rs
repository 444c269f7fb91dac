//! Validation scores, which steer the adaptive part of PADS.

/// The validation score of an epoch. Ranks may validate a part each or all the same: they make one
/// report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Validation {
    /// The epoch that its rank had begun last; `None` before the first.
    pub(super) epoch: Option<u32>,
    /// The lowest rank that reported, whatever the order in which reports come.
    pub(super) rank: u32,
    /// Higher is better.
    pub(super) score: f64,
}
