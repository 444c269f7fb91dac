//! The command: loads, simulates, writes.

use std::fmt;
use std::io::Write;

use serde::Serialize;
use shade_formats::trace::Header;

use crate::cli::Simulate;
use crate::error::SimulateError;
use crate::jobs::Jobs;
use crate::jobs_table::JobsReport;
use crate::nodes;
use crate::recommend::{self, Recommendation, recommend};
use crate::row::Row;
use crate::system::System;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The accesses, in words.
    pub(super) accesses: String,
    pub(super) samples: u32,
    /// Cache size of all samples, in bytes; `None` where sizes are not known.
    pub(super) bytes: Option<u64>,
    pub(super) epochs: u32,
    /// Number of first epochs that do not count.
    pub(super) skipped_epochs: u32,
    /// Number of trainings in each row.
    pub(super) seeds: u32,
    /// The virtual store, if there is one.
    pub(super) store: Option<String>,
    pub(super) compute_s_per_sample: Option<f64>,
    pub(super) rows: Vec<Row>,
    /// Hits of the recorded daemon itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<Recorded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recommend: Option<Vec<Recommendation>>,
}

/// Hits of a recorded daemon, over the epochs that count.
#[derive(Debug, Serialize)]
pub(super) struct Recorded {
    pub(super) policy: String,
    pub(super) cache_bytes: u64,
    pub(super) accesses: u64,
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
    let workload = Workload::load(args)?;
    let systems = System::all(args)?;
    let total = workload.total();
    let capacities: Vec<u64> = args
        .cache
        .iter()
        .map(|cache| cache.resolve("--cache", &workload.dataset.sizes, total))
        .collect::<Result<_, _>>()?;
    if let Some(jobs) = Jobs::of(args)? {
        let report = several(args, &jobs, &workload, &systems, &capacities)?;
        return write(out, args.json, &report);
    }
    if let Some(count) = args.nodes.nodes {
        let accesses = accesses(args, &workload);
        let report = nodes::report(args, count, &workload, &systems, &capacities, accesses)?;
        return write(out, args.json, &report);
    }
    let mut report = Report {
        accesses: accesses(args, &workload),
        samples: workload.dataset.samples,
        bytes: workload.dataset.sizes.are_known().then_some(total),
        epochs: workload.epochs(),
        skipped_epochs: workload.skip_epochs,
        seeds: workload.seeds(),
        store: workload.service.map(|service| service.store.to_string()),
        compute_s_per_sample: workload.service.map(|service| service.compute.as_secs_f64()),
        rows: Vec::new(),
        recorded: Recorded::of(&workload),
        recommend: args.recommend.then(Vec::new),
    };
    let ended = fill(&mut report, args, &workload, &systems, &capacities);
    if !matches!(ended, Ok(()) | Err(SimulateError::Interrupted)) {
        return ended;
    }
    write(out, args.json, &report)?;
    ended
}

fn write(
    out: &mut impl Write,
    json: bool,
    report: &(impl Serialize + fmt::Display),
) -> Result<(), SimulateError> {
    if json {
        serde_json::to_writer(&mut *out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

/// Simulates several jobs at the same time.
fn several(
    args: &Simulate,
    jobs: &Jobs,
    workload: &Workload,
    systems: &[System],
    capacities: &[u64],
) -> Result<JobsReport, SimulateError> {
    let simulations = 2 * jobs.len() as u64 * systems.len() as u64 * args.cache.len() as u64;
    let each = workload.accesses_each().saturating_mul(u64::from(workload.seeds()));
    let watch = Watch::start(each.saturating_mul(simulations))?;
    let mut rows = Vec::new();
    for system in systems {
        for (cache, &capacity) in args.cache.iter().zip(capacities) {
            watch.name(format!("{} at {}", system.name, cache.text()));
            rows.extend(jobs.rows(workload, system, cache.text(), capacity, &watch)?);
        }
    }
    Ok(JobsReport {
        accesses: accesses(args, workload),
        samples: workload.dataset.samples,
        jobs: jobs.len(),
        epochs: workload.epochs(),
        skipped_epochs: workload.skip_epochs,
        seeds: workload.seeds(),
        store: workload.service.map(|service| service.store.to_string()),
        rows,
    })
}

/// Simulates row after row.
fn fill(
    report: &mut Report,
    args: &Simulate,
    workload: &Workload,
    systems: &[System],
    capacities: &[u64],
) -> Result<(), SimulateError> {
    let searches = if args.recommend { recommend::SIMULATIONS } else { 0 };
    let simulations = systems.len() as u64 * (args.cache.len() as u64 + searches);
    let each = workload.accesses_each().saturating_mul(u64::from(workload.seeds()));
    let watch = Watch::start(each.saturating_mul(simulations))?;
    for system in systems {
        for (cache, &capacity) in args.cache.iter().zip(capacities) {
            watch.name(format!("{} at {}", system.name, cache.text()));
            report.rows.push(Row::play(workload, system, cache.text(), capacity, &watch)?);
        }
    }
    if let Some(found) = &mut report.recommend {
        for system in systems {
            watch.name(format!("how much {} needs", system.name));
            found.push(recommend(workload, system, &watch)?);
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
