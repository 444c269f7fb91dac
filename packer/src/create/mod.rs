//! `create`: a source becomes a dataset.
//!
//! Everything is listed and planned before anything is written. What is written goes to `OUT.part-ID`, where ID stands
//! for the source and the options: the same command finds it again and goes on after the shards that are complete. A
//! dataset that is there already is compared with the source by names, lengths and times.
//!
//! `run` is the way through, `planned` one dataset on that way, `report` what comes of it.

mod planned;
mod report;
mod run;

pub use report::{Created, CreatedPart};
pub use run::create;
pub(crate) use run::refuse_bad;
