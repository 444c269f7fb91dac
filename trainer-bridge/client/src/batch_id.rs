//! Which batch of which session a report is about.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of a session in this process. No other one ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionNumber(u64);

impl SessionNumber {
    /// The number of a new session.
    pub(crate) fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A batch that a session has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId {
    pub(crate) session: SessionNumber,
    /// Start of an epoch in which it was delivered.
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    pub(crate) batch: u32,
    pub(crate) rows: u32,
}
