//! A line on a terminal's standard error that shows how far a command is.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval at which the line is drawn.
const TICK: Duration = Duration::from_millis(250);

/// A spinner with a message, hidden where standard error is no terminal.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::default_spinner());
    bar.set_message(message);
    bar.enable_steady_tick(TICK);
    bar
}
