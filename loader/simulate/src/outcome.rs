//! The outcome of a simulated training.

use std::time::Duration;

use shade_core::{Counts, Stats};

use crate::script::Repeats;

/// The outcome of a training, without the epochs that do not count.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Counts of each job.
    jobs: Vec<Counts>,
    /// Their counts before the first epoch that counts.
    skipped: Vec<Counts>,
    /// Different samples of an epoch, summed over epochs.
    distinct: u64,
    /// Samples delivered at least once, in any epoch, over all samples.
    pub(super) ever_seen_share: f64,
    /// Most deliveries of one sample in one epoch.
    pub(super) repeat_max: u32,
    /// Mean over the epochs' plans; `None` if none was drawn.
    pub(super) position_entropy: Option<f64>,
    /// Time that the trainer waited; `None` without a store.
    pub(super) stall: Option<Duration>,
}

impl Outcome {
    /// One of the counts, over all jobs.
    pub(super) fn count(&self, of: fn(&Counts) -> u64) -> u64 {
        let sum = |counts: &[Counts]| counts.iter().map(of).sum::<u64>();
        sum(&self.jobs) - sum(&self.skipped)
    }

    /// The counts that several nodes add up, over all jobs.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            accesses: self.count(|counts| counts.accesses),
            hits: self.count(|counts| counts.hits),
            prefetched: self.count(|counts| counts.prefetched),
            exchanged: self.count(|counts| counts.exchanged),
            reads: self.count(|counts| counts.reads),
            coalesced: self.count(|counts| counts.coalesced),
            bytes_read: self.count(|counts| counts.bytes_read),
            bytes_between: self.count(|counts| counts.bytes_between),
            ..Counts::default()
        }
    }

    /// Hits over accesses.
    pub(super) fn hit_ratio(&self) -> f64 {
        self.over_accesses(self.count(|counts| counts.hits))
    }

    /// Different samples of an epoch over its accesses, 0 to 1.
    pub(super) fn distinct_share(&self) -> f64 {
        self.over_accesses(self.distinct)
    }

    fn over_accesses(&self, part: u64) -> f64 {
        part as f64 / self.count(|counts| counts.accesses).max(1) as f64
    }
}

/// Adds up an outcome.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Counts of jobs that are over.
    jobs: Vec<Counts>,
    /// Counts and stall before the first epoch that counts.
    skipped: (Vec<Counts>, Duration),
    distinct: u64,
    repeat_max: u32,
    /// Sum over plans, and their number.
    position_entropy: (f64, u32),
}

impl Tally {
    /// Nothing until now counts.
    pub(super) fn skip(&mut self, stats: &Stats, stall: Duration) {
        self.skipped = (self.with_current(stats), stall);
        (self.distinct, self.repeat_max, self.position_entropy) = (0, 0, (0.0, 0));
    }

    /// An epoch has these repeats.
    pub(super) fn epoch(&mut self, repeats: Repeats) {
        self.distinct += u64::from(repeats.distinct);
        self.repeat_max = self.repeat_max.max(repeats.most);
    }

    /// Its plan was drawn.
    pub(super) fn drawn(&mut self, position_entropy: f64) {
        self.position_entropy.0 += position_entropy;
        self.position_entropy.1 += 1;
    }

    /// The job is over, and another one begins.
    pub(super) fn end_job(&mut self, stats: &Stats) {
        self.jobs.push(stats.total.counts.counts);
    }

    /// Counts of all jobs, with the current one.
    fn with_current(&self, stats: &Stats) -> Vec<Counts> {
        let mut jobs = self.jobs.clone();
        jobs.push(stats.total.counts.counts);
        jobs
    }

    /// The outcome; `stall` is the trainer's from the beginning.
    pub(super) fn outcome(&self, stats: &Stats, stall: Option<Duration>) -> Outcome {
        let (entropy, plans) = self.position_entropy;
        Outcome {
            jobs: self.with_current(stats),
            skipped: self.skipped.0.clone(),
            distinct: self.distinct,
            ever_seen_share: stats.total.ever_seen_share,
            repeat_max: self.repeat_max,
            position_entropy: (plans > 0).then(|| entropy / f64::from(plans)),
            stall: stall.map(|stall| stall.saturating_sub(self.skipped.1)),
        }
    }
}
