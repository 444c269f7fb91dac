//! `shade-load top`: why trainings wait, while they run.
//!
//! Daemons tell counters in their status. `told` reads them, `figures` compares two looks, `remedy`
//! says what a wait means and what to do, `screen` draws it, `watch` does so until it is ended.

mod cli;
mod error;
mod figures;
mod remedy;
mod screen;
mod shares;
mod told;
mod watch;

pub use cli::Top;
pub use error::TopError;
pub use watch::top;
