//! What a running training tells `shade-load simulate --recommend`: how fast its store answers, and
//! how fast it would train if it never waited.

use std::path::Path;
use std::time::Duration;

use shade_dataset::Dataset;
use shade_formats::printable::OneLine;
use shade_job::{LatencyModel, PlanSpec, Policy, StoreModel};
use shade_simulate::{BATCH_SIZE, CachePolicy, POLICIES, Simulate, SimulateError};

use crate::control::{Address, Call, CallError, LOOK_TIMEOUT};
use crate::monitor::{DaemonFigures, JobFigures, figures};
use crate::status::DaemonStatus;

/// Between the two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A training computes for this share of the time at least, whatever the figures say.
const BUSY_MIN: f64 = 0.01;

/// What is played of a training's plan. The rest is who draws it and of what.
const PLAYED: [&str; 13] = [
    "sampler",
    "order",
    "rep",
    "hit_cap",
    "cover",
    "explore",
    "echo",
    "gap",
    "prune",
    "whole_from",
    "replacement",
    "pace",
    "draw_ahead",
];
/// What presets have of their own.
const OF_PRESETS: [&str; 2] = ["sampler", "order"];

/// Fills in the store and the compute time of `simulate DATASET --recommend` from the daemon that
/// serves the dataset, where none are given. Returns what it went by, in words.
///
/// # Errors
/// No daemon serves the dataset, or none of its trainings takes batches.
pub fn fill_in(args: &mut Simulate) -> Result<Option<String>, SimulateError> {
    let Some(dataset) = args.dataset.clone().filter(|_| args.recommend && args.store.is_none()) else {
        return Ok(None);
    };
    let folder = Dataset::folder(&dataset)?;
    let address = Address::of_dataset(&folder);
    let before = look(&address, &folder)?;
    std::thread::sleep(INTERVAL);
    let now = look(&address, &folder)?;
    let shown = figures(&[before], std::slice::from_ref(&now));
    let trains = |job: &&JobFigures| {
        job.samples_per_s > 0.0 && now.jobs.iter().any(|told| told.admit && told.name == job.name)
    };
    let jobs =
        shown.iter().flat_map(|daemon| daemon.jobs.iter().filter(trains).map(move |job| (daemon, job)));
    let (daemon, job) = jobs
        .max_by(|(_, left), (_, right)| left.samples_per_s.total_cmp(&right.samples_per_s))
        .ok_or_else(|| lacking(&folder, "no training takes batches from its daemon now"))?;
    let store = store(daemon).ok_or_else(|| lacking(&folder, "its daemon has read nothing yet"))?;
    args.store = Some(store);
    if args.compute.is_none() {
        args.compute = Some(compute(job.samples_per_s, job.waits.all()));
    }
    for told in now.jobs.iter().filter(|told| told.name == job.name) {
        if told.plan.is_some_and(|plan| !plan.parts.is_empty()) {
            let name = OneLine(&job.name);
            let what = format!("--recommend plays trainings on one dataset, and job {name} mixes several");
            return Err(SimulateError::Usage(what));
        }
        let of_all =
            PlanSpec { sampler: told.sampler, order: told.order, rep: told.rep, ..PlanSpec::default() };
        let plan = serde_json::to_value(told.plan.unwrap_or(of_all)).unwrap_or_default();
        let told_of = |name: &str| plan.get(name).filter(|value| !value.is_null());
        let is_preset = !args.training.preset.is_empty();
        let of_preset = |name: &&str| is_preset && OF_PRESETS.contains(name);
        for name in PLAYED.into_iter().filter(|name| !of_preset(name)) {
            let text =
                told_of(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            if let Some(text) = text {
                args.training.plan.set_if_missing(name, &text)?;
            }
        }
        if args.batch_size == BATCH_SIZE && told.batch_size > 0 {
            args.batch_size = told.batch_size;
        }
    }
    let policy = now.settings.get("policy").and_then(|policy| policy.as_str()?.parse::<Policy>().ok());
    if let Some(policy) = policy.filter(|_| args.policy == POLICIES) {
        args.policy = vec![CachePolicy::Online(policy)];
    }
    Ok(Some(format!(
        "as job {} of process {} trains now: {:.0} samples/s, and it waits {:.1} % of the time",
        OneLine(&job.name),
        daemon.pid,
        job.samples_per_s,
        100.0 * job.waits.all()
    )))
}

/// What the daemon at this address tells of itself.
fn look(address: &Address, folder: &Path) -> Result<DaemonStatus, SimulateError> {
    let told = Call::connect_with(address, LOOK_TIMEOUT).and_then(|call| call.status());
    match told {
        Ok(json) => DaemonStatus::parse(&json).map_err(|error| SimulateError::Usage(error.to_string())),
        Err(CallError::NoDaemon { .. }) => Err(lacking(folder, "no daemon of yours serves it now")),
        Err(error) => Err(lacking(folder, &error.to_string())),
    }
}

fn lacking(folder: &Path, what: &str) -> SimulateError {
    let folder = folder.display();
    SimulateError::Usage(format!(
        "--recommend needs a store, and {folder} tells none: {what}; run it while a training goes on, or give --store \
         (`shade-load doctor {folder}` prints one)"
    ))
}

/// A store that answers as fast as the daemon's reads are answered, while as many are in flight.
fn store(daemon: &DaemonFigures) -> Option<StoreModel> {
    let latency = Duration::from_secs_f64((daemon.p50_ms? / 1e3).max(1e-6));
    let slots = Some(daemon.depth.max(1));
    Some(StoreModel { latency: LatencyModel::Fixed(latency), slots, ..StoreModel::default() })
}

/// The time that a sample takes trainers that get `samples_per_s` and wait for the share `waits` of
/// the time.
fn compute(samples_per_s: f64, waits: f64) -> Duration {
    let busy = (1.0 - waits).clamp(BUSY_MIN, 1.0);
    Duration::from_secs_f64((busy / samples_per_s).max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_the_time_that_is_not_waited() {
        assert_eq!(compute(100.0, 0.5), Duration::from_millis(5));
        assert_eq!(compute(100.0, 0.0), Duration::from_millis(10));
        assert_eq!(compute(100.0, 1.0), Duration::from_micros(100), "never nothing, which no trainer takes");
    }
}
