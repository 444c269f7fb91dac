//! `shade-load simulate`: what a cache would do for a training or a trace, without reading a record.
//!
//! Plans, scores and residents are those of the daemon: `replay` serves accesses through the same `Cache` and
//! `Importance`, `play` draws the same plans. `workload` is what is replayed, from a dataset's index, a description
//! (`sizes`, `losses` with their file `loss_table`), a list of accesses (`trace`) or a recorded training
//! (`recording`, with the `pace` of its trainers, which `follow` plays); `lines` reads their files. `capacity` says how large a cache is. `stall`
//! lets a virtual store answer and a trainer wait. `system` says what is compared: a policy, or MIN, with its sampler and order;
//! `row` is the result of one at one capacity, over one or
//! more seeds (`interval`); `recommend` looks for the capacity that is enough; `table` prints. `run` is the command,
//! `watch` shows how far it is and hears Ctrl-C.

mod capacity;
mod cli;
mod error;
mod follow;
mod interval;
mod lines;
mod loss_table;
mod losses;
mod pace;
mod play;
mod recommend;
mod recording;
mod replay;
mod row;
mod run;
mod sizes;
mod stall;
mod system;
mod table;
mod trace;
mod watch;
mod workload;

pub use capacity::CacheSize;
pub use cli::Simulate;
pub use error::SimulateError;
pub use run::simulate;
pub use sizes::SizeModel;
pub use system::Keeper;
