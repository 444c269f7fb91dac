//! What calls return.

use std::ffi::c_int;

/// Done.
pub const SHADE_OK: c_int = 0;
/// The epoch has no further batch.
pub const SHADE_END: c_int = 1;
/// Nothing came in time. Call again, or give up.
pub const SHADE_TIMEOUT: c_int = 2;
/// The daemon ended, was killed, or could not be started.
pub const SHADE_GONE: c_int = 3;
/// A record is damaged or cannot be read; the text names it.
pub const SHADE_RECORD: c_int = 4;
/// An argument is impossible; the text names it.
pub const SHADE_USAGE: c_int = 5;
/// Anything else: the system, the daemon's refusal, a defect of shade.
pub const SHADE_SYSTEM: c_int = 6;
