//! Says that a test, or a part of it, cannot run on this machine.

use std::io::Write;

/// Writes `LEFT OUT: TEST: WHY` straight to standard error, as the test harness hides the captured
/// output of passing tests. `make check` ends with these lines.
pub fn left_out(why: &str) {
    let thread = std::thread::current();
    // The harness names a test's thread after the test.
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {}", why.trim());
}
