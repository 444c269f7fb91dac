//! Memory of the machine and of the control group that this process is in.

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use shade_dataset::regular;

use super::cgroup::{MemoryLimit, memory_limit};
use super::mountinfo::Mount;
use super::text;

/// Memory of the machine and of the control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SystemMemory {
    /// Memory of the machine; 0 if it is not known.
    pub(crate) total_bytes: u64,
    /// Bytes that programs can have without swapping, as the kernel estimates.
    pub(crate) available_bytes: u64,
    /// `None`: no control group limits it.
    pub(crate) cgroup: Option<MemoryLimit>,
}

impl SystemMemory {
    /// Reads the figures. Those that cannot be read are 0.
    pub(crate) fn look(mounts: &[Mount]) -> Self {
        let meminfo = text("/proc/meminfo");
        Self {
            total_bytes: meminfo_bytes(&meminfo, "MemTotal"),
            available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
            cgroup: memory_limit(&text("/proc/self/cgroup"), mounts, |path| {
                regular::read_to_string(path).ok()
            }),
        }
    }

    /// The most that a daemon could ever have.
    pub(crate) fn most_bytes(&self) -> u64 {
        let limit = self.cgroup.as_ref().map_or(u64::MAX, |limit| limit.limit_bytes);
        limit.min(self.total_bytes)
    }

    /// Bytes that a daemon can have now, while all other processes keep theirs.
    pub(crate) fn free_bytes(&self) -> u64 {
        let in_groups = self.cgroup.as_ref().map_or(u64::MAX, |limit| limit.free_bytes);
        in_groups.min(self.available_bytes)
    }
}

/// Bytes of addresses that this process may still take; `None` without a limit (`ulimit -v`).
pub(crate) fn addresses_left_bytes() -> Option<u64> {
    let limit_bytes = getrlimit(Resource::As).current?;
    Some(limit_bytes.saturating_sub(meminfo_bytes(&text("/proc/self/status"), "VmSize")))
}

/// `MemTotal:       24682416 kB`; 0 if there is no such line.
fn meminfo_bytes(meminfo: &str, name: &str) -> u64 {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_counts_in_kib() {
        let text =
            "MemTotal:       24682416 kB\nMemFree:          123 kB\nMemAvailable:   20000000 kB\nHuge: 3\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), 24_682_416 << 10);
        assert_eq!(meminfo_bytes(text, "MemAvailable"), 20_000_000 << 10);
        for absent in ["Mem", "Huge", "Swap"] {
            assert_eq!(meminfo_bytes(text, absent), 0, "{absent}");
        }
        assert_eq!(meminfo_bytes("MemTotal: 99999999999999999999 kB", "MemTotal"), 0);
    }

    #[test]
    fn what_is_free_is_the_lesser_of_machine_and_control_group() {
        let machine = SystemMemory { total_bytes: 64 << 30, available_bytes: 60 << 30, cgroup: None };
        assert_eq!((machine.most_bytes(), machine.free_bytes()), (64 << 30, 60 << 30));
        let group = |limit_bytes, free_bytes| SystemMemory {
            cgroup: Some(MemoryLimit { folder: "/".into(), limit_bytes, used_bytes: Some(1), free_bytes }),
            ..machine.clone()
        };
        let limited = group(8 << 30, 7 << 30);
        assert_eq!((limited.most_bytes(), limited.free_bytes()), (8 << 30, 7 << 30));
        assert_eq!(group(100 << 30, 100 << 30).free_bytes(), 60 << 30);
    }
}
