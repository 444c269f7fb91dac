//! Why trainings wait: what daemons tell, live or in a recording, made into figures.
//!
//! `told` reads counters, and `look` those of a recording. `figures` compares two looks, `shares`
//! are waits by cause, `remedy` says what a wait means and what to do, `verdict` says so in a line.
//! `top`, `export`, `report` and `trace` show it.

mod figures;
mod look;
mod remedy;
mod shares;
mod told;
mod verdict;

pub(crate) use figures::{DaemonFigures, JobFigures, RankFigures, figures};
pub(crate) use look::told_by;
pub(crate) use remedy::{Facts, Remedy, WAITS_MIN, WAITS_MUCH, remedy};
pub(crate) use shares::Shares;
pub(crate) use told::{Daemon, Job, Rank, daemons};
pub(crate) use verdict::{Verdict, verdict};
