//! Why there is nothing to simulate.

use std::io;
use std::path::PathBuf;

use shade_dataset::DatasetError;
use shade_formats::control::SpecError;

/// Why there is nothing to simulate.
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
        /// What the system said.
        source: io::Error,
    },
    /// A line of a text file says nothing that can be used.
    #[error("{file} line {line}: {what}")]
    Line {
        /// The file as given.
        file: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A file as a whole does not fit.
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
    /// Parameters that make no plan.
    #[error(transparent)]
    Plan(#[from] SpecError),
    /// There is no way to catch Ctrl-C.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Write(#[from] io::Error),
    /// Ctrl-C; the rows that were ready are written.
    #[error("interrupted")]
    Interrupted,
}

impl SimulateError {
    /// The process's exit code, as the other commands have them.
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
