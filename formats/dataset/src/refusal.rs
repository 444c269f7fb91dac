//! What a store says instead of bytes, whichever kind of store it is.

use std::fmt;
use std::time::Duration;

use rustix::io::Errno;
use shade_store::StoreFault;

/// What comes instead of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The system's error, of a file.
    System(Errno),
    /// An object store's answer.
    Store(StoreFault),
}

impl Refusal {
    /// How long the store asks to wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::System(_) => None,
            Self::Store(fault) => fault.wait,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<StoreFault> for Refusal {
    fn from(fault: StoreFault) -> Self {
        Self::Store(fault)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => errno.fmt(f),
            Self::Store(fault) => fault.fmt(f),
        }
    }
}
