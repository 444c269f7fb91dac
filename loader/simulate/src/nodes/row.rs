//! The result of several nodes with one policy at one capacity.

use serde::Serialize;

use crate::interval::{half_width_95, mean};
use crate::nodes::cluster::EpochOutcome;
use crate::nodes::training::Played;

/// The result of one policy at one capacity: means over the seeds, of the epochs that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in super::super) struct NodesRow {
    /// The policy's name, or the preset's.
    pub(in super::super) policy: String,
    /// The capacity of all caches together, as given.
    pub(in super::super) cache: String,
    /// The same in bytes; in samples where sizes are not known.
    pub(in super::super) capacity: u64,
    /// Hits of all nodes in their own caches, over their accesses.
    pub(in super::super) hit_ratio: f64,
    /// Half of its 95 % interval; with more than one seed. So are the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) hit_ratio_ci95: Option<f64>,
    /// Accesses served by the nodes' tiers, over all accesses; 0 without tiers.
    pub(in super::super) tier_ratio: f64,
    /// All others: the store served them, of prefetched records the first use.
    pub(in super::super) store_ratio: f64,
    /// Records stored in tiers.
    pub(in super::super) tier_writes: f64,
    /// Accesses served by a prefetched record, its first use, over all accesses; 0 without a store.
    pub(in super::super) prefetched_share: f64,
    /// Records that all nodes read in an epoch, over the samples of the dataset.
    pub(in super::super) datasets_per_epoch: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) datasets_per_epoch_ci95: Option<f64>,
    /// Reads of the store.
    pub(in super::super) reads: f64,
    /// Bytes from the store, with those between records that are read together; `None` where sizes
    /// are not known.
    pub(in super::super) bytes_read: Option<f64>,
    /// Different samples of an epoch over its accesses: D/N.
    pub(in super::super) distinct_share: f64,
    /// Seconds from the first step to the end of the last; `None` if nothing takes time, as the
    /// others below.
    pub(in super::super) time_s: Option<f64>,
    /// Time of the steps without waits and stragglers.
    pub(in super::super) compute_s: Option<f64>,
    /// What training waits for data, over its compute time.
    pub(in super::super) stall_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) stall_share_ci95: Option<f64>,
    /// What a rank waits for its own batches, over compute time: the mean of all ranks. Training
    /// waits for the slowest.
    pub(in super::super) rank_stall_share: Option<f64>,
    /// What the slowest rank of each step computes longer, over compute time.
    pub(in super::super) straggle_share: Option<f64>,
    /// Seconds of the stall before an epoch's first step.
    pub(in super::super) boundary_s: Option<f64>,
    /// Time of one node alone, with its part of dataset, cache and store, over the time of all.
    pub(in super::super) efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) efficiency_ci95: Option<f64>,
    /// The efficiency over that of the same trainers if they never waited for data. So stragglers
    /// have no part in it.
    pub(in super::super) loader_efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) loader_efficiency_ci95: Option<f64>,
    /// Reads in flight at the end, the mean of the nodes.
    pub(in super::super) depth: Option<f64>,
    /// 99th percentile of the latencies of reads, milliseconds, of the node where it is longest.
    pub(in super::super) read_p99_ms: Option<f64>,
    /// All epochs, also those that do not count.
    pub(in super::super) by_epoch: Vec<EpochRow>,
}

/// One epoch of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in super::super) struct EpochRow {
    pub(in super::super) epoch: u32,
    pub(in super::super) hit_ratio: f64,
    pub(in super::super) tier_ratio: f64,
    /// Records read over the samples of the dataset.
    pub(in super::super) datasets: f64,
    pub(in super::super) time_s: f64,
    pub(in super::super) boundary_s: f64,
    /// Strata that changed nodes before it.
    pub(in super::super) strata_moved: u32,
}

/// One training, with the time of one node alone.
pub(super) struct Trained {
    pub(super) all: Played,
    pub(super) alone: Option<Played>,
}

/// What all trainings of a row have in common.
pub(super) struct Head {
    pub(super) policy: String,
    pub(super) cache: String,
    pub(super) capacity: u64,
    pub(super) samples: u32,
    pub(super) sizes_known: bool,
    /// Whether there are figures of each epoch, and times.
    pub(super) has_time: bool,
    pub(super) epochs: u32,
    /// Epochs before this one do not count.
    pub(super) skip_epochs: u32,
}

impl NodesRow {
    pub(super) fn new(head: Head, trainings: &[Trained]) -> Self {
        // Without figures of each epoch there are only those of the epochs that count.
        let skipped = if head.has_time { head.skip_epochs as usize } else { 0 };
        let counted = |played: &Played| sum(played.epochs.iter().skip(skipped));
        let sums: Vec<EpochOutcome> = trainings.iter().map(|training| counted(&training.all)).collect();
        let each = |of: fn(&EpochOutcome) -> f64| -> Vec<f64> { sums.iter().map(of).collect() };
        let average = |of: fn(&EpochOutcome) -> f64| mean(each(of).into_iter());
        let timed = |of: fn(&EpochOutcome) -> f64| head.has_time.then(|| average(of));
        let epochs = f64::from(head.epochs - head.skip_epochs);
        let listed = if head.has_time { head.epochs } else { 0 };
        let hit_ratios = each(hit_ratio);
        let datasets: Vec<f64> =
            sums.iter().map(|sum| records(sum) / epochs / f64::from(head.samples)).collect();
        let stalls = each(|sum| sum.stall_ns / sum.compute_ns);
        let efficiencies = |of: fn(&EpochOutcome) -> f64| -> Vec<f64> {
            let efficiency = |training: &Trained| {
                Some(of(&counted(training.alone.as_ref()?)) / of(&counted(&training.all)))
            };
            trainings.iter().filter_map(efficiency).collect()
        };
        let average_of = |values: &[f64]| (!values.is_empty()).then(|| mean(values.iter().copied()));
        let efficiency = efficiencies(|sum| sum.time_ns);
        let loader_efficiency = efficiencies(|sum| sum.time_ns / (sum.compute_ns + sum.straggle_ns));
        let reads: Vec<(f64, f64)> = trainings.iter().filter_map(|training| training.all.reads).collect();
        let of_reads = |of: fn(&(f64, f64)) -> f64| (!reads.is_empty()).then(|| mean(reads.iter().map(of)));
        Self {
            policy: head.policy,
            cache: head.cache,
            capacity: head.capacity,
            hit_ratio: mean(hit_ratios.iter().copied()),
            hit_ratio_ci95: half_width_95(&hit_ratios),
            tier_ratio: average(tier_ratio),
            store_ratio: average(|sum| 1.0 - hit_ratio(sum) - tier_ratio(sum)),
            tier_writes: average(|sum| sum.counts.tier_writes as f64),
            prefetched_share: average(|sum| sum.counts.prefetched as f64 / accesses(sum)),
            datasets_per_epoch: mean(datasets.iter().copied()),
            datasets_per_epoch_ci95: half_width_95(&datasets),
            reads: average(|sum| sum.counts.reads as f64),
            bytes_read: head
                .sizes_known
                .then(|| average(|sum| (sum.counts.bytes_read + sum.counts.bytes_between) as f64)),
            distinct_share: average(|sum| sum.distinct as f64 / accesses(sum)),
            time_s: timed(|sum| sum.time_ns / 1e9),
            compute_s: timed(|sum| sum.compute_ns / 1e9),
            stall_share: head.has_time.then(|| mean(stalls.iter().copied())),
            stall_share_ci95: half_width_95(&stalls).filter(|_| head.has_time),
            rank_stall_share: timed(|sum| sum.rank_wait_ns / sum.compute_ns),
            straggle_share: timed(|sum| sum.straggle_ns / sum.compute_ns),
            boundary_s: timed(|sum| sum.boundary_ns / 1e9).map(|all_s| all_s / epochs),
            efficiency: average_of(&efficiency),
            efficiency_ci95: half_width_95(&efficiency),
            loader_efficiency: average_of(&loader_efficiency),
            loader_efficiency_ci95: half_width_95(&loader_efficiency),
            depth: of_reads(|reads| reads.0),
            read_p99_ms: of_reads(|reads| reads.1 / 1e3),
            by_epoch: (0..listed).map(|epoch| EpochRow::new(epoch, head.samples, trainings)).collect(),
        }
    }
}

impl EpochRow {
    fn new(epoch: u32, samples: u32, trainings: &[Trained]) -> Self {
        let of_epoch = || trainings.iter().filter_map(|training| training.all.epochs.get(epoch as usize));
        let average = |of: fn(&EpochOutcome) -> f64| mean(of_epoch().map(of).collect::<Vec<_>>().into_iter());
        Self {
            epoch,
            hit_ratio: average(hit_ratio),
            tier_ratio: average(tier_ratio),
            datasets: average(records) / f64::from(samples),
            time_s: average(|epoch| epoch.time_ns / 1e9),
            boundary_s: average(|epoch| epoch.boundary_ns / 1e9),
            strata_moved: of_epoch().map(|epoch| epoch.strata_moved).max().unwrap_or(0),
        }
    }
}

/// Several epochs as one.
fn sum<'e>(epochs: impl Iterator<Item = &'e EpochOutcome>) -> EpochOutcome {
    let mut sum = EpochOutcome::default();
    for epoch in epochs {
        sum.count(&epoch.counts);
        sum.distinct += epoch.distinct;
        sum.time_ns += epoch.time_ns;
        sum.compute_ns += epoch.compute_ns;
        sum.straggle_ns += epoch.straggle_ns;
        sum.stall_ns += epoch.stall_ns;
        sum.boundary_ns += epoch.boundary_ns;
        sum.rank_wait_ns += epoch.rank_wait_ns;
        sum.strata_moved += epoch.strata_moved;
    }
    sum
}

fn accesses(epoch: &EpochOutcome) -> f64 {
    epoch.counts.accesses.max(1) as f64
}

fn hit_ratio(epoch: &EpochOutcome) -> f64 {
    epoch.counts.hits as f64 / accesses(epoch)
}

fn tier_ratio(epoch: &EpochOutcome) -> f64 {
    epoch.counts.tier_hits as f64 / accesses(epoch)
}

/// Records read.
fn records(epoch: &EpochOutcome) -> f64 {
    (epoch.counts.reads + epoch.counts.coalesced) as f64
}
