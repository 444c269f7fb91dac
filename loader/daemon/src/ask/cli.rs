//! The arguments of `shade-load status`, `stop`, `drain` and `resize`.

use std::path::PathBuf;

use clap::Args;
use shade_job::{Capacity, SpecError};

use crate::control::default_socket;

/// Help below the options of `status`.
const STATUS_HELP: &str = "\
One line a job: the daemon's dataset, process and cache (used of its limit), the job's name, ranks
(attached of all), epoch and hit ratio since it began. Daemons with a socket file are found by
--socket only, and those of other network namespaces (containers) not at all.

Exit codes: 0 done (also if no daemon runs), 1 a daemon does not answer, 2 usage.";

/// Help below the options of `stop`.
const STOP_HELP: &str = "\
Every rank gets an error that says so, and the command returns when the daemon has ended. What is not
saved with the trainings is lost: importance, plan, cache. A training that is started again starts a
new daemon.

Exit codes: 0 stopped (also with --all if none runs), 1 no daemon, or one that does not end, 2 usage.";

/// Help below the options of `drain`.
const DRAIN_HELP: &str = "\
Jobs that are there go on, and their ranks may attach again. A new job is refused with a text that says
why. The daemon ends when the last rank has left, at once if there is none. The command does not wait.

Exit codes: 0 done (also with --all if none runs), 1 no daemon, or one that does not answer, 2 usage.";

/// Help below the options of `resize`.
const RESIZE_HELP: &str = "\
Trainings go on meanwhile. A larger cache fills as records are read; one that does not fit into
memory now is refused with the size that does. From a smaller one records leave in the policy's
order, and the memory is the system's again within moments. A later training that asks for another
size is told so.

Exit codes: 0 done (also with --all if no daemon runs), 1 no daemon, or one that refuses, 2 usage.";

/// `shade-load status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub struct Status {
    /// Print a JSON list with an object for each daemon; docs/schemas/shade-load-status.json
    /// describes it.
    #[arg(long)]
    pub json: bool,

    /// Ask the daemon at this socket file, or at this abstract name (@shade-load/...), instead of
    /// all of yours. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Which daemons a command is for.
#[derive(Debug, Args)]
#[group(required = default_socket().is_none(), multiple = false)]
pub struct Target {
    /// The dataset whose daemon is meant.
    pub dataset: Option<PathBuf>,

    /// The daemon's socket file, or its abstract name (@shade-load/...). Default, without a dataset
    /// or --all: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// All daemons that `shade-load status` lists.
    #[arg(long)]
    pub all: bool,
}

/// `shade-load stop`.
#[derive(Debug, Args)]
#[command(after_help = STOP_HELP)]
pub struct Stop {
    /// Which daemons.
    #[command(flatten)]
    pub target: Target,
}

/// `shade-load drain`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_HELP)]
pub struct Drain {
    /// Which daemons.
    #[command(flatten)]
    pub target: Target,
}

/// `shade-load resize`.
#[derive(Debug, Args)]
#[command(
    after_help = RESIZE_HELP,
    override_usage = "shade-load resize <SIZE> <DATASET|--socket <PATH>|--all>"
)]
pub struct Resize {
    /// The cache's new size: bytes (8GiB) or a share of the dataset (20%).
    #[arg(value_parser = cache_size)]
    pub size: String,

    /// Which daemons.
    #[command(flatten)]
    pub target: Target,
}

/// Checks a size; the daemon knows what it is a share of.
fn cache_size(text: &str) -> Result<String, SpecError> {
    Capacity::given(text).map(|_| text.to_owned())
}
