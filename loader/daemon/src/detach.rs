//! `serve --detach`: starts the daemon as no process's child.
//!
//! The process that was started starts the daemon and ends, so that process 1 or the nearest
//! subreaper adopts the daemon. The daemon leaves its session by itself (`Inherited::shed`).
//! Without both, a launcher that cleans up after one rank, by its children, process group or
//! session, would end the daemon of all. A control group can only be left by who owns it.

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
    #[expect(clippy::zombie_processes, reason = "this process ends, and the daemon gets another parent")]
    command.spawn()?;
    Ok(())
}
