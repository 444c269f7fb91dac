//! The file in which `shade-load trace` records a training: one JSON object a line, written by the
//! daemon and read by `shade-load simulate`, `report` and `trace --perfetto`.
//!
//! `TRACE.md` has the format and an example.

mod line;
mod look;

pub use line::{Done, FIRST_KEY, Header, Job, Line, Lost, Open, Release, Report, Served, Sizes, VERSION};
pub use look::{Look, RankLook};
