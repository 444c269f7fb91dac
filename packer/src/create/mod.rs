//! `create`: a source becomes a dataset.
//!
//! Everything is listed and planned before anything is written. What is written goes to
//! `OUT.part-ID`, where ID stands for the source and the options: the same command finds it again
//! and goes on after the shards that are complete. A dataset that exists at OUT is compared with
//! the source by names, lengths and times.
//!
//! `run` is the whole way, `planned` one dataset on it, `report` the result.

mod planned;
mod report;
mod run;

pub(crate) use run::{CreateArgs, create, refuse_bad};
