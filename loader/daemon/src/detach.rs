//! `serve --detach`: starts the daemon as no process's child.
//!
//! The process that was started starts the daemon and ends, so that process 1 or the nearest
//! subreaper adopts the daemon. The daemon leaves its session by itself (`Inherited::shed`).
//! Without both, a launcher that cleans up after one rank, by its children, process group or
//! session, would end the daemon of all. A control group can only be left by who owns it.
#![expect(unsafe_code, reason = "closing all other descriptors is only to be had by a system call")]

use std::io;
use std::process::Command;

use rustix::process::getppid;

/// Starts this program again, with the arguments of this process but `--detach`, and the number of
/// the process that wanted it.
///
/// # Errors
/// The program cannot be started again.
pub fn detach() -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1).filter(|argument| argument != "--detach"));
    if let Some(trainer) = getppid() {
        command.args(["--started-by", &trainer.to_string()]);
    }
    keep_no_descriptors();
    // This process ends now, so another one becomes the daemon's parent and reaps it.
    command.spawn()?;
    Ok(())
}

/// Marks all descriptors that are not standard input, output or error to be closed in the daemon.
/// torch's sockets are inherited: held open, they would hide a rank's death from the others, and
/// keep its port. Linux before 5.11 cannot do this, and keeps them.
fn keep_no_descriptors() {
    let (first, last, flags) = (3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: the call has no pointer, and changes only what becomes of descriptors at an exec.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}
