//! A request to stop, looked at between records: from a signal handler, or from a worker that
//! failed. Waits at a lock end with it, too.
//!
//! The holder of a lock may have panicked. What it guards is valid between any two statements.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// A process that was asked to stop ends at the latest when for this time nothing has moved: a
/// thread may wait for a store that does not answer. What is unfinished is then as after a kill.
const PATIENCE: Duration = Duration::from_secs(5);

/// Steps towards the end since the request, such as files that were removed.
static STEPS: AtomicU64 = AtomicU64::new(0);

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

/// Counts a step of the work that goes on after a request to stop.
pub(crate) fn step() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Returns once nothing has moved for some seconds. Called after a request to stop, by a thread
/// that then ends the process.
pub fn wait_for_standstill() {
    loop {
        let before = STEPS.load(Ordering::Relaxed);
        std::thread::sleep(PATIENCE);
        if STEPS.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

/// How often a waiting thread checks whether it should stop: a stop does not wake it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits a moment for `changed`, unless the command should stop.
pub(crate) fn wait<'g, T>(
    changed: &Condvar,
    guard: MutexGuard<'g, T>,
    stop: &Stop,
) -> Result<MutexGuard<'g, T>, Error> {
    stop.check()?;
    Ok(changed.wait_timeout(guard, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0)
}
