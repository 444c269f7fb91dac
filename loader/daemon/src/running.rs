//! What a running training tells `shade-load simulate --recommend`: how fast its store answers, and
//! how fast it would train if it never waited.

use std::path::Path;
use std::time::Duration;

use shade_core::JobStatus;
use shade_dataset::Dataset;
use shade_formats::printable::OneLine;
use shade_job::{FieldsRead, LatencyModel, PlanSpec, Policy, StoreModel};
use shade_simulate::{BATCH_SIZE, CachePolicy, POLICIES, Simulate, SimulateError};

use crate::control::{Address, Call, CallError, LOOK_TIMEOUT, default_socket};
use crate::monitor::{DaemonFigures, JobFigures, figures};
use crate::status::DaemonStatus;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Batches of each rank that the rate of a training is taken over, and looks that they may take: a
/// step may be longer than an interval, where its store is slow above all.
const BATCHES_MIN: u64 = 8;
const LOOKS_MAX: u32 = 30;
/// From here on the user is told why it takes so long.
const LOOKS_TOLD: u32 = 3;
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
    let socket = args.socket.clone().or_else(default_socket);
    let address = socket.as_deref().map_or_else(|| Address::of_dataset(&folder), Address::given);
    let before = [look(&address, &folder)?];
    let now = look_until_known(&before, &address, &folder)?;
    let shown = figures(&before, std::slice::from_ref(&now));
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
        refuse_part(told)?;
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
    // What is read and cached with each record.
    let fields = now.settings.get("fields").and_then(|fields| fields.as_str()?.parse::<FieldsRead>().ok());
    if let Some(fields) = fields.filter(|_| args.fields == FieldsRead::None) {
        args.fields = fields;
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

/// Refuses a training of which the dataset is not all that it reads here: more would be played.
fn refuse_part(told: &JobStatus) -> Result<(), SimulateError> {
    let has_plan = |is: fn(&PlanSpec) -> bool| told.plan.as_ref().is_some_and(is);
    let what = if has_plan(|plan| !plan.parts.is_empty()) {
        "mixes several"
    } else if has_plan(|plan| plan.subset_digest != 0) {
        "takes some samples of it (Plan(indices=...))"
    } else if told.ranks_here < told.world_size {
        "has other nodes, each with a part of it"
    } else {
        return Ok(());
    };
    let name = OneLine(&told.name);
    Err(SimulateError::Usage(format!(
        "--recommend plays trainings on the whole of one dataset, and job {name} {what}: record it with `shade-load \
         trace`, and give simulate the recording"
    )))
}

/// What the daemon tells once the rate of a training is known, or if there is none.
fn look_until_known(
    before: &[DaemonStatus],
    address: &Address,
    folder: &Path,
) -> Result<DaemonStatus, SimulateError> {
    let mut looks = 1;
    loop {
        std::thread::sleep(INTERVAL);
        let now = look(address, folder)?;
        if looks == LOOKS_MAX || is_known(before, &now) {
            return Ok(now);
        }
        if looks == LOOKS_TOLD {
            tracing::info!("a batch takes long: the training is looked at for up to {LOOKS_MAX} s");
        }
        looks += 1;
    }
}

/// Whether some training has had enough batches since `before`; also if there is none.
fn is_known(before: &[DaemonStatus], now: &DaemonStatus) -> bool {
    let mut trainings = now.jobs.iter().filter(|job| job.admit).peekable();
    trainings.peek().is_none()
        || trainings.any(|job| {
            let old = before.iter().flat_map(|old| &old.jobs).find(|old| old.name == job.name);
            let delivered = |job: &JobStatus| job.counts.counts.delivered;
            let since = delivered(job).saturating_sub(old.map_or(0, delivered));
            since >= BATCHES_MIN * u64::from(job.batch_size) * u64::from(job.ranks.max(1))
        })
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
    fn a_training_of_a_part_is_not_played_as_one_of_all() {
        let whole = JobStatus { ranks_here: 2, world_size: 2, ..JobStatus::default() };
        refuse_part(&whole).unwrap();
        let subset = Some(PlanSpec { subset_digest: 1, ..PlanSpec::default() });
        for (told, text) in [
            (JobStatus { ranks_here: 1, ..whole.clone() }, "has other nodes"),
            (JobStatus { plan: subset, ..whole.clone() }, "takes some samples"),
        ] {
            let error = refuse_part(&told).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("shade-load trace"), "{error}");
        }
    }

    #[test]
    fn a_rate_is_known_after_some_batches_of_each_rank() {
        let with = |delivered, ranks, admit| {
            let mut job = JobStatus { batch_size: 4, ranks, admit, ..JobStatus::default() };
            job.counts.counts.delivered = delivered;
            DaemonStatus { jobs: vec![job], ..DaemonStatus::default() }
        };
        let known = |delivered: u64, ranks, admit| {
            is_known(&[with(100, ranks, admit)], &with(100 + delivered, ranks, admit))
        };
        assert!(known(32, 1, true) && known(64, 2, true) && known(0, 1, false));
        assert!(!known(31, 1, true) && !known(63, 2, true));
    }

    #[test]
    fn a_sample_takes_the_time_that_is_not_waited() {
        assert_eq!(compute(100.0, 0.5), Duration::from_millis(5));
        assert_eq!(compute(100.0, 0.0), Duration::from_millis(10));
        assert_eq!(compute(100.0, 1.0), Duration::from_micros(100), "never nothing, which no trainer takes");
    }
}
