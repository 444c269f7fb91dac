//! Kills a program with SIGKILL just before one of its actions: a system call that changes files,
//! or that sends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How often a program does what, by the kind of action.
pub type Actions = BTreeMap<&'static str, u32>;

/// The action before which a program is killed.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// Its kind.
    pub kind: &'static str,
    /// Its number among those of its kind, from 1 on.
    pub number: u32,
}

/// How a program ended.
#[derive(Debug)]
pub struct Traced {
    /// `None`: it was killed.
    pub code: Option<i32>,
    /// What it has done until then.
    pub actions: Actions,
}

/// Runs a command under a tracer, and kills it before `last`, if it comes so far. Its standard
/// error goes to the file `errors`.
///
/// # Panics
/// When it cannot be traced.
#[must_use]
#[expect(clippy::zombie_processes, reason = "it is waited for as what is traced, with its threads")]
pub fn traced(command: &Command, last: Option<Action>, errors: &Path) -> Traced {
    // A shell that waits for its first line becomes the program: so it is traced from its start.
    let mut shell = Command::new("sh");
    shell.args(["-c", "read -r _ && exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap());
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(errors).unwrap());
    let mut child = shell.process_group(0).spawn().unwrap();
    let leader = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(leader, options).unwrap();
    ptrace::interrupt(leader).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut actions = Actions::new();
    let mut is_program = false;
    loop {
        // All of its threads, and none of another test's children.
        let status = waitpid(Pid::from_raw(-leader.as_raw()), Some(WaitPidFlag::__WALL)).unwrap();
        match status {
            WaitStatus::PtraceSyscall(thread) => {
                if let Some(kind) = entered(thread).filter(|_| is_program) {
                    let count = actions.entry(kind).or_default();
                    *count += 1;
                    if last.is_some_and(|last| last.kind == kind && last.number == *count) {
                        kill(leader, Signal::SIGKILL).unwrap();
                    }
                }
                go_on(thread, None);
            }
            WaitStatus::PtraceEvent(thread, _, event) => {
                is_program |= event == ptrace::Event::PTRACE_EVENT_EXEC as i32;
                go_on(thread, None);
            }
            WaitStatus::Stopped(thread, signal) => go_on(thread, Some(signal)),
            WaitStatus::Exited(thread, code) if thread == leader => {
                return Traced { code: Some(code), actions };
            }
            WaitStatus::Signaled(thread, _, _) if thread == leader => return Traced { code: None, actions },
            _ => {}
        }
    }
}

/// It may be dead already.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}

/// The kind of action that a thread begins, if its system call is one.
#[cfg(target_arch = "x86_64")]
fn entered(thread: Pid) -> Option<&'static str> {
    let registers = ptrace::getregs(thread).ok()?;
    // The kernel's mark of a call that begins.
    if registers.rax.cast_signed() != -i64::from(libc::ENOSYS) {
        return None;
    }
    let creates = |flags: u64| flags & (libc::O_CREAT | libc::O_TRUNC) as u64 != 0;
    let kind = match registers.orig_rax.cast_signed() {
        libc::SYS_openat if creates(registers.rdx) => "create",
        libc::SYS_open if creates(registers.rsi) => "create",
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => "write",
        libc::SYS_copy_file_range | libc::SYS_sendfile => "copy",
        libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => "rename",
        libc::SYS_link | libc::SYS_linkat | libc::SYS_symlink | libc::SYS_symlinkat => "link",
        libc::SYS_unlink | libc::SYS_unlinkat | libc::SYS_rmdir => "remove",
        libc::SYS_mkdir | libc::SYS_mkdirat => "make a folder",
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => "sync",
        libc::SYS_ftruncate | libc::SYS_fallocate => "set the length",
        libc::SYS_fchmod | libc::SYS_fchmodat | libc::SYS_utimensat => "set attributes",
        libc::SYS_flock => "lock",
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_connect => "send",
        _ => return None,
    };
    Some(kind)
}

#[cfg(not(target_arch = "x86_64"))]
fn entered(_: Pid) -> Option<&'static str> {
    None
}
