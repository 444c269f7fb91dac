//! The shares of a wait, by cause.

use serde::Serialize;

/// Shares of the time that a trainer waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Shares {
    pub(super) storage: f64,
    pub(super) workers: f64,
    pub(super) plan: f64,
    pub(super) ranks: f64,
}

impl Shares {
    pub(super) fn all(&self) -> f64 {
        self.storage + self.workers + self.plan + self.ranks
    }

    /// Each with its name, the largest first.
    pub(super) fn named(&self) -> [(&'static str, f64); 4] {
        let Self { storage, workers, plan, ranks } = *self;
        let mut named = [("storage", storage), ("workers", workers), ("plan", plan), ("ranks", ranks)];
        named.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        named
    }
}
