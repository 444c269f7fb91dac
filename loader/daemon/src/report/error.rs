//! The errors of `shade-load report`.

use std::io;
use std::path::PathBuf;

use shade_simulate::SimulateError;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] SimulateError),
    /// The page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The page.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ReportError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
