//! How much has been recorded: a line on a terminal's standard error, and what is said at the end.

use std::path::Path;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget};
use shade_formats::trace::Line;

/// How often the terminal's line is drawn anew.
const TICK: Duration = Duration::from_millis(250);

/// Counts lines and shows them.
pub(super) struct Progress {
    bar: ProgressBar,
    epoch: Option<u32>,
    batches: u64,
    accesses: u64,
    losses: u64,
    lost: u64,
}

impl Progress {
    pub(super) fn start() -> Self {
        // Hidden where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(indicatif::ProgressStyle::default_spinner());
        bar.set_message("waiting for batches");
        bar.enable_steady_tick(TICK);
        Self { bar, epoch: None, batches: 0, accesses: 0, losses: 0, lost: 0 }
    }

    /// Takes note of a line.
    pub(super) fn count(&mut self, line: &Line) {
        match line {
            Line::Open(open) => {
                self.epoch = Some(open.epoch);
                self.batches += 1;
                self.accesses += open.ids.len() as u64;
            }
            Line::Report(report) => self.losses += report.losses.len() as u64,
            Line::Lost(lost) => self.lost += lost.lines,
            Line::Sizes(_) | Line::Job(_) | Line::Done(_) | Line::Release(_) => {}
        }
    }

    /// Shows what there is; the file has `bytes`.
    pub(super) fn show(&self, bytes: u64) {
        if let Some(epoch) = self.epoch {
            self.bar.set_message(format!("epoch {epoch}: {}", self.counts(bytes)));
        }
    }

    /// Says what the file at `path` holds, and what it lacks.
    pub(super) fn finish(self, path: &Path, bytes: u64) {
        self.bar.finish_and_clear();
        tracing::info!("recorded {} in {}", self.counts(bytes), path.display());
        if self.batches == 0 {
            tracing::warn!("no training asked for a batch while this recorded");
        }
        if self.lost > 0 {
            tracing::warn!(
                "{} lines are missing: {} was not written as fast as the training went; try a faster disk",
                HumanCount(self.lost),
                path.display()
            );
        }
    }

    fn counts(&self, bytes: u64) -> String {
        format!(
            "{} batches, {} accesses, {} losses, {}",
            HumanCount(self.batches),
            HumanCount(self.accesses),
            HumanCount(self.losses),
            HumanBytes(bytes)
        )
    }
}
