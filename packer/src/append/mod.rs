//! `append`: a dataset grows by the samples of a source that it does not have yet.
//!
//! New samples go to new shards, in the dataset's own folder; ids, labels and shards that exist
//! stay as they are. The index is replaced last, by a rename: readers see the old dataset or the
//! new one, and a run that ends before that has changed nothing for them. With records of
//! completion the same command goes on where it was.
//!
//! `ground` is where that happens, also for a dataset in a bucket, whose new shards go there as
//! soon as they are complete. `news` sorts out what is new, `run` packs it, `names` gives it free
//! names and removes what earlier runs have left; `report` is the result.

mod ground;
mod names;
mod news;
mod report;
mod run;

#[cfg(test)]
pub(crate) use report::Appended;
pub(crate) use run::{AppendArgs, append};
