//! The errors of asking daemons.

use std::io;
use std::path::PathBuf;

use shade_dataset::DatasetError;

use crate::control::CallError;

/// Why a daemon was not asked, or not ended.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The dataset cannot be found.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A daemon does not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// No process listens for the dataset.
    #[error(
        "no daemon serves {} at {address}: shade-load status lists those that run; give --socket for a socket file",
        dataset.display()
    )]
    NoDaemon {
        /// The dataset.
        dataset: PathBuf,
        /// Where one would listen.
        address: String,
    },
    /// Some of several daemons did not answer; each was logged.
    #[error("{failed} of {all} daemons did not answer as they should")]
    Some {
        /// Daemons that did not.
        failed: usize,
        /// All that were asked.
        all: usize,
    },
    /// The daemon's answer is none of this version.
    #[error("the daemon's status cannot be read: {0}; use the same version of both")]
    Status(serde_json::Error),
    /// A daemon was stopped and is still there.
    #[error(
        "process {pid} was told to stop and has not ended within {seconds} s: see its log, or end it with kill -9 {pid}"
    )]
    StillThere {
        /// The daemon's process.
        pid: u32,
        /// The wait.
        seconds: u64,
    },
    /// The list of sockets cannot be read, or the answer not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl AskError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
