//! Daemons' counters as OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use super::last::AllTold;
use super::metrics::{METRICS, Metric, Of, seconds};
use shade_core::{Cause, JobStatus, RankStatus};

use crate::status::DaemonStatus;

/// Before each name.
const PREFIX: &str = "shade";

/// All metrics of these daemons.
///
/// # Errors
/// Never: memory is written to.
pub(super) fn encode(AllTold { told, silent }: AllTold) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    let (answering, daemons) = told.into_iter().map(|told| (told.answers, told.daemon)).unzip();
    registry.register_collector(Box::new(Look { daemons, answering, silent }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Daemons at a moment.
#[derive(Debug)]
struct Look {
    daemons: Vec<DaemonStatus>,
    /// By daemon: its figures are those of now.
    answering: Vec<bool>,
    silent: usize,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            let Metric { name, unit, kind, help, of } = metric;
            let samples = self.samples(*of);
            if samples.is_empty() {
                continue;
            }
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    Value(*kind, value).encode(family)?;
                    break;
                }
                Value(*kind, value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Look {
    fn samples(&self, of: Of) -> Vec<(Labels, f64)> {
        let dataset = |daemon: &DaemonStatus| vec![("dataset", daemon.dataset.clone())];
        let jobs = || self.daemons.iter().flat_map(|daemon| daemon.jobs.iter().map(move |job| (daemon, job)));
        let ranks =
            || jobs().flat_map(|(daemon, job)| job.by_rank.iter().map(move |rank| (daemon, job, rank)));
        match of {
            Of::Node(value) => {
                let answered = self.answering.iter().filter(|answers| **answers).count();
                vec![(Vec::new(), value(answered, self.silent) as f64)]
            }
            Of::Up => {
                let up = |(daemon, &answers)| (dataset(daemon), f64::from(u8::from(answers)));
                self.daemons.iter().zip(&self.answering).map(up).collect()
            }
            Of::Daemon(value) => self.daemons.iter().map(|daemon| (dataset(daemon), value(daemon))).collect(),
            Of::Process => {
                let labels = |daemon: &DaemonStatus| {
                    let process = [("version", daemon.version.clone()), ("pid", daemon.pid.to_string())];
                    [dataset(daemon), process.to_vec()].concat()
                };
                self.daemons.iter().map(|daemon| (labels(daemon), 1.0)).collect()
            }
            Of::Trouble => self.daemons.iter().map(trouble).collect(),
            Of::Latency => self.daemons.iter().flat_map(latencies).collect(),
            Of::Job(value) => {
                jobs().filter_map(|(daemon, job)| Some((of_job(daemon, job), value(job)?))).collect()
            }
            Of::Count(value) => {
                jobs().map(|(daemon, job)| (of_job(daemon, job), value(&job.counts.counts))).collect()
            }
            Of::Rank(value) => {
                ranks().map(|(daemon, job, rank)| (of_rank(daemon, job, rank), value(rank))).collect()
            }
            Of::Waits => ranks().flat_map(|(daemon, job, rank)| waits(daemon, job, rank)).collect(),
        }
    }
}

fn trouble(daemon: &DaemonStatus) -> (Labels, f64) {
    let reason = daemon.store_trouble.clone().unwrap_or_default();
    (vec![("dataset", daemon.dataset.clone()), ("reason", reason)], daemon.reads_in_trouble.into())
}

fn latencies(daemon: &DaemonStatus) -> Vec<(Labels, f64)> {
    let of = |quantile: &str, us: f64| {
        (vec![("dataset", daemon.dataset.clone()), ("quantile", quantile.to_owned())], us / 1e6)
    };
    let latency = daemon.read_latency.as_ref();
    latency.map_or_else(Vec::new, |latency| vec![of("0.5", latency.p50_us), of("0.99", latency.p99_us)])
}

fn of_job(daemon: &DaemonStatus, job: &JobStatus) -> Labels {
    vec![("dataset", daemon.dataset.clone()), ("job", job.name.clone())]
}

fn of_rank(daemon: &DaemonStatus, job: &JobStatus, rank: &RankStatus) -> Labels {
    [of_job(daemon, job), vec![("rank", rank.rank.to_string())]].concat()
}

fn waits(daemon: &DaemonStatus, job: &JobStatus, rank: &RankStatus) -> Vec<(Labels, f64)> {
    let of = |cause: Cause| {
        let labels = [of_rank(daemon, job, rank), vec![("cause", cause.name().to_owned())]].concat();
        (labels, seconds(rank.waits.of(cause)))
    };
    Cause::ALL.map(of).to_vec()
}

/// A value of either kind.
struct Value(MetricType, f64);

impl Value {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.0 {
            MetricType::Counter => encoder.encode_counter(&self.1, None::<&Exemplar<NoLabelSet, f64>>),
            _ => encoder.encode_gauge(&self.1),
        }
    }
}
