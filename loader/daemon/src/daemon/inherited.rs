//! Attributes that this process inherits from its parent and does not keep.
//!
//! A private daemon is started by the rank that came first, and serves all ranks of the machine. So
//! it drops that rank's session, CPU binding, niceness and blocked signals, and is the one that the
//! kernel kills first where memory ends.

use std::io::Write;
use std::path::Path;

use nix::sys::signal::SigSet;
use rustix::fs::Mode;
use rustix::process::{getpriority_process, setpriority_process, setsid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use shade_dataset::regular;

/// The score by which the kernel chooses whom it kills where memory ends: this process first,
/// whatever it has. A daemon can be replaced, a trainer not. Less would be weighed against the
/// memory of a trainer, which has more as a rule.
const OOM_SCORE: &str = "1000";
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Log lines about inherited attributes.
#[derive(Debug, Default)]
pub struct Inherited(Vec<String>);

impl Inherited {
    /// Unblocks all signals: blocked ones could not end this process. A private daemon also begins
    /// a session of its own, without a terminal, and takes all CPUs that its control group allows,
    /// an ordinary priority if it may, and [`OOM_SCORE`]. Call it before any thread is started, as
    /// threads inherit these attributes.
    #[must_use]
    pub fn shed(private: bool) -> Self {
        // Fails for a wrong argument only.
        let _ = SigSet::empty().thread_set_mask();
        let mut lines = Vec::new();
        lines.extend(cpus(private));
        if private {
            // Fails for the leader of a process group, which one started without --detach may be.
            let _ = setsid();
            lines.extend(niceness());
            lines.extend(killed_first());
        }
        Self(lines)
    }

    /// Lines for the log, once there is one.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Takes all CPUs that the control group allows. A daemon that was started by hand keeps its
/// binding, which was meant for it.
fn cpus(private: bool) -> Option<String> {
    let bound = sched_getaffinity(None).ok()?;
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out what the control group does not allow.
    sched_setaffinity(None, &all).ok()?;
    let allowed = sched_getaffinity(None).ok()?.count();
    let had = bound.count();
    if had >= allowed {
        return None;
    }
    if private {
        return Some(format!(
            "the trainer that started this daemon is bound to {had} of {allowed} CPUs: the daemon uses all {allowed}, as \
             it serves every rank"
        ));
    }
    // It was allowed until now.
    let _ = sched_setaffinity(None, &bound);
    Some(format!("bound to {had} of {allowed} CPUs, as its parent is: batches are filled on no more"))
}

/// Goes back to an ordinary priority.
fn niceness() -> Option<String> {
    let nice = getpriority_process(None).ok().filter(|nice| *nice > 0)?;
    let error = setpriority_process(None, 0).err()?;
    Some(format!(
        "runs at niceness {nice}, as the trainer that started this daemon ({error}): a busy machine slows down all \
         ranks"
    ))
}

/// Lets the kernel rather kill this process than its trainers. Any process may raise its own score,
/// and none is higher.
fn killed_first() -> Option<String> {
    let raised = regular::open_or_create(Path::new(OOM_SCORE_FILE), Mode::empty())
        .and_then(|mut file| file.write_all(OOM_SCORE.as_bytes()));
    let error = raised.err()?;
    Some(format!(
        "{OOM_SCORE_FILE}: {error}: where memory ends, the kernel may kill a trainer and not this daemon"
    ))
}
