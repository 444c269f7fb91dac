//! A private daemon's log once more, on its standard output: whoever started it keeps the last lines for its errors.
//!
//! Standard output is a pipe to the rank that started the daemon. When that rank is gone, or does not read, lines are
//! dropped there; the log itself goes to standard error as ever.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::stdout;

/// The first line on standard output says that the daemon is ready: the log comes after it.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Where the log goes, too.
#[derive(Debug)]
pub struct LastWords;

impl LastWords {
    /// Begins to copy the log. A pipe that is full must not stop the daemon, so it does not block from now on.
    pub fn begin() {
        let unblocked =
            fcntl_getfl(stdout()).and_then(|flags| fcntl_setfl(stdout(), flags | OFlags::NONBLOCK));
        HAS_BEGUN.store(unblocked.is_ok(), Ordering::Relaxed);
    }
}

impl io::Write for LastWords {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if HAS_BEGUN.load(Ordering::Relaxed) {
            // Nobody reads it, or not at once: then it is not there for their errors, which is all that is lost.
            let _ = rustix::io::write(stdout(), line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
