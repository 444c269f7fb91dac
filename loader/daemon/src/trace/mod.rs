//! `shade-load trace`: records what a running daemon serves, as input for `shade-load simulate`.
//!
//! The daemon writes the lines (`trace` of `shade-core`, `daemon/observer`); `record` requests
//! them, adds the samples' sizes, and writes the file. Its format: `formats/layout/TRACE.md`.

mod cli;
mod error;
mod job;
mod progress;
mod record;

pub use cli::Trace;
pub use error::TraceError;
pub use record::trace;
