//! The table of what is exported. docs/monitoring.md shows it, and a test compares both.
//!
//! Names and units are those of Prometheus' conventions: seconds, bytes, ratios of 0 to 1, and
//! counters that end in `_total`.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use shade_core::{Counts, JobStatus, RankStatus};

use crate::status::DaemonStatus;

/// A metric.
pub(super) struct Metric {
    /// Without unit and `_total`.
    pub(super) name: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricType,
    pub(super) help: &'static str,
    pub(super) of: Of,
}

/// Whose it is, which decides its labels, and its value. `None`: there is none now.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// The node: the number of daemons that answered, and of those that did not.
    Node(fn(usize, usize) -> usize),
    /// `dataset`.
    Daemon(fn(&DaemonStatus) -> f64),
    /// `dataset`: 1 for a daemon that answered.
    Up,
    /// `dataset`, `version`, `pid`: 1.
    Process,
    /// `dataset`, `quantile`.
    Latency,
    /// `dataset`, `reason`: reads that wait for the end of trouble; "" without trouble.
    Trouble,
    /// `dataset`, `job`.
    Job(fn(&JobStatus) -> Option<f64>),
    /// `dataset`, `job`: a count that grows from the job's beginning.
    Count(fn(&Counts) -> f64),
    /// `dataset`, `job`, `rank`.
    Rank(fn(&RankStatus) -> f64),
    /// `dataset`, `job`, `rank`, `cause`.
    Waits,
}

/// All of them.
pub(super) const METRICS: &[Metric] = &[
    gauge("daemons", None, "Daemons of this user that answered.", Of::Node(|answered, _| answered)),
    gauge("daemons_silent", None, "Daemons of this user that did not answer.", Of::Node(|_, silent| silent)),
    gauge(
        "daemon_up",
        None,
        "1: the daemon answered; 0: it did not, and its figures are those of its last answer.",
        Of::Up,
    ),
    gauge("daemon_info", None, "Always 1; tells a daemon's version and process.", Of::Process),
    gauge(
        "daemon_uptime",
        Some(Unit::Seconds),
        "Time since the daemon began to serve.",
        Of::Daemon(|daemon| seconds(daemon.uptime_ns)),
    ),
    gauge(
        "cache_capacity",
        Some(Unit::Bytes),
        "Capacity of the cache.",
        Of::Daemon(|daemon| daemon.cache_bytes as f64),
    ),
    gauge(
        "cache_used",
        Some(Unit::Bytes),
        "What the cache holds.",
        Of::Daemon(|daemon| daemon.cache_used_bytes as f64),
    ),
    gauge("workers", None, "Threads that copy or decode.", Of::Daemon(|daemon| daemon.workers.into())),
    gauge("reads_depth", None, "Reads that may be in flight now.", Of::Daemon(|daemon| daemon.depth.into())),
    gauge(
        "reads_submitted",
        None,
        "Reads submitted and not yet completed; those beyond the depth wait for their turn.",
        Of::Daemon(|daemon| daemon.reads_submitted as f64),
    ),
    gauge(
        "reads_late",
        None,
        "Reads that have had no answer for long.",
        Of::Daemon(|daemon| daemon.reads_late.into()),
    ),
    gauge(
        "reads_in_trouble",
        None,
        "Reads that wait before another try, because of trouble of the store, by what it is.",
        Of::Trouble,
    ),
    gauge("read_latency", Some(Unit::Seconds), "Latency of recent reads, by quantile.", Of::Latency),
    gauge(
        "silence",
        Some(Unit::Seconds),
        "Longest time for which the daemon's main thread served nobody, since it was asked last.",
        Of::Daemon(|daemon| seconds(daemon.silence_ns)),
    ),
    gauge(
        "silence_longest",
        Some(Unit::Seconds),
        "The same since the daemon began to serve.",
        Of::Daemon(|daemon| seconds(daemon.silence_longest_ns)),
    ),
    gauge("job_ranks", None, "Ranks attached.", Of::Job(|job| Some(job.ranks.into()))),
    gauge("epoch", None, "The current epoch.", Of::Job(|job| job.epoch.map(f64::from))),
    gauge(
        "epoch_opened_ratio",
        None,
        "Share of the epoch that was opened.",
        Of::Job(|job| Some(job.opened_share)),
    ),
    counter("accesses", None, "Samples asked for.", |counts| counts.accesses as f64),
    counter("hits", None, "Samples served from the cache, or by a read under way.", |counts| {
        counts.hits as f64
    }),
    counter("delivered_samples", None, "Rows delivered.", |counts| counts.delivered as f64),
    counter("reads", None, "Reads of the store.", |counts| counts.reads as f64),
    counter("read", Some(Unit::Bytes), "Bytes read from the store.", |counts| counts.bytes_read as f64),
    counter("tier_read", Some(Unit::Bytes), "Bytes that the tier brought.", |counts| {
        counts.tier_bytes as f64
    }),
    counter(
        "fill",
        Some(Unit::Seconds),
        "Time that workers copied or decoded rows, of all together.",
        |counts| seconds(counts.fill_ns),
    ),
    counter("evicted_records", None, "Records evicted; they count for one job.", |counts| {
        counts.evicted as f64
    }),
    counter("reported_losses", None, "Rows whose loss was reported.", |counts| counts.reported as f64),
    counter("bad_records", None, "Bad records met.", |counts| counts.faults as f64),
    counter("substituted_samples", None, "Rows delivered with a substitute.", |counts| {
        counts.substituted as f64
    }),
    counter("skipped_samples", None, "Rows left out, because their record was bad.", |counts| {
        counts.skipped as f64
    }),
    Metric {
        name: "wait",
        unit: Some(Unit::Seconds),
        kind: MetricType::Counter,
        help: "Time that the trainer waited for a batch, by cause.",
        of: Of::Waits,
    },
    Metric {
        name: "ring_full",
        unit: Some(Unit::Seconds),
        kind: MetricType::Counter,
        help: "Time that the ring was full of finished batches: the trainer is the bound.",
        of: Of::Rank(|rank| seconds(rank.waits.ring_full_ns)),
    },
    gauge(
        "ring_batches",
        None,
        "Finished batches that the rank has not released.",
        Of::Rank(|rank| rank.in_ring.into()),
    ),
    gauge(
        "open_batches",
        None,
        "Batches that are being filled, or are filled and wait for their epoch.",
        Of::Rank(|rank| rank.open.into()),
    ),
];

const fn gauge(name: &'static str, unit: Option<Unit>, help: &'static str, of: Of) -> Metric {
    Metric { name, unit, kind: MetricType::Gauge, help, of }
}

/// A counter of a job, from its beginning.
const fn counter(
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    of: fn(&Counts) -> f64,
) -> Metric {
    Metric { name, unit, kind: MetricType::Counter, help, of: Of::Count(of) }
}

/// Seconds of a time in nanoseconds.
pub(super) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}
