//! CPU time of this thread: what a computation costs, whoever else wants the CPU.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time that this thread has had so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// CPU time that `work` takes, and what comes of it.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = cpu_time();
    let outcome = work();
    (cpu_time().saturating_sub(started), outcome)
}
