//! `shade-load top`: why trainings wait, while they run.
//!
//! `monitor` reads what daemons tell and compares two looks. `screen` draws it, `watch` does so
//! until it is ended.

mod cli;
mod screen;
mod watch;

pub use cli::{Top, TopError};
pub use watch::top;
