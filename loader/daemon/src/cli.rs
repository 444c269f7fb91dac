//! The command line. Every option has its meaning, unit, default, and when to change it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use shade_job::{DaemonSpec, Declared, Preset};
use shade_simulate::{Given, Simulate, preset};

use crate::ask::{Drain, Resize, Status, Stop};
pub use crate::control::default_socket;
use crate::doctor::Doctor;
use crate::export::Export;
use crate::report::Report;
use crate::top::Top;
use crate::trace::Trace;

/// Serves training batches from a packed dataset: reads single records with io_uring, keeps in
/// memory what the coming epochs will use, and hands batches to the trainers of this machine
/// through shared memory.
#[derive(Debug, Parser)]
#[command(name = "shade-load", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The daemon's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve one dataset to all trainings on this machine until stopped. Python starts it by itself
    /// when none runs.
    Serve(Box<Serve>),
    /// Say what this machine and the mount of a dataset mean for shade, and what to change.
    Doctor(Doctor),
    /// Say what policies and capacities would do for a training or a trace, without reading a
    /// record.
    Simulate(Box<Simulate>),
    /// Record what the daemon of a running training serves, for `simulate --trace`, `report` and
    /// Perfetto.
    Trace(Trace),
    /// List your daemons on this machine and their jobs.
    Status(Status),
    /// Watch your daemons: whether trainings wait, for what, and what to do about it.
    Top(Top),
    /// Give the same counters to Prometheus: one exporter a node.
    Export(Export),
    /// Draw a recorded training as a page: whether it waited, for what, what to do about it, hits,
    /// losses and coverage.
    Report(Report),
    /// End a daemon now; its trainings get an error that says so.
    Stop(Stop),
    /// Let a daemon take no new job, and end once its trainings have.
    Drain(Drain),
    /// Give the cache of a running daemon another size.
    Resize(Resize),
}

/// `shade-load serve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(DaemonSpec::WHAT).multiple(true))]
#[command(after_help = "Exit codes: 0 stopped as asked, 1 runtime error, 2 usage, 3 the dataset is damaged.")]
pub struct Serve {
    /// The dataset: a folder written by `shade-pack create`, or the dataset.shade in it.
    pub dataset: PathBuf,

    /// The system whose cache policy to use, and whose share of the dataset (20% where it follows a
    /// paper). Its sampler and order belong to the job: `Loader(preset=...)` asks for all of it.
    /// Keep the default: `clairvoyant` has the same policy, and the others are for comparison.
    #[arg(long, value_parser = preset(), default_value_t)]
    pub preset: Preset,

    /// How it runs.
    #[command(flatten)]
    pub settings: Given<DaemonSpec>,

    /// Listen on a socket file (mode 0600) instead of the abstract name that belongs to the
    /// dataset. To share a daemon between containers, mount the file's folder into each of them and
    /// the dataset at the same path, and run them as the same user. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// For a daemon that a trainer starts: tell on stdout when ready, and end once the last rank
    /// has left.
    #[arg(long)]
    pub private: bool,

    /// Take the place of the daemon that serves this dataset, such as one of an earlier version
    /// with the same protocol. This one gets ready first: it opens the index and finds its memory,
    /// also that of its cache, which fills anew. Then the other one ends, and its trainings go on
    /// here at their next batch. Refused where one of them could not; the message names it. Use it
    /// for daemons that you or a service manager start.
    #[arg(long, conflicts_with = "private")]
    pub replace: bool,

    /// With --private: start the daemon as no process's child, in a session of its own, and return.
    /// So no launcher that cleans up after one rank ends the daemon of all.
    #[arg(long, requires = "private")]
    pub detach: bool,

    /// The process that wanted a detached daemon; its job may resize the cache.
    #[arg(long, value_name = "PID", requires = "private", hide = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub started_by: Option<i32>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
