//! `verify`: re-reads every byte of a dataset, names every sample that is no longer what was
//! packed, and repairs it.
//!
//! `read` goes through all shards in spans, with `check` for each sample. `repair` writes damaged
//! shards again, in `pieces`, with samples that `remake` makes from the source. `report` is the
//! result.

mod check;
mod pieces;
mod read;
mod remake;
mod repair;
mod report;

pub(crate) use read::{VerifyArgs, verify};
