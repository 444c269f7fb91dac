//! Counts of what was recorded: shown on a terminal meanwhile, and logged at the end.

use std::path::Path;

use indicatif::{HumanBytes, HumanCount, ProgressBar};
use shade_formats::trace::Line;

use crate::terminal::spinner;

/// Counts of recorded lines.
pub(super) struct RecordedCounts {
    bar: ProgressBar,
    epoch: Option<u32>,
    batches: u64,
    accesses: u64,
    losses: u64,
    lost: u64,
}

impl RecordedCounts {
    pub(super) fn start() -> Self {
        let bar = spinner("waiting for batches");
        Self { bar, epoch: None, batches: 0, accesses: 0, losses: 0, lost: 0 }
    }

    /// Counts a line.
    pub(super) fn count(&mut self, line: &Line) {
        match line {
            Line::Open(open) => {
                self.epoch = Some(open.epoch);
                self.batches += 1;
                self.accesses += open.ids.len() as u64;
            }
            Line::Report(report) => self.losses += report.losses.len() as u64,
            Line::Lost(lost) => self.lost += lost.lines,
            Line::Sizes(_) | Line::Job(_) | Line::Done(_) | Line::Release(_) | Line::Snapshot(_) => {}
        }
    }

    /// Shows the counts; the file has `bytes`.
    pub(super) fn show(&self, bytes: u64) {
        if let Some(epoch) = self.epoch {
            self.bar.set_message(format!("epoch {epoch}: {}", self.counts(bytes)));
        }
    }

    /// Logs what the file at `path` holds, and what it lacks.
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
