//! What a simulated training came to.

use std::ops::{Add, Sub};
use std::time::Duration;

use shade_core::Stats;

/// Counts since the first epoch that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Samples that were asked for.
    pub(super) accesses: u64,
    /// Those that were in the cache, or on their way for another row.
    pub(super) hits: u64,
    /// Those that were in the cache because they had been prefetched: the first use of each.
    pub(super) prefetched: u64,
    /// Those that were in the cache and came in exchange for one that was not (iCACHE); they are no
    /// hits.
    pub(super) exchanged: u64,
    /// Epochs whose plan had only residents, though there are other samples.
    pub(super) absorbing_epochs: u64,
    /// Samples that left the cache for others.
    pub(super) evictions: u64,
    /// Reads that the cache did not take.
    pub(super) bypasses: u64,
    /// Stored bytes of all reads; samples where sizes are not known.
    pub(super) bytes_read: u64,
}

impl From<shade_core::Counts> for Counts {
    fn from(of: shade_core::Counts) -> Self {
        Self {
            accesses: of.accesses,
            hits: of.hits,
            prefetched: of.prefetched,
            exchanged: of.exchanged,
            absorbing_epochs: of.absorbing_epochs,
            evictions: of.evicted,
            bypasses: of.bypassed,
            bytes_read: of.bytes_read,
        }
    }
}

impl Counts {
    fn with(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            accesses: both(self.accesses, other.accesses),
            hits: both(self.hits, other.hits),
            prefetched: both(self.prefetched, other.prefetched),
            exchanged: both(self.exchanged, other.exchanged),
            absorbing_epochs: both(self.absorbing_epochs, other.absorbing_epochs),
            evictions: both(self.evictions, other.evictions),
            bypasses: both(self.bypasses, other.bypasses),
            bytes_read: both(self.bytes_read, other.bytes_read),
        }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }
}

/// How often samples come in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    /// Different samples.
    pub(super) distinct: u32,
    /// Accesses of the sample that comes most often.
    pub(super) most: u32,
}

/// What a training came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// Different samples of an epoch over its accesses, 0 to 1.
    pub(super) distinct_share: f64,
    /// Samples delivered at least once, in any epoch, over all samples.
    pub(super) ever_seen_share: f64,
    /// Most deliveries of one sample in one epoch.
    pub(super) repeat_max: u32,
    /// Mean over the epochs' plans; `None` of what was not drawn.
    pub(super) position_entropy: Option<f64>,
    /// What the trainer waited; `None` without a store.
    pub(super) stall: Option<Duration>,
}

/// Adds up an outcome.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Counts of jobs that are over.
    before: Counts,
    /// What does not count.
    skipped: (Counts, Duration),
    distinct: u64,
    repeat_max: u32,
    /// Sum over plans, and their number.
    position_entropy: (f64, u32),
}

impl Tally {
    /// Whatever was until now does not count.
    pub(super) fn skip(&mut self, stats: &Stats, stall: Duration) {
        self.skipped = (self.before + stats.total.counts.counts.into(), stall);
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
        self.before = self.before + stats.total.counts.counts.into();
    }

    /// What it came to; `stall` is the trainer's from the beginning.
    pub(super) fn outcome(&self, stats: &Stats, stall: Option<Duration>) -> Outcome {
        let counts = self.before + stats.total.counts.counts.into() - self.skipped.0;
        let (entropy, plans) = self.position_entropy;
        Outcome {
            counts,
            distinct_share: self.distinct as f64 / counts.accesses.max(1) as f64,
            ever_seen_share: stats.total.ever_seen_share,
            repeat_max: self.repeat_max,
            position_entropy: (plans > 0).then(|| entropy / f64::from(plans)),
            stall: stall.map(|stall| stall.saturating_sub(self.skipped.1)),
        }
    }
}
