//! What a daemon's status tells, as far as it is shown. All counters grow from the job's beginning.

use serde::Deserialize;

use crate::ask::AskError;

/// A daemon.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Daemon {
    pub(super) pid: u32,
    pub(super) dataset: String,
    pub(super) uptime_ns: u64,
    pub(super) cache_bytes: u64,
    pub(super) cache_used_bytes: u64,
    pub(super) workers: u32,
    pub(super) depth: u32,
    pub(super) reads_submitted: u64,
    pub(super) reads_late: u32,
    pub(super) read_latency: Option<Latency>,
    pub(super) jobs: Vec<Job>,
}

/// The latency of recent reads.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// A job.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) epoch: Option<u32>,
    pub(super) opened_share: f64,
    pub(super) accesses: u64,
    pub(super) hits: u64,
    pub(super) delivered: u64,
    pub(super) bytes_read: u64,
    pub(super) tier_bytes: u64,
    pub(super) fill_ns: u64,
    pub(super) by_rank: Vec<Rank>,
}

/// A rank.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) in_ring: u32,
    pub(super) open: u32,
    pub(super) attached_ns: u64,
    pub(super) storage_ns: u64,
    pub(super) workers_ns: u64,
    pub(super) plan_ns: u64,
    pub(super) ranks_ns: u64,
    pub(super) ring_full_ns: u64,
}

/// Reads daemons' answers; unknown keys are ignored.
pub(super) fn daemons(answers: &[String]) -> Result<Vec<Daemon>, AskError> {
    answers.iter().map(|json| serde_json::from_str(json)).collect::<Result<_, _>>().map_err(AskError::Status)
}
