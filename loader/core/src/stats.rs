//! The figures that `stats()` reports.

use serde::{Deserialize, Serialize};
use shade_formats::limits::RANKS_TOLD_MAX;
use shade_job::{Order, PlanSpec, Sampler};

use crate::brain::Core;
use crate::figures::{Counts, RankStatus};
use crate::ids::{JobId, SessionId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::plan::PlanSummary;
use crate::records::{ReadLatency, TierStats};
use crate::training::{Job, Rank};

/// The figures of this moment: those of the current epoch beside those of the whole job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// The current epoch.
    pub epoch: EpochStats,
    /// Everything since the job's first rank attached.
    pub total: TotalStats,
    /// Samples resident in the cache.
    pub resident: u64,
    /// Capacity of the cache, bytes of arena blocks.
    pub cache_bytes: u64,
    /// Bytes of arena blocks the cache holds.
    pub cache_used_bytes: u64,
    /// Bytes of arena blocks with records that are cached, read or filled.
    pub arena_used_bytes: u64,
    /// Bytes of decoded rows that the jobs of a group share.
    pub decoded_bytes: u64,
    /// Reads submitted and not yet completed; those beyond the depth wait for their turn.
    pub reads_submitted: u64,
    /// Reads that have had no answer for long: batches wait for them.
    pub reads_late: u32,
    /// Latency of reads; `None` before the first.
    pub read_latency: Option<ReadLatency>,
    /// The tier; `None` without one, and until its servers are reached.
    pub tier: Option<TierStats>,
    /// Ranks that an epoch's start still waits for. Where ranks are on several nodes: those of them
    /// that are attached to this daemon.
    pub waiting_for_ranks: Vec<u32>,
    /// Number of ranks that are still to attach to this daemon.
    pub ranks_to_attach: u32,
    /// Ranks of other nodes whose scores an epoch's start waits for, where nodes draw one plan
    /// together.
    pub waiting_for_scores_of: Vec<u32>,
    /// The rank's own figures; `None` without one.
    pub rank: Option<RankStatus>,
    /// All jobs of the daemon, which share the cache.
    pub jobs: Vec<JobStatus>,
}

/// One of the daemon's jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// Ranks attached.
    pub ranks: u32,
    /// Ranks that it has in all, on all nodes.
    pub world_size: u32,
    /// Ranks that it has at this daemon.
    pub ranks_here: u32,
    /// How it draws samples, and in which order it wants them.
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("enum" = Sampler::ALL)))]
    pub sampler: Sampler,
    /// All parameters of its plan, as in its document; `None` if they are not known here, as those
    /// of a later version.
    #[serde(deserialize_with = "shade_job::known_plan")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("type" = ["object", "null"])))]
    pub plan: Option<PlanSpec>,
    /// The order.
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("enum" = Order::ALL)))]
    pub order: Order,
    /// How often an epoch has a sample at most, on average.
    pub rep: f64,
    /// Samples in a batch of a rank.
    pub batch_size: u32,
    /// Batches of a rank that this daemon's cache holds.
    pub cache_batches: u64,
    /// Whether its records may stay in the cache now.
    pub admit: bool,
    /// Digest of its group's name; `None` without a group.
    pub group: Option<u64>,
    /// The current epoch; `None` before the first.
    pub epoch: Option<u32>,
    /// Share of the epoch that was opened. The drift of two jobs is the difference of their epochs
    /// and shares.
    pub opened_share: f64,
    /// Everything since its first rank attached.
    #[serde(flatten)]
    pub counts: CountStats,
    /// Its ranks at this daemon, of all jobs at most 256 ([`RANKS_TOLD_MAX`]).
    pub by_rank: Vec<RankStatus>,
}

/// One epoch's figures.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EpochStats {
    /// The epoch's number; `None` before the first.
    pub epoch: Option<u32>,
    /// The counts and their ratios.
    #[serde(flatten)]
    pub counts: CountStats,
    /// Deliveries in the plan, of all ranks at this daemon. If these are all ranks: as many as the
    /// dataset has samples, or fewer with `iis`, `infobatch` and `seta`.
    pub planned: usize,
    /// Figures of the plan.
    #[serde(flatten)]
    pub plan: PlanSummary,
    /// Distinct samples in the plan over all samples of this daemon's ranks.
    pub distinct_share: f64,
    /// No loss was reported in the epoch before, although the sampler draws by losses: the plan
    /// drawn when this epoch began is a permutation.
    pub reports_missing: bool,
    /// The scores by which other nodes drew this epoch are not all known here, and a state needs
    /// them.
    pub scores_missing: bool,
    /// How random the plan's order is: 1 as a shuffle, 0 as in storage.
    pub position_entropy: f64,
}

/// The job's figures.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TotalStats {
    /// The counts and their ratios.
    #[serde(flatten)]
    pub counts: CountStats,
    /// Share of the dataset, as far as this daemon's ranks have it, delivered at least once.
    pub ever_seen_share: f64,
}

/// [`Counts`] with their ratios.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CountStats {
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Hits over accesses.
    pub hit_ratio: f64,
    /// Rows whose loss was reported over rows delivered.
    pub reported_share: f64,
}

impl From<Counts> for CountStats {
    fn from(counts: Counts) -> Self {
        let reported_share = counts.reported as f64 / counts.delivered.max(1) as f64;
        Self { counts, hit_ratio: counts.hit_ratio(), reported_share }
    }
}

impl<M: Memory> Core<M> {
    /// The jobs of this moment, the oldest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobStatus> {
        let mut told_most = RANKS_TOLD_MAX;
        let status = |job: &Job| {
            let ranks = self.training.ranks_of(job.id()).count();
            let by_rank = self.ranks_of(job.id(), told_most);
            told_most -= by_rank.len();
            JobStatus {
                name: job.name().to_owned(),
                ranks: to_u32(ranks),
                world_size: job.spec().world_size,
                ranks_here: job.spec().local_ranks(),
                sampler: job.spec().plan.sampler,
                plan: Some(job.spec().plan),
                order: job.spec().plan.order,
                rep: job.spec().plan.rep,
                batch_size: job.spec().batch_size,
                cache_batches: self.records.cache_samples() / u64::from(job.spec().batch_size.max(1)),
                admit: self.training.jobs().admits(job),
                group: (job.spec().plan.group != 0).then_some(job.spec().plan.group),
                epoch: job.epoch(),
                opened_share: self.training.opened_share(job),
                counts: self.figures.total(job.id()).into(),
                by_rank,
            }
        };
        self.training.jobs().iter().map(status).collect()
    }

    /// The job's ranks at this daemon, at most `told_most` of them.
    pub(super) fn ranks_of(&self, job: JobId, told_most: usize) -> Vec<RankStatus> {
        let mut ranks: Vec<_> = self.training.ranks_of(job).map(|rank| self.status_of(rank)).collect();
        ranks.sort_by_key(|rank| rank.rank);
        ranks.truncate(told_most);
        ranks
    }

    /// The rank's figures.
    fn status_of(&self, rank: &Rank) -> RankStatus {
        let (in_ring, open) = self.batches.in_ring_and_open(rank.session());
        let (waits, attached_ns) = rank.clock().times();
        let waits_for = rank.clock().waits_for();
        RankStatus { rank: rank.number(), in_ring, open, attached_ns, waits_for, waits }
    }

    /// Nodes of the job that has most of them; 1 without a job.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        let nodes = |job: &Job| job.spec().world_size.div_ceil(job.spec().local_ranks().max(1));
        self.training.jobs().iter().map(nodes).max().unwrap_or(1)
    }

    /// The figures of this moment, those of the session's job among them.
    #[must_use]
    pub fn stats(&self, session: SessionId) -> Stats {
        let mut epoch = EpochStats::default();
        let mut total = TotalStats::default();
        let job = self.training.job_of(session);
        if let Some(job) = job {
            let samples = f64::from(job.own_samples().max(1));
            epoch.counts = self.figures.of_epoch(job.id()).into();
            epoch.reports_missing = job.misses_reports();
            epoch.scores_missing = job.misses_scores();
            if let Some(plan) = job.plan() {
                epoch.epoch = Some(plan.epoch);
                epoch.planned = job.rows_here(plan);
                epoch.plan = plan.summary;
                epoch.distinct_share = f64::from(plan.summary.distinct) / samples;
                epoch.position_entropy = job.position_entropy();
            }
            total.counts = self.figures.total(job.id()).into();
            // Other nodes tell what they have delivered.
            let known = if job.shares_scores() { f64::from(self.index.len()) } else { samples };
            total.ever_seen_share = (f64::from(job.importance().seen()) / known).min(1.0);
        }
        let records = self.records.stats();
        Stats {
            epoch,
            total,
            resident: records.resident as u64,
            cache_bytes: records.cache_bytes,
            cache_used_bytes: records.cache_used_bytes,
            arena_used_bytes: records.arena_used_bytes,
            decoded_bytes: self.batches.decoded_bytes(),
            reads_submitted: records.reads_submitted,
            reads_late: records.reads_late,
            read_latency: records.read_latency,
            tier: records.tier,
            waiting_for_ranks: job.map_or_else(Vec::new, |job| self.training.waiting_for_ranks(job)),
            ranks_to_attach: job.map_or(0, |job| self.training.ranks_to_attach(job)),
            waiting_for_scores_of: job.map_or_else(Vec::new, |job| self.training.waiting_for_scores_of(job)),
            rank: self.training.rank(session).map(|rank| self.status_of(rank)),
            jobs: self.jobs(),
        }
    }
}
