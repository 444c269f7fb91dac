//! `shade-load doctor`: what this machine and a mount mean for shade, and what to change.
//!
//! `machine` and `path_facts` gather facts, with `crate::proc` and parsers of what the system
//! says: `kernel`, `nfs`, `mountstats`. `probe` reads random records (`picks`) as the daemon
//! would; `sweep` has what it found at each depth. `bucket` does the same at an address in an
//! object store, by `requests`. `tier` asks the servers of a tier. `advice` follows from these
//! facts alone; `report` prints them, `run` is the command, which `interrupt` ends early. REPORT.md
//! describes the JSON. `compare` is another command under this name: a DataLoader beside shade.

mod advice;
mod bucket;
mod cli;
mod compare;
mod interrupt;
mod kernel;
mod machine;
mod mountstats;
mod nfs;
mod path_facts;
mod picks;
mod probe;
mod report;
mod requests;
mod run;
mod sweep;
mod tier;

pub use cli::{Doctor, DoctorError};
#[cfg(test)]
pub(crate) use compare::Comparison;
#[cfg(test)]
pub(crate) use report::Diagnosis;
pub use run::doctor;
