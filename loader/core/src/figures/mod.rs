//! What is counted and told: one room of the core.
//!
//! Each job has its counts, and the observer that gets its trace, if there is one. The figures that
//! `stats()` reports are gathered from all rooms in `stats`.

mod counts;
mod waits;

pub(crate) use counts::Accesses;
pub use counts::Counts;
pub(crate) use waits::{Bound, WaitClock};
pub use waits::{Cause, RankStatus, Waits};

use crate::bad_share::RowCounts;
use crate::event::SessionId;
use crate::ids::JobId;

/// Time between two snapshots of the counters, at least: 4 a second are a picture of a minute, and
/// some 5 MB of an hour with one rank.
const SNAPSHOT_EVERY_NS: u64 = 250_000_000;

/// The figures of all jobs.
#[derive(Debug, Default)]
pub(super) struct Figures {
    jobs: Vec<JobFigures>,
    /// The observers, each with the name of the job that it wants a trace of.
    observers: Vec<(SessionId, String)>,
}

/// The figures of a job.
#[derive(Debug)]
struct JobFigures {
    job: JobId,
    name: String,
    epoch: Counts,
    /// The epoch's counts before a rank began it last.
    before: Counts,
    total: Counts,
    /// All its ranks were given the epoch, and no line has told of it.
    is_line_due: bool,
    /// The observer that gets its trace.
    observer: Option<SessionId>,
    /// When the observer gets the next snapshot, at the earliest.
    next_snapshot_ns: u64,
}

impl Figures {
    /// A job has begun.
    pub(super) fn begin_job(&mut self, job: JobId, name: &str) {
        assert!(self.of(job).is_none(), "job {job} begins twice");
        self.jobs.push(JobFigures {
            job,
            name: name.to_owned(),
            epoch: Counts::default(),
            before: Counts::default(),
            total: Counts::default(),
            is_line_due: false,
            observer: self.observer_of(name),
            next_snapshot_ns: 0,
        });
    }

    /// A job has ended.
    pub(super) fn end_job(&mut self, job: JobId) {
        self.jobs.retain(|of| of.job != job);
    }

    /// A job goes on to another epoch.
    pub(super) fn begin_epoch(&mut self, job: JobId) {
        if let Some(of) = self.of_mut(job) {
            (of.epoch, of.before) = (Counts::default(), Counts::default());
        }
    }

    /// A rank begins the job's current epoch, perhaps again.
    pub(super) fn rank_begins(&mut self, job: JobId) {
        if let Some(of) = self.of_mut(job) {
            of.before = of.epoch;
        }
    }

    /// Applies a change to the counts of the job and of its epoch. What comes of a job that has
    /// ended counts for nobody.
    pub(super) fn count(&mut self, job: JobId, change: impl Fn(&mut Counts)) {
        if let Some(of) = self.of_mut(job) {
            change(&mut of.epoch);
            change(&mut of.total);
        }
    }

    /// A batch with these rows was delivered, or left out because it is void.
    pub(super) fn count_rows(&mut self, job: JobId, RowCounts { rows, skipped, substituted }: RowCounts) {
        self.count(job, |counts| {
            counts.delivered += rows;
            counts.skipped += skipped;
            counts.substituted += substituted;
        });
    }

    /// Losses of this many rows were reported, for the current epoch or the one before.
    pub(super) fn count_reported(&mut self, job: JobId, rows: u64, is_current: bool) {
        if let Some(of) = self.of_mut(job) {
            of.total.reported += rows;
            of.epoch.reported += if is_current { rows } else { 0 };
        }
    }

    /// The counts of the job's current epoch.
    pub(super) fn of_epoch(&self, job: JobId) -> Counts {
        self.of(job).map_or_else(Counts::default, |of| of.epoch)
    }

    /// Those since a rank began it last.
    pub(super) fn since_begun(&self, job: JobId) -> Counts {
        self.of(job).map_or_else(Counts::default, |of| of.epoch - of.before)
    }

    /// The counts of the job's life.
    pub(super) fn total(&self, job: JobId) -> Counts {
        self.of(job).map_or_else(Counts::default, |of| of.total)
    }

    /// Whether the job's trainer has ever reported a loss.
    pub(super) fn has_reports(&self, job: JobId) -> bool {
        self.of(job).is_some_and(|of| of.total.reported > 0)
    }

    /// All ranks of the job were given its epoch: a line is to tell of it.
    pub(super) fn epoch_is_given(&mut self, job: JobId) {
        self.of_mut(job).into_iter().for_each(|of| of.is_line_due = true);
    }

    /// Whether a line is to tell of the job's epoch.
    pub(super) fn is_line_due(&self, job: JobId) -> bool {
        self.of(job).is_some_and(|of| of.is_line_due)
    }

    /// The line was told.
    pub(super) fn has_told(&mut self, job: JobId) {
        self.of_mut(job).into_iter().for_each(|of| of.is_line_due = false);
    }

    /// The observer that gets the job's trace.
    pub(super) fn observer(&self, job: JobId) -> Option<SessionId> {
        self.of(job)?.observer
    }

    /// An observer has come, for the job of this name, or gone. Returns the jobs that have another
    /// one now.
    pub(super) fn observe(&mut self, observer: SessionId, name: Option<String>) -> Vec<(JobId, SessionId)> {
        self.observers.retain(|&(known, _)| known != observer);
        self.observers.extend(name.map(|name| (observer, name)));
        let mut begun = Vec::new();
        for at in 0..self.jobs.len() {
            let after = self.observer_of(&self.jobs[at].name);
            let of = &mut self.jobs[at];
            let before = std::mem::replace(&mut of.observer, after);
            begun.extend(after.filter(|_| after != before).map(|observer| (of.job, observer)));
        }
        begun
    }

    /// The jobs whose observers get a snapshot now: those that have had none lately.
    pub(super) fn take_due_snapshots(&mut self, now_ns: u64) -> Vec<(JobId, SessionId)> {
        let mut due = Vec::new();
        for of in self.jobs.iter_mut().filter(|of| now_ns >= of.next_snapshot_ns) {
            let Some(observer) = of.observer else { continue };
            of.next_snapshot_ns = now_ns.saturating_add(SNAPSHOT_EVERY_NS);
            due.push((of.job, observer));
        }
        due
    }

    /// Asserts that each access has been counted as one kind.
    pub(super) fn check_books(&self) {
        for JobFigures { name, epoch, total, .. } in &self.jobs {
            for counts in [epoch, total] {
                let Counts { accesses, hits, joined, prefetched, misses, exchanged, .. } = *counts;
                assert_eq!(accesses, hits + prefetched + misses + exchanged, "job {name}: accesses");
                assert!(joined <= hits, "job {name}: {joined} of {hits} hits are joined");
            }
        }
    }

    fn observer_of(&self, name: &str) -> Option<SessionId> {
        self.observers.iter().find(|(_, wanted)| wanted == name).map(|&(session, _)| session)
    }

    fn of(&self, job: JobId) -> Option<&JobFigures> {
        self.jobs.iter().find(|of| of.job == job)
    }

    fn of_mut(&mut self, job: JobId) -> Option<&mut JobFigures> {
        self.jobs.iter_mut().find(|of| of.job == job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_counts_for_itself_and_for_the_job() {
        let mut figures = Figures::default();
        figures.begin_job(3, "a");
        figures.count(3, |counts| counts.reads += 2);
        figures.rank_begins(3);
        figures.count(3, |counts| counts.reads += 5);
        assert_eq!(
            (figures.of_epoch(3).reads, figures.since_begun(3).reads, figures.total(3).reads),
            (7, 5, 7)
        );
        figures.begin_epoch(3);
        figures.count(3, |counts| counts.reads += 1);
        figures.count_reported(3, 4, true);
        figures.count_reported(3, 2, false);
        let (epoch, total) = (figures.of_epoch(3), figures.total(3));
        assert_eq!((epoch.reads, epoch.reported, total.reads, total.reported), (1, 4, 8, 6));
        // A read that ends after its job counts for nobody.
        figures.end_job(3);
        figures.count(3, |counts| counts.reads += 1);
        assert_eq!(figures.total(3), Counts::default());
    }

    #[test]
    #[should_panic(expected = "job a: accesses")]
    fn an_access_that_is_of_no_kind_is_a_defect() {
        let mut figures = Figures::default();
        figures.begin_job(0, "a");
        figures.count(0, |counts| counts.accesses += 1);
        figures.check_books();
    }

    #[test]
    fn an_observer_gets_the_job_of_its_name_whoever_comes_first() {
        let mut figures = Figures::default();
        assert!(figures.observe(10, Some("b".to_owned())).is_empty());
        figures.begin_job(0, "a");
        figures.begin_job(1, "b");
        assert_eq!((figures.observer(0), figures.observer(1)), (None, Some(10)));
        assert_eq!(figures.observe(11, Some("a".to_owned())), [(0, 11)]);
        // Two for one job: the second waits until the first has gone.
        assert!(figures.observe(12, Some("a".to_owned())).is_empty());
        assert_eq!(figures.observe(11, None), [(0, 12)]);
        assert_eq!(figures.take_due_snapshots(0), [(0, 12), (1, 10)]);
        assert!(figures.take_due_snapshots(SNAPSHOT_EVERY_NS - 1).is_empty());
        assert_eq!(figures.take_due_snapshots(SNAPSHOT_EVERY_NS).len(), 2);
    }
}
