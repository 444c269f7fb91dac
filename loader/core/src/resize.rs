//! The cache becomes larger or smaller while jobs go on.
//!
//! A larger one just has room. From a smaller one residents leave in the policy's order, some
//! thousand with each `advance`, and no newcomer comes until they have left. Those that rows still
//! need leave as soon as these are filled.

use shade_formats::SampleId;

use crate::brain::Core;
use crate::cache::Cache;
use crate::job::JobId;
use crate::memory::Memory;
use crate::windows::Windows;

/// Residents that leave a smaller cache at once: some ms.
const LEAVE_AT_ONCE: usize = 4096;

impl<M: Memory> Core<M> {
    /// Gives the cache another capacity.
    pub(super) fn resize(&mut self, cache_bytes: u64, window_bytes: u32) {
        (self.config.cache_bytes, self.config.window_bytes) = (cache_bytes, window_bytes);
        self.windows = (window_bytes > 0).then(|| Windows::new(&*self.index, window_bytes));
        self.cache.resize(cache_bytes);
        self.keep_ranked();
        // There may be room again for what had left.
        self.jobs.iter_mut().for_each(|job| job.prefetch_at = 0);
        // Where all samples were resident nobody looked ahead, and now the next uses matter.
        self.looks_ahead_due = self.jobs.admitting_ids();
    }

    /// Whether residents leave a smaller cache or tier.
    pub(super) fn has_slices_left(&self) -> bool {
        self.cache.has_slices_left() || self.tier.held.as_ref().is_some_and(Cache::has_slices_left)
    }

    /// Evicts some of what a smaller cache or tier has no room for, except what rows still need.
    pub(super) fn evict_surplus(&mut self) {
        self.tier.evict_surplus(LEAVE_AT_ONCE, self.jobs.importance());
        if !self.cache.has_surplus() {
            return;
        }
        let mut evicted = Vec::new();
        let pinned = |held: &M::Record| M::holders(held) > 1;
        self.cache.evict_surplus(LEAVE_AT_ONCE, self.jobs.importance(), pinned, &mut evicted);
        let evictions = evicted.len() as u64;
        // They leave for nobody: the job counts them that is there for longest.
        let first = self.jobs.admitting().next().map(|job| job.id);
        let first = first.unwrap_or_default();
        self.count(first, |counts| counts.evicted += evictions);
        self.let_go(first, evicted);
    }

    /// Takes the blocks of records back that were evicted for `job`, unless the tier wants the
    /// records first.
    pub(super) fn let_go(&mut self, job: JobId, evicted: Vec<(SampleId, M::Record)>) {
        for (id, victim) in evicted {
            self.offer_to_tier(job, id, &victim);
            if let Some(job) = self.prefetched.take(id) {
                self.count(job, |counts| counts.prefetches_unused += 1);
            }
            self.release(victim);
        }
    }

    /// The memory, for the caller to change its size. The core needs the reserve beside the cache
    /// ([`staging_bytes`](super::staging_bytes)) at any time.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.free
    }

    /// Lets `move_record` move cached records within the memory; it returns whether it did. It may
    /// not move one that has another holder, which a row needs. It ends after some `bytes_max`
    /// bytes; `from` and the result are as with
    /// [`Cache::change_values`](super::cache::Cache::change_values).
    pub fn move_records(
        &mut self,
        from: u32,
        bytes_max: u64,
        mut move_record: impl FnMut(&mut M, &mut M::Record) -> bool,
    ) -> Option<u32> {
        let memory = &mut self.free;
        self.cache.change_values(from, bytes_max, |record| move_record(memory, record))
    }
}
