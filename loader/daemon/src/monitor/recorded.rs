//! A recorded snapshot of the counters, as the daemon's status would have been. A recording has a
//! part of it.

use shade_core::{CountStats, Counts, JobStatus, RankStatus, ReadLatency, Waits};
use shade_formats::trace::{Header, RankSnapshot, Snapshot};

use crate::status::DaemonStatus;

/// The daemon and its recorded job at the time of a snapshot.
pub(crate) fn recorded_status(header: &Header, snapshot: &Snapshot) -> DaemonStatus {
    let counts = Counts {
        accesses: snapshot.accesses,
        hits: snapshot.hits,
        delivered: snapshot.delivered,
        bytes_read: snapshot.bytes_read,
        tier_bytes: snapshot.tier_bytes,
        fill_ns: snapshot.fill_ns,
        ..Counts::default()
    };
    let job = JobStatus {
        name: header.job.clone(),
        epoch: snapshot.epoch,
        opened_share: snapshot.opened_share,
        counts: CountStats::from(counts),
        by_rank: snapshot.by_rank.iter().map(of_rank).collect(),
        ..JobStatus::default()
    };
    DaemonStatus {
        version: header.shade_load.clone(),
        dataset: header.dataset.clone(),
        uptime_ns: snapshot.at_us.saturating_mul(1000),
        cache_bytes: snapshot.cache_bytes,
        cache_used_bytes: snapshot.cache_used_bytes,
        workers: header.workers,
        reads_submitted: snapshot.reads_submitted,
        reads_late: snapshot.reads_late,
        read_latency: snapshot
            .p50_us
            .zip(snapshot.p99_us)
            .map(|(p50_us, p99_us)| ReadLatency { p50_us, p99_us }),
        jobs: vec![job],
        ..DaemonStatus::default()
    }
}

fn of_rank(snapshot: &RankSnapshot) -> RankStatus {
    let &RankSnapshot { rank, in_ring, open, attached_ns, .. } = snapshot;
    let &RankSnapshot { storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns, .. } = snapshot;
    let waits = Waits { storage_ns, workers_ns, plan_ns, ranks_ns, ring_full_ns };
    RankStatus { rank, in_ring, open, attached_ns, waits, ..RankStatus::default() }
}
