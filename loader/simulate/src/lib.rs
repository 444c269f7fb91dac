//! `shade-simulate`: what a cache would do for a training or a trace, without reading a record.
//! `shade-load simulate` is its command.
//!
//! The daemon's core decides, as it does in the daemon: `shade_core::driver` carries out what it
//! orders and tells it what came of that. `world` is what is around a simulated core: a virtual `store` (or the reads of a recording, `recalled`), and a virtual
//! `trainer` that reports `losses` (of a model, or of a `loss_table`). `play` runs epochs, and adds
//! up the `outcome`.
//!
//! `workload` is what is simulated: samples with their `sizes`, and a training, or a `script` of
//! accesses: a list (`trace`), or a recorded training (`recording`, with the `pace` of its
//! trainers); `lines` reads their files. `capacity` says how large a cache is, `system` what is
//! compared: a `keeper` with its sampler and order. `row` is the result of one at one capacity,
//! over one or more seeds (`interval`); `recommend` looks for the capacity that is enough; `table`
//! prints. `run` is the command, `watch` shows how far it is and hears Ctrl-C.
//! `cli` has its arguments, `plan_args` those of a plan.

mod capacity;
mod cli;
mod error;
mod interval;
mod keeper;
mod lines;
mod loss_table;
mod losses;
mod names;
mod outcome;
mod pace;
mod plan_args;
mod play;
mod recalled;
mod recommend;
mod recording;
mod row;
mod run;
mod script;
mod sizes;
mod store;
mod system;
mod table;
mod trace;
mod trainer;
mod watch;
mod workload;
mod world;

pub use capacity::CacheSize;
pub use cli::Simulate;
pub use error::SimulateError;
pub use keeper::Keeper;
pub use names::{parse_lookahead, preset};
pub use run::simulate;
pub use sizes::SizeModel;
