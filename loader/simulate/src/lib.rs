//! `shade-simulate`: what a cache would do for a training or a trace, without reading a record.
//! `shade-load simulate` is its command.
//!
//! The daemon's core decides, as it does in the daemon: `shade_core::driver` carries out its
//! actions and feeds the results back.
//!
//! | part | what it is |
//! |---|---|
//! | `cli`, `nodes_args`, `given`, `cache_policy` | the arguments |
//! | `workload` | what is simulated: samples with their `sizes`, and their accesses |
//! | `script` | known accesses: an `access_list`, or a `recording` with its `compute` times |
//! | `recorded_lines` | the lines of a recording, for `recording` and for programs that draw them |
//! | `lines`, `loss_table` | readers of text files |
//! | `weights` | weights and classes, for samplers that go by them |
//! | `system`, `capacity` | what is compared: policies with sampler and order, cache sizes |
//! | `surroundings` | nodes and jobs |
//! | `engine` | plays one training: nodes with a core each, jobs, one store, a virtual clock |
//! | `store`, `losses` | a virtual store; what the trainers report |
//! | `row`, `interval` | the result of several seeds |
//! | `recommend` | the search for a cache that is enough |
//! | `run`, `table`, `watch` | the command, its output and its progress |
#![allow(clippy::indexing_slicing, reason = "an index out of range is a defect; what reads files forbids it")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access_list;
mod cache_policy;
mod capacity;
mod cli;
mod compute;
mod engine;
mod error;
mod given;
mod interval;
mod lines;
mod loss_table;
mod losses;
mod nodes_args;
mod recommend;
mod recorded_lines;
mod recording;
mod row;
mod run;
#[cfg(test)]
#[path = "../../../tests/src/schemas.rs"]
mod schemas;
mod script;
mod sizes;
mod store;
mod surroundings;
mod system;
mod table;
mod watch;
mod weights;
mod workload;

pub use cache_policy::CachePolicy;
pub use capacity::CacheSize;
pub use cli::{BATCH_SIZE, POLICIES, Simulate, preset};
pub use error::SimulateError;
pub use given::Given;
pub use nodes_args::NodesArgs;
pub use recorded_lines::RecordedLines;
pub use run::simulate;
pub use sizes::SizeModel;
