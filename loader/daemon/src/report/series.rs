//! A recording's snapshots, compared one by one.

use shade_formats::trace::{Header, Snapshot};

use crate::monitor::{DaemonFigures, Facts, JobFigures, Remedy, Shares, figures, recorded_status, remedy};

/// Snapshots that are kept: more points than a chart has pixels for are none.
const SNAPSHOTS_MAX: usize = 400;

/// Snapshots being collected. Counters grow, so every second one may go.
#[derive(Default)]
pub(super) struct Snapshots {
    kept: Vec<Snapshot>,
    /// One snapshot of `every` is kept.
    every: usize,
    skipped: usize,
    last: Option<Snapshot>,
}

impl Snapshots {
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        if self.skipped == 0 {
            self.kept.push(snapshot.clone());
            if self.kept.len() > 2 * SNAPSHOTS_MAX {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every = self.every.max(1) * 2;
            }
        }
        self.skipped = (self.skipped + 1) % self.every.max(1);
        self.last = Some(snapshot);
    }

    /// The points between them, in order.
    pub(super) fn end(mut self, header: &Header) -> Vec<Point> {
        let is_kept = self.kept.last() == self.last.as_ref();
        self.kept.extend(self.last.filter(|_| !is_kept));
        let all: Vec<_> = self.kept.iter().map(|snapshot| [recorded_status(header, snapshot)]).collect();
        let began_us = self.kept.first().map_or(0, |snapshot| snapshot.at_us);
        let pairs = all.iter().zip(all.iter().skip(1)).zip(self.kept.iter().zip(self.kept.iter().skip(1)));
        pairs
            .filter_map(|((before, now), (from, to))| point(figures(before, now), from, to, began_us))
            .collect()
    }
}

fn point(mut figures: Vec<DaemonFigures>, from: &Snapshot, to: &Snapshot, began_us: u64) -> Option<Point> {
    let mut daemon = figures.pop()?;
    let job = daemon.jobs.pop()?;
    let of = |time_us: u64| time_us as f64 / 1e6;
    let (at_s, seconds) = (of(to.at_us.saturating_sub(began_us)), of(to.at_us.saturating_sub(from.at_us)));
    Some(Point { at_s, seconds, daemon, job })
}

/// The time between two snapshots.
pub(super) struct Point {
    /// When it ended, since the first snapshot.
    pub(super) at_s: f64,
    /// How long it was.
    pub(super) seconds: f64,
    /// Without its job.
    pub(super) daemon: DaemonFigures,
    pub(super) job: JobFigures,
}

/// All points together.
pub(super) struct Whole {
    pub(super) seconds: f64,
    pub(super) waits: Shares,
    pub(super) remedy: Remedy,
    pub(super) samples_per_s: f64,
    pub(super) read_mb_per_s: f64,
}

/// What the points have together; `None` without one.
pub(super) fn whole(points: &[Point]) -> Option<Whole> {
    let seconds: f64 = points.iter().map(|point| point.seconds).sum();
    let last = points.last().filter(|_| seconds > 0.0)?;
    let mut waits = Shares::default();
    let (mut ring_full, mut busy, mut samples_per_s, mut read_mb_per_s) = (0.0, 0.0, 0.0, 0.0);
    for point in points {
        let part = point.seconds / seconds;
        waits.add(part, &point.job.waits);
        ring_full += part * point.job.ring_full;
        busy += part * point.daemon.workers_busy;
        samples_per_s += part * point.job.samples_per_s;
        read_mb_per_s += part * point.job.read_mb_per_s;
    }
    let facts = Facts {
        ring_full,
        workers_busy: (last.daemon.workers > 0).then_some(busy),
        cache_bytes: last.daemon.cache_bytes,
        cache_used_bytes: last.daemon.cache_used_bytes,
        reads_late: last.daemon.reads_late,
        store_trouble: last.daemon.store_trouble.clone(),
    };
    let remedy = remedy(&waits, &facts);
    Some(Whole { seconds, waits, remedy, samples_per_s, read_mb_per_s })
}
