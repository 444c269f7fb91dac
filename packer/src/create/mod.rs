//! `create`: a source becomes a dataset.
//!
//! Everything is listed and planned before anything is written. What is written goes to
//! `OUT.part-ID`, where ID stands for the source and the options: the same command finds it again
//! and goes on after the shards that are complete. A dataset that exists at OUT is compared with
//! the source by names, lengths and times, and gets the shards again that it has lost.
//!
//! `args` is the command line. `run` is the whole way: `planning` lists and plans, `checks` refuses
//! what nobody expects, `planned` is one dataset on the way, `report` the result. `missing` makes
//! lost shards again. `stream` packs what comes through a pipe. `parts` goes the same way in
//! several runs.

mod args;
mod checks;
mod missing;
mod planned;
mod planning;
mod report;
mod run;
mod stream;

pub(crate) use args::{CreateArgs, NewArgs, check_splits, refuse_inside};
pub(crate) use checks::{refuse_left, refuse_listed, refuse_packed};
pub(crate) use planned::{PackJob, Planned, Prepared};
pub(crate) use planning::{Begun, Listed, begin, list_all, notes_of, plan_all, sources_of};
pub(crate) use report::Created;
pub(crate) use run::create;
pub(crate) use stream::create_from_stream;
