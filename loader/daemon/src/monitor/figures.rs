//! Figures of the time between two looks. The sentence about the job that waits most: how much, for
//! what, and what to do. Pure.

use serde::Serialize;
use shade_core::{Counts, JobStatus, RankStatus, ReadLatency};
use shade_formats::printable::OneLine;

use super::remedy::{Facts, Place, Remedy, Shares, advice, remedy};
use crate::status::DaemonStatus;

/// A daemon.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DaemonFigures {
    /// Process id.
    pub(crate) pid: u32,
    /// Canonical path of the dataset.
    pub(crate) dataset: String,
    /// Time since its start.
    pub(crate) uptime_s: f64,
    /// Capacity of the cache.
    pub(crate) cache_bytes: u64,
    /// Bytes in use of it.
    pub(crate) cache_used_bytes: u64,
    /// Share of the workers' time in which they worked.
    pub(crate) workers_busy: f64,
    /// Threads that fill batches.
    pub(crate) workers: u32,
    /// Reads that may be in flight now.
    pub(crate) depth: u32,
    /// Reads without an answer yet.
    pub(crate) reads_submitted: u64,
    /// Those that have had no answer for long.
    pub(crate) reads_late: u32,
    /// Reads that wait before another try, because of trouble of the store.
    pub(crate) reads_in_trouble: u32,
    /// That trouble, or what it was a moment ago: "503: asks for a slower pace".
    pub(crate) store_trouble: Option<String>,
    /// Median latency of recent reads; `None` before the first.
    pub(crate) p50_ms: Option<f64>,
    /// Its 99th percentile.
    pub(crate) p99_ms: Option<f64>,
    /// Longest time for which its main thread served nobody, since its beginning.
    pub(crate) silence_longest_ms: f64,
    /// Longest such time since it was asked last.
    pub(crate) silence_ms: f64,
    /// For commands.
    #[serde(skip)]
    pub(crate) place: Place,
    /// Its jobs.
    pub(crate) jobs: Vec<JobFigures>,
}

/// A job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JobFigures {
    /// Its name.
    pub(crate) name: String,
    /// The current epoch; `None` before the first.
    pub(crate) epoch: Option<u32>,
    /// Share of the epoch that was opened.
    pub(crate) opened_share: f64,
    /// Samples delivered, a second.
    pub(crate) samples_per_s: f64,
    /// Millions of bytes read from store and tier, a second.
    pub(crate) read_mb_per_s: f64,
    /// Hits over accesses; `None` without an access.
    pub(crate) hit_ratio: Option<f64>,
    /// Share of the time that it waited, by cause. Mean of its ranks.
    pub(crate) waits: Shares,
    /// Share of the time that the ring was full of finished batches. Mean of its ranks.
    pub(crate) ring_full: f64,
    /// What to do about its waits.
    pub(crate) remedy: Remedy,
    /// A sampler that would read less; `None` where that is no use, or not known to be.
    pub(crate) advice: Option<String>,
    /// Its ranks at this daemon.
    pub(crate) by_rank: Vec<RankFigures>,
}

/// A rank.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RankFigures {
    /// Its number.
    pub(crate) rank: u32,
    /// Finished batches that it has not released.
    pub(crate) in_ring: u32,
    /// Batches that are being filled, or wait for their epoch.
    pub(crate) open: u32,
    /// Share of the time that it waited.
    pub(crate) waited: f64,
    /// Share of the time that it waited, by cause.
    pub(crate) waits: Shares,
}

/// The figures of all daemons. One that was not there before is shown since its beginning.
pub(crate) fn figures(before: &[DaemonStatus], now: &[DaemonStatus]) -> Vec<DaemonFigures> {
    let of_daemon = |now: &DaemonStatus| {
        // A process with the same number that is younger is another one.
        let is_same = |old: &&DaemonStatus| old.pid == now.pid && old.uptime_ns <= now.uptime_ns;
        let before = before.iter().find(is_same);
        let time_ns = now.uptime_ns - before.map_or(0, |before| before.uptime_ns);
        let jobs = now.jobs.iter().map(|job| {
            let old = before.and_then(|before| before.jobs.iter().find(|old| is_earlier(old, job)));
            (job, old)
        });
        let filled_ns: u64 = jobs.clone().map(|(job, old)| since(job, old, |counts| counts.fill_ns)).sum();
        let workers_busy = share(filled_ns, time_ns.saturating_mul(now.workers.into()));
        let ms = |of: fn(&ReadLatency) -> f64| now.read_latency.as_ref().map(|latency| of(latency) / 1e3);
        DaemonFigures {
            pid: now.pid,
            dataset: now.dataset.clone(),
            uptime_s: now.uptime_ns as f64 / 1e9,
            cache_bytes: now.cache_bytes,
            cache_used_bytes: now.cache_used_bytes,
            workers_busy,
            workers: now.workers,
            depth: now.depth,
            reads_submitted: now.reads_submitted,
            reads_late: now.reads_late,
            reads_in_trouble: now.reads_in_trouble,
            store_trouble: now.store_trouble.clone(),
            p50_ms: ms(|latency| latency.p50_us),
            p99_ms: ms(|latency| latency.p99_us),
            silence_longest_ms: now.silence_longest_ns as f64 / 1e6,
            silence_ms: now.silence_ns as f64 / 1e6,
            place: Place::of(&now.socket, &now.dataset, now.cache_bytes),
            jobs: jobs.map(|(job, old)| of_job(now, job, old, time_ns, workers_busy)).collect(),
        }
    };
    now.iter().map(of_daemon).collect()
}

/// Whether it is the same job at an earlier time, and not one that had its name before.
fn is_earlier(old: &JobStatus, job: &JobStatus) -> bool {
    let counts = |job: &JobStatus| {
        let Counts { accesses, hits, delivered, bytes_read, tier_bytes, fill_ns, .. } = job.counts.counts;
        [accesses, hits, delivered, bytes_read, tier_bytes, fill_ns]
    };
    old.name == job.name && counts(old).iter().zip(counts(job)).all(|(old, now)| *old <= now)
}

fn of_job(
    daemon: &DaemonStatus,
    job: &JobStatus,
    old: Option<&JobStatus>,
    time_ns: u64,
    workers_busy: f64,
) -> JobFigures {
    let since_old = |of: fn(&Counts) -> u64| since(job, old, of);
    let a_second = |count: u64| count as f64 * 1e9 / time_ns.max(1) as f64;
    let accesses = since_old(|counts| counts.accesses);
    let mut waits = Shares::default();
    let (mut ring_full, mut by_rank) = (0.0, Vec::new());
    for rank in &job.by_rank {
        let is_same = |old: &&RankStatus| old.rank == rank.rank && old.attached_ns <= rank.attached_ns;
        let old = old.and_then(|old| old.by_rank.iter().find(is_same));
        let since = |of: fn(&RankStatus) -> u64| of(rank).saturating_sub(old.map_or(0, of));
        let own = |of: fn(&RankStatus) -> u64| share(since(of), since(|rank| rank.attached_ns));
        let shares = Shares {
            storage: own(|rank| rank.waits.storage_ns),
            workers: own(|rank| rank.waits.workers_ns),
            plan: own(|rank| rank.waits.plan_ns),
            ranks: own(|rank| rank.waits.ranks_ns),
        };
        let part = 1.0 / job.by_rank.len() as f64;
        waits.add(part, &shares);
        ring_full += part * own(|rank| rank.waits.ring_full_ns);
        let (in_ring, open) = (rank.in_ring, rank.open);
        by_rank.push(RankFigures { rank: rank.rank, in_ring, open, waited: shares.all(), waits: shares });
    }
    let facts = Facts {
        ring_full,
        workers_busy: Some(workers_busy),
        cache_bytes: daemon.cache_bytes,
        cache_used_bytes: daemon.cache_used_bytes,
        reads_late: daemon.reads_late,
        store_trouble: daemon.store_trouble.clone(),
    };
    let cached = job.cache_batches.saturating_mul(job.batch_size.into());
    let cache_share = share(cached, daemon.samples.into());
    JobFigures {
        name: job.name.clone(),
        epoch: job.epoch,
        opened_share: job.opened_share,
        samples_per_s: a_second(since_old(|counts| counts.delivered)),
        read_mb_per_s: a_second(since_old(|counts| counts.bytes_read + counts.tier_bytes)) / 1e6,
        hit_ratio: (accesses > 0).then(|| share(since_old(|counts| counts.hits), accesses)),
        waits,
        ring_full,
        advice: advice(job, cache_share, &waits, &facts),
        remedy: remedy(&waits, &facts),
        by_rank,
    }
}

/// What a job has counted since an earlier time.
fn since(job: &JobStatus, old: Option<&JobStatus>, of: fn(&Counts) -> u64) -> u64 {
    let of_job = |job: &JobStatus| of(&job.counts.counts);
    of_job(job) - old.map_or(0, of_job)
}

fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

/// The sentence in its parts.
pub(crate) struct Verdict {
    /// Share of the time that its ranks waited.
    pub(crate) waited: f64,
    /// "default WAITS 41.9 % for storage".
    pub(crate) said: String,
    /// What to do.
    pub(crate) remedy: String,
}

impl Verdict {
    /// About a job of this name, of a daemon there.
    pub(crate) fn of(name: &str, waits: &Shares, remedy: Remedy, place: &Place) -> Self {
        let waited = waits.all();
        let cause = remedy.cause.map_or_else(String::new, |cause| format!(" for {cause}"));
        let reason = remedy.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        // Any text may be a job's name, and this goes to a terminal.
        let said = format!("{} WAITS {:.1} %{cause}{reason}", OneLine(name), 100.0 * waited);
        Self { waited, said, remedy: remedy.text_for(place) }
    }
}

/// About the job that waits most; `None` without a job.
pub(crate) fn verdict(daemons: &[DaemonFigures]) -> Option<Verdict> {
    let jobs = daemons.iter().flat_map(|daemon| daemon.jobs.iter().map(move |job| (daemon, job)));
    let (daemon, job) = jobs.max_by(|left, right| left.1.waits.all().total_cmp(&right.1.waits.all()))?;
    Some(Verdict::of(&job.name, &job.waits, job.remedy.clone(), &daemon.place))
}
