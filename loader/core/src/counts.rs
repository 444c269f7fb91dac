//! What is counted, and how it is reported: hits over *all* accesses, cold misses included.

use serde::Serialize;

/// Counts over an epoch or over a job's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Samples the plan asked for: hits, misses, prefetched and exchanged ones.
    pub accesses: u64,
    /// Accesses served from the cache, those that joined a running read included.
    pub hits: u64,
    /// Hits that found their record being read for another row already.
    pub joined: u64,
    /// Accesses served from the cache by a record that was prefetched for them: the first use of each.
    pub prefetched: u64,
    /// Accesses that needed a read of their own.
    pub misses: u64,
    /// Accesses that were neither hits nor misses: a resident sample of low importance changed places in the plan with one
    /// that would have had to be read (iCACHE's substitution).
    pub exchanged: u64,
    /// Reads sent to storage for them; those of an engine that tries again count once.
    pub reads: u64,
    /// Records asked for ahead of all batches.
    pub prefetches: u64,
    /// Of these, records that left the cache, or were not admitted to it, before they were used.
    pub prefetches_unused: u64,
    /// Records that came along with the read of a neighbour.
    pub coalesced: u64,
    /// Late records that were asked for a second time.
    pub hedged: u64,
    /// Bytes of records read from storage, rereads of damaged ones included.
    pub bytes_read: u64,
    /// Rows delivered, without those that only fill up a batch.
    pub delivered: u64,
    /// Of these, rows of which a loss was reported. The epoch's figure leaves out losses that came for the epoch before.
    pub reported: u64,
    /// Of the rows delivered, those with another sample because theirs was bad.
    pub substituted: u64,
    /// Rows that delivered batches lack because their record was bad.
    pub skipped: u64,
    /// Bad records met, whatever was done about them.
    pub faults: u64,
    /// Records that entered the cache.
    pub admitted: u64,
    /// Records that left the cache for others.
    pub evicted: u64,
    /// Misses whose record was not worth a place in the cache.
    pub bypassed: u64,
    /// Reported losses that were NaN or infinite: ranked hardest.
    pub nonfinite_losses: u64,
    /// Epochs whose plan had only cached samples although there are others: nothing was read, so nothing could change.
    pub absorbing_epochs: u64,
    /// Reports for batches this session was not given, or not lately.
    pub unmatched_reports: u64,
}

impl Counts {
    /// Hits over accesses, 0 before the first access.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        share(self.hits, self.accesses)
    }
}

/// `part` of `whole`, 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A snapshot for `stats()`: the current epoch beside the whole job.
#[derive(Clone, Debug, Serialize)]
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
    /// Bytes of arena blocks that hold records: the cache's, and those being read or filled.
    pub arena_used_bytes: u64,
    /// Reads submitted and not yet back; those beyond the depth wait for their turn.
    pub reads_submitted: u64,
    /// Reads that have had no answer for long: batches wait for them.
    pub reads_late: u32,
    /// What reads take; `None` before the first.
    pub read_latency: Option<ReadLatency>,
    /// Ranks that an epoch's start still waits for.
    pub waiting_for_ranks: Vec<u32>,
}

/// What reads take, of late.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadLatency {
    /// Half of the reads take at most this, microseconds.
    pub p50_us: f64,
    /// 99 of 100 take at most this, microseconds.
    pub p99_us: f64,
}

/// One epoch's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EpochStats {
    /// Which epoch; `None` before the first.
    pub epoch: Option<u32>,
    /// The counts and their ratio.
    #[serde(flatten)]
    pub counts: CountStats,
    /// Distinct samples in the plan (D).
    pub distinct: u32,
    /// D / N.
    pub distinct_share: f64,
    /// Uses of the most repeated sample in the plan.
    pub repeat_max: u32,
    /// Draws of residents withheld by the hit cap.
    pub hit_cap_withheld: u32,
    /// Samples put into the plan because they had not been delivered for `cover` epochs.
    pub covered: u32,
    /// No loss was reported in the epoch before, although the sampler draws by losses: the plan drawn when this epoch began is a
    /// permutation.
    pub reports_missing: bool,
    /// How random the plan's order is: 1 as a shuffle, 0 as in storage.
    pub position_entropy: f64,
}

/// The job's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TotalStats {
    /// The counts and their ratio.
    #[serde(flatten)]
    pub counts: CountStats,
    /// Share of the dataset delivered at least once.
    pub ever_seen_share: f64,
}

/// [`Counts`] with their ratio.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CountStats {
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Hits over accesses.
    pub hit_ratio: f64,
    /// Rows of which a loss was reported over rows delivered.
    pub reported_share: f64,
}

impl From<Counts> for CountStats {
    fn from(counts: Counts) -> Self {
        let reported_share = share(counts.reported, counts.delivered);
        Self { counts, hit_ratio: counts.hit_ratio(), reported_share }
    }
}
