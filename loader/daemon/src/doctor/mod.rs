//! `shade-load doctor`: what this machine and a mount mean for shade, and what to change.
//!
//! Gathering is apart from understanding. `machine` and `place` gather, with `crate::proc` and more parsers of what
//! the system says: `kernel`, `nfs`, `mountstats`. `probe` reads random records (`picks`) as the daemon would, `sweep` is
//! what it found at which depth. `advice` follows from these facts alone; `report` prints them, `run` is the command.
//! REPORT.md describes the JSON.

mod advice;
mod cli;
mod error;
mod kernel;
mod machine;
mod mountstats;
mod nfs;
mod picks;
mod place;
mod probe;
mod progress;
mod report;
mod run;
mod size;
mod sweep;

pub use cli::Doctor;
pub use error::DoctorError;
pub use run::doctor;
