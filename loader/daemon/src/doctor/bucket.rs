//! A dataset, or any objects, at an address in an object store: what is there, how fast it comes,
//! what limits it, and what an epoch costs in requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shade_dataset::{
    Dataset, DatasetError, Objects, Url, connections_max, raise_open_files_limit, shards_address,
};

use super::advice::{Advice, change, note};
use super::cli::DoctorError;
use super::interrupt::stopped_by_ctrl_c;
use super::path_facts::{DatasetFacts, facts};
use super::probe::Probe;
use super::requests::{Found, Load, Targets, ask};
use crate::daemon::AutoCache;
use crate::proc::{SystemMemory, text};

/// Objects that are looked at where there is no dataset.
const OBJECTS_MAX: usize = 1000;
/// CPUs that serve connections, as the client has two threads.
const CLIENT_CPUS: usize = 2;
/// Share of the CPUs, or of a link, from which on it is the limit.
const FULL: f64 = 0.8;
/// Ratio of the rates of the two deepest steps from which on more connections would bring more.
const GROWS: f64 = 1.25;
/// Share of requests that are answered by 503 which is no accident.
const REFUSED: f64 = 0.01;

/// What lies at an address, and how it answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Bucket {
    /// The address, or the path of an index of images in a bucket.
    pub(super) address: String,
    /// Where the records are, if their index lies elsewhere.
    pub(super) records: Option<String>,
    /// The packed dataset there; `None` if there is none.
    pub(super) dataset: Option<DatasetFacts>,
    /// Why there is none: other objects were read then.
    pub(super) no_dataset: Option<String>,
    /// Requests that this process may have in flight: each takes a connection, and half of the
    /// descriptors (RLIMIT_NOFILE) are for them.
    pub(super) connections_max: u32,
    /// Median latency of a request alone; `None` without a probe, as all below.
    pub(super) latency_p50_ms: Option<f64>,
    /// Its 99th percentile at the knee.
    pub(super) latency_p99_ms: Option<f64>,
    /// Millions of bytes a second of a connection alone.
    pub(super) mb_per_s_alone: Option<f64>,
    /// Millions of bytes a second of each connection at the knee.
    pub(super) mb_per_s_a_connection: Option<f64>,
    /// CPUs that this process kept busy at the best rate.
    pub(super) cpus_busy: Option<f64>,
    /// Speed of this machine's fastest link that says one, in Mbit/s.
    pub(super) link_mbit_per_s: Option<u64>,
    /// Requests that were answered by 429 or 503.
    pub(super) slow_downs: u64,
    /// What limits the best rate.
    pub(super) limit: Option<Limit>,
    /// What an epoch of the dataset costs.
    pub(super) epoch: Option<EpochCost>,
}

/// What limits the rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Limit {
    /// The CPUs of this machine.
    Cpu,
    /// The link of this machine.
    Link,
    /// The store, which asks for a slower pace (429, 503).
    SlowDown,
    /// The latency alone: the rate grows with the requests in flight.
    Latency,
    /// The store, or the way to it: the rate does not grow, and this machine has more to give.
    Store,
}

impl Limit {
    /// What it means.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Cpu => "this machine's CPUs: they are busy with the answers",
            Self::Link => "this machine's link: it is full",
            Self::SlowDown => "the store: it asks for a slower pace (503)",
            Self::Latency => "the latency alone: more requests at a time would bring more",
            Self::Store => {
                "the store, or the way to it: more requests at a time bring nothing, and this machine is not busy"
            }
        }
    }
}

/// Requests of an epoch whose plan is a shuffle.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EpochCost {
    /// Samples of the dataset.
    pub(super) samples: u32,
    /// The cache that a daemon would take here.
    pub(super) cache_bytes: u64,
    /// Share of the dataset that it holds.
    pub(super) cached_share: f64,
    /// Most requests of the first epoch.
    pub(super) first_requests: u64,
    /// Most requests of each later one; neighbours that are read together make them fewer.
    pub(super) later_requests: u64,
}

impl EpochCost {
    fn of(dataset: &DatasetFacts, cache_bytes: u64) -> Self {
        let cached_share = (cache_bytes as f64 / dataset.cached_bytes.max(1) as f64).min(1.0);
        let samples = u64::from(dataset.samples);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the samples")]
        let later_requests = (samples as f64 * (1.0 - cached_share)).ceil() as u64;
        Self { samples: dataset.samples, cache_bytes, cached_share, first_requests: samples, later_requests }
    }
}

/// What was found at an address: facts, and the probe if there was one.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) bucket: Bucket,
    pub(super) probe: Option<Probe>,
}

/// Where the records are of a dataset whose index is a file; `None` if they are files, too, or
/// there is none.
pub(super) fn records_of(path: &Path) -> Option<Url> {
    let dataset = Dataset::open(path).ok()?;
    shards_address(&dataset.folder, &dataset.index)
}

/// Examines what lies at `place`, whose objects are at `url` unless its index says another address.
/// Asks for some of them for about `length`, or until Ctrl-C.
pub(super) fn look(place: &Path, url: &Url, length: Duration) -> Result<Examined, DoctorError> {
    raise_open_files_limit();
    let mut url = url.clone();
    let mut bucket = Bucket {
        address: place.display().to_string(),
        records: None,
        dataset: None,
        no_dataset: None,
        connections_max: connections_max(),
        latency_p50_ms: None,
        latency_p99_ms: None,
        mb_per_s_alone: None,
        mb_per_s_a_connection: None,
        cpus_busy: None,
        link_mbit_per_s: link_mbit_per_s(),
        slow_downs: 0,
        limit: None,
        epoch: None,
    };
    let fault = |url: &Url| {
        let address = url.to_string();
        |fault| DoctorError::Store { address, fault }
    };
    let targets = match Dataset::open(place) {
        Ok(dataset) => {
            bucket.dataset = Some(facts(&dataset.index));
            url = shards_address(&dataset.folder, &dataset.index).unwrap_or(url);
            bucket.records = Some(url.to_string()).filter(|records| *records != bucket.address);
            Targets::of_index(&dataset.index)
        }
        Err(error @ DatasetError::NotPackedAt { .. }) => {
            bucket.no_dataset = Some(error.to_string());
            let there = Objects::open(&url, 1)
                .and_then(|objects| objects.list_some(OBJECTS_MAX))
                .map_err(fault(&url))?;
            if there.is_empty() {
                return Err(DoctorError::NothingThere { address: url.to_string() });
            }
            Targets::of_objects(there.into_iter().map(|found| (found.name, found.bytes)).collect())
        }
        Err(error) => return Err(error.into()),
    };
    if targets.is_empty() || length.is_zero() {
        return Ok(Examined { bucket, probe: None });
    }
    let objects = Objects::open(&url, bucket.connections_max as usize).map_err(fault(&url))?;
    // From here on, as nobody looks at it before: then Ctrl-C ends the process.
    let stop = stopped_by_ctrl_c()?;
    let found = ask(Arc::new(objects), targets, length, &stop);
    bucket.learn(&found, std::thread::available_parallelism().map_or(1, usize::from));
    Ok(Examined { bucket, probe: Some(found.probe) })
}

impl Bucket {
    /// Takes in what requests found.
    fn learn(&mut self, found: &Found, cpus: usize) {
        let Found { probe, loads, slow_downs } = found;
        self.slow_downs = *slow_downs;
        let ms = |us: u32| f64::from(us) / 1e3;
        let alone = probe.steps.first();
        self.latency_p50_ms = alone.map(|step| ms(step.latency_p50_us));
        self.mb_per_s_alone = alone.map(|step| step.mb_per_s);
        let knee = probe.steps.iter().find(|step| Some(step.depth) == probe.knee_depth);
        self.latency_p99_ms = knee.map(|step| ms(step.latency_p99_us));
        self.mb_per_s_a_connection = knee.map(|step| step.mb_per_s / f64::from(step.depth));
        let steps = probe.steps.iter().zip(loads);
        let best = steps.max_by(|(a, _), (b, _)| a.iops.total_cmp(&b.iops));
        self.cpus_busy = best.map(|(_, load)| load.cpus);
        self.limit = limit(probe, loads, cpus, self.link_mbit_per_s);
    }

    /// Finds what an epoch costs with the cache that a daemon would take.
    pub(super) fn cost(&mut self, memory: &SystemMemory) {
        self.epoch = self.dataset.as_ref().map(|dataset| {
            let cache_bytes = AutoCache::of(memory, dataset.cached_bytes, 0).bytes;
            EpochCost::of(dataset, cache_bytes)
        });
    }
}

/// What limits the best rate; `None` unless all depths were measured.
fn limit(probe: &Probe, loads: &[Load], cpus: usize, link_mbit_per_s: Option<u64>) -> Option<Limit> {
    probe.knee_depth?;
    let steps = probe.steps.iter().zip(loads);
    let (best, load) = steps.max_by(|(a, _), (b, _)| a.iops.total_cmp(&b.iops))?;
    let [.., before, last] = probe.steps.as_slice() else { return None };
    let asked: u64 = probe.steps.iter().map(|step| step.reads).sum();
    let slow_downs: u64 = loads.iter().map(|load| load.slow_downs).sum();
    let is_full = |mbit: u64| best.mb_per_s * 8.0 >= FULL * mbit as f64;
    Some(if slow_downs as f64 > REFUSED * asked as f64 {
        Limit::SlowDown
    } else if load.cpus >= FULL * cpus.min(CLIENT_CPUS) as f64 {
        Limit::Cpu
    } else if link_mbit_per_s.is_some_and(is_full) {
        Limit::Link
    } else if last.iops >= GROWS * before.iops {
        Limit::Latency
    } else {
        Limit::Store
    })
}

/// The fastest link that says how fast it is. Those of virtual machines often do not.
fn link_mbit_per_s() -> Option<u64> {
    let links = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let speed = |link: std::fs::DirEntry| {
        text(&link.path().join("speed").to_string_lossy()).trim().parse::<u64>().ok()
    };
    links.filter_map(speed).filter(|mbit| *mbit > 0).max()
}

/// What follows.
pub(super) fn advice(bucket: &Bucket, probe: Option<&Probe>) -> Vec<Advice> {
    let mut all = Vec::new();
    let best = probe.into_iter().flat_map(|probe| &probe.steps).map(|step| step.iops).fold(0.0, f64::max);
    if bucket.slow_downs > 0 {
        all.push(note(
            "slow_down",
            format!("the store answered {} of the requests by 429 or 503", bucket.slow_downs),
            "it asks for fewer requests a second: a larger cache and order=\"spaced\" need fewer; S3 counts them by \
             prefix and takes more after some minutes",
        ));
    }
    if bucket.limit == Some(Limit::Cpu) {
        all.push(note(
            "cpu",
            format!("this machine's CPUs are busy at {best:.0} records/s"),
            "more CPUs bring more; the same CPUs decode, too",
        ));
    }
    if let Some(probe) = probe
        && let Some(first) = probe.forbidden.as_ref().or(probe.first_error.as_ref())
    {
        all.push(change(
            if probe.forbidden.is_some() { "permission" } else { "errors" },
            format!("{} of the requests failed, first: {first}", probe.errors),
            "a training waits 60 s for such a store, and ends then",
            format!("shade-pack verify {}", bucket.address),
        ));
    }
    if probe.is_some_and(|probe| probe.unanswered > 0) {
        all.push(note(
            "server",
            "some requests had no answer within 10 s".to_owned(),
            "the store is very slow now, or something on the way to it is",
        ));
    }
    if bucket.connections_max < shade_formats::limits::READS_DEPTH_MAX {
        all.push(note(
            "descriptors",
            format!("at most {} requests can be in flight", bucket.connections_max),
            "each takes a connection, and half of the process's open files (ulimit -n) are for them",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::sweep::Step;
    use super::*;

    fn probe(rates: &[f64]) -> Probe {
        let step = |&iops: &f64| Step { reads: 1000, iops, mb_per_s: iops / 10.0, ..Step::default() };
        Probe { steps: rates.iter().map(step).collect(), knee_depth: Some(0), ..Probe::default() }
    }

    #[test]
    fn the_limit_is_found_in_rates_and_loads() {
        let flat = probe(&[30.0, 120.0, 480.0, 1900.0, 2000.0, 1990.0]);
        let growing = probe(&[30.0, 120.0, 480.0, 1900.0, 7000.0, 20_000.0]);
        let loads = |cpus, slow_downs| [Load { cpus, slow_downs }; 6];
        let table = [
            (&flat, loads(0.3, 0), 8, None, Limit::Store),
            (&flat, loads(0.3, 5), 8, None, Limit::Store),
            (&flat, loads(0.3, 50), 8, None, Limit::SlowDown),
            (&flat, loads(1.7, 0), 8, None, Limit::Cpu),
            (&flat, loads(0.9, 0), 1, None, Limit::Cpu),
            (&flat, loads(0.9, 0), 2, None, Limit::Store),
            (&flat, loads(0.3, 0), 8, Some(1_000), Limit::Link),
            (&flat, loads(0.3, 0), 8, Some(10_000), Limit::Store),
            (&growing, loads(0.3, 0), 8, Some(100_000), Limit::Latency),
            (&growing, loads(1.9, 0), 8, None, Limit::Cpu),
        ];
        for (probe, loads, cpus, link, expected) in table {
            assert_eq!(limit(probe, &loads, cpus, link), Some(expected), "{loads:?} {cpus} {link:?}");
        }
        let interrupted = Probe { knee_depth: None, ..flat };
        assert_eq!(limit(&interrupted, &loads(0.3, 0), 8, None), None);
    }

    #[test]
    fn an_epoch_costs_what_the_cache_does_not_hold() {
        let dataset = DatasetFacts { samples: 1001, cached_bytes: 1000, ..DatasetFacts::default() };
        for (cache_bytes, later) in [(0, 1001), (200, 801), (1000, 0), (2000, 0)] {
            let cost = EpochCost::of(&dataset, cache_bytes);
            assert_eq!((cost.first_requests, cost.later_requests), (1001, later), "{cache_bytes}");
        }
        assert_eq!(EpochCost::of(&DatasetFacts::default(), 0).later_requests, 0);
    }
}
