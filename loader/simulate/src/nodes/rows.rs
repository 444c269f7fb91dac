//! Simulates several nodes: each policy at each capacity.

use shade_core::TIER_OVERHEAD_BYTES;

use crate::capacity::CacheSize;
use crate::cli::Simulate;
use crate::error::SimulateError;
use crate::keeper::Keeper;
use crate::nodes::row::{Head, NodesRow, Trained};
use crate::nodes::seats::strata_for;
use crate::nodes::table::NodesReport;
use crate::nodes::training::{Surroundings, Tier, Training};
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{COMPUTE_DEFAULT, Workload};

/// Simulates what `args` ask for on this many nodes. `accesses` says in words what is accessed.
///
/// # Errors
/// Options do not go together, the core refuses the workload, or Ctrl-C.
pub(in super::super) fn report(
    args: &Simulate,
    nodes: u32,
    workload: &Workload,
    systems: &[System],
    capacities: &[u64],
    accesses: String,
) -> Result<NodesReport, SimulateError> {
    if systems.iter().any(|system| matches!(system.keeper, Keeper::Min { .. })) {
        let what = "--policy min knows one core's whole training: leave it out with --nodes";
        return Err(SimulateError::Usage(what.to_owned()));
    }
    if args.training.plan().mix > 0.0 && args.training.plan().draw_ahead {
        let what = "--mix: a simulated node begins anew with its strata; leave out --draw-ahead";
        return Err(SimulateError::Usage(what.to_owned()));
    }
    let ranks_per_node = args.nodes.ranks_per_node;
    let strata = if args.training.plan.has("strata") {
        args.training.plan().strata
    } else {
        let lost = u32::try_from(args.nodes.lose.len()).unwrap_or(u32::MAX);
        strata_for(ranks_per_node, nodes, lost, workload.dataset.samples)
    };
    let tier = Tier {
        bytes: args.nodes.tier.as_ref().map_or(Ok(0), |size| tier_bytes(size, workload))?,
        model: args.nodes.tier_store,
    };
    let around = Surroundings {
        nodes,
        ranks_per_node,
        strata,
        nic: args.nodes.nic,
        tier,
        straggle: args.nodes.straggle,
        lose: &args.nodes.lose,
        compute: args.compute.unwrap_or(COMPUTE_DEFAULT),
    };
    let simulations = systems.len() as u64 * args.cache.len() as u64;
    let each = workload.accesses_each().saturating_mul(u64::from(workload.seeds()));
    let watch = Watch::start(each.saturating_mul(simulations))?;
    let mut rows = Vec::new();
    for system in systems {
        for (cache, &capacity) in args.cache.iter().zip(capacities) {
            watch.name(format!("{} at {}", system.name, cache.text()));
            let train = |nth| train(args, workload, system, capacity, nth, around, &watch);
            let trainings = (0..workload.seeds()).map(train).collect::<Result<Vec<_>, _>>()?;
            let head = Head {
                policy: system.name.to_owned(),
                cache: cache.text().to_owned(),
                capacity,
                samples: workload.dataset.samples,
                sizes_known: workload.dataset.sizes.are_known(),
                has_time: !args.nodes.global_plan,
                epochs: workload.epochs(),
                skip_epochs: workload.skip_epochs,
            };
            rows.push(NodesRow::new(head, &trainings));
        }
    }
    Ok(NodesReport {
        accesses,
        samples: workload.dataset.samples,
        nodes,
        ranks_per_node,
        strata: (!args.nodes.global_plan).then_some(around.strata),
        epochs: workload.epochs(),
        skipped_epochs: workload.skip_epochs,
        seeds: workload.seeds(),
        store: workload.service.map(|service| service.store.to_string()),
        tier: args.nodes.tier.as_ref().map(|size| size.text().to_owned()),
        tier_store: workload.service.filter(|_| tier.bytes > 0).map(|_| tier.model.to_string()),
        compute_s_per_sample: around.compute.as_secs_f64(),
        rows,
    })
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

/// Plays one seed.
fn train(
    args: &Simulate,
    workload: &Workload,
    system: &System,
    capacity: u64,
    nth: u32,
    around: Surroundings<'_>,
    watch: &Watch,
) -> Result<Trained, SimulateError> {
    let training = Training::new(workload, system, capacity, u64::from(nth), around)?;
    if args.nodes.global_plan {
        return Ok(Trained { all: training.play_sliced(watch)?, alone: None });
    }
    Ok(Trained { all: training.play(watch, &mut |_, _, _| {})?, alone: training.play_one_alone(watch)? })
}
