//! What the system says of this machine: mounts, the control group's limit, memory.

pub(crate) mod cgroup;
mod memory;
pub(crate) mod mountinfo;

pub(crate) use memory::Memory;

/// A file of /proc or /sys; empty if there is none. Names in it may be no UTF-8.
pub(crate) fn text(path: &str) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
