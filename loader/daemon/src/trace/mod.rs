//! `shade-load trace`: records what a running daemon serves, for `shade-load simulate` to ask "what if" of it.
//!
//! The daemon writes the lines (`core/trace`, `daemon/observer`); `record` asks for them, adds the samples' sizes, and
//! writes the file. What is in it: `formats/layout/TRACE.md`.

mod cli;
mod error;
mod progress;
mod record;

pub use cli::Trace;
pub use error::TraceError;
pub use record::trace;
