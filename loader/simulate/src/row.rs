//! One row of the result: a policy at a capacity, over all trainings.

use std::time::{Duration, Instant};

use serde::Serialize;
use shade_core::Counts;

use crate::error::SimulateError;
use crate::interval::{half_width_95, mean};
use crate::outcome::Outcome;
use crate::play::play;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// The result of one policy at one capacity. Counts are means over the seeds, rounded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// The policy's name, or the preset's.
    pub(super) policy: String,
    /// `None` for a trace, as `order`.
    pub(super) sampler: Option<&'static str>,
    pub(super) order: Option<&'static str>,
    /// The capacity as given.
    pub(super) cache: String,
    /// The capacity in bytes; in samples where sizes are not known.
    pub(super) capacity: u64,
    /// The capacity over what all samples take.
    pub(super) capacity_share: f64,
    pub(super) accesses: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Accesses served by a prefetched record: its first use; 0 without a store.
    pub(super) prefetched: u64,
    /// Accesses that were none of these: a resident sample stood in for a missing one (iCACHE).
    pub(super) exchanged: u64,
    /// Hits over accesses.
    pub(super) hit_ratio: f64,
    /// Half of its 95 % interval; with more than one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio_ci95: Option<f64>,
    pub(super) evictions: u64,
    pub(super) bypasses: u64,
    /// Reads of the store. Without --coalesce each brings one record.
    pub(super) reads: u64,
    /// `None` where sizes are not known.
    pub(super) bytes_read: Option<u64>,
    /// Bytes between records that were read together.
    pub(super) bytes_between: u64,
    /// Different samples of an epoch over its accesses: D/N.
    pub(super) distinct_share: f64,
    /// Samples ever delivered over all samples.
    pub(super) ever_seen_share: f64,
    /// Most deliveries of one sample in one epoch, of any training.
    pub(super) repeat_max: u32,
    /// Epochs whose plan had only cached samples although there are others.
    pub(super) absorbing_epochs: u64,
    /// Mean randomness of the epochs' orders: 1 as a shuffle, 0 as in storage. `None` for a trace.
    pub(super) position_entropy: Option<f64>,
    /// Seconds that training waits; `None` without a store, as `stall_share`.
    pub(super) stall_s: Option<f64>,
    /// Stall over compute time.
    pub(super) stall_share: Option<f64>,
    /// Half of its 95 % interval; with more than one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall_share_ci95: Option<f64>,
    /// Time to simulate an access, with plans and losses.
    pub(super) ns_per_access: f64,
}

/// Plays all trainings of the workload.
///
/// # Errors
/// The core refuses the workload, or Ctrl-C.
pub(super) fn outcomes(
    workload: &Workload,
    system: &System,
    capacity: u64,
    watch: &Watch,
) -> Result<Vec<Outcome>, SimulateError> {
    (0..workload.seeds()).map(|nth| play(workload, system, capacity, nth, watch)).collect()
}

impl Row {
    /// Plays all trainings of the workload. `cache` is the text of `capacity`.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn play(
        workload: &Workload,
        system: &System,
        cache: &str,
        capacity: u64,
        watch: &Watch,
    ) -> Result<Self, SimulateError> {
        let started = Instant::now();
        let outcomes = outcomes(workload, system, capacity, watch)?;
        let took = started.elapsed();
        let played = workload.accesses_each() * u64::from(workload.seeds());
        let is_training = matches!(workload.accesses, Accesses::Training { .. });
        let count = |of: fn(&Counts) -> u64| {
            let sum: u64 = outcomes.iter().map(|outcome| outcome.count(of)).sum();
            let trainings = outcomes.len().max(1) as u64;
            (sum + trainings / 2) / trainings
        };
        let share = |of: fn(&Outcome) -> f64| mean(outcomes.iter().map(of));
        let hit_ratios: Vec<f64> = outcomes.iter().map(Outcome::hit_ratio).collect();
        let stalls: Vec<f64> =
            outcomes.iter().filter_map(|outcome| Some(outcome.stall?.as_secs_f64())).collect();
        let (accesses, hits) = (count(|counts| counts.accesses), count(|counts| counts.hits));
        let (exchanged, prefetched) = (count(|counts| counts.exchanged), count(|counts| counts.prefetched));
        let entropies: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.position_entropy).collect();
        let compute = workload.service.map(|service| compute_s(service.compute, accesses));
        let over_compute = |stall: Option<f64>| Some(stall? / compute?);
        let stall_s = compute.map(|_| mean(stalls.iter().copied()));
        Ok(Self {
            policy: system.name.to_owned(),
            sampler: is_training.then_some(system.sampler.as_str()),
            order: is_training.then_some(system.order.as_str()),
            cache: cache.to_owned(),
            capacity,
            capacity_share: capacity as f64 / workload.total().max(1) as f64,
            accesses,
            hits,
            misses: accesses.saturating_sub(hits + exchanged + prefetched),
            prefetched,
            exchanged,
            hit_ratio: mean(hit_ratios.iter().copied()),
            hit_ratio_ci95: half_width_95(&hit_ratios),
            evictions: count(|counts| counts.evicted),
            bypasses: count(|counts| counts.bypassed),
            reads: count(|counts| counts.reads),
            bytes_between: count(|counts| counts.bytes_between),
            bytes_read: workload.dataset.sizes.are_known().then(|| count(|counts| counts.bytes_read)),
            distinct_share: share(Outcome::distinct_share),
            ever_seen_share: share(|outcome| outcome.ever_seen_share),
            repeat_max: outcomes.iter().map(|outcome| outcome.repeat_max).max().unwrap_or(0),
            absorbing_epochs: count(|counts| counts.absorbing_epochs),
            position_entropy: (!entropies.is_empty()).then(|| mean(entropies.iter().copied())),
            stall_s,
            stall_share: over_compute(stall_s),
            stall_share_ci95: over_compute(half_width_95(&stalls)),
            ns_per_access: took.as_secs_f64() * 1e9 / played.max(1) as f64,
        })
    }
}

/// Seconds that the trainer computes for this many samples.
pub(super) fn compute_s(compute: Duration, samples: u64) -> f64 {
    compute.as_secs_f64() * samples as f64
}
