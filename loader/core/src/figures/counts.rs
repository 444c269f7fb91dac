//! What is counted. The hit ratio is over *all* accesses, cold misses included.

use derive_more::{Add, Sub};
use serde::{Deserialize, Serialize};
use shade_formats::trace::Served;

/// Counts over an epoch or over a job's life. A difference is what was counted between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Add, Sub)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counts {
    /// Accesses of the plan: hits, misses, prefetched and exchanged ones.
    pub accesses: u64,
    /// Accesses served from the cache, and those in [`joined`](Self::joined).
    pub hits: u64,
    /// Hits whose record was in flight for another row, or whose pixels another job had decoded.
    pub joined: u64,
    /// Accesses served by a prefetched record: its first use.
    pub prefetched: u64,
    /// Accesses that needed a read of their own.
    pub misses: u64,
    /// Accesses that were neither hits nor misses: a resident sample of low importance changed
    /// places in the plan with a missing one (iCACHE's substitution).
    pub exchanged: u64,
    /// Reads sent to storage; a read that the engine repeats counts once.
    pub reads: u64,
    /// Records prefetched.
    pub prefetches: u64,
    /// Prefetched records that were bypassed or evicted before their first use.
    pub prefetches_unused: u64,
    /// Records read together with a neighbour, without a read of their own.
    pub coalesced: u64,
    /// Bytes of records read from storage, with repeated reads of damaged ones.
    pub bytes_read: u64,
    /// Bytes between records that were read together: headers, padding, and unwanted records.
    pub bytes_between: u64,
    /// Records that the tier brought. Each is one of the misses or prefetches.
    pub tier_hits: u64,
    /// Records that the tier was asked for and did not bring: they are read from the store.
    pub tier_misses: u64,
    /// Bytes of the records that the tier brought.
    pub tier_bytes: u64,
    /// Records stored in the tier.
    pub tier_writes: u64,
    /// Their bytes.
    pub tier_bytes_written: u64,
    /// Rows delivered, without padding.
    pub delivered: u64,
    /// Time that workers copied or decoded rows, of all workers together, ns.
    pub fill_ns: u64,
    /// Rows that were not decoded: another job of the group had the same pixels.
    pub copied: u64,
    /// Delivered rows whose loss was reported. The epoch's figure leaves out losses that came for
    /// the epoch before.
    pub reported: u64,
    /// Delivered rows with a substitute, because their own record was bad.
    pub substituted: u64,
    /// Rows left out of delivered batches, because their record was bad.
    pub skipped: u64,
    /// Bad records met, whatever became of them.
    pub faults: u64,
    /// Records admitted to the cache.
    pub admitted: u64,
    /// Records evicted for others, or as the cache was made smaller. These count for one job.
    pub evicted: u64,
    /// Records read and not admitted.
    pub bypassed: u64,
    /// Reported losses that were NaN or infinite: ranked hardest.
    pub nonfinite_losses: u64,
    /// Epochs drawn with `rep` above 1 whose plan had cached samples only, although there are
    /// others: nothing was read, so nothing could change.
    pub absorbing_epochs: u64,
    /// Reports for batches that this session was not given, or not lately.
    pub unmatched_reports: u64,
}

impl Counts {
    /// Adds some accesses.
    pub(crate) fn add(&mut self, accesses: &Accesses) {
        let Accesses { hits, joined, prefetched, exchanged, misses } = *accesses;
        self.accesses += u64::from(hits + joined + prefetched + exchanged + misses);
        self.hits += u64::from(hits + joined);
        self.joined += u64::from(joined);
        self.prefetched += u64::from(prefetched);
        self.exchanged += u64::from(exchanged);
        self.misses += u64::from(misses);
    }

    /// Hits over accesses, 0 before the first access.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.accesses.max(1) as f64
    }
}

/// Accesses of one batch, by how they were served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accesses {
    hits: u32,
    joined: u32,
    prefetched: u32,
    exchanged: u32,
    misses: u32,
}

impl Accesses {
    /// Adds others.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { hits, joined, prefetched, exchanged, misses } = *other;
        self.hits += hits;
        self.joined += joined;
        self.prefetched += prefetched;
        self.exchanged += exchanged;
        self.misses += misses;
    }

    /// Counts one.
    pub(crate) fn count(&mut self, served: Served) {
        let of_kind = match served {
            Served::Hit => &mut self.hits,
            Served::Joined => &mut self.joined,
            Served::Prefetched => &mut self.prefetched,
            Served::Exchanged => &mut self.exchanged,
            Served::Miss => &mut self.misses,
        };
        *of_kind += 1;
    }

    /// What a batch counts as hits: the record was there, or on its way.
    pub(crate) fn hits(&self) -> u32 {
        self.hits + self.joined + self.exchanged
    }

    /// What it counts as misses: each has cost a read.
    pub(crate) fn misses(&self) -> u32 {
        self.misses + self.prefetched
    }
}
