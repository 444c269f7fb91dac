//! `shade-load trace`: records what a running daemon serves, as input for `shade-load simulate` and
//! `report`; shows a recording in Perfetto.
//!
//! The daemon writes the lines (`trace` of `shade-core`, `daemon/observer`); `record` requests
//! them, adds the samples' sizes, and writes the file. Its format: `formats/layout/TRACE.md`.
//! `perfetto` makes a recording a Chrome trace, with batches in `lanes`. `run` is the command.

mod cli;
mod error;
mod job;
mod lanes;
mod perfetto;
mod progress;
mod record;
mod run;

pub use cli::Trace;
pub use error::TraceError;
pub use run::trace;
