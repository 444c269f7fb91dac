//! Names of jobs and ranks.

/// A rank attached to the daemon; never reused while the daemon lives.
pub type SessionId = u32;

/// Number of a job; never reused while the daemon lives.
pub(super) type JobId = u32;
