//! What a daemon says of itself and its jobs: `shade-load status --json`, and what `status`, `top`,
//! `export` and `report` show. `formats/layout/CONTROL.md` describes it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shade_core::{JobStatus, ReadLatency, TierStats};

/// A daemon. Counters of a job grow from its beginning. What a recording does not have is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonStatus {
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) uptime_ns: u64,
    pub(crate) dataset: String,
    /// Its address.
    pub(crate) socket: String,
    pub(crate) samples: u32,
    pub(crate) content_id: String,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_used_bytes: u64,
    pub(crate) resident: u64,
    pub(crate) workers: u32,
    pub(crate) depth: u32,
    pub(crate) reads_submitted: u64,
    pub(crate) reads_late: u32,
    pub(crate) read_latency: Option<ReadLatency>,
    pub(crate) tier: Option<TierStats>,
    pub(crate) settings: Map<String, Value>,
    pub(crate) silence_longest_ns: u64,
    pub(crate) silence_ns: u64,
    pub(crate) linger_s: Option<f64>,
    pub(crate) draining: bool,
    pub(crate) jobs: Vec<JobStatus>,
}

impl DaemonStatus {
    /// Reads a daemon's answer.
    ///
    /// # Errors
    /// It is no status.
    pub(crate) fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Reads the answers of several daemons.
    ///
    /// # Errors
    /// One is no status.
    pub(crate) fn all(answers: &[String]) -> Result<Vec<Self>, serde_json::Error> {
        answers.iter().map(|json| Self::parse(json)).collect()
    }
}
