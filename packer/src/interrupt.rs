//! A request to stop, looked at between records: from a signal handler, or from a worker that
//! failed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// Whether a command should end early. It is never taken back.
#[derive(Debug, Default)]
pub struct Stop {
    requested: AtomicBool,
    abandoned: AtomicBool,
}

impl Stop {
    /// Asks to stop; says whether that was asked before.
    pub fn request(&self) -> bool {
        self.requested.swap(true, Ordering::Relaxed)
    }

    /// Ends the other workers after one has failed. Does not count as a request.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Ends a loop early.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once a stop was requested or another worker failed.
    pub fn check(&self) -> Result<(), Error> {
        let stopped = self.requested.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed);
        if stopped { Err(Error::Interrupted) } else { Ok(()) }
    }
}
