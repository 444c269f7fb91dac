//! Work that may wait for a store or a daemon: the interpreter stays free meanwhile, and Ctrl-C
//! ends the wait.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::ShadeError;

/// Longest wait between two checks of Python's pending signals.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Returns the result of `work`, which runs on a new thread called `name`. After an interrupt the
/// work goes on and its result is dropped.
pub(crate) fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, mut answer) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name(name.to_owned())
        // The receiver is gone only after an interrupt.
        .spawn(move || drop(done.send(work())))
        .map_err(|error| ShadeError::new_err(format!("no thread for {name}: {error}")))?;
    loop {
        // Borrowed mutably: `detach` needs a `Send` closure, and a receiver is not `Sync`.
        let answer = &mut answer;
        match py.detach(move || answer.recv_timeout(SLICE)) {
            Ok(made) => return Ok(made),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ShadeError::new_err(format!("{name} ended without an answer")));
            }
        }
    }
}
