//! Ctrl-C while the command looks: it ends in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cli::DoctorError;

/// Set by Ctrl-C.
pub(super) fn stopped_by_ctrl_c() -> Result<Arc<AtomicBool>, DoctorError> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| DoctorError::Probe(io::Error::other(error)))?;
    Ok(stop)
}
