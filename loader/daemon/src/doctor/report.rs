//! The result as text and, by serde, as the JSON that REPORT.md describes.

use std::fmt;

use indicatif::BinaryBytes;
use serde::Serialize;

use super::advice::{Advice, advice};
use super::bucket::{self, Bucket, EpochCost, Examined};
use super::cli::DoctorError;
use super::machine::Machine;
use super::nfs::Nfs;
use super::path_facts::{DatasetFacts, PathFacts};
use super::probe::Probe;
use super::tier::{self, TierFacts};

/// Longest line of advice.
const COLUMNS: usize = 100;

/// All findings, and the advice.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Diagnosis {
    /// Version of shade.
    version: &'static str,
    /// This machine, or the container on it.
    machine: Machine,
    /// What lies at the path; `None` without one.
    path: Option<PathFacts>,
    /// What lies at an address in an object store; `None` without one.
    bucket: Option<Bucket>,
    /// How fast records come; `None` without a dataset that has samples, or with
    /// `--probe-seconds 0`.
    probe: Option<Probe>,
    /// The servers of a tier; `None` without `--tier`.
    tier: Option<TierFacts>,
    /// What follows from the facts. What needs a change comes first.
    advice: Vec<Advice>,
}

impl Diagnosis {
    pub(super) fn new(
        machine: Machine,
        path: Option<PathFacts>,
        probe: Option<Probe>,
        tier: Option<TierFacts>,
    ) -> Self {
        let advice = advice(&machine, path.as_ref(), probe.as_ref());
        Self::with(machine, path, None, probe, tier, advice)
    }

    /// The diagnosis of an address in an object store.
    pub(super) fn of_bucket(machine: Machine, examined: Examined, tier: Option<TierFacts>) -> Self {
        let Examined { mut bucket, probe } = examined;
        bucket.cost(&machine.memory);
        let mut advice = advice(&machine, None, None);
        // Requests go through sockets.
        advice.retain(|advice| advice.topic != "io_uring");
        advice.extend(bucket::advice(&bucket, probe.as_ref()));
        Self::with(machine, None, Some(bucket), probe, tier, advice)
    }

    fn with(
        machine: Machine,
        path: Option<PathFacts>,
        bucket: Option<Bucket>,
        probe: Option<Probe>,
        tier: Option<TierFacts>,
        mut advice: Vec<Advice>,
    ) -> Self {
        advice.extend(tier.iter().flat_map(|tier| tier::advice(tier, probe.as_ref())));
        advice.sort_by_key(|advice| advice.change.is_none());
        Self { version: env!("CARGO_PKG_VERSION"), machine, path, bucket, probe, tier, advice }
    }
}

impl Diagnosis {
    /// What the command ends with, once this is written.
    pub(super) fn error(&self) -> Option<DoctorError> {
        let probe = self.probe.as_ref();
        let forbidden = probe.and_then(|probe| probe.forbidden.clone()).map(DoctorError::Forbidden);
        let no_tier = self.tier.as_ref().and_then(|tier| tier.error.clone()).map(DoctorError::Tier);
        let is_interrupted = probe.is_some_and(|probe| probe.interrupted);
        forbidden.or(no_tier).or_else(|| is_interrupted.then_some(DoctorError::Interrupted))
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "this machine")?;
        write_machine(f, &self.machine)?;
        if let Some(path) = &self.path {
            writeln!(f, "\n{}", path.path.display())?;
            write_path(f, path)?;
        }
        if let Some(bucket) = &self.bucket {
            writeln!(f, "\n{}", bucket.address)?;
            write_bucket(f, bucket)?;
        }
        if let Some(probe) = &self.probe {
            writeln!(f, "\nprobe: random records, {}", probe.engine)?;
            write_probe(f, probe)?;
        }
        if let Some(tier) = &self.tier {
            writeln!(f, "\ntier {}: records of {}", tier.servers, BinaryBytes(tier.record_bytes.into()))?;
            tier::write(f, tier)?;
        }
        write_advice(f, &self.advice)
    }
}

pub(super) fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<11} {value}")
}

fn binary(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

fn write_machine(f: &mut fmt::Formatter<'_>, machine: &Machine) -> fmt::Result {
    let Machine { kernel, io_uring, memlock, memory, cpus } = machine;
    let meaning = kernel.nfs_reads.map_or("an unknown release", |reads| reads.meaning());
    line(f, "kernel", format_args!("Linux {}: {meaning}", kernel.release))?;
    match (&io_uring.setup, &io_uring.reason) {
        (Some(setup), _) => line(f, "io_uring", format_args!("usable ({setup})"))?,
        (None, reason) => {
            line(f, "io_uring", format_args!("not usable: {}", reason.as_deref().unwrap_or("?")))?
        }
    }
    let limit = memlock.soft_bytes.map_or("no limit".to_owned(), binary);
    let lifted = if memlock.cap_ipc_lock { ", lifted by CAP_IPC_LOCK" } else { "" };
    line(f, "memlock", format_args!("{limit}{lifted}"))?;
    let (total, available) = (BinaryBytes(memory.total_bytes), BinaryBytes(memory.available_bytes));
    line(f, "memory", format_args!("{total}, {available} of it available"))?;
    match &memory.cgroup {
        Some(limit) => {
            let used =
                limit.used_bytes.map_or(String::new(), |bytes| format!(", {} used", BinaryBytes(bytes)));
            let of = limit.folder.display();
            line(f, "cgroup", format_args!("limit {}{used} ({of})", BinaryBytes(limit.limit_bytes)))?;
        }
        None => line(f, "cgroup", "no memory limit")?,
    }
    line(f, "CPUs", cpus)
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &PathFacts) -> fmt::Result {
    match &path.mount {
        Some(mount) => {
            line(f, "mount", format_args!("{} {} on {}", mount.kind, mount.source, mount.mount_point))?;
            line(f, "options", mount.options.join(","))?;
        }
        None => line(f, "mount", "not found in /proc/self/mountinfo")?,
    }
    if let Some(nfs) = &path.nfs {
        write_nfs(f, nfs)?;
    }
    if let Some(kib) = path.read_ahead_kib {
        line(f, "read-ahead", format_args!("{kib} KiB, of buffered reads only"))?;
    }
    match &path.io {
        Some(io) => {
            line(f, "reads", format_args!("{}: {}", if io.direct { "direct" } else { "buffered" }, io.why))?;
        }
        None => line(f, "reads", "no file here to ask the file system about")?,
    }
    match (&path.dataset, &path.no_dataset) {
        (Some(dataset), _) => write_dataset(f, dataset),
        (None, why) => {
            line(f, "dataset", why.as_deref().unwrap_or("none"))?;
            line(f, "probe", "needs a packed dataset")
        }
    }
}

fn write_bucket(f: &mut fmt::Formatter<'_>, bucket: &Bucket) -> fmt::Result {
    match (&bucket.dataset, &bucket.no_dataset) {
        (Some(dataset), _) => write_dataset(f, dataset)?,
        (None, why) => line(f, "dataset", why.as_deref().unwrap_or("none"))?,
    }
    if let Some(records) = &bucket.records {
        line(f, "records", records)?;
    }
    line(f, "connections", format_args!("at most {} at a time", bucket.connections_max))?;
    if let Some(p50) = bucket.latency_p50_ms {
        let knee = bucket.latency_p99_ms;
        let knee = knee.map_or(String::new(), |p99| format!("; 99 of 100 within {p99:.1} ms at the knee"));
        line(f, "latency", format_args!("{p50:.1} ms alone{knee}"))?;
    }
    if let Some(alone) = bucket.mb_per_s_alone {
        let knee = bucket.mb_per_s_a_connection;
        let knee = knee.map_or(String::new(), |rate| format!(", {rate:.1} MB/s at the knee"));
        line(f, "connection", format_args!("{alone:.1} MB/s alone{knee}"))?;
    }
    if let Some(limit) = bucket.limit {
        let busy = bucket.cpus_busy.unwrap_or_default();
        line(f, "limit", format_args!("{} (busy CPUs: {busy:.1})", limit.sentence()))?;
    }
    let Some(epoch) = &bucket.epoch else { return Ok(()) };
    let EpochCost { cache_bytes, cached_share, first_requests, later_requests, .. } = epoch;
    let (cache, percent) = (BinaryBytes(*cache_bytes), 100.0 * cached_share);
    let cache = format!("{cache}, {percent:.0} % of the dataset");
    line(
        f,
        "epoch",
        format_args!(
            "at most {later_requests} requests with the default cache ({cache}); the first {first_requests}"
        ),
    )
}

fn write_nfs(f: &mut fmt::Formatter<'_>, nfs: &Nfs) -> fmt::Result {
    let rsize = nfs.rsize_bytes.map_or("unknown".to_owned(), binary);
    let proto = nfs.proto.as_deref().unwrap_or("unknown transport");
    let hard = if nfs.hard { "hard" } else { "soft" };
    line(
        f,
        "NFS",
        format_args!("version {}, rsize {rsize}, nconnect {}, {proto}, {hard}", nfs.version, nfs.nconnect),
    )?;
    let Some(reads) = &nfs.reads else { return Ok(()) };
    let (count, bytes) = (reads.ops, BinaryBytes(reads.bytes));
    match reads.rtt_mean_ms {
        Some(rtt) => {
            let queued = reads.queued_mean_ms.unwrap_or_default();
            line(
                f,
                "so far",
                format_args!("{count} READs, {bytes}; on average {rtt:.2} ms RTT, {queued:.2} ms queued"),
            )
        }
        None => line(f, "so far", "no READ"),
    }
}

fn write_dataset(f: &mut fmt::Formatter<'_>, dataset: &DatasetFacts) -> fmt::Result {
    let DatasetFacts { samples, shards, shard_bytes, .. } = dataset;
    line(f, "dataset", format_args!("samples: {samples}, shards: {shards}, {}", BinaryBytes(*shard_bytes)))?;
    let [mean, p99, max] =
        [dataset.record_mean_bytes, dataset.record_p99_bytes.into(), dataset.record_max_bytes.into()]
            .map(BinaryBytes);
    line(f, "records", format_args!("{mean} on average, p99 {p99}, largest {max}"))
}

fn write_probe(f: &mut fmt::Formatter<'_>, probe: &Probe) -> fmt::Result {
    writeln!(
        f,
        "  {:>5} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "depth", "IOPS", "MB/s", "in flight", "p50 ms", "p90 ms", "p99 ms", "max ms"
    )?;
    for step in &probe.steps {
        let ms = |us: u32| f64::from(us) / 1e3;
        writeln!(
            f,
            "  {:>5} {:>9.0} {:>8.1} {:>9.1} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
            step.depth,
            step.iops,
            step.mb_per_s,
            step.in_flight_mean,
            ms(step.latency_p50_us),
            ms(step.latency_p90_us),
            ms(step.latency_p99_us),
            ms(step.latency_max_us)
        )?;
    }
    if let Some(knee) = probe.knee_depth {
        let deepest = probe.steps.iter().all(|step| step.depth <= knee);
        let more = if deepest { "no more are ever in flight" } else { "more in flight only waits longer" };
        writeln!(f, "  knee: depth {knee}, the smallest within 5 % of the best; {more}")?;
    }
    if let Some(store) = &probe.store {
        writeln!(f, "  for simulate: --store {store}")?;
    }
    if probe.interrupted {
        writeln!(f, "  interrupted: what is missing was not measured")?;
    }
    Ok(())
}

fn write_advice(f: &mut fmt::Formatter<'_>, all: &[Advice]) -> fmt::Result {
    let (change, know): (Vec<&Advice>, Vec<&Advice>) = all.iter().partition(|advice| advice.change.is_some());
    writeln!(f, "\nto change")?;
    if change.is_empty() {
        writeln!(f, "  nothing")?;
    }
    for advice in change {
        write_paragraph(f, "- ", &format!("{}: {}", advice.fact, advice.advice))?;
        write_paragraph(f, "  => ", advice.change.as_deref().unwrap_or_default())?;
    }
    if !know.is_empty() {
        writeln!(f, "\nto know")?;
    }
    for advice in know {
        write_paragraph(f, "- ", &format!("{}: {}", advice.fact, advice.advice))?;
    }
    Ok(())
}

/// Writes `text` after `mark`, wrapped; lines after the first are indented.
pub(super) fn write_paragraph(f: &mut fmt::Formatter<'_>, mark: &str, text: &str) -> fmt::Result {
    let mut column = mark.len();
    write!(f, "{mark}")?;
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 && column + 1 + word.len() > COLUMNS {
            write!(f, "\n    ")?;
            column = 4;
        } else if number > 0 {
            write!(f, " ")?;
            column += 1;
        }
        write!(f, "{word}")?;
        column += word.len();
    }
    writeln!(f)
}
