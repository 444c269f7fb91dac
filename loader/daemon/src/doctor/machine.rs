//! What this machine, or the container on it, offers to shade.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use shade_reads::{Unavailable, io_uring_here};

use super::kernel::NfsReads;
use crate::proc::mountinfo::Mount;
use crate::proc::{SystemMemory, text};

/// What this machine offers to shade.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Machine {
    /// The kernel.
    pub(super) kernel: Kernel,
    /// Whether it can be used.
    pub(super) io_uring: IoUring,
    /// How much memory may be locked.
    pub(super) memlock: Memlock,
    /// Memory of the machine and of the control group.
    pub(super) memory: SystemMemory,
    /// CPUs that this process may use, by its affinity and its control group's quota.
    pub(super) cpus: usize,
}

/// The running kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) release: String,
    /// How it reads from NFS; `None` for an unknown release.
    pub(super) nfs_reads: Option<NfsReads>,
}

/// Whether io_uring can be used.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct IoUring {
    /// Whether a ring can be made.
    pub(super) usable: bool,
    /// The flags that a ring was made with.
    pub(super) setup: Option<String>,
    /// Why no ring can be made.
    pub(super) reason: Option<String>,
    /// What would change that.
    pub(super) remedy: Option<String>,
}

/// How much memory may be locked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Memlock {
    /// RLIMIT_MEMLOCK; `None` is no limit.
    pub(super) soft_bytes: Option<u64>,
    /// The limit up to which the process may raise it; `None` is no limit.
    pub(super) hard_bytes: Option<u64>,
    /// With CAP_IPC_LOCK the limit does not apply.
    pub(super) cap_ipc_lock: bool,
}

impl Memlock {
    /// Whether this number of bytes can be locked.
    pub(super) fn allows(&self, bytes: u64) -> bool {
        self.cap_ipc_lock || self.soft_bytes.is_none_or(|limit| limit >= bytes)
    }
}

/// Examines this machine. Facts that cannot be read are empty.
pub(super) fn look(mounts: &[Mount]) -> Machine {
    let release = text("/proc/sys/kernel/osrelease").trim().to_owned();
    let memlock = getrlimit(Resource::Memlock);
    Machine {
        kernel: Kernel { nfs_reads: NfsReads::of(&release), release },
        io_uring: io_uring(),
        memlock: Memlock {
            soft_bytes: memlock.current,
            hard_bytes: memlock.maximum,
            cap_ipc_lock: capabilities(None)
                .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK)),
        },
        memory: SystemMemory::look(mounts),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn io_uring() -> IoUring {
    match io_uring_here() {
        Ok(setup) => IoUring { usable: true, setup: Some(setup), reason: None, remedy: None },
        Err(Unavailable { why, remedy }) => IoUring { usable: false, setup: None, reason: Some(why), remedy },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
