//! What can go wrong, with the path it went wrong at, and the exit code that tells a script which kind it was.

use std::io;
use std::path::{Path, PathBuf};

use shade_formats::FormatError;

/// Something went wrong while running a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for what cannot be; nothing was touched.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: "read", "create", ...
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// A folder or file of the source cannot be packed.
    #[error("{}: {fault}", path.display())]
    Source {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The dataset is not what was once written.
    #[error("{} is damaged: {fault}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong, where.
        fault: String,
    },
    /// The dataset's parts do not fit the format's limits.
    #[error("cannot index {}: {source}", path.display())]
    Index {
        /// The dataset.
        path: PathBuf,
        /// The limit.
        source: FormatError,
    },
    /// The worker threads cannot be started.
    #[error("cannot start {jobs} worker threads: {source}")]
    Threads {
        /// How many.
        jobs: usize,
        /// Why not.
        source: rayon::ThreadPoolBuildError,
    },
    /// Ctrl-C, or a signal to terminate.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
}

impl Error {
    /// 1 the run failed, 2 usage, 3 the dataset is damaged, 130 interrupted. (0 is success; 4 is kept for partial results.)
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Io { .. } | Self::Source { .. } | Self::Index { .. } | Self::Threads { .. } => 1,
            Self::Usage(_) => 2,
            Self::Damaged { .. } => 3,
            Self::Interrupted => 130,
        }
    }

    /// For `map_err` behind a system call: "cannot `action` `path`".
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
