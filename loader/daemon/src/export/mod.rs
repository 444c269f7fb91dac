//! `shade-load export`: the counters of all daemons of this user, for Prometheus.
//!
//! One exporter a node, and no port in each daemon: daemons come and go with trainings. `monitor`
//! reads the counters, as for `top`, and `last` keeps those of a daemon that does not answer.
//! `metrics` is the table of what is exported, and `encode` makes text of it. `http` answers
//! scrapes for the names in `hosts`. `run` does that and writes the file for node_exporter until it
//! is ended.

mod cli;
mod encode;
mod hosts;
mod http;
mod last;
mod metrics;
mod run;

pub use cli::{Export, ExportError};
pub use run::export;
