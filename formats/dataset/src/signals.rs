//! The signals that ask a program to stop.

use std::ffi::c_int;
use std::io;
use std::path::Path;
use std::thread::Builder;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::regular;

/// From now on SIGINT, SIGTERM and SIGHUP end nothing by themselves: each calls `ask`, in a thread
/// of its own, once for signals that come together.
///
/// A SIGHUP that was ignored when the program began stays so: this is all that `nohup` does, and a
/// terminal that closes may not end hours of work. SIGINT does not: a shell's script ignores it for
/// what it starts with `&`, and Ctrl-C should end the script with all that it began.
///
/// # Errors
///
/// When no handler or thread can be had.
pub fn on_stop_signal(mut ask: impl FnMut() + Send + 'static) -> io::Result<()> {
    let status = regular::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let hang_up = (!is_ignored(&status, SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
    Builder::new().name("shade-signals".into()).spawn(move || signals.forever().for_each(|_| ask()))?;
    Ok(())
}

/// Whether a process ignores a signal, by its /proc/PID/status: `SigIgn:\t0000000000000001`, where
/// the lowest bit is signal 1.
fn is_ignored(status: &str, signal: c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_the_ignored_signals() {
        let status = "Name:\tsh\nSigIgn:\t0000000000004001\nSigCgt:\t0000000000000002\n";
        let ignored: Vec<c_int> = (1..64).filter(|signal| is_ignored(status, *signal)).collect();
        assert_eq!(ignored, [SIGHUP, SIGTERM]);
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tx\n", SIGHUP));
    }
}
