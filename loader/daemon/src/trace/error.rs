//! The errors of recording.

use std::io;
use std::path::PathBuf;

use shade_dataset::DatasetError;
use shade_simulate::SimulateError;

use crate::ask::AskError;
use crate::control::CallError;

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
