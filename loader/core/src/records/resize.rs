//! The cache becomes larger or smaller while jobs go on.
//!
//! A larger one just has room. From a smaller one residents leave in the policy's order, some
//! thousand with each `advance`, and no newcomer comes until they have left. Those that rows still
//! need leave as soon as these are filled.

use super::Records;
use super::access::is_pinned;
use super::windows::Windows;
use crate::cache::Cache;
use crate::figures::Figures;
use crate::memory::Memory;
use crate::training::Jobs;

/// Residents that leave a smaller cache at once: some ms.
const LEAVE_AT_ONCE: usize = 4096;

impl<M: Memory> Records<M> {
    /// Gives the cache another capacity.
    pub(crate) fn resize(&mut self, cache_bytes: u64, window_bytes: u32) {
        self.bring_along(window_bytes);
        self.cache.resize(cache_bytes);
        self.keep_ranked();
        self.prefetched.search_anew();
    }

    /// What a read brings along: a window of `window_bytes`, or if that is 0 a package.
    pub(super) fn bring_along(&mut self, window_bytes: u32) {
        let index = &*self.index;
        self.windows = (window_bytes > 0).then(|| Windows::new(index, window_bytes));
        let package_bytes = if window_bytes > 0 { 0 } else { self.package_bytes };
        let before = self.packages.take();
        let packages = || before.unwrap_or_else(|| Windows::new(index, package_bytes));
        self.packages = (package_bytes > 0).then(packages);
        // A package is one read, however little of it is wanted.
        self.reading.set_gap(self.gap_bytes_max.max(package_bytes));
    }

    /// Whether residents leave a smaller cache or tier.
    pub(crate) fn has_slices_left(&self) -> bool {
        self.cache.has_slices_left() || self.tier.held.as_ref().is_some_and(Cache::has_slices_left)
    }

    /// Evicts some of what a smaller cache or tier has no room for, except what rows still need.
    pub(crate) fn evict_surplus(&mut self, jobs: &Jobs, figures: &mut Figures) {
        self.tier.evict_surplus(LEAVE_AT_ONCE, jobs.importance());
        if !self.cache.has_surplus() {
            return;
        }
        let mut evicted = Vec::new();
        self.cache.evict_surplus(LEAVE_AT_ONCE, jobs.importance(), is_pinned::<M>, &mut evicted);
        let evictions = evicted.len() as u64;
        // They leave for nobody: the job counts them that is there for longest.
        let first = jobs.admitting().next().map(|job| job.id());
        let first = first.unwrap_or_default();
        figures.count(first, |counts| counts.evicted += evictions);
        self.let_go(first, evicted, jobs.importance(), figures);
    }

    /// See [`Core::memory_mut`](crate::Core::memory_mut).
    pub(crate) fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// See [`Core::move_records`](crate::Core::move_records).
    pub(crate) fn move_records(
        &mut self,
        from: u32,
        bytes_max: u64,
        mut move_record: impl FnMut(&mut M, &mut M::Record) -> bool,
    ) -> Option<u32> {
        let memory = &mut self.memory;
        self.cache.change_values(from, bytes_max, |record| move_record(memory, record))
    }
}
