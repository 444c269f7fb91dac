//! `shade-load trace`: records what a running daemon serves, as input for `shade-load simulate` and
//! `report`; shows a recording in Perfetto.
//!
//! The daemon writes the lines (`trace` of `shade-core`, `daemon/observer`); `record` is the
//! command: it requests them, adds the samples' sizes, and writes the file. Its format:
//! `formats/layout/TRACE.md`. `perfetto` makes a recording a Chrome trace, with batches in `lanes`.

mod cli;
mod lanes;
mod perfetto;
mod progress;
mod record;

pub use cli::{Trace, TraceError};
pub use record::trace;
