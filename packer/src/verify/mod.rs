//! `verify`: re-reads every byte of a dataset, and names every sample that is no longer what was
//! packed.
//!
//! `read` goes through all shards in spans, with `check` for each sample. `report` is the result.

mod check;
mod read;
mod report;

pub(crate) use read::{VerifyArgs, verify};
