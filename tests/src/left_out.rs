//! Says that a test, or a part of it, cannot run on this machine.

use std::io::Write;

/// Writes `LEFT OUT: TEST: WHY` to standard error itself: the test harness keeps what it captures of a test that passes.
/// `make check` ends with these lines.
pub fn left_out(why: &str) {
    let thread = std::thread::current();
    // The harness names a test's thread after the test.
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {}", why.trim());
}
