//! Nodes and jobs as the arguments ask for them, checked.

use std::time::Duration;

use shade_core::TIER_OVERHEAD_BYTES;

use crate::cache_policy::CachePolicy;
use crate::capacity::CacheSize;
use crate::cli::Simulate;
use crate::engine::{Jobs, Nodes, Surroundings, strata_for};
use crate::error::SimulateError;
use crate::system::System;
use crate::workload::Workload;

/// What is around the cores.
///
/// # Errors
/// Options do not go together.
pub(super) fn surroundings<'a>(
    args: &'a Simulate,
    workload: &Workload,
    systems: &[System],
) -> Result<Surroundings<'a>, SimulateError> {
    let usage = |what: &str| Err(SimulateError::Usage(what.to_owned()));
    let plan = args.training.plan();
    let (nodes, jobs) = (nodes(args, workload)?, jobs(args)?);
    let is_alone = nodes.is_none() && jobs.is_none();
    if !is_alone && systems.iter().any(|system| matches!(system.policy, CachePolicy::Min { .. })) {
        return usage("--policy min knows one core's whole training: leave it out with --nodes and --jobs");
    }
    if nodes.is_some() && plan.mix > 0.0 && plan.draw_ahead {
        return usage("--mix: a simulated node begins anew with its strata; leave out --draw-ahead");
    }
    let moves = plan.mix > 0.0 || nodes.is_some_and(|nodes| !nodes.lose.is_empty());
    if moves && nodes.is_some() && jobs.is_some() {
        return usage(
            "--jobs: strata change nodes between two epochs, and each job is in another one; leave out --mix \
                      and --lose",
        );
    }
    let takes_time = workload.store.is_some() || !is_alone;
    let compute = if takes_time { workload.compute } else { Duration::ZERO };
    Ok(Surroundings { nodes, jobs, compute })
}

fn jobs(args: &Simulate) -> Result<Option<Jobs>, SimulateError> {
    let Some(count) = args.jobs else { return Ok(None) };
    let speeds = if args.speeds.is_empty() { vec![1.0; count as usize] } else { args.speeds.clone() };
    if speeds.len() != count as usize {
        let what = format!("--speeds: {} of them for {count} jobs: give one for each", speeds.len());
        return Err(SimulateError::Usage(what));
    }
    Ok(Some(Jobs { speeds, correlation: args.correlation, is_group: args.group }))
}

fn nodes<'a>(args: &'a Simulate, workload: &Workload) -> Result<Option<Nodes<'a>>, SimulateError> {
    let options = &args.nodes;
    let Some(count) = options.nodes else { return Ok(None) };
    let ranks_per_node = options.ranks_per_node;
    let strata = if args.training.plan.has("strata") {
        args.training.plan().strata
    } else {
        let lost = u32::try_from(options.lose.len()).unwrap_or(u32::MAX);
        strata_for(ranks_per_node, count, lost, workload.dataset.samples)
    };
    Ok(Some(Nodes {
        count,
        ranks_per_node,
        strata,
        is_global: options.global_plan,
        nic: options.nic,
        tier_bytes: options.tier.as_ref().map_or(Ok(0), |size| tier_bytes(size, workload))?,
        tier: options.tier_store,
        straggle: options.straggle,
        lose: &options.lose,
    }))
}

/// What a tier of this size holds, in the core's bytes: each record takes some more than its own.
///
/// # Errors
/// It is given in bytes and sizes are not known.
fn tier_bytes(size: &CacheSize, workload: &Workload) -> Result<u64, SimulateError> {
    let sizes = &workload.dataset.sizes;
    let capacity = size.resolve("--tier", sizes, workload.total())?;
    Ok(if sizes.are_known() { capacity } else { capacity.saturating_mul(1 + TIER_OVERHEAD_BYTES) })
}
