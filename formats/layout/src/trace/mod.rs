//! The file in which `shade-load trace` records a training: one JSON object a line, written by the
//! daemon and read by `shade-load simulate`.
//!
//! `TRACE.md` has the format and an example.

mod line;

pub use line::{Done, FIRST_KEY, Header, Job, Line, Lost, Open, Release, Report, Served, Sizes, VERSION};
