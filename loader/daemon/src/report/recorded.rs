//! What a recording tells, as far as its page shows it.

use std::path::PathBuf;

use shade_formats::trace::{Header, Line};
use shade_job::JobSpec;
use shade_simulate::{RecordedLines, SimulateError};

use super::epochs::{EpochFigures, Epochs};
use super::series::{Point, Snapshots};

/// A recorded training.
pub(super) struct Recorded {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// The last job, if there were several.
    pub(super) job: Option<JobSpec>,
    /// It began before the recording.
    pub(super) under_way: bool,
    pub(super) epochs: Vec<EpochFigures>,
    pub(super) points: Vec<Point>,
    /// Bytes of all samples, as the cache charges them.
    pub(super) charged_bytes: u64,
    /// Lines that are missing.
    pub(super) lost: u64,
}

impl Recorded {
    /// Reads all of it.
    ///
    /// # Errors
    /// It cannot be read, or a line makes no sense.
    pub(super) fn read(mut lines: RecordedLines) -> Result<Self, SimulateError> {
        let header = lines.header().clone();
        let (mut epochs, mut snapshots) = (Epochs::new(header.samples), Snapshots::default());
        let (mut job, mut under_way) = (None, false);
        let (mut charged_bytes, mut lost) = (0_u64, 0_u64);
        let block = u64::from(header.block_bytes);
        while let Some(line) = lines.next_line()? {
            match line {
                Line::Sizes(sizes) => {
                    let charged = sizes.stored.iter().map(|&len| u64::from(len).next_multiple_of(block));
                    charged_bytes = charged_bytes.saturating_add(charged.sum());
                }
                Line::Job(begun) => {
                    epochs.begin_job();
                    under_way = begun.under_way;
                    let spec = JobSpec::from_value(begun.document);
                    job = Some(spec.map_err(|error| lines.refused(error.to_string()))?);
                }
                Line::Open(open) => epochs.open(&open).map_err(|what| lines.refused(what))?,
                Line::Report(report) => epochs.report(&report),
                Line::Snapshot(snapshot) => snapshots.take(snapshot),
                Line::Lost(missing) => lost = lost.saturating_add(missing.lines),
                Line::Done(_) | Line::Release(_) => {}
            }
        }
        let points = snapshots.end(&header);
        let path = lines.path().to_owned();
        Ok(Self { path, header, job, under_way, epochs: epochs.end(), points, charged_bytes, lost })
    }

    /// Records that the cache has room for.
    pub(super) fn cached(&self) -> f64 {
        let share = self.header.cache_bytes as f64 / self.charged_bytes.max(1) as f64;
        share.min(1.0) * f64::from(self.header.samples)
    }
}
