//! Facts from the system about this machine: mounts, the control group's limit, memory.

pub(crate) mod cgroup;
mod memory;
pub(crate) mod mountinfo;

use std::path::Path;

pub(crate) use memory::{SystemMemory, addresses_left_bytes};
use shade_dataset::regular;

/// The text of a file in /proc or /sys; empty if there is none. Bytes that are not UTF-8 are
/// replaced.
pub(crate) fn text(path: &str) -> String {
    let bytes = regular::read(Path::new(path)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
