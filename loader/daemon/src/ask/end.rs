//! `shade-load stop` and `drain`.

use std::io::Write;
use std::time::Duration;

use shade_dataset::Dataset;

use super::cli::{Drain, Stop, Target};
use super::error::AskError;
use super::find;
use super::told::DaemonStatus;
use crate::control::{Address, Call, CallError};

/// Longest wait for a daemon's end. It gives up reads after 2 s; freeing a large cache takes
/// longer.
const END: Duration = Duration::from_secs(60);

/// Ends daemons now.
///
/// # Errors
/// There is no such daemon, or one does not end.
pub fn stop(args: &Stop, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = told_of(address)?;
        let call = Call::connect(address)?;
        call.stop(false)?;
        if !call.wait_for_end(END)? {
            return Err(AskError::StillThere { pid: daemon.pid, seconds: END.as_secs() });
        }
        let (pid, dataset, jobs) = (daemon.pid, &daemon.dataset, daemon.job_names());
        Ok(writeln!(out, "stopped process {pid}, which served {dataset} ({jobs})")?)
    })
}

/// Lets daemons take no new job, and end with their last rank.
///
/// # Errors
/// There is no such daemon, or one does not answer.
pub fn drain(args: &Drain, out: &mut impl Write) -> Result<(), AskError> {
    each(&args.target, |address| {
        let daemon = told_of(address)?;
        Call::connect(address)?.stop(true)?;
        let (pid, dataset, jobs) = (daemon.pid, &daemon.dataset, daemon.job_names());
        let line = if daemon.jobs.is_empty() {
            format!("process {pid}, which served {dataset}, has no job and ends now")
        } else {
            format!("process {pid}, which serves {dataset}, takes no new job and ends after {jobs}")
        };
        Ok(writeln!(out, "{line}")?)
    })
}

fn told_of(address: &Address) -> Result<DaemonStatus, AskError> {
    DaemonStatus::parse(&Call::connect(address)?.status()?)
}

/// Does it to each daemon of the target. One that fails does not keep the others.
fn each(target: &Target, mut end: impl FnMut(&Address) -> Result<(), AskError>) -> Result<(), AskError> {
    if let Some(socket) = &target.socket {
        return end(&Address::given(socket));
    }
    if let Some(dataset) = &target.dataset {
        let folder = Dataset::folder(dataset)?;
        return end(&Address::of_dataset(&folder)).map_err(|error| match error {
            AskError::Call(CallError::NoDaemon { address }) => {
                AskError::NoDaemon { dataset: folder, address }
            }
            other => other,
        });
    }
    let found = find::daemons()?;
    let mut failed = 0;
    for address in &found {
        match end(address) {
            // It has ended since.
            Ok(()) | Err(AskError::Call(CallError::NoDaemon { .. })) => {}
            Err(error) => {
                tracing::error!("{error}");
                failed += 1;
            }
        }
    }
    if failed > 0 { Err(AskError::Some { failed, all: found.len() }) } else { Ok(()) }
}
