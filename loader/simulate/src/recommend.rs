//! How much memory is enough: the smallest cache that removes most of the stall that any cache could remove.

use serde::Serialize;

use crate::error::SimulateError;
use crate::interval::mean;
use crate::row::{compute_s, outcomes};
use crate::system::System;
use crate::watch::Watch;
use crate::workload::Workload;

/// Of the stall that goes away when everything is cached, this much is to go.
const ENOUGH: f64 = 0.9;
/// Capacities are looked at in these parts of all samples. A power of 2: each step halves what is left.
const PARTS: u64 = 256;
/// Less stall than this, as a share of compute, is nothing that memory should be bought for.
const NOTHING: f64 = 1e-6;
/// Simulations of one policy: none cached, all cached, and one a halving.
pub(super) const SIMULATIONS: u64 = 2 + PARTS.ilog2() as u64;

const _: () = assert!(PARTS.is_power_of_two());

/// What is enough for one policy or preset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Recommendation {
    pub(super) policy: String,
    /// In bytes; in samples where sizes are not known. 0 where no cache would remove a stall.
    pub(super) capacity: u64,
    /// The same over what all samples take.
    pub(super) capacity_share: f64,
    /// The stall with this cache, over compute.
    pub(super) stall_share: f64,
    /// The stall without a cache, over compute.
    pub(super) stall_share_uncached: f64,
    /// The stall with everything cached, over compute.
    pub(super) stall_share_all_cached: f64,
}

/// Looks for the capacity that is enough for `system`.
///
/// # Errors
/// The core refuses the workload, or Ctrl-C.
pub(super) fn recommend(
    workload: &Workload,
    system: &System,
    watch: &Watch,
) -> Result<Recommendation, SimulateError> {
    let total = workload.total();
    let capacity_of = |parts: u64| {
        // Below the total, which is a u64.
        u64::try_from(u128::from(total) * u128::from(parts) / u128::from(PARTS)).unwrap_or(total)
    };
    let found = search(|parts| stall_share(workload, system, capacity_of(parts), watch))?;
    Ok(Recommendation {
        policy: system.name.to_owned(),
        capacity: capacity_of(found.parts),
        capacity_share: found.parts as f64 / PARTS as f64,
        stall_share: found.stall,
        stall_share_uncached: found.uncached,
        stall_share_all_cached: found.all_cached,
    })
}

/// The mean stall of all trainings over what they compute.
fn stall_share(
    workload: &Workload,
    system: &System,
    capacity: u64,
    watch: &Watch,
) -> Result<f64, SimulateError> {
    let Some(service) = workload.service else { return Ok(0.0) };
    let outcomes = outcomes(workload, system, capacity, watch)?;
    Ok(mean(outcomes.iter().map(|outcome| {
        let stall = outcome.stall.unwrap_or_default().as_secs_f64();
        stall / compute_s(service.compute, outcome.counts.accesses.max(1))
    })))
}

/// Where the search ended.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    parts: u64,
    stall: f64,
    uncached: f64,
    all_cached: f64,
}

/// Bisects between 0 and [`PARTS`], which takes for granted that more cache means no more stall.
fn search(mut stall: impl FnMut(u64) -> Result<f64, SimulateError>) -> Result<Found, SimulateError> {
    let (uncached, all_cached) = (stall(0)?, stall(PARTS)?);
    let removable = uncached - all_cached;
    if removable < NOTHING {
        return Ok(Found { parts: 0, stall: uncached, uncached, all_cached });
    }
    let most = uncached - ENOUGH * removable;
    let (mut too_little, mut enough): (u64, Found) =
        (0, Found { parts: PARTS, stall: all_cached, uncached, all_cached });
    while enough.parts - too_little > 1 {
        let middle = too_little.midpoint(enough.parts);
        let stalled = stall(middle)?;
        if stalled <= most {
            (enough.parts, enough.stall) = (middle, stalled);
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
        // 200 % without a cache, 20 % with all, falling evenly: 90 % of it is gone at 90 % of the data.
        let mut looks = 0;
        let found = search(|parts| {
            looks += 1;
            Ok(2.0 - 1.8 * parts as f64 / PARTS as f64)
        });
        let found = found.unwrap();
        assert_eq!((found.parts, looks), (231, SIMULATIONS));
        assert!((found.stall - 0.3758).abs() < 0.001, "{found:?}");
        assert!((found.uncached - 2.0).abs() < 1e-12 && (found.all_cached - 0.2).abs() < 1e-12);
        // A cliff.
        assert_eq!(search(|parts| Ok(if parts < 77 { 1.0 } else { 0.0 })).unwrap().parts, 77);
    }

    #[test]
    fn where_no_cache_removes_a_stall_none_is_recommended() {
        assert_eq!(search(|_| Ok(0.5)).unwrap().parts, 0);
        assert_eq!(search(|_| Ok(0.0)).unwrap().parts, 0);
    }
}
