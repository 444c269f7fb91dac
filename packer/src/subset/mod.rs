//! `subset`: some samples of a dataset become a dataset of their own.
//!
//! `choose` says which samples, `copy` writes shards again that hold only these, `run` puts the
//! dataset together. Linked shards stay whole: they have members that no entry of the new index
//! names, which is no damage.

mod choose;
mod copy;
mod run;

#[cfg(test)]
pub(crate) use run::Report;
pub(crate) use run::{SubsetArgs, subset};
