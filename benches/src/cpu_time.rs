//! CPU time of this thread and this process, which other processes do not change.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// CPU time of this process so far, all threads, in seconds.
pub(crate) fn process_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The CPU time of `work`, and its result.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = cpu_time();
    let outcome = work();
    (cpu_time().saturating_sub(started), outcome)
}
