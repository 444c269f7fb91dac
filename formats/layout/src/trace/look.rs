//! A look at the counters of the recorded job and its daemon.

use serde::{Deserialize, Serialize};

/// What the counters were at a moment. Those of the job grow from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When.
    pub at_us: u64,
    /// The job's epoch; `None` before the first.
    pub epoch: Option<u32>,
    /// Share of the epoch that was opened.
    pub opened_share: f64,
    /// The job's accesses.
    pub accesses: u64,
    /// Those served from the cache, or by a read that another row had asked for.
    pub hits: u64,
    /// Rows delivered.
    pub delivered: u64,
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// Bytes of records that the tier brought.
    pub tier_bytes: u64,
    /// Time that workers copied or decoded rows, of all workers together.
    pub fill_ns: u64,
    /// Capacity of the daemon's cache.
    pub cache_bytes: u64,
    /// What it holds.
    pub cache_used_bytes: u64,
    /// The daemon's reads that are submitted and not yet completed.
    pub reads_submitted: u64,
    /// Those that have had no answer for long.
    pub reads_late: u32,
    /// Median latency of its recent reads; `None` before the first.
    pub p50_us: Option<f64>,
    /// Their 99th percentile.
    pub p99_us: Option<f64>,
    /// The job's ranks at this daemon, at most 256.
    pub by_rank: Vec<RankLook>,
}

/// A rank's counters. Times grow from its attaching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLook {
    /// Its number.
    pub rank: u32,
    /// Finished batches that it has not released.
    pub in_ring: u32,
    /// Batches that are being filled.
    pub open: u32,
    /// Time since it attached.
    pub attached_ns: u64,
    /// Time that it waited for storage.
    pub storage_ns: u64,
    /// Time that it waited for workers.
    pub workers_ns: u64,
    /// Time that it waited for the plan.
    pub plan_ns: u64,
    /// Time that it waited for other ranks.
    pub ranks_ns: u64,
    /// Time that its ring was full of finished batches.
    pub ring_full_ns: u64,
}
