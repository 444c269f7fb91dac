//! Records: one room of the core. It has the cache and its memory, the tier, and what is read.
//!
//! Others ask it for a record ([`Records::hit`]), for a read ([`Records::request`]), and tell it of
//! uses and scores. It orders reads ([`Records::submit`], [`Records::prefetch`]), and hands out
//! what has come with the rows that wait for it ([`Landed`]). It knows rows by their names only.
//!
//! | part | what it decides |
//! |---|---|
//! | `access` | hits, misses, what the cache keeps |
//! | `reading`, `flights`, `read_queues`, `neighbours` | single flight; the order of reads |
//! | `submit` | when a read is submitted; what becomes of it |
//! | `prefetch`, `prefetched`, `windows` | what is read ahead of all batches |
//! | `packages` | what a miss brings along |
//! | `tier`, `tier_turns` | memory of other machines as a second level |
//! | `late`, `latency` | late reads |
//! | `foresight` | next uses, scores and jobs as the cache is told of them |
//! | `resize` | a larger or smaller cache |

mod access;
mod flights;
mod foresight;
mod late;
mod latency;
mod neighbours;
mod packages;
mod prefetch;
mod prefetched;
mod read_queues;
mod reading;
mod resize;
mod submit;
#[cfg(test)]
mod tests;
mod tier;
mod tier_turns;
mod windows;

pub use latency::ReadLatency;
pub use neighbours::{GAP_BYTES_MAX, NEIGHBOURS_MAX, Neighbours};
pub use packages::PACKAGES_MAX;
pub use prefetch::PREFETCHES_MAX;
pub(crate) use reading::Wanted;
pub(crate) use submit::{Arrival, Landed};
pub use tier::TierStats;
pub use windows::{WINDOW_BYTES, window_bytes};

use std::sync::Arc;

use shade_formats::SampleId;
use shade_formats::limits::SPAN_BYTES_MAX;

use crate::block_size::charged_bytes;
use crate::cache::{Cache, Properties};
use crate::config::CoreConfig;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::samples::Samples;
use crate::sizes::entries;
use crate::training::Jobs;
use latency::LateReads;
use prefetched::Prefetched;
use reading::Reading;
use tier::Tier;
use windows::Windows;

/// The records that are cached, read or filled.
pub(super) struct Records<M: Memory> {
    index: Arc<dyn Samples>,
    memory: M,
    cache: Cache<M::Record>,
    tier: Tier<M>,
    /// Records to read or in flight, with the rows that wait for them.
    reading: Reading,
    /// Limit of submitted reads: twice the number in flight, so that the next one is at hand when
    /// one ends. More would hold blocks for nothing, and a working set that a CPU's cache cannot
    /// hold.
    reads_submitted_max: u32,
    /// See [`CoreConfig::reads_max`].
    reads_max: u32,
    prefetched: Prefetched,
    /// See [`CoreConfig::prefetches_max`].
    prefetches_max: u32,
    /// Where small records lie, if the cache has room for all.
    windows: Option<Windows>,
    /// Where records lie, if a miss brings along a package: not beside windows.
    packages: Option<Windows>,
    /// See [`CoreConfig::package_bytes`].
    package_bytes: u32,
    /// See [`CoreConfig::gap_bytes_max`].
    gap_bytes_max: u32,
    late_reads: LateReads,
    block_bytes: u32,
    /// Bytes of arena blocks that all records take.
    all_bytes: u64,
}

/// Who waits for records: what the room asks of the others before it reads.
#[derive(Clone, Copy)]
pub(super) struct Demand<'a> {
    pub(super) jobs: &'a Jobs,
    /// Each job with the time until the first of its trainers has used up its finished batches, ns,
    /// where there are several.
    pub(super) runs_dry: &'a [(JobId, u64)],
    /// A first batch was published: what nobody waits for does not delay it any more.
    pub(super) has_begun: bool,
}

/// The figures of this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordStats {
    pub(super) resident: usize,
    pub(super) cache_bytes: u64,
    pub(super) cache_used_bytes: u64,
    pub(super) arena_used_bytes: u64,
    pub(super) reads_submitted: u64,
    pub(super) reads_late: u32,
    pub(super) read_latency: Option<ReadLatency>,
    pub(super) tier: Option<TierStats>,
}

impl<M: Memory> Records<M> {
    /// No records of `index`: those that come lie in `memory`. `cache` has `config`'s capacity.
    pub(super) fn new(
        index: Arc<dyn Samples>,
        memory: M,
        cache: Cache<M::Record>,
        config: &CoreConfig,
    ) -> Self {
        let charged = entries(&*index).map(|(_, entry)| charged_bytes(entry.stored_len, config.block_bytes));
        let all_bytes = charged.sum();
        let mut records = Self {
            index,
            memory,
            cache,
            tier: Tier::default(),
            reading: Reading::new(config.gap_bytes_max),
            reads_submitted_max: config.reads_max,
            reads_max: config.reads_max,
            prefetched: Prefetched::default(),
            prefetches_max: config.prefetches_max,
            windows: None,
            packages: None,
            package_bytes: config.package_bytes.min(SPAN_BYTES_MAX),
            gap_bytes_max: config.gap_bytes_max,
            late_reads: LateReads::default(),
            block_bytes: config.block_bytes,
            all_bytes,
        };
        records.bring_along(config.window_bytes);
        records.keep_ranked();
        records
    }

    /// What the cache's policy goes by.
    pub(super) fn policy(&self) -> Properties {
        self.cache.properties()
    }

    /// Whether the sample is in the cache.
    pub(super) fn has(&self, sample: SampleId) -> bool {
        self.cache.get(sample).is_some()
    }

    /// Whether all samples are in the cache, and stay there.
    pub(super) fn has_all(&self) -> bool {
        self.cache.len() == self.index.len() as usize && !self.cache.has_surplus()
    }

    /// Number of samples that the cache has room for, if they are as large as all are on average.
    pub(super) fn cache_samples(&self) -> u64 {
        let bytes = u128::from(self.cache.capacity_bytes()) * u128::from(self.index.len());
        bytes.checked_div(u128::from(self.all_bytes)).and_then(|all| all.try_into().ok()).unwrap_or(u64::MAX)
    }

    /// Number of samples in the cache.
    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    /// The samples in the cache, in no particular order.
    pub(super) fn cached(&self) -> impl Iterator<Item = SampleId> {
        self.cache.ids()
    }

    /// The samples in the tier, in no particular order.
    pub(super) fn tiered(&self) -> impl Iterator<Item = SampleId> {
        self.tier.held.iter().flat_map(Cache::ids)
    }

    /// Bytes of arena blocks with records that are cached, read or filled.
    pub(super) fn used_bytes(&self) -> u64 {
        self.memory.total_bytes() - self.memory.free_bytes()
    }

    /// Whether nothing is being read.
    pub(super) fn is_idle(&self) -> bool {
        self.reading.flights.in_flight() == 0 && self.reading.asked_of_tier() == 0
    }

    pub(super) fn stats(&self) -> RecordStats {
        RecordStats {
            resident: self.cache.len(),
            cache_bytes: self.cache.capacity_bytes(),
            cache_used_bytes: self.cache.used_bytes(),
            arena_used_bytes: self.used_bytes(),
            reads_submitted: self.reading.flights.in_flight() as u64,
            reads_late: self.late_reads.late,
            read_latency: self.late_reads.latency(),
            tier: self.tier.stats(),
        }
    }

    /// Takes a row's record back from a worker.
    pub(super) fn take_back(&mut self, record: Option<M::Lent>) {
        if let Some(record) = record {
            self.release(M::take_back(record));
        }
    }

    /// Takes the blocks of a record back, unless the cache or a row still holds it.
    fn release(&mut self, record: M::Record) {
        self.memory.release(record);
    }

    /// Asserts that what the parts count for themselves adds up. `are_rows_idle` says that no row
    /// has a record.
    pub(super) fn check_books(&self, are_rows_idle: bool) {
        let flights = &self.reading.flights;
        assert!(flights.records_in_flight() >= flights.in_flight(), "each flight brings a record at least");
        // A simulation's memory counts nothing.
        let is_counted = self.memory.total_bytes() < u64::MAX;
        let is_at_rest = is_counted && are_rows_idle && self.is_idle();
        if is_at_rest && self.tier.writing.is_empty() && !self.has_slices_left() {
            let (used, cached) = (self.used_bytes(), self.cache.used_bytes());
            assert_eq!(used, cached, "at rest, the cache alone has memory");
        }
    }
}
