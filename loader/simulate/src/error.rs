//! Errors of a simulation.

use std::io;
use std::path::{Path, PathBuf};

use shade_dataset::DatasetError;
use shade_job::SpecError;

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A line of a text file cannot be used.
    #[error("{file} line {line}: {what}")]
    Line {
        /// The file as given.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A file as a whole cannot be used.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Options that do not go together.
    #[error("{0}")]
    Usage(String),
    /// Parameters of plans that cannot be used.
    #[error(transparent)]
    Plan(#[from] SpecError),
    /// Ctrl-C cannot be caught.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Write(#[from] io::Error),
    /// Ctrl-C. The rows that are ready are written.
    #[error("interrupted")]
    Interrupted,
}

impl SimulateError {
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(super) fn line(path: &Path, line: u64, what: String) -> Self {
        Self::Line { file: path.display().to_string(), line, what }
    }

    /// The process's exit code, as of the other commands.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Dataset(error) if error.is_damage() => 3,
            Self::Usage(_) | Self::Plan(_) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}
