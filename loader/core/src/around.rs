//! Small records bring along what lies around them, where the cache has room for the whole dataset.
//!
//! An epoch visits every sample in random order, so of small records one read is one record, and costs far more than its bytes.
//! Where nothing is ever evicted, whatever lies beside a record is read once, sooner or later, and stays. So a shard is cut into
//! windows, and the first record that is wanted of a window brings the others.

use shade_formats::SampleId;
use shade_formats::control::Policy;
use shade_formats::index::Index;

use crate::block_size::charged_bytes;
use crate::machine::Core;
use crate::memory::Memory;
use crate::samples::Samples;
use crate::sizes::{entries, keeps_what_fits};

/// Bytes of a shard that are read together. More is faster from a store that is far away, and delays the batches that wait
/// meanwhile: 64 KiB are 5 ms of a link of 100 Mbit.
pub const WINDOW_BYTES: u32 = 64 * 1024;

/// Samples by where their records lie.
#[derive(Debug)]
pub(super) struct Places {
    window_bytes: u64,
    /// All samples, by shard and offset.
    order: Vec<SampleId>,
    /// Where in `order` a sample is.
    at: Vec<u32>,
    /// By sample: it came along once in this job. Not again if that failed: the batch that wants it
    /// tries once more, and tells.
    brought: Vec<bool>,
}

impl Places {
    /// Of all samples of the dataset, nine bytes each.
    pub(super) fn new(index: &dyn Samples, window_bytes: u32) -> Self {
        let mut order: Vec<SampleId> = entries(index).map(|(id, _)| id).collect();
        order.sort_unstable_by_key(|&id| index.entry(id).map(|entry| (entry.shard, entry.offset)));
        let mut at = vec![0; order.len()];
        for (place, id) in (0..).zip(&order) {
            if let Some(at) = at.get_mut(id.0 as usize) {
                *at = place;
            }
        }
        let brought = vec![false; order.len()];
        Self { window_bytes: u64::from(window_bytes.max(1)), order, at, brought }
    }

    /// The samples whose records begin in the same window as that of `sample`, itself among them, in the order of their places.
    fn around(&self, sample: SampleId, index: &dyn Samples) -> Vec<SampleId> {
        let window =
            |id: SampleId| index.entry(id).map(|entry| (entry.shard, entry.offset / self.window_bytes));
        let here = window(sample);
        let Some(&at) = self.at.get(sample.0 as usize) else { return Vec::new() };
        let (before, behind) = self.order.split_at_checked(at as usize).unwrap_or_default();
        let before = before.iter().rev().take_while(|&&id| window(id) == here).count();
        let behind = behind.iter().take_while(|&&id| window(id) == here).count();
        let start = at as usize - before;
        self.order.get(start..start + before + behind).unwrap_or_default().to_vec()
    }

    /// Whatever came along may do so again.
    pub(super) fn forget_brought(&mut self) {
        self.brought.fill(false);
    }

    /// Whether `sample` may come along; from then on it may not.
    fn bring(&mut self, sample: SampleId) -> bool {
        self.brought.get_mut(sample.0 as usize).is_some_and(|brought| !std::mem::replace(brought, true))
    }
}

/// Bytes of a window for a dataset: 0, and so none, unless the cache has room for all of it and several records begin in one.
/// None where the policy evicts all the same: what came along would go again.
#[must_use]
pub fn window_bytes(index: &Index, cache_bytes: u64, block_bytes: u32, policy: Policy) -> u32 {
    let (mut stored, mut charged) = (0, 0);
    for (_, entry) in entries(index) {
        stored += u64::from(entry.stored_len);
        charged += charged_bytes(entry.stored_len, block_bytes);
    }
    let are_small = stored <= u64::from(index.len()) * u64::from(WINDOW_BYTES / 4);
    let all_stay = cache_bytes >= charged && keeps_what_fits(policy);
    if all_stay && are_small { WINDOW_BYTES } else { 0 }
}

impl<M: Memory> Core<M> {
    /// Has the records around `sample`, which is about to be read, come along. Not until a first batch is out: that would come
    /// later for it.
    pub(super) fn widen(&mut self, sample: SampleId) {
        let Some(places) = &mut self.places else { return };
        if !self.sessions.iter().any(|session| session.first_unpublished() > 0) {
            return;
        }
        let mut added = 0;
        for id in places.around(sample, &*self.index) {
            if self.cache.get(id).is_some() || self.reading.is_wanted(id) || !places.bring(id) {
                continue;
            }
            let Some(entry) = self.index.entry(id) else { continue };
            self.prefetch.expect(id, charged_bytes(entry.stored_len, self.config.block_bytes));
            self.reading.want_ahead(id, &*self.index);
            added += 1;
        }
        if let Some(job) = &mut self.job {
            job.count(|counts| counts.prefetches += added);
        }
    }
}
