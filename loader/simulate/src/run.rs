//! The command: loads, simulates, writes.

use std::io::Write;

use serde::Serialize;
use shade_formats::trace::Header;

use crate::cli::Simulate;
use crate::error::SimulateError;
use crate::recommend::{self, FewerReads, Recommendation, recommend};
use crate::row::{Row, Simulation};
use crate::surroundings::surroundings;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// The result.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    /// The accesses, in words.
    pub(super) accesses: String,
    /// Samples of the dataset.
    pub(super) samples: u32,
    /// Cache size of all samples, in bytes; `None` where sizes are not known.
    pub(super) bytes: Option<u64>,
    /// Number of jobs; `None` without --jobs.
    pub(super) jobs: Option<usize>,
    /// Number of nodes; `None` without --nodes, as the two below.
    pub(super) nodes: Option<u32>,
    /// Ranks on each of them.
    pub(super) ranks_per_node: Option<u32>,
    /// Parts of the dataset; also `None` with a plan for all nodes.
    pub(super) strata: Option<u32>,
    /// Epochs of a training.
    pub(super) epochs: u32,
    /// Number of first epochs that do not count.
    pub(super) skipped_epochs: u32,
    /// Number of trainings in each row.
    pub(super) seeds: u32,
    /// The virtual store, if there is one.
    pub(super) store: Option<String>,
    /// Size of each node's tier, as given; `None` without one.
    pub(super) tier: Option<String>,
    /// How fast it is; `None` without a store.
    pub(super) tier_store: Option<String>,
    /// `None` where nothing takes time.
    pub(super) compute_s_per_sample: Option<f64>,
    /// A row for each policy at each capacity.
    pub(super) rows: Vec<Row>,
    /// Hits of the recorded daemon itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<Recorded>,
    /// The cache that is enough, for each policy; with --recommend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recommend: Option<Vec<Recommendation>>,
    /// A sampler that reads less with each cache; with --recommend, of one training on
    /// permutations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fewer_reads: Vec<FewerReads>,
}

/// Hits of a recorded daemon, over the epochs that count.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Recorded {
    /// Its policy.
    pub(super) policy: String,
    /// Capacity of its cache.
    pub(super) cache_bytes: u64,
    /// Samples that were asked for.
    pub(super) accesses: u64,
    /// Accesses served from the cache.
    pub(super) hits: u64,
}

impl Recorded {
    fn of(workload: &Workload) -> Option<Self> {
        let Accesses::Recording(recording) = &workload.accesses else { return None };
        let (hits, accesses) = recording.hits(workload.skip_epochs);
        let Header { policy, cache_bytes, .. } = &recording.header;
        Some(Self { policy: policy.clone(), cache_bytes: *cache_bytes, accesses, hits })
    }
}

/// Simulates what `args` ask for and writes the result to `out`.
///
/// # Errors
/// A file or an option cannot be used, or Ctrl-C; then the rows that are ready are written.
pub fn simulate(args: &Simulate, out: &mut impl Write) -> Result<(), SimulateError> {
    if args.recommend && args.store.is_none() {
        let what = "--recommend needs a --store, or a dataset that is trained on now";
        return Err(SimulateError::Usage(what.to_owned()));
    }
    let workload = Workload::load(args)?;
    let systems = System::all(args)?;
    let total = workload.total();
    let capacities: Vec<u64> = args
        .cache
        .iter()
        .map(|cache| cache.resolve("--cache", &workload.dataset.sizes, total))
        .collect::<Result<_, _>>()?;
    let around = surroundings(args, &workload, &systems)?;
    let nodes = around.nodes.as_ref();
    let tier = args.nodes.tier.as_ref();
    let mut report = Report {
        accesses: accesses(args, &workload),
        samples: workload.dataset.samples,
        bytes: workload.dataset.sizes.are_known().then_some(total),
        jobs: around.jobs.is_some().then(|| around.jobs()),
        nodes: nodes.map(|nodes| nodes.count),
        ranks_per_node: nodes.map(|nodes| nodes.ranks_per_node),
        strata: nodes.filter(|nodes| !nodes.is_global).map(|nodes| nodes.strata),
        epochs: workload.epochs(),
        skipped_epochs: workload.skip_epochs,
        seeds: workload.seeds(),
        store: workload.store.map(|store| store.to_string()),
        tier: tier.map(|size| size.text().to_owned()),
        tier_store: tier.filter(|_| workload.store.is_some()).map(|_| args.nodes.tier_store.to_string()),
        compute_s_per_sample: (!around.compute.is_zero()).then_some(around.compute.as_secs_f64()),
        rows: Vec::new(),
        recorded: Recorded::of(&workload),
        recommend: args.recommend.then(Vec::new),
        fewer_reads: fewer_reads(args, &workload, &capacities),
    };
    let simulations = simulations(args, systems.len(), around.jobs());
    let each = workload.accesses_each().saturating_mul(u64::from(workload.seeds()));
    let watch = Watch::start(each.saturating_mul(simulations))?;
    let simulation = Simulation { workload: &workload, around: &around, watch: &watch };
    let ended = fill(&mut report, args, &simulation, &systems, &capacities);
    if !matches!(ended, Ok(()) | Err(SimulateError::Interrupted)) {
        return ended;
    }
    write(out, args.json, &report)?;
    ended
}

/// What reads less with each of the capacities, where that is asked.
fn fewer_reads(args: &Simulate, workload: &Workload, capacities: &[u64]) -> Vec<FewerReads> {
    // Presets have samplers of their own.
    let is_plain = args.jobs.is_none() && args.nodes.nodes.is_none() && args.training.preset.is_empty();
    let is_asked = args.recommend && is_plain;
    let caches = args.cache.iter().zip(capacities).filter(|_| is_asked);
    caches.filter_map(|(cache, &capacity)| FewerReads::of(workload, cache.text(), capacity)).collect()
}

/// How often the accesses of a job are played.
fn simulations(args: &Simulate, systems: usize, jobs: usize) -> u64 {
    let ways = if args.jobs.is_some() { 2 } else { 1 };
    let searches = if args.recommend { recommend::SIMULATIONS } else { 0 };
    systems as u64 * jobs as u64 * (ways * args.cache.len() as u64 + searches)
}

fn write(out: &mut impl Write, json: bool, report: &Report) -> Result<(), SimulateError> {
    if json {
        serde_json::to_writer(&mut *out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

/// Simulates row after row.
fn fill(
    report: &mut Report,
    args: &Simulate,
    simulation: &Simulation<'_>,
    systems: &[System],
    capacities: &[u64],
) -> Result<(), SimulateError> {
    for system in systems {
        for (cache, &capacity) in args.cache.iter().zip(capacities) {
            simulation.watch.name(format!("{} at {}", system.name, cache.text()));
            report.rows.extend(simulation.rows(system, cache.text(), capacity)?);
        }
    }
    if let Some(found) = &mut report.recommend {
        for system in systems {
            simulation.watch.name(format!("how much {} needs", system.name));
            found.push(recommend(simulation, system)?);
        }
    }
    Ok(())
}

/// The accesses, in words.
fn accesses(args: &Simulate, workload: &Workload) -> String {
    match &workload.accesses {
        Accesses::Training { plan, .. } => {
            let rep = if plan.rep > 1.0 { format!(", rep {}", plan.rep) } else { String::new() };
            let paced = if plan.pace { ", paced" } else { "" };
            if args.training.preset.is_empty() {
                format!("{} plans, {}{rep}{paced}", plan.sampler, plan.order)
            } else {
                format!("plans as each preset draws them{rep}{paced}")
            }
        }
        Accesses::List(script) => {
            format!("a trace of {}", indicatif::HumanCount(script.accesses.len() as u64))
        }
        Accesses::Recording(recording) => {
            let how = recording.job.as_ref().map_or_else(String::new, |job| {
                format!(
                    " ({} plans, {}; ranks: {}, batches of {})",
                    job.plan.sampler, job.plan.order, job.world_size, job.batch_size
                )
            });
            format!("{} recorded{how}", recording.header.dataset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Report;
    use crate::schemas::is_described;

    #[test]
    fn the_report_is_described() {
        is_described::<Report>("shade-load-simulate", "shade-load simulate --json");
    }
}
