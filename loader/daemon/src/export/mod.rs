//! `shade-load export`: the counters of all daemons of this user, for Prometheus.
//!
//! One exporter a node, and no port in each daemon: daemons come and go with trainings. `monitor`
//! reads the counters, as for `top`, and `last` keeps those of a daemon that does not answer.
//! `metrics` is the table of what is exported, and `encode` makes text of it. `http` answers
//! scrapes for the names in `hosts`, `textfile` writes the file for node_exporter, and `run` does
//! both until it is ended.

mod cli;
mod encode;
mod error;
mod hosts;
mod http;
mod last;
mod metrics;
mod run;
mod textfile;

pub use cli::Export;
pub use error::ExportError;
pub use run::export;
