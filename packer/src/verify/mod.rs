//! `verify`: re-reads every byte of a dataset, and names every sample that is no longer what was
//! packed.
//!
//! The index itself, labels included, was checked when it was opened.
//!
//! `read` goes through all shards in spans, with `check` for each sample. `report` is the result.

mod check;
mod read;
mod report;

pub(crate) use read::{VerifyArgs, verify};
#[cfg(test)]
pub(crate) use report::Verified;
