//! The file in which `shade-load trace` records a training: one JSON object a line, written by the
//! daemon and read by `shade-load simulate`.
//!
//! The spec with an example is `TRACE.md`.

mod line;

pub use line::{Done, FIRST_KEY, Header, Job, Line, Lost, Open, Release, Report, Served, Sizes, VERSION};
