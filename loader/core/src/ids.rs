//! Names of jobs, ranks, batches and rows: what the rooms of the core call each other's things.

/// A rank attached to the daemon; never reused while the daemon lives.
pub type SessionId = u32;

/// Number of a job; never reused while the daemon lives.
pub(super) type JobId = u32;

/// Names a batch of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BatchId {
    pub(super) epoch: u32,
    pub(super) number: u32,
}

/// Names a row of an open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowId {
    pub(super) session: SessionId,
    pub(super) seq: u64,
    pub(super) position: u32,
}
