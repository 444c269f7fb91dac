//! The smallest cache that is enough: it removes most of the stall that a cache of everything would
//! remove. And the sampler that reads less with the caches that were asked about.

use serde::Serialize;
use shade_core::plan::fewer_reads;
use shade_job::Sampler;

use crate::error::SimulateError;
use crate::interval::mean;
use crate::row::Simulation;
use crate::system::System;
use crate::workload::{Accesses, Workload};

/// Share of the removable stall that is removed.
const ENOUGH: f64 = 0.9;
/// Resolution of capacities, in parts of all samples. A power of 2: each step halves what is left.
const PARTS: u64 = 256;
/// A removable stall below this share of compute is worth no memory.
const NOTHING: f64 = 1e-6;
/// Simulations of one policy: none cached, all cached, and one for each halving.
pub(super) const SIMULATIONS: u64 = 2 + PARTS.ilog2() as u64;

const _: () = assert!(PARTS.is_power_of_two());

/// The cache that is enough for one policy or preset.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Recommendation {
    /// The policy's name, or the preset's.
    pub(super) policy: String,
    /// In bytes; in samples where sizes are not known. 0 where no cache would remove a stall.
    pub(super) capacity: u64,
    /// The capacity over the size of all samples.
    pub(super) capacity_share: f64,
    /// The stall with this cache, over compute.
    pub(super) stall_share: f64,
    /// The stall without a cache, over compute.
    pub(super) stall_share_uncached: f64,
    /// The stall with everything cached, over compute.
    pub(super) stall_share_all_cached: f64,
}

/// The samplers that read less than permutations with a cache, as far as their accuracy is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FewerReads {
    /// Capacity as it was given.
    pub(super) cache: String,
    /// Batches that it holds.
    pub(super) batches: u64,
    /// `echo` or `pads` (with `draw_ahead`), where losses are reported; `None`: none.
    pub(super) with_losses: Option<&'static str>,
    /// `echo`, where none are; `None`: none.
    pub(super) without_losses: Option<&'static str>,
}

impl FewerReads {
    /// With a cache of this capacity; `None` if that is everything or nothing, or if the workload
    /// is no training on permutations, whose samplers are a choice of another kind.
    pub(super) fn of(workload: &Workload, cache: &str, capacity: u64) -> Option<Self> {
        let Accesses::Training { plan, .. } = &workload.accesses else { return None };
        let samples = u128::from(workload.dataset.samples);
        let total = workload.total();
        let held = u128::from(capacity) * samples / u128::from(total.max(1));
        let batches = u64::try_from(held / u128::from(workload.batch_size.max(1))).unwrap_or(u64::MAX);
        let is_part = capacity > 0 && capacity < total;
        let share = capacity as f64 / total.max(1) as f64;
        let sampler = |losses| fewer_reads(batches, share, losses).map(|found| found.sampler.as_str());
        (plan.sampler == Sampler::Uniform && is_part).then(|| Self {
            cache: cache.to_owned(),
            batches,
            with_losses: sampler(true),
            without_losses: sampler(false),
        })
    }
}

/// Looks for the capacity that is enough for `system`.
///
/// # Errors
/// The core refuses the workload, or Ctrl-C.
pub(super) fn recommend(
    simulation: &Simulation<'_>,
    system: &System,
) -> Result<Recommendation, SimulateError> {
    let total = simulation.workload.total();
    let capacity_of = |parts: u64| {
        // Below the total, which is a u64.
        u64::try_from(u128::from(total) * u128::from(parts) / u128::from(PARTS)).unwrap_or(total)
    };
    let stall = |parts: u64| {
        let trainings = simulation.play(system, capacity_of(parts), true)?;
        Ok(mean(trainings.iter().map(|training| training.all.all().stall_share())))
    };
    let (uncached, all_cached) = (stall(0)?, stall(PARTS)?);
    let (parts, stall_share) = search(uncached, all_cached, stall)?;
    Ok(Recommendation {
        policy: system.name.to_owned(),
        capacity: capacity_of(parts),
        capacity_share: parts as f64 / PARTS as f64,
        stall_share,
        stall_share_uncached: uncached,
        stall_share_all_cached: all_cached,
    })
}

/// Bisects between 0 and [`PARTS`]. It assumes that more cache means no more stall. Returns the
/// parts that are enough, and their stall.
fn search(
    uncached: f64,
    all_cached: f64,
    mut stall: impl FnMut(u64) -> Result<f64, SimulateError>,
) -> Result<(u64, f64), SimulateError> {
    let removable = uncached - all_cached;
    if removable < NOTHING {
        return Ok((0, uncached));
    }
    let most = uncached - ENOUGH * removable;
    let (mut too_little, mut enough) = (0, (PARTS, all_cached));
    while enough.0 - too_little > 1 {
        let middle = u64::midpoint(too_little, enough.0);
        let stalled = stall(middle)?;
        if stalled <= most {
            enough = (middle, stalled);
        } else {
            too_little = middle;
        }
    }
    Ok(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_capacity_that_is_enough_is_found() {
        // 200 % without a cache, 20 % with all, falling evenly: 90 % goes at 90 % of the data.
        let mut looks = 2;
        let (parts, stall) = search(2.0, 0.2, |parts| {
            looks += 1;
            Ok(2.0 - 1.8 * parts as f64 / PARTS as f64)
        })
        .unwrap();
        assert_eq!((parts, looks), (231, SIMULATIONS));
        assert!((stall - 0.3758).abs() < 0.001, "{stall}");
        // A cliff.
        assert_eq!(search(1.0, 0.0, |parts| Ok(if parts < 77 { 1.0 } else { 0.0 })).unwrap().0, 77);
    }

    #[test]
    fn where_no_cache_removes_a_stall_none_is_recommended() {
        for stall in [0.0, 0.5] {
            assert_eq!(search(stall, stall, |_| Ok(stall)).unwrap(), (0, stall));
        }
    }
}
