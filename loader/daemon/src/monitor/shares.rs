//! The shares of a wait, by cause.

use serde::Serialize;

/// Shares of the time that a trainer waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Shares {
    pub(crate) storage: f64,
    pub(crate) workers: f64,
    pub(crate) plan: f64,
    pub(crate) ranks: f64,
}

impl Shares {
    pub(crate) fn all(&self) -> f64 {
        self.storage + self.workers + self.plan + self.ranks
    }

    /// Adds `part` of another one's.
    pub(crate) fn add(&mut self, part: f64, other: &Self) {
        self.storage += part * other.storage;
        self.workers += part * other.workers;
        self.plan += part * other.plan;
        self.ranks += part * other.ranks;
    }

    /// Each with its name, the largest first.
    pub(crate) fn named(&self) -> [(&'static str, f64); 4] {
        let mut named = self.in_order();
        named.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        named
    }

    /// Each with its name, always in this order.
    pub(crate) fn in_order(&self) -> [(&'static str, f64); 4] {
        let Self { storage, workers, plan, ranks } = *self;
        [("storage", storage), ("workers", workers), ("plan", plan), ("ranks", ranks)]
    }
}
