//! What this machine, and the container that we may be in, has for shade.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use super::cgroup::{MemoryLimit, memory_limit};
use super::kernel::NfsReads;
use super::mountinfo::Mount;
use crate::reads::{Unavailable, io_uring_here};

/// What this machine has for shade.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) io_uring: IoUring,
    pub(super) memlock: Memlock,
    pub(super) memory: Memory,
    /// CPUs that this process may use: its affinity and its control group's quota counted in.
    pub(super) cpus: usize,
}

/// The running kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Kernel {
    pub(super) release: String,
    /// How it reads from NFS; `None` for a release that we do not understand.
    pub(super) nfs_reads: Option<NfsReads>,
}

/// Whether io_uring can be had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct IoUring {
    pub(super) usable: bool,
    /// The flags that a ring was made with.
    pub(super) setup: Option<String>,
    /// Why there can be none.
    pub(super) reason: Option<String>,
    /// What would change that.
    pub(super) remedy: Option<String>,
}

/// How much memory may be locked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Memlock {
    /// RLIMIT_MEMLOCK; `None` is no limit.
    pub(super) soft_bytes: Option<u64>,
    /// What the process may raise it to; `None` is no limit.
    pub(super) hard_bytes: Option<u64>,
    /// With CAP_IPC_LOCK the limit does not apply.
    pub(super) cap_ipc_lock: bool,
}

impl Memlock {
    /// Whether so many bytes can be locked.
    pub(super) fn allows(&self, bytes: u64) -> bool {
        self.cap_ipc_lock || self.soft_bytes.is_none_or(|limit| limit >= bytes)
    }
}

/// Memory, of the machine and of the control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Memory {
    pub(super) total_bytes: u64,
    /// What programs can have without swapping, as the kernel estimates it.
    pub(super) available_bytes: u64,
    /// `None`: no control group limits it.
    pub(super) cgroup: Option<MemoryLimit>,
}

impl Memory {
    /// The most that a daemon could ever have here.
    pub(super) fn most_bytes(&self) -> u64 {
        let limit = self.cgroup.as_ref().map_or(u64::MAX, |limit| limit.limit_bytes);
        limit.min(self.total_bytes)
    }
}

/// Looks at this machine. What cannot be read is left empty.
pub(super) fn look(mounts: &[Mount]) -> Machine {
    let release = text("/proc/sys/kernel/osrelease").trim().to_owned();
    let memlock = getrlimit(Resource::Memlock);
    let meminfo = text("/proc/meminfo");
    Machine {
        kernel: Kernel { nfs_reads: NfsReads::of(&release), release },
        io_uring: io_uring(),
        memlock: Memlock {
            soft_bytes: memlock.current,
            hard_bytes: memlock.maximum,
            cap_ipc_lock: capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK)),
        },
        memory: Memory {
            total_bytes: meminfo_bytes(&meminfo, "MemTotal"),
            available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
            cgroup: memory_limit(&text("/proc/self/cgroup"), mounts, |path| fs::read_to_string(path).ok()),
        },
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn io_uring() -> IoUring {
    match io_uring_here() {
        Ok(setup) => IoUring { usable: true, setup: Some(setup), reason: None, remedy: None },
        Err(Unavailable { why, remedy }) => IoUring { usable: false, setup: None, reason: Some(why), remedy },
    }
}

/// A file of /proc or /sys; empty if there is none. Names in it may be no UTF-8.
pub(super) fn text(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
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
    fn a_capability_lifts_the_limit_of_locked_memory() {
        let limited = Memlock { soft_bytes: Some(8 << 20), hard_bytes: None, cap_ipc_lock: false };
        assert!(limited.allows(8 << 20) && !limited.allows((8 << 20) + 1));
        assert!(Memlock { cap_ipc_lock: true, ..limited.clone() }.allows(1 << 40));
        assert!(Memlock { soft_bytes: None, ..limited }.allows(1 << 40));
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = look(&[]);
        assert!(machine.cpus > 0 && machine.memory.total_bytes >= machine.memory.available_bytes);
        assert_eq!(machine.io_uring.usable, machine.io_uring.setup.is_some());
        assert!(!machine.kernel.release.is_empty());
    }
}
