//! The errors of `shade-load doctor`.

use std::io;
use std::path::PathBuf;

use shade_dataset::DatasetError;
use shade_reads::ReadsError;
use shade_tier::PASSWORD_VARIABLE;

/// The errors of `shade-load doctor`.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The path does not exist or cannot be reached.
    #[error("cannot look at {}: {source}", path.display())]
    Path {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// No server of the tier answers. The findings are written.
    #[error("cannot look at the tier: {0}; is a password needed ({PASSWORD_VARIABLE})?")]
    Tier(String),
    /// The probe's reads cannot start.
    #[error("cannot probe: {0}")]
    Reads(#[from] ReadsError),
    /// There is not enough memory for the probe, or no way to catch Ctrl-C.
    #[error("cannot probe: {0}")]
    Probe(io::Error),
    /// The dataset's shards may not be read. The findings are written.
    #[error("cannot probe: {0}")]
    Forbidden(String),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Write(#[from] io::Error),
    /// Ctrl-C. The findings so far are written.
    #[error("interrupted")]
    Interrupted,
}

impl DoctorError {
    /// The process's exit code, as `shade-load serve` and `shade-pack` have them.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Dataset(error) if error.is_damage() => 3,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}
