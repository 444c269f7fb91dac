//! `append`: a dataset grows by the samples of a source that it does not have yet.
//!
//! New samples go to new shards, in the dataset's own folder; ids, labels and shards that exist stay as they are. The index
//! is replaced last, by a rename: readers see the old dataset or the new one, and a run that ends before that has changed
//! nothing for them. Records of completion let the same command go on where it was.
//!
//! `news` sorts out what is new, `run` packs it, `numbers` gives it names that are free, `leftovers` knows what earlier runs
//! have left; `report` is what comes of it.

mod leftovers;
mod news;
mod numbers;
mod report;
mod run;

pub use report::Appended;
pub use run::{AppendConfig, append, layout_of};
