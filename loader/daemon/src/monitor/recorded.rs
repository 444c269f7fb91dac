//! A recorded look at the counters, as the daemon's status would have been. A recording has a part
//! of it.

use shade_core::{CountStats, Counts, JobStatus, RankStatus, ReadLatency, Waits};
use shade_formats::trace::{Header, Look, RankLook};

use crate::status::DaemonStatus;

/// The daemon and its recorded job at the time of a look.
pub(crate) fn recorded_status(header: &Header, look: &Look) -> DaemonStatus {
    let counts = Counts {
        accesses: look.accesses,
        hits: look.hits,
        delivered: look.delivered,
        bytes_read: look.bytes_read,
        tier_bytes: look.tier_bytes,
        fill_ns: look.fill_ns,
        ..Counts::default()
    };
    let job = JobStatus {
        name: header.job.clone(),
        epoch: look.epoch,
        opened_share: look.opened_share,
        counts: CountStats::from(counts),
        by_rank: look.by_rank.iter().map(of_rank).collect(),
        ..JobStatus::default()
    };
    DaemonStatus {
        version: header.shade_load.clone(),
        dataset: header.dataset.clone(),
        uptime_ns: look.at_us.saturating_mul(1000),
        cache_bytes: look.cache_bytes,
        cache_used_bytes: look.cache_used_bytes,
        workers: header.workers,
        reads_submitted: look.reads_submitted,
        reads_late: look.reads_late,
        read_latency: look.p50_us.zip(look.p99_us).map(|(p50_us, p99_us)| ReadLatency { p50_us, p99_us }),
        jobs: vec![job],
        ..DaemonStatus::default()
    }
}

fn of_rank(look: &RankLook) -> RankStatus {
    let &RankLook { rank, in_ring, open, attached_ns, .. } = look;
    let &RankLook { storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns, .. } = look;
    let waits = Waits { storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns };
    RankStatus { rank, in_ring, open, attached_ns, waits, ..RankStatus::default() }
}
