//! One row of the result: a policy at a capacity, over all trainings.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::SimulateError;
use crate::interval::{half_width_95, mean};
use crate::outcome::{Counts, Outcome};
use crate::play::play;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// What one policy does at one capacity. With several seeds: counts of a mean training, rounded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// The policy's name, or the preset's.
    pub(super) policy: String,
    /// `None` for a trace, as the next.
    pub(super) sampler: Option<&'static str>,
    pub(super) order: Option<&'static str>,
    /// The capacity as it was asked for.
    pub(super) cache: String,
    /// The capacity in bytes; in samples where sizes are not known.
    pub(super) capacity: u64,
    /// The capacity over what all samples take.
    pub(super) capacity_share: f64,
    pub(super) accesses: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Accesses that found a record which had been prefetched for them; with a store only.
    pub(super) prefetched: u64,
    /// Accesses that were none of these, as another sample stood in for one that would have been read (iCACHE).
    pub(super) exchanged: u64,
    /// Hits over accesses.
    pub(super) hit_ratio: f64,
    /// Half of its 95 % interval; with more than one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hit_ratio_ci95: Option<f64>,
    pub(super) evictions: u64,
    pub(super) bypasses: u64,
    /// `None` where sizes are not known.
    pub(super) bytes_read: Option<u64>,
    /// Different samples of an epoch over its accesses: D/N.
    pub(super) distinct_share: f64,
    /// Samples ever delivered over all samples.
    pub(super) ever_seen_share: f64,
    /// Most deliveries of one sample in one epoch, of any training.
    pub(super) repeat_max: u32,
    /// Epochs whose plan had only cached samples although there are others.
    pub(super) absorbing_epochs: u64,
    /// How random the order of an epoch is on average: 1 as a shuffle, 0 as in storage. `None` for a trace.
    pub(super) position_entropy: Option<f64>,
    /// What training waits, in seconds; `None` without a store, as the next.
    pub(super) stall_s: Option<f64>,
    /// The same over what the trainer computes.
    pub(super) stall_share: Option<f64>,
    /// Half of its 95 % interval; with more than one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall_share_ci95: Option<f64>,
    /// What the simulation of an access took, plans and losses included.
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
    /// Plays all trainings of the workload, `cache` being how `capacity` was asked for.
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
        let training = matches!(workload.accesses, Accesses::Training { .. });
        Ok(Self {
            policy: system.name.to_owned(),
            sampler: training.then_some(system.sampler.as_str()),
            order: training.then_some(system.order.as_str()),
            cache: cache.to_owned(),
            capacity,
            capacity_share: capacity as f64 / workload.total().max(1) as f64,
            ns_per_access: took.as_secs_f64() * 1e9 / played.max(1) as f64,
            ..Self::of(&outcomes, workload)
        })
    }

    /// The means of `outcomes`. What they do not tell is left empty.
    fn of(outcomes: &[Outcome], workload: &Workload) -> Self {
        let count = |of: fn(&Counts) -> u64| {
            let sum: u64 = outcomes.iter().map(|outcome| of(&outcome.counts)).sum();
            let trainings = outcomes.len().max(1) as u64;
            (sum + trainings / 2) / trainings
        };
        let share = |of: fn(&Outcome) -> f64| mean(outcomes.iter().map(of));
        let hit_ratios: Vec<f64> = outcomes.iter().map(|outcome| hit_ratio(&outcome.counts)).collect();
        let stalls: Vec<f64> =
            outcomes.iter().filter_map(|outcome| Some(outcome.stall?.as_secs_f64())).collect();
        let (accesses, hits) = (count(|counts| counts.accesses), count(|counts| counts.hits));
        let (exchanged, prefetched) = (count(|counts| counts.exchanged), count(|counts| counts.prefetched));
        let entropies: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.position_entropy).collect();
        let compute = workload.service.map(|service| compute_s(service.compute, accesses));
        let over_compute = |stall: Option<f64>| Some(stall? / compute?);
        let stall_s = compute.map(|_| mean(stalls.iter().copied()));
        Self {
            policy: String::new(),
            sampler: None,
            order: None,
            cache: String::new(),
            capacity: 0,
            capacity_share: 0.0,
            accesses,
            hits,
            misses: accesses.saturating_sub(hits + exchanged + prefetched),
            prefetched,
            exchanged,
            hit_ratio: mean(hit_ratios.iter().copied()),
            hit_ratio_ci95: half_width_95(&hit_ratios),
            evictions: count(|counts| counts.evictions),
            bypasses: count(|counts| counts.bypasses),
            bytes_read: workload.dataset.sizes.are_known().then(|| count(|counts| counts.bytes_read)),
            distinct_share: share(|outcome| outcome.distinct_share),
            ever_seen_share: share(|outcome| outcome.ever_seen_share),
            repeat_max: outcomes.iter().map(|outcome| outcome.repeat_max).max().unwrap_or(0),
            absorbing_epochs: count(|counts| counts.absorbing_epochs),
            position_entropy: (!entropies.is_empty()).then(|| mean(entropies.iter().copied())),
            stall_s,
            stall_share: over_compute(stall_s),
            stall_share_ci95: over_compute(half_width_95(&stalls)),
            ns_per_access: 0.0,
        }
    }
}

/// Seconds that the trainer computes for so many samples.
pub(super) fn compute_s(compute: Duration, samples: u64) -> f64 {
    compute.as_secs_f64() * samples as f64
}

fn hit_ratio(counts: &Counts) -> f64 {
    counts.hits as f64 / counts.accesses.max(1) as f64
}
