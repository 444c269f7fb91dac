//! Why trainings wait: what daemons tell, live or in a recording, made into figures.
//!
//! `recorded` makes a status of a recording's counters. `remedy` has waits by cause, says what a
//! wait means and what to do. `figures` compares two looks and says in a line which job waits most.
//! `top`, `export`, `report` and `trace` show it.

mod figures;
mod recorded;
mod remedy;

pub(crate) use figures::{DaemonFigures, JobFigures, RankFigures, Verdict, figures, verdict};
pub(crate) use recorded::recorded_status;
pub(crate) use remedy::{Facts, Place, Remedy, Shares, WAITS_MIN, WAITS_MUCH, remedy};
