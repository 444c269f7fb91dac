//! When a read is late, by what other reads take.

use crate::latency::{Latencies, ReadLatency};

/// Least age of a late read: servers that fail over take seconds.
const LATE_NS_MIN: u64 = 5_000_000_000;
/// A late read has taken this many times the 99th percentile.
const LATE_FACTOR: u64 = 8;
/// A read is hedged after this many times the 99th percentile.
const HEDGE_FACTOR: u64 = 3;
/// Least age of a hedged read: a faster one needs no hedge.
const HEDGE_NS_MIN: u64 = 20_000_000;

/// What is known about late reads.
#[derive(Debug, Default)]
pub(super) struct LateReads {
    pub(super) latencies: Latencies,
    /// When late reads were looked for last.
    pub(super) looked_ns: u64,
    /// The age at which the user is told again; 0 while nothing is late.
    pub(super) tell_at_ns: u64,
    /// Number of reads that are late now.
    pub(super) late: u32,
    /// Records asked for, without hedges: hedges are counted against it.
    pub(super) records: u64,
    pub(super) hedged: u64,
}

impl LateReads {
    /// The latency of reads; `None` before the first.
    pub(super) fn latency(&self) -> Option<ReadLatency> {
        let us = |quantile| Some(self.latencies.quantile_ns(quantile)? as f64 / 1e3);
        Some(ReadLatency { p50_us: us(0.5)?, p99_us: us(0.99)? })
    }

    /// The age from which on a read is late, ns.
    pub(super) fn late_ns(&self) -> u64 {
        LATE_NS_MIN.max(LATE_FACTOR * self.latencies.quantile_ns(0.99).unwrap_or(0))
    }

    /// The age from which on a read is asked for again, ns; `None` before the first answer.
    pub(super) fn hedge_ns(&self) -> Option<u64> {
        Some(HEDGE_NS_MIN.max(HEDGE_FACTOR * self.latencies.quantile_ns(0.99)?))
    }
}
