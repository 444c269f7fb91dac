//! Quantiles of read latencies in constant memory: counts per eighth of an octave. Old reads count
//! less and less. And when a read is late, by what other reads take.

use serde::{Deserialize, Serialize};

/// Buckets per doubling: a quantile is right to 9 %.
const PER_OCTAVE: u32 = 8;
/// Up to 2^42 ns, more than an hour.
const OCTAVES: u32 = 42;
const BUCKETS: usize = (PER_OCTAVE * OCTAVES) as usize;
/// Reads after which all counts are halved: quantiles follow a store that changes.
const FADE_READS: u64 = 16_384;

/// The latency of recent reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadLatency {
    /// Median, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
}

/// Latencies of recent reads.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    counts: [u32; BUCKETS],
    total: u64,
}

impl Latencies {
    /// Adds one.
    pub(crate) fn add(&mut self, latency_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(latency_ns)) {
            *count += 1;
            self.total += 1;
        }
        if self.total >= FADE_READS {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|&count| u64::from(count)).sum();
        }
    }

    /// The `quantile` (0 to 1) of the latencies, ns, at most 9 % too high; `None` before the first
    /// read.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a small positive count"
    )]
    pub(crate) fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let rank = ((self.total as f64 * quantile).ceil() as u64).clamp(1, self.total.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        })?;
        Some(upper_end_ns(at))
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

/// Eight buckets up to 8 ns, then eight per doubling, by the three bits below the highest.
fn bucket(latency_ns: u64) -> usize {
    let octave = latency_ns.max(1).ilog2();
    let within = if octave >= 3 { (latency_ns >> (octave - 3)) & 7 } else { latency_ns & 7 };
    let at = u64::from(octave.saturating_sub(2)) * u64::from(PER_OCTAVE) + within;
    usize::try_from(at).map_or(BUCKETS - 1, |at| at.min(BUCKETS - 1))
}

/// The greatest latency of a bucket.
fn upper_end_ns(bucket: usize) -> u64 {
    let (octave, within) = (bucket as u64 / u64::from(PER_OCTAVE), bucket as u64 % u64::from(PER_OCTAVE));
    if octave == 0 { within } else { ((9 + within) << (octave - 1)) - 1 }
}

/// Least age of a late read: servers that fail over take seconds.
const LATE_NS_MIN: u64 = 5_000_000_000;
/// A late read has taken this many times the 99th percentile.
const LATE_FACTOR: u64 = 8;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_latency_lies_in_its_bucket_close_to_the_upper_end(latency_ns in 0u64..(1 << 42)) {
            let end = upper_end_ns(bucket(latency_ns));
            prop_assert!(latency_ns <= end, "{} in a bucket up to {}", latency_ns, end);
            prop_assert!(end as f64 <= latency_ns as f64 * 1.125 + 1.0, "{} in a bucket up to {}", latency_ns, end);
        }

        #[test]
        fn buckets_are_in_order(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!(bucket(a.min(b)) <= bucket(a.max(b)));
        }
    }

    #[test]
    fn quantiles_of_a_thousand() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ns(0.5), None);
        (1..=1000).for_each(|us| latencies.add(us * 1000));
        for (quantile, expected_us) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = latencies.quantile_ns(quantile).unwrap() as f64 / 1000.0;
            assert!((expected_us..=expected_us * 1.13).contains(&got), "{quantile}: {got} us");
        }
    }

    #[test]
    fn a_store_that_became_slower_is_seen() {
        let mut latencies = Latencies::default();
        (0..100_000).for_each(|_| latencies.add(1_000_000));
        (0..100_000).for_each(|_| latencies.add(50_000_000));
        assert!(latencies.quantile_ns(0.05).unwrap() >= 50_000_000);
    }
}
