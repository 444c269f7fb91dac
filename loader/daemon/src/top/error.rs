//! The errors of `shade-load top`.

use std::io;

use crate::ask::AskError;

/// Why daemons cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// A daemon does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Standard output is no terminal.
    #[error("standard output is no terminal: give --once, or --once --json")]
    NoTerminal,
    /// The terminal cannot be used, or the answer not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TopError {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        1
    }
}
