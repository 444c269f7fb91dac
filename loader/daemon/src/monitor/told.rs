//! What a daemon's status tells, as far as it is shown. A recorded look tells a part of it. All
//! counters grow from the job's beginning.

use serde::Deserialize;
use shade_formats::trace::{Header, Look, RankLook};

use crate::ask::AskError;

/// A daemon.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Daemon {
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) version: String,
    pub(crate) dataset: String,
    /// Its address; a recorded look has none.
    #[serde(default)]
    pub(crate) socket: String,
    pub(crate) uptime_ns: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_used_bytes: u64,
    pub(crate) workers: u32,
    pub(crate) depth: u32,
    pub(crate) reads_submitted: u64,
    pub(crate) reads_late: u32,
    pub(crate) read_latency: Option<Latency>,
    #[serde(default)]
    pub(crate) silence_longest_ns: u64,
    #[serde(default)]
    pub(crate) silence_ns: u64,
    pub(crate) jobs: Vec<Job>,
}

/// The latency of recent reads.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// A job.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) epoch: Option<u32>,
    pub(crate) opened_share: f64,
    pub(crate) accesses: u64,
    pub(crate) hits: u64,
    pub(crate) delivered: u64,
    pub(crate) bytes_read: u64,
    pub(crate) tier_bytes: u64,
    pub(crate) fill_ns: u64,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) by_rank: Vec<Rank>,
}

/// Counts of a job that only a live daemon tells.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Counts {
    pub(crate) ranks: u32,
    pub(crate) reads: u64,
    pub(crate) evicted: u64,
    pub(crate) reported: u64,
    pub(crate) substituted: u64,
    pub(crate) skipped: u64,
    pub(crate) faults: u64,
}

/// A rank.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) in_ring: u32,
    pub(crate) open: u32,
    pub(crate) attached_ns: u64,
    pub(crate) storage_ns: u64,
    pub(crate) workers_ns: u64,
    pub(crate) plan_ns: u64,
    pub(crate) ranks_ns: u64,
    pub(crate) ring_full_ns: u64,
}

impl Rank {
    /// The time that it waited, by cause.
    pub(crate) fn waited_ns(&self) -> [(&'static str, u64); 4] {
        let &Self { storage_ns, workers_ns, plan_ns, ranks_ns, .. } = self;
        [("storage", storage_ns), ("workers", workers_ns), ("plan", plan_ns), ("ranks", ranks_ns)]
    }
}

/// Reads daemons' answers; unknown keys are ignored.
pub(crate) fn daemons(answers: &[String]) -> Result<Vec<Daemon>, AskError> {
    answers.iter().map(|json| serde_json::from_str(json)).collect::<Result<_, _>>().map_err(AskError::Status)
}

/// The daemon and its recorded job at the time of a look.
pub(crate) fn told_by(header: &Header, look: &Look) -> Daemon {
    let read_latency = look.p50_us.zip(look.p99_us).map(|(p50_us, p99_us)| Latency { p50_us, p99_us });
    let job = Job {
        name: header.job.clone(),
        epoch: look.epoch,
        opened_share: look.opened_share,
        accesses: look.accesses,
        hits: look.hits,
        delivered: look.delivered,
        bytes_read: look.bytes_read,
        tier_bytes: look.tier_bytes,
        fill_ns: look.fill_ns,
        counts: Counts::default(),
        by_rank: look.by_rank.iter().map(of_rank).collect(),
    };
    Daemon {
        pid: 0,
        version: header.shade_load.clone(),
        dataset: header.dataset.clone(),
        socket: String::new(),
        uptime_ns: look.at_us.saturating_mul(1000),
        cache_bytes: look.cache_bytes,
        cache_used_bytes: look.cache_used_bytes,
        workers: header.workers,
        depth: 0,
        reads_submitted: look.reads_submitted,
        reads_late: look.reads_late,
        read_latency,
        silence_longest_ns: 0,
        silence_ns: 0,
        jobs: vec![job],
    }
}

fn of_rank(look: &RankLook) -> Rank {
    let &RankLook { rank, in_ring, open, attached_ns, .. } = look;
    let &RankLook { storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns, .. } = look;
    Rank { rank, in_ring, open, attached_ns, storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns }
}
