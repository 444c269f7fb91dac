//! The errors of `shade-load export`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}; give another one with --listen")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A signal handler or a thread cannot be had.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl ExportError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
