//! What a daemon says of itself and its jobs: `shade-load status --json`, and what `status`, `top`,
//! `export` and `report` show. docs/schemas has it as a JSON schema.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shade_core::{JobStatus, ReadLatency, TierStats};

/// A daemon. Counters of a job grow from its beginning. What a recording does not have is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct DaemonStatus {
    /// Process id.
    pub(crate) pid: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Time since its start.
    pub(crate) uptime_ns: u64,
    /// Canonical path of the dataset.
    pub(crate) dataset: String,
    /// Its address.
    pub(crate) socket: String,
    /// Samples of the dataset that it serves.
    pub(crate) samples: u32,
    /// That dataset's content, in hexadecimal.
    pub(crate) content_id: String,
    /// Capacity of the cache.
    pub(crate) cache_bytes: u64,
    /// Bytes in use of it.
    pub(crate) cache_used_bytes: u64,
    /// Records in it.
    pub(crate) resident: u64,
    /// Threads that fill batches.
    pub(crate) workers: u32,
    /// Reads that may be in flight now.
    pub(crate) depth: u32,
    /// Reads without an answer yet; those beyond the depth wait for their turn.
    pub(crate) reads_submitted: u64,
    /// Those that have had no answer for long.
    pub(crate) reads_late: u32,
    /// Reads that wait before another try, because of trouble of the store.
    pub(crate) reads_in_trouble: u32,
    /// That trouble, or what it was a moment ago: "503: asks for a slower pace".
    pub(crate) store_trouble: Option<String>,
    /// Latency of recent reads; `None` before the first.
    pub(crate) read_latency: Option<ReadLatency>,
    /// The tier; `None` without one, and until its servers are reached.
    pub(crate) tier: Option<TierStats>,
    /// All settings by name, as in a Welcome.
    pub(crate) settings: Map<String, Value>,
    /// Longest time for which the main thread was busy without a look at what had come.
    pub(crate) silence_longest_ns: u64,
    /// The longest since anybody asked last.
    pub(crate) silence_ns: u64,
    /// Seconds that it stays without a rank; `None`: until it is stopped.
    pub(crate) linger_s: Option<f64>,
    /// Whether it takes no new job.
    pub(crate) draining: bool,
    /// Its jobs, in the order in which they began.
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
