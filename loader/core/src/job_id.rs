//! Names of jobs.

/// Number of a job; never reused while the daemon lives.
pub(super) type JobId = u32;
