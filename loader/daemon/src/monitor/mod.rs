//! Why trainings wait: what daemons tell, live or in a recording, made into figures.
//!
//! `told` reads counters, live and of a recording. `remedy` has waits by cause, says what a wait
//! means and what to do. `figures` compares two looks and says in a line which job waits most.
//! `top`, `export`, `report` and `trace` show it.

mod figures;
mod remedy;
mod told;

pub(crate) use figures::{DaemonFigures, JobFigures, RankFigures, Verdict, figures, verdict};
pub(crate) use remedy::{Facts, Remedy, Shares, WAITS_MIN, WAITS_MUCH, remedy};
pub(crate) use told::{Daemon, Job, Rank, daemons, told_by};
