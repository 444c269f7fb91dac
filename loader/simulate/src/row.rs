//! One row of the result: a policy at a capacity, over all trainings.

use std::time::Instant;

use serde::Serialize;
use shade_core::Counts;

use crate::engine::{EpochOutcome, Played, Surroundings, Trained, Training};
use crate::error::SimulateError;
use crate::interval::{half_width_95, mean};
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// The result of one policy at one capacity, of all nodes and jobs together: means over the seeds,
/// of the epochs that count. Counts are rounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Row {
    /// The policy's name, or the preset's.
    pub(super) policy: String,
    /// The sampler of its plans; `None` for a trace, as `order`.
    pub(super) sampler: Option<&'static str>,
    /// The order of its plans.
    pub(super) order: Option<&'static str>,
    /// The capacity of all caches together, as given.
    pub(super) cache: String,
    /// Their capacity in bytes; in samples where sizes are not known.
    pub(super) capacity: u64,
    /// The capacity over what all samples take.
    pub(super) capacity_share: f64,
    /// Whether the jobs share one cache. Else each has its own part. `None` with one job.
    pub(super) is_shared: Option<bool>,
    /// Samples that were asked for.
    pub(super) accesses: u64,
    /// Accesses served from the cache.
    pub(super) hits: u64,
    /// Accesses that needed a read.
    pub(super) misses: u64,
    /// Accesses served by a prefetched record: its first use; 0 without a store.
    pub(super) prefetched: u64,
    /// Accesses that were none of these: a resident sample stood in for a missing one (iCACHE).
    pub(super) exchanged: u64,
    /// Hits over accesses.
    pub(super) hit_ratio: f64,
    /// Half of its 95 % interval; with more than one seed, as the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio_ci95: Option<f64>,
    /// Accesses served by the nodes' tiers, over all accesses; 0 without tiers.
    pub(super) tier_ratio: f64,
    /// All that neither cache nor tier served, of prefetched records the first use.
    pub(super) store_ratio: f64,
    /// Records stored in tiers.
    pub(super) tier_writes: u64,
    /// Records evicted.
    pub(super) evictions: u64,
    /// Records read and not admitted.
    pub(super) bypasses: u64,
    /// Reads of the store. Without --coalesce each brings one record.
    pub(super) reads: u64,
    /// `None` where sizes are not known.
    pub(super) bytes_read: Option<u64>,
    /// Bytes between records that were read together.
    pub(super) bytes_between: u64,
    /// Records read in an epoch, by all jobs, over the samples of the dataset.
    pub(super) datasets_per_epoch: f64,
    /// Half of the 95 % interval of `datasets_per_epoch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) datasets_per_epoch_ci95: Option<f64>,
    /// Rows decoded over rows delivered: the others are copied from another job of the group.
    pub(super) decoded_share: f64,
    /// Different samples of an epoch over its accesses: D/N.
    pub(super) distinct_share: f64,
    /// Samples ever delivered over all samples; `None` with one plan for several nodes.
    pub(super) ever_seen_share: Option<f64>,
    /// Most deliveries of one sample in one epoch, of any training.
    pub(super) repeat_max: u32,
    /// Epochs with `rep` above 1 whose plan had only cached samples although there are others.
    pub(super) absorbing_epochs: u64,
    /// Mean randomness of the epochs' orders: 1 as a shuffle, 0 as in storage. `None` for a trace.
    pub(super) position_entropy: Option<f64>,
    /// Seconds from the first step to the end of the last, of all jobs; `None` if nothing takes
    /// time, as the others below.
    pub(super) time_s: Option<f64>,
    /// Time of the steps without waits and stragglers.
    pub(super) compute_s: Option<f64>,
    /// Seconds that training waits for data.
    pub(super) stall_s: Option<f64>,
    /// Stall over compute time.
    pub(super) stall_share: Option<f64>,
    /// Half of the 95 % interval of `stall_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall_share_ci95: Option<f64>,
    /// Stall over compute time of each job; `None` with one job.
    pub(super) stall_shares: Option<Vec<f64>>,
    /// Jain's index of these: 1 if all are equal.
    pub(super) jain: Option<f64>,
    /// What a rank waits for its own batches, over compute time: the mean of all ranks. Training
    /// waits for the slowest.
    pub(super) rank_stall_share: Option<f64>,
    /// What the slowest rank of each step computes longer, over compute time.
    pub(super) straggle_share: Option<f64>,
    /// Seconds of the stall before an epoch's first step.
    pub(super) boundary_s: Option<f64>,
    /// Time of one node alone, with its part of dataset, cache and store, over the time of all.
    /// `None` without --nodes.
    pub(super) efficiency: Option<f64>,
    /// Half of the 95 % interval of `efficiency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) efficiency_ci95: Option<f64>,
    /// The efficiency over that of the same trainers if they never waited for data. So stragglers
    /// have no part in it.
    pub(super) loader_efficiency: Option<f64>,
    /// Half of the 95 % interval of `loader_efficiency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loader_efficiency_ci95: Option<f64>,
    /// Reads in flight at the end, the mean of the nodes.
    pub(super) depth: Option<f64>,
    /// 99th percentile of the latencies of reads, milliseconds, of the node where it is longest.
    pub(super) read_p99_ms: Option<f64>,
    /// With --nodes: all epochs, also those that do not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) by_epoch: Vec<EpochRow>,
    /// Time to simulate an access, with plans and losses.
    pub(super) ns_per_access: f64,
}

/// One epoch of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EpochRow {
    /// Its number.
    pub(super) epoch: u32,
    /// Hits over accesses.
    pub(super) hit_ratio: f64,
    /// Accesses served by the nodes' tiers, over all accesses.
    pub(super) tier_ratio: f64,
    /// Records read over the samples of the dataset.
    pub(super) datasets: f64,
    /// Seconds from its first step to the end of its last.
    pub(super) time_s: f64,
    /// Seconds of the stall before its first step.
    pub(super) boundary_s: f64,
    /// Strata that changed nodes before it.
    pub(super) strata_moved: u32,
}

/// What is simulated in each row.
pub(super) struct Simulation<'a> {
    pub(super) workload: &'a Workload,
    pub(super) around: &'a Surroundings<'a>,
    pub(super) watch: &'a Watch,
}

impl Simulation<'_> {
    /// Plays all trainings with a system. Jobs share one cache, or each has a part of `capacity`.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn play(
        &self,
        system: &System,
        capacity: u64,
        is_shared: bool,
    ) -> Result<Vec<Trained>, SimulateError> {
        let jobs = self.around.jobs();
        let play = |capacity, nth, jobs| {
            Training::new(self.workload, system, self.around, capacity, nth, jobs).play(self.watch)
        };
        let trained = |nth| {
            if is_shared {
                return play(capacity, nth, 0..jobs);
            }
            let apart = |job| play(capacity / jobs as u64, nth, job..job + 1);
            (1..jobs).try_fold(apart(0)?, |all, job| Ok(all.and(apart(job)?)))
        };
        (0..self.workload.seeds()).map(trained).collect()
    }

    /// The rows of a system at a capacity, whose text is `cache`. With several jobs there are two:
    /// over one cache, and over caches of their own.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn rows(
        &self,
        system: &System,
        cache: &str,
        capacity: u64,
    ) -> Result<Vec<Row>, SimulateError> {
        let ways: &[bool] = if self.around.jobs.is_some() { &[true, false] } else { &[true] };
        let row = |&is_shared: &bool| {
            let started = Instant::now();
            let trainings = self.play(system, capacity, is_shared)?;
            let is_shared = self.around.jobs.is_some().then_some(is_shared);
            let row = self.row(system, cache, capacity, &trainings);
            let played = self.workload.accesses_each() * trainings.len() as u64 * self.around.jobs() as u64;
            let ns_per_access = started.elapsed().as_secs_f64() * 1e9 / played.max(1) as f64;
            Ok::<_, SimulateError>(Row { is_shared, ns_per_access, ..row })
        };
        ways.iter().map(row).collect()
    }

    /// Whether there are times.
    fn has_time(&self) -> bool {
        self.around.nodes.map_or(self.workload.store.is_some(), |nodes| !nodes.is_global)
    }

    fn row(&self, system: &System, cache: &str, capacity: u64, trainings: &[Trained]) -> Row {
        let Self { workload, around, .. } = self;
        let sums: Vec<EpochOutcome> = trainings.iter().map(|training| training.all.all()).collect();
        let is_training = matches!(workload.accesses, Accesses::Training { .. });
        let drawn = sums.iter().filter(|sum| sum.plans > 0);
        let entropies: Vec<f64> = drawn.map(|sum| sum.position_entropy / f64::from(sum.plans)).collect();
        let seen: Vec<f64> = trainings.iter().filter_map(|training| training.all.ever_seen_share).collect();
        let by_epoch = around.nodes.filter(|nodes| !nodes.is_global).map_or(0, |_| workload.epochs());
        let samples = f64::from(workload.dataset.samples);
        Row {
            policy: system.name.to_owned(),
            sampler: is_training.then_some(system.sampler.as_str()),
            order: is_training.then_some(system.order.as_str()),
            cache: cache.to_owned(),
            capacity,
            capacity_share: capacity as f64 / workload.total().max(1) as f64,
            ever_seen_share: mean_of(&seen),
            position_entropy: mean_of(&entropies),
            by_epoch: (0..by_epoch).map(|epoch| EpochRow::new(epoch, samples, trainings)).collect(),
            ..self.with_times(trainings, &sums, self.with_counts(&sums))
        }
    }

    /// A row's counts and ratios.
    fn with_counts(&self, sums: &[EpochOutcome]) -> Row {
        let Self { workload, .. } = self;
        let each = |of: fn(&EpochOutcome) -> f64| -> Vec<f64> { sums.iter().map(of).collect() };
        let average = |of: fn(&EpochOutcome) -> f64| mean(sums.iter().map(of));
        let count = |of: fn(&Counts) -> u64| {
            let seeds = sums.len().max(1) as u64;
            (sums.iter().map(|sum| of(&sum.counts)).sum::<u64>() + seeds / 2) / seeds
        };
        let per_epoch =
            f64::from(workload.epochs() - workload.skip_epochs) * f64::from(workload.dataset.samples);
        let datasets: Vec<f64> = sums.iter().map(|sum| sum.records() / per_epoch).collect();
        let hit_ratios = each(|sum| sum.over_accesses(sum.counts.hits));
        let (accesses, hits) = (count(|counts| counts.accesses), count(|counts| counts.hits));
        let (exchanged, prefetched) = (count(|counts| counts.exchanged), count(|counts| counts.prefetched));
        Row {
            accesses,
            hits,
            misses: accesses.saturating_sub(hits + exchanged + prefetched),
            prefetched,
            exchanged,
            hit_ratio: mean(hit_ratios.iter().copied()),
            hit_ratio_ci95: half_width_95(&hit_ratios),
            tier_ratio: average(EpochOutcome::tier_ratio),
            store_ratio: average(|sum| 1.0 - sum.over_accesses(sum.counts.hits) - sum.tier_ratio()),
            tier_writes: count(|counts| counts.tier_writes),
            evictions: count(|counts| counts.evicted),
            bypasses: count(|counts| counts.bypassed),
            reads: count(|counts| counts.reads),
            bytes_read: workload.dataset.sizes.are_known().then(|| count(|counts| counts.bytes_read)),
            bytes_between: count(|counts| counts.bytes_between),
            datasets_per_epoch: mean(datasets.iter().copied()),
            datasets_per_epoch_ci95: half_width_95(&datasets),
            decoded_share: average(|sum| 1.0 - sum.over_accesses(sum.counts.copied)),
            distinct_share: average(EpochOutcome::distinct_share),
            repeat_max: sums.iter().map(|sum| sum.repeat_max).max().unwrap_or(0),
            absorbing_epochs: count(|counts| counts.absorbing_epochs),
            ..Row::default()
        }
    }

    /// A row with its times, where there are any.
    fn with_times(&self, trainings: &[Trained], sums: &[EpochOutcome], row: Row) -> Row {
        if !self.has_time() {
            return row;
        }
        let average = |of: fn(&EpochOutcome) -> f64| Some(mean(sums.iter().map(of)));
        let stalls: Vec<f64> = sums.iter().map(EpochOutcome::stall_share).collect();
        let efficiencies = |of: fn(&EpochOutcome) -> f64| -> Vec<f64> {
            let alone =
                |training: &Trained| Some(of(&training.alone.as_ref()?.all()) / of(&training.all.all()));
            trainings.iter().filter_map(alone).collect()
        };
        let efficiency = efficiencies(|sum| sum.time_ns);
        let loader_efficiency = efficiencies(|sum| sum.time_ns / (sum.compute_ns + sum.straggle_ns));
        let (depths, latencies): (Vec<f64>, Vec<f64>) =
            trainings.iter().filter_map(|training| training.all.reads).unzip();
        let stall_shares = self.around.jobs.as_ref().map(|_| stall_shares(trainings));
        let epochs = f64::from(self.workload.epochs() - self.workload.skip_epochs);
        Row {
            time_s: average(|sum| sum.time_ns / 1e9),
            compute_s: average(|sum| sum.compute_ns / 1e9),
            stall_s: average(|sum| sum.stall_ns / 1e9),
            stall_share: mean_of(&stalls),
            stall_share_ci95: half_width_95(&stalls),
            jain: stall_shares.as_deref().map(jain),
            stall_shares,
            rank_stall_share: average(|sum| sum.rank_wait_ns / sum.compute_ns),
            straggle_share: average(|sum| sum.straggle_ns / sum.compute_ns),
            boundary_s: average(|sum| sum.boundary_ns / 1e9).map(|all_s| all_s / epochs),
            efficiency: mean_of(&efficiency),
            efficiency_ci95: half_width_95(&efficiency),
            loader_efficiency: mean_of(&loader_efficiency),
            loader_efficiency_ci95: half_width_95(&loader_efficiency),
            depth: mean_of(&depths),
            read_p99_ms: mean_of(&latencies).map(|p99_us| p99_us / 1e3),
            ..row
        }
    }
}

/// The mean; `None` without values.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values.iter().copied()))
}

impl EpochRow {
    fn new(epoch: u32, samples: f64, trainings: &[Trained]) -> Self {
        let of_epoch = |all: &Played| EpochOutcome::sum(all.jobs.iter().map(|epochs| epochs[epoch as usize]));
        let sums: Vec<EpochOutcome> = trainings.iter().map(|training| of_epoch(&training.all)).collect();
        let average = |of: fn(&EpochOutcome) -> f64| mean(sums.iter().map(of));
        Self {
            epoch,
            hit_ratio: average(|sum| sum.over_accesses(sum.counts.hits)),
            tier_ratio: average(EpochOutcome::tier_ratio),
            datasets: average(EpochOutcome::records) / samples,
            time_s: average(|sum| sum.time_ns / 1e9),
            boundary_s: average(|sum| sum.boundary_ns / 1e9),
            strata_moved: sums.iter().map(|sum| sum.strata_moved).max().unwrap_or(0),
        }
    }
}

/// Stall over compute time of each job.
fn stall_shares(trainings: &[Trained]) -> Vec<f64> {
    let by_job: Vec<Vec<EpochOutcome>> = trainings.iter().map(|training| training.all.by_job()).collect();
    let jobs = by_job.first().map_or(0, Vec::len);
    (0..jobs).map(|job| mean(by_job.iter().map(|jobs| jobs[job].stall_share()))).collect()
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything. Without any stall
/// nobody is worse off.
fn jain(stalls: &[f64]) -> f64 {
    let (sum, squares) = stalls.iter().fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
    if squares > 0.0 { sum * sum / (stalls.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_1_for_equal_stalls_and_1_over_n_for_one_victim() {
        assert_eq!([jain(&[0.2; 4]), jain(&[0.0, 0.0]), jain(&[0.4, 0.0, 0.0, 0.0])], [1.0, 1.0, 0.25]);
    }
}
