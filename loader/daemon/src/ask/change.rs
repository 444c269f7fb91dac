//! `shade-load stop`, `drain` and `resize`.

use std::io::Write;
use std::time::Duration;

use indicatif::BinaryBytes;
use shade_formats::printable::OneLine;

use super::cli::{Drain, Resize, Stop};
use super::error::AskError;
use super::table::names;
use super::target::{each, status_of};
use crate::control::{Call, Resized};

/// Longest wait for a daemon's end. It gives up reads after 2 s; freeing a large cache takes
/// longer.
const END: Duration = Duration::from_secs(60);

/// Ends daemons now.
///
/// # Errors
/// There is no such daemon, or one does not end.
pub fn stop(args: &Stop, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = status_of(address)?;
        let call = Call::connect(address)?;
        call.stop(false)?;
        if !call.wait_for_end(END)? {
            return Err(AskError::StillThere { pid: daemon.pid, seconds: END.as_secs() });
        }
        let (pid, dataset, jobs) = (daemon.pid, OneLine(&daemon.dataset), names(&daemon.jobs));
        Ok(writeln!(out, "stopped process {pid}, which served {dataset} ({jobs})")?)
    })
}

/// Lets daemons take no new job, and end with their last rank.
///
/// # Errors
/// There is no such daemon, or one does not answer.
pub fn drain(args: &Drain, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = status_of(address)?;
        Call::connect(address)?.stop(true)?;
        let (pid, dataset, jobs) = (daemon.pid, OneLine(&daemon.dataset), names(&daemon.jobs));
        let line = if daemon.jobs.is_empty() {
            format!("process {pid}, which served {dataset}, has no job and ends now")
        } else {
            format!("process {pid}, which serves {dataset}, takes no new job and ends after {jobs}")
        };
        Ok(writeln!(out, "{line}")?)
    })
}

/// Gives the caches of daemons another size.
///
/// # Errors
/// There is no such daemon, or one refuses: it has not as much memory.
pub fn resize(args: &Resize, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = status_of(address)?;
        let Resized { before_bytes, cache_bytes } = Call::connect(address)?.resize(&args.size)?;
        let (before, now) = (BinaryBytes(before_bytes), BinaryBytes(cache_bytes));
        let (pid, dataset) = (daemon.pid, OneLine(&daemon.dataset));
        Ok(writeln!(out, "process {pid}, which serves {dataset}, has a cache of {now} now, {before} before")?)
    })
}
