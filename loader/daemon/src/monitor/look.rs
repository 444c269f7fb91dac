//! A recorded look, as the daemon's status would have told it.

use shade_formats::trace::{Header, Look, RankLook};

use super::told::{Counts, Daemon, Job, Latency, Rank};

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
