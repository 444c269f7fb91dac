//! Results of the probe at each depth: rates, latencies, and the depth beyond which nothing is
//! gained.

use std::time::Duration;

use serde::Serialize;
use shade_formats::limits::READS_DEPTH_MAX;
use shade_job::{LatencyModel, StoreModel};

/// Share of the best rate that counts as equal.
const KNEE_SHARE: f64 = 0.95;

/// The result of one depth.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Step {
    /// Reads in flight at most.
    pub(super) depth: u32,
    /// Records that came back good.
    pub(super) reads: u64,
    /// From the first read's start to the last one's end.
    pub(super) seconds: f64,
    /// Records a second.
    pub(super) iops: f64,
    /// Millions of record bytes a second.
    pub(super) mb_per_s: f64,
    /// Reads in flight, on average over the time.
    pub(super) in_flight_mean: f64,
    /// Latency that half of the reads did not exceed.
    pub(super) latency_p50_us: u32,
    /// 90 % of the reads.
    pub(super) latency_p90_us: u32,
    /// 99 % of the reads.
    pub(super) latency_p99_us: u32,
    /// The slowest read.
    pub(super) latency_max_us: u32,
}

/// Counts the good reads of one depth.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bytes: u64,
    latencies_us: Vec<u32>,
}

impl Tally {
    /// One more record.
    pub(super) fn count(&mut self, record_bytes: u32, latency: Duration) {
        self.bytes += u64::from(record_bytes);
        self.latencies_us.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    /// Records so far.
    pub(super) fn reads(&self) -> u64 {
        self.latencies_us.len() as u64
    }

    /// The figures of `depth`, which took `elapsed`; `None` if no record came.
    pub(super) fn step(mut self, depth: u32, elapsed: Duration) -> Option<Step> {
        self.latencies_us.sort_unstable();
        let last = self.latencies_us.len().checked_sub(1)?;
        let percentile = |percent: usize| {
            let at = ((last + 1) * percent).div_ceil(100).saturating_sub(1);
            self.latencies_us.get(at).copied().unwrap_or_default()
        };
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let waited_us: u64 = self.latencies_us.iter().map(|&us| u64::from(us)).sum();
        Some(Step {
            depth,
            reads: self.reads(),
            seconds,
            iops: self.reads() as f64 / seconds,
            mb_per_s: self.bytes as f64 / 1e6 / seconds,
            // Little's law.
            in_flight_mean: waited_us as f64 / 1e6 / seconds,
            latency_p50_us: percentile(50),
            latency_p90_us: percentile(90),
            latency_p99_us: percentile(99),
            latency_max_us: percentile(100),
        })
    }
}

/// Requests between an NFS client and its server in the step that had most of them on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Wire {
    /// The step's depth.
    pub(super) depth: u32,
    /// Reads that the step had in flight, on average.
    pub(super) asked_mean: f64,
    /// Requests sent and not yet answered, on average: at most the session slots that the server
    /// has granted.
    pub(super) in_flight_mean: f64,
    /// Their mean RTT.
    pub(super) rtt_ms: f64,
    /// The mean RTT of a read that was alone.
    pub(super) rtt_alone_ms: f64,
}

/// What bounds the rate of a mount with session slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The slots: more reads were wanted than sent, and those sent were answered as fast as a
    /// single read.
    Slots,
    /// The server or the link: the requests were answered more slowly.
    Server,
    /// Neither: all wanted reads were sent.
    Reader,
}

/// Ratio of wanted to sent requests that is not noise.
const MORE_ASKED: f64 = 1.3;
/// Ratio of RTTs up to which requests are as fast as a single one.
const AS_ALONE: f64 = 2.0;

impl Wire {
    /// From the steps, the first with one read at a time, and each step's operations and the sum of
    /// their RTTs in milliseconds. Returns the step that had most on the wire: in any other the
    /// server or the reader may have paused.
    pub(super) fn of(steps: &[Step], operations: &[(u64, f64)]) -> Option<Self> {
        let mean = |&(ops, rtt_ms): &(u64, f64)| (ops > 0 && rtt_ms > 0.0).then(|| rtt_ms / ops as f64);
        let rtt_alone_ms = mean(operations.first()?)?;
        let wires = steps.iter().zip(operations).filter_map(|(step, operations)| {
            Some(Self {
                depth: step.depth,
                asked_mean: step.in_flight_mean,
                // Little's law.
                in_flight_mean: operations.1 / 1e3 / step.seconds.max(1e-9),
                rtt_ms: mean(operations)?,
                rtt_alone_ms,
            })
        });
        wires.max_by(|a, b| a.in_flight_mean.total_cmp(&b.in_flight_mean))
    }

    /// What bounded the step.
    pub(super) fn bound(&self) -> Bound {
        if self.asked_mean < self.in_flight_mean * MORE_ASKED {
            Bound::Reader
        } else if self.rtt_ms < self.rtt_alone_ms * AS_ALONE {
            Bound::Slots
        } else {
            Bound::Server
        }
    }
}

/// The smallest depth that reads nearly as many records a second as the best one.
pub(super) fn knee(steps: &[Step]) -> Option<u32> {
    let best = steps.iter().map(|step| step.iops).max_by(f64::total_cmp)?;
    steps.iter().filter(|step| step.iops >= KNEE_SHARE * best).map(|step| step.depth).min()
}

/// A simulated store that gives as many records a second as the best step, and answers one read
/// alone as fast as the first step.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
pub(super) fn store(steps: &[Step]) -> Option<StoreModel> {
    let alone_us = steps.first()?.latency_p50_us.max(1);
    let best = steps.iter().map(|step| step.iops).max_by(f64::total_cmp)?;
    // Little's law.
    let slots = (best * f64::from(alone_us) / 1e6).round().clamp(1.0, f64::from(READS_DEPTH_MAX));
    let latency = LatencyModel::Fixed(Duration::from_micros(alone_us.into()));
    Some(StoreModel { latency, slots: Some(slots as u32), ..StoreModel::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(depth: u32, iops: u32) -> Step {
        let mut tally = Tally::default();
        (0..iops).for_each(|_| tally.count(1000, Duration::from_millis(1)));
        tally.step(depth, Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn percentiles_are_of_the_reads_themselves() {
        let mut tally = Tally::default();
        (1..=200).rev().for_each(|ms| tally.count(5000, Duration::from_millis(ms)));
        let step = tally.step(16, Duration::from_secs(2)).unwrap();
        let latencies = [step.latency_p50_us, step.latency_p90_us, step.latency_p99_us, step.latency_max_us];
        assert_eq!(latencies, [100_000, 180_000, 198_000, 200_000]);
        assert_eq!((step.reads, step.iops, step.mb_per_s), (200, 100.0, 0.5));
        assert!((step.in_flight_mean - 10.05).abs() < 1e-9, "20.1 s waited in 2 s: {}", step.in_flight_mean);
    }

    #[test]
    fn one_read_is_all_percentiles() {
        let mut tally = Tally::default();
        tally.count(1, Duration::from_micros(7));
        let step = tally.step(1, Duration::ZERO).unwrap();
        assert_eq!((step.latency_p50_us, step.latency_max_us), (7, 7));
        assert!(step.iops.is_finite());
        assert_eq!(Tally::default().step(1, Duration::from_secs(1)), None);
    }

    #[test]
    fn what_is_on_the_wire_tells_slots_from_a_slow_server() {
        let step = |depth, in_flight_mean| Step { depth, in_flight_mean, seconds: 2.0, ..Step::default() };
        // 50 ms and 31 slots, as a 6.1 client had it; at depth 256 the guest paused.
        let steps = [step(1, 1.0), step(64, 60.6), step(256, 52.7)];
        let wire = Wire::of(&steps, &[(38, 1_926.0), (1096, 55_600.0), (442, 24_100.0)]).unwrap();
        assert!((27.0..29.0).contains(&wire.in_flight_mean) && wire.depth == 64, "{wire:?}");
        assert_eq!(wire.bound(), Bound::Slots);
        assert_eq!(Wire { asked_mean: 29.0, ..wire }.bound(), Bound::Reader);
        // Over a thin link.
        let thin = Wire::of(&steps, &[(40, 1_900.0), (44, 58_000.0), (44, 59_000.0)]).unwrap();
        assert!((29.0..30.0).contains(&thin.in_flight_mean) && thin.depth == 256, "{thin:?}");
        assert_eq!(thin.bound(), Bound::Server);
        assert_eq!(Wire::of(&steps, &[(0, 0.0), (1, 1.0)]), None);
        assert_eq!(Wire::of(&steps, &[]), None);
    }

    #[test]
    fn the_knee_is_the_smallest_depth_that_gains_nearly_everything() {
        let steps = [step(1, 100), step(4, 400), step(16, 960), step(64, 1000), step(256, 900)];
        assert_eq!(knee(&steps), Some(16));
        assert_eq!(knee(steps.get(..2).unwrap()), Some(4));
        assert_eq!(knee(&[]), None);
        // 1,000 a second, each after 1 ms, are one at a time.
        assert_eq!(store(&steps).unwrap().to_string(), "latency=1ms,depth=1");
        let many = [step(1, 1000), step(64, 31_400)];
        assert_eq!(store(&many).unwrap().to_string(), "latency=1ms,depth=31");
        assert_eq!(store(&[]), None);
    }
}
