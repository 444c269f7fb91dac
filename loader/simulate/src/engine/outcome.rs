//! What came of a training.

use std::ops::AddAssign;

use shade_core::Counts;

/// An epoch of a job, on all nodes together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EpochOutcome {
    pub(crate) counts: Counts,
    /// Different samples of the epoch.
    pub(crate) distinct: u64,
    /// Most deliveries of one sample.
    pub(crate) repeat_max: u32,
    /// Sum over the plans that were drawn, one on each node.
    pub(crate) position_entropy: f64,
    /// Number of these plans.
    pub(crate) plans: u32,
    pub(crate) time_ns: f64,
    /// Compute time of the steps without stragglers and waits.
    pub(crate) compute_ns: f64,
    /// What the slowest rank of each step computed longer.
    pub(crate) straggle_ns: f64,
    /// What the steps took longer than their slowest rank computed.
    pub(crate) stall_ns: f64,
    /// Its part before the first step: nothing is read ahead beyond the end of an epoch.
    pub(crate) boundary_ns: f64,
    /// The mean of the ranks' waits for their own batches.
    pub(crate) rank_wait_ns: f64,
    /// Strata that changed nodes before it.
    pub(crate) strata_moved: u32,
}

impl AddAssign for EpochOutcome {
    fn add_assign(&mut self, other: Self) {
        self.counts = self.counts + other.counts;
        self.distinct += other.distinct;
        self.repeat_max = self.repeat_max.max(other.repeat_max);
        self.position_entropy += other.position_entropy;
        self.plans += other.plans;
        self.time_ns += other.time_ns;
        self.compute_ns += other.compute_ns;
        self.straggle_ns += other.straggle_ns;
        self.stall_ns += other.stall_ns;
        self.boundary_ns += other.boundary_ns;
        self.rank_wait_ns += other.rank_wait_ns;
        self.strata_moved += other.strata_moved;
    }
}

impl EpochOutcome {
    /// Several epochs as one.
    pub(crate) fn sum(epochs: impl IntoIterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        epochs.into_iter().for_each(|epoch| sum += epoch);
        sum
    }

    /// Different samples of an epoch over its accesses, 0 to 1.
    pub(crate) fn distinct_share(&self) -> f64 {
        self.over_accesses(self.distinct)
    }

    /// Accesses served by the nodes' tiers.
    pub(crate) fn tier_ratio(&self) -> f64 {
        self.over_accesses(self.counts.tier_hits)
    }

    /// A part of the accesses over all of them.
    pub(crate) fn over_accesses(&self, part: u64) -> f64 {
        part as f64 / self.counts.accesses.max(1) as f64
    }

    /// Records read.
    pub(crate) fn records(&self) -> f64 {
        (self.counts.reads + self.counts.coalesced) as f64
    }

    /// What training waits for data, over its compute time.
    pub(crate) fn stall_share(&self) -> f64 {
        self.stall_ns / self.compute_ns
    }
}

/// One training of each job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Played {
    /// By job: its epochs.
    pub(crate) jobs: Vec<Vec<EpochOutcome>>,
    /// Epochs before this one do not count.
    pub(crate) skipped: usize,
    /// Samples delivered at least once, in any epoch, over all samples: the mean of the jobs.
    /// `None` if that is not known.
    pub(crate) ever_seen_share: Option<f64>,
    /// Mean depth of the nodes' reads, and the worst 99th percentile of their latencies,
    /// microseconds; `None` where nodes do not look for their depth.
    pub(crate) reads: Option<(f64, f64)>,
}

impl Played {
    /// The epochs of each job that count, as one.
    pub(crate) fn by_job(&self) -> Vec<EpochOutcome> {
        let counted =
            |epochs: &Vec<EpochOutcome>| EpochOutcome::sum(epochs.iter().skip(self.skipped).copied());
        self.jobs.iter().map(counted).collect()
    }

    /// The epochs of all jobs that count, as one.
    pub(crate) fn all(&self) -> EpochOutcome {
        EpochOutcome::sum(self.by_job())
    }
}

/// One training, with the time of one node alone.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    pub(crate) all: Played,
    /// `None` if that is not asked for or cannot be told.
    pub(crate) alone: Option<Played>,
}

impl Trained {
    /// This and a job that trained apart from it.
    pub(crate) fn and(mut self, other: Self) -> Self {
        let (here, there) = (self.all.jobs.len() as f64, other.all.jobs.len() as f64);
        let mean = |(a, b): (f64, f64)| (a * here + b * there) / (here + there);
        self.all.ever_seen_share = self.all.ever_seen_share.zip(other.all.ever_seen_share).map(mean);
        self.all.jobs.extend(other.all.jobs);
        // Each has a node of its own, with a store of its own.
        self.alone = self.alone.zip(other.alone).map(|(mut all, alone)| {
            all.jobs.extend(alone.jobs);
            all
        });
        self
    }
}
