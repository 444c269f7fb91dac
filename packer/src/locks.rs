//! Locks whose holders may have panicked. What they guard is valid between any two statements.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::interrupt::Stop;

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
