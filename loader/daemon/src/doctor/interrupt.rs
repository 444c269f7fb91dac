//! Ctrl-C while the command looks: it ends in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shade_dataset::on_stop_signal;

use super::cli::DoctorError;

/// Set by Ctrl-C.
pub(super) fn stopped_by_ctrl_c() -> Result<Arc<AtomicBool>, DoctorError> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    on_stop_signal(move || asked.store(true, Ordering::Relaxed)).map_err(DoctorError::Probe)?;
    Ok(stop)
}
