//! Whole-system tests live in `tests/*.rs`, one file per behaviour; this library holds their fixtures.
//!
//! Everything is real: image files, `shade-pack`, `shade-load`, sockets, shared memory, signals. A fixture that cannot do
//! its part panics, as a test does.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "fixtures fail by panicking, as tests do")]

mod columns;
mod daemon;
mod faulty_store;
mod fields;
mod images;
mod left_out;
mod packed;
mod peer;
mod programs;
mod trainer;

pub use daemon::Daemon;
pub use faulty_store::FaultyStore;
pub use fields::add_fields;
pub use images::{Source, class_names, jpeg, noise, png};
pub use left_out::left_out;
pub use packed::Packed;
pub use peer::Peer;
pub use programs::{eventually, processes_of, program};
pub use trainer::{Taken, all_ranks, attach, copy, next, spec, stats, take_epoch, take_rest, try_attach};
