//! `subset`: some samples of a dataset become a dataset of their own.
//!
//! `relabel`: a dataset's samples get other labels.
//!
//! `choose` says which samples, `copy` writes shards again that hold only these, `run` puts the
//! dataset together. `relabel` does so with all samples and other labels. Linked shards stay whole:
//! they have members that no entry of the new index names, which is no damage.

mod choose;
mod copy;
mod relabel;
mod run;

pub(crate) use relabel::{RelabelArgs, relabel};
pub(crate) use run::{SubsetArgs, subset};
#[cfg(test)]
pub(crate) use {relabel::RelabelReport, run::Report};
