//! Why io_uring cannot be used here, as a reason that a user can act on.
//!
//! The kernel has the same few errors for very different causes: EPERM may be a sysctl or a
//! container's filter, ENOSYS a filter or an old kernel. /proc tells which one it is.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use shade_dataset::regular;

/// The first Linux whose io_uring has all that the engine needs.
const NEEDED: (u32, u32) = (5, 11);
/// From this Linux on a ring does not count against RLIMIT_MEMLOCK.
const NOT_COUNTED: (u32, u32) = (5, 12);

/// The facts that decide whether this process may use io_uring.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// `kernel.io_uring_disabled`; Linux before 6.6 has no such switch.
    disabled: Option<u32>,
    /// Whether a seccomp filter is in force.
    filtered: bool,
    /// Whether the process has CAP_SYS_ADMIN, which `kernel.io_uring_disabled` = 1 spares.
    admin: bool,
    /// RLIMIT_MEMLOCK in bytes; `None` is no limit.
    memlock_bytes: Option<u64>,
    /// The running kernel, as `uname -r` has it.
    release: String,
}

/// Why io_uring cannot be used. Its text fits after "because".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}{}", remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}")))]
pub struct Unavailable {
    /// The reason, and the call that failed.
    pub why: String,
    /// The remedy, as a command where there is one.
    pub remedy: Option<String>,
}

/// Major and minor number of a kernel's release such as `6.12.48+deb13-amd64`.
#[must_use]
pub fn linux_version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest.get(..digits)?.parse().ok()?))
}

/// The error of making a ring, with its reason instead of the bare errno; `step` names the failed
/// call.
pub(super) fn explained(step: &str, error: &io::Error) -> io::Error {
    let reason = Errno::from_io_error(error).and_then(|errno| reason(errno, &facts()));
    let unavailable = match reason {
        Some(Unavailable { why, remedy }) => Unavailable { why: format!("{why} ({step}: {error})"), remedy },
        None => Unavailable { why: format!("{step}: {error}"), remedy: None },
    };
    io::Error::new(error.kind(), unavailable)
}

/// The error if a ring can be made but lacks a feature.
pub(super) fn too_old() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, old(&facts().release))
}

/// Why making a ring failed with `errno`; `None` if the errno says it all.
fn reason(errno: Errno, facts: &Facts) -> Option<Unavailable> {
    let older_than = |than| linux_version(&facts.release).is_some_and(|version| version < than);
    let release = &facts.release;
    match errno {
        Errno::PERM | Errno::ACCESS => Some(forbidden(facts)),
        Errno::NOSYS if facts.filtered => Some(filter()),
        Errno::NOSYS | Errno::INVAL if older_than(NEEDED) => Some(old(release)),
        Errno::NOSYS => {
            let why = format!("this kernel, Linux {release}, was built without io_uring (CONFIG_IO_URING)");
            Some(Unavailable { why, remedy: None })
        }
        Errno::NOMEM if older_than(NOT_COUNTED) => facts.memlock_bytes.map(|bytes| {
            let kib = bytes / 1024;
            let why = format!("Linux {release} counts rings against RLIMIT_MEMLOCK, which is {kib} KiB");
            unavailable(
                why,
                "raise it: ulimit -l, LimitMEMLOCK= in a systemd unit, or docker run --ulimit memlock=-1",
            )
        }),
        Errno::NOMEM => Some(unavailable(
            "the kernel has no memory for the ring".to_owned(),
            "see whether the control group's memory limit is reached",
        )),
        _ => None,
    }
}

fn unavailable(why: String, remedy: &str) -> Unavailable {
    Unavailable { why, remedy: Some(remedy.to_owned()) }
}

/// Finds what forbids it. The switch is certain where it is set; a filter may forbid it as well.
fn forbidden(facts: &Facts) -> Unavailable {
    let too = if facts.filtered { ", and a seccomp filter may forbid it as well" } else { "" };
    let switch = "sysctl -w kernel.io_uring_disabled=0, as root of the machine";
    match facts.disabled {
        Some(1) if !(facts.admin && facts.filtered) => unavailable(
            format!(
                "kernel.io_uring_disabled is 1, which leaves io_uring to CAP_SYS_ADMIN and to the group of \
                 kernel.io_uring_group{too}"
            ),
            switch,
        ),
        Some(2..) => unavailable(
            format!("kernel.io_uring_disabled is 2, which forbids io_uring to everybody{too}"),
            switch,
        ),
        _ if facts.filtered => filter(),
        _ => {
            let why = "a security module (SELinux, AppArmor) or another rule of this system forbids io_uring";
            Unavailable { why: why.to_owned(), remedy: None }
        }
    }
}

fn filter() -> Unavailable {
    unavailable(
        "a seccomp filter forbids io_uring, as containers' default profiles do".to_owned(),
        "docker run --security-opt seccomp=PROFILE, where PROFILE allows io_uring_setup, io_uring_enter and \
         io_uring_register",
    )
}

fn old(release: &str) -> Unavailable {
    let (major, minor) = NEEDED;
    unavailable(
        format!("this kernel, Linux {release}, is too old for shade's use of io_uring"),
        &format!("run Linux {major}.{minor} or newer"),
    )
}

/// Reads the facts. One that cannot be read makes the reason less precise, not wrong.
fn facts() -> Facts {
    let text = |path| regular::read_to_string(Path::new(path)).unwrap_or_default();
    let status = text("/proc/self/status");
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    Facts {
        disabled: text("/proc/sys/kernel/io_uring_disabled").trim().parse().ok(),
        filtered: mode.is_some_and(|mode| mode.trim() == "2"),
        admin: capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN)),
        memlock_bytes: getrlimit(Resource::Memlock).current,
        release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Facts {
        let release = "6.12.48+deb13-amd64".to_owned();
        Facts { disabled: Some(0), filtered: false, admin: false, memlock_bytes: Some(8 << 20), release }
    }

    fn on(release: &str) -> Facts {
        Facts { disabled: None, release: release.to_owned(), ..free() }
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
        let filtered = || Facts { filtered: true, ..free() };
        let disabled = |disabled| Facts { disabled: Some(disabled), ..free() };
        let table = [
            (Errno::PERM, disabled(2), "kernel.io_uring_disabled is 2"),
            (Errno::PERM, disabled(1), "kernel.io_uring_disabled is 1"),
            (Errno::PERM, Facts { admin: true, ..disabled(2) }, "kernel.io_uring_disabled is 2"),
            (Errno::PERM, Facts { filtered: true, ..disabled(2) }, "a seccomp filter may forbid it as well"),
            // The switch spares an administrator, so it must be the filter.
            (
                Errno::PERM,
                Facts { admin: true, filtered: true, ..disabled(1) },
                "a seccomp filter forbids io_uring",
            ),
            (Errno::PERM, filtered(), "a seccomp filter forbids io_uring"),
            (Errno::NOSYS, filtered(), "a seccomp filter forbids io_uring"),
            (Errno::ACCESS, free(), "SELinux"),
            (Errno::PERM, on("5.15.0-91-generic"), "SELinux"),
            (Errno::NOSYS, free(), "built without io_uring"),
            (Errno::NOSYS, on("4.18.0-553.el8_10.x86_64"), "Linux 4.18.0-553.el8_10.x86_64, is too old"),
            (Errno::INVAL, on("5.4.0-216-generic"), "Linux 5.11 or newer"),
            (Errno::NOMEM, on("5.10.0-34-amd64"), "RLIMIT_MEMLOCK, which is 8192 KiB"),
            (Errno::NOMEM, free(), "memory limit"),
        ];
        for (errno, facts, expected) in table {
            let got = reason(errno, &facts).unwrap().to_string();
            assert!(got.contains(expected), "{errno:?} {facts:?}: {got}");
        }
    }

    #[test]
    fn what_the_errno_says_already_is_left_to_it() {
        let endless = Facts { memlock_bytes: None, ..on("5.10.0-34-amd64") };
        for (errno, facts) in [(Errno::MFILE, free()), (Errno::INVAL, free()), (Errno::NOMEM, endless)] {
            assert_eq!(reason(errno, &facts), None, "{errno:?} {facts:?}");
        }
        let told = explained("io_uring_setup", &io::Error::from(Errno::MFILE)).to_string();
        assert!(told.starts_with("io_uring_setup: ") && told.contains("os error"), "{told}");
    }

    #[test]
    fn releases_have_a_version() {
        let table = [
            ("6.12.48+deb13-amd64", Some((6, 12))),
            ("5.14.0-570.el9.x86_64\n", Some((5, 14))),
            ("6.18-rc1", Some((6, 18))),
            ("7.2", Some((7, 2))),
            ("", None),
            ("six.one", None),
            ("6.", None),
        ];
        for (release, expected) in table {
            assert_eq!(linux_version(release), expected, "{release:?}");
        }
    }
}
