//! The arguments and errors of `shade-load trace`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use shade_dataset::DatasetError;
use shade_simulate::SimulateError;

use crate::ask::AskError;
use crate::control::CallError;

/// Help below the options.
const HELP: &str = "\
Records what the daemon of a running training serves: which samples each batch asked for and how each
was served, when batches were opened, read, published and released, and the losses. Begin before the
first epoch where you can: what the daemon has learned and cached before is not in the trace. Where
the training starts its daemon itself, start this as soon as it runs, or start the daemon by hand
before (shade-load serve).

It ends with the daemon, or with Ctrl-C. The training goes on either way and does not wait for it:
lines that cannot be taken in time are left out, which is said in the file and here. The file of a
killed recorder can be read up to there. It takes some 10 bytes for each access and 10 for each loss,
as much once for each sample, and 1 KB a second with one rank.

  shade-load trace /data/train-shade --out run.trace
  shade-load simulate --trace run.trace --cache 10%,20%,40% --policy lru,app,lookahead
  shade-load report run.trace -o report.html
  shade-load trace run.trace --perfetto run.json    # for ui.perfetto.dev

The format is in formats/layout/TRACE.md: JSON, one object a line.

Exit codes: 0 recorded (to the daemon's end or Ctrl-C), 1 runtime error, 2 usage, 3 the dataset is
damaged.";

/// `shade-load trace`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Trace {
    /// The dataset of the training: a folder written by `shade-pack create`, or the dataset.shade
    /// in it. With --perfetto also a recording.
    #[arg(value_name = "DATASET|RUN")]
    pub dataset: PathBuf,

    /// The file to record into. It must not exist yet.
    #[arg(long, value_name = "FILE", required_unless_present = "perfetto")]
    pub out: Option<PathBuf>,

    /// Make a Chrome trace of the recording, once it has ended: a file for ui.perfetto.dev. Each
    /// rank has its batches there from opening to release, and its waits by cause. It must not
    /// exist yet.
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,

    /// The training's job: the value of `loader.job`, which need not have begun. Default: the only
    /// job that trains, or `default` while there is none.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// The daemon's socket file, if it was started with one. Default: $SHADE_SOCKET.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Why a recording cannot begin, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The daemon cannot be recorded.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The daemon's jobs are not known.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No process listens for the dataset.
    #[error(
        "no daemon serves {} at {address}: start the training first; give --socket for a socket file",
        dataset.display()
    )]
    NoDaemon {
        /// The dataset.
        dataset: PathBuf,
        /// Where one would listen.
        address: String,
    },
    /// It is not clear which job is meant.
    #[error("the daemon has several jobs: name one of them with --job: {}", names.join(", "))]
    SeveralJobs {
        /// Their names.
        names: Vec<String>,
    },
    /// The file cannot be created.
    #[error("cannot make {}: {source}{}", path.display(), hint(source))]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be written; what is in it can be read.
    #[error("cannot write {}: {source}; it can be read up to there", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon's line is not one of a trace.
    #[error("the daemon's line is not one of a trace: {0}; use the same version of both")]
    Line(String),
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] SimulateError),
    /// A recording is given, and a file to record into.
    #[error(
        "this is a recording: --perfetto makes a Chrome trace of it, and --out is for a running training"
    )]
    Recorded,
    /// There is no file to record into.
    #[error("give the file to record into with --out")]
    NoOut,
    /// A signal handler or the pipe failed.
    #[error("cannot record: {0}")]
    Io(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AlreadyExists { ": name another file, or remove it first" } else { "" }
}

impl TraceError {
    /// The process's exit code, as the other commands have them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Dataset(error) if error.is_damage() => 3,
            Self::Recorded | Self::NoOut => 2,
            _ => 1,
        }
    }
}
