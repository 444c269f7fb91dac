//! Progress of a long simulation, as a bar on a terminal's standard error; and Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shade_dataset::on_stop_signal;

use crate::error::SimulateError;

/// Asked once a batch.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Watch {
    /// Begins `accesses` accesses, and catches Ctrl-C from here on.
    ///
    /// # Errors
    /// It cannot be caught.
    pub(super) fn start(accesses: u64) -> Result<Self, SimulateError> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        on_stop_signal(move || asked.store(true, Ordering::Relaxed)).map_err(SimulateError::Start)?;
        // Hidden where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(accesses), ProgressDrawTarget::stderr());
        let template = "simulating {msg} {wide_bar} {percent}% eta {eta}";
        // A template that does not parse would cost the looks, not the run.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Ok(Self { stop, bar: bar.with_style(style) })
    }

    /// Without a bar and without Ctrl-C.
    #[cfg(test)]
    pub(super) fn unseen() -> Self {
        Self { stop: Arc::default(), bar: ProgressBar::hidden() }
    }

    /// Names the current simulation.
    pub(super) fn name(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Adds accesses to the bar.
    ///
    /// # Errors
    /// Ctrl-C was pressed.
    pub(super) fn go_on(&self, accesses: usize) -> Result<(), SimulateError> {
        self.bar.inc(accesses as u64);
        if self.stop.load(Ordering::Relaxed) { Err(SimulateError::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
