//! A second copy of a private daemon's log, on its standard output: the rank that started the
//! daemon keeps the last lines for its errors.
//!
//! Standard output is a pipe to that rank. When the rank is gone or does not read, lines are
//! dropped there; the log itself goes to standard error.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::stdout;

/// The first line on standard output says that the daemon is ready; the log follows it.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// The log's second destination.
#[derive(Debug)]
pub struct LastWords;

impl LastWords {
    /// Begins to copy the log. From now on the pipe does not block, so that a full one loses lines.
    pub fn begin() {
        let unblocked =
            fcntl_getfl(stdout()).and_then(|flags| fcntl_setfl(stdout(), flags | OFlags::NONBLOCK));
        HAS_BEGUN.store(unblocked.is_ok(), Ordering::Relaxed);
    }

    /// Whether the log is copied, so that whatever else is said there goes through the log.
    #[must_use]
    pub fn has_begun() -> bool {
        HAS_BEGUN.load(Ordering::Relaxed)
    }

    /// Writes a line. The rank may make the pipe block again, so only a thread may call it that
    /// nobody waits for.
    pub(crate) fn write(line: &[u8]) {
        if Self::has_begun() {
            // If the pipe is full or closed, the line is missing in the rank's errors, no more.
            let _ = rustix::io::write(stdout(), line);
        }
    }
}
