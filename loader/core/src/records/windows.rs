//! Windows of shards: small records bring along what lies around them, where the cache has room for
//! the whole dataset.
//!
//! An epoch visits every sample in random order. So each small record is a read of its own, which
//! costs far more than its bytes. Where nothing is ever evicted, whatever lies beside a record is
//! read once, sooner or later, and stays. So a shard is cut into windows, and the first record of a
//! window that is wanted brings the others along.

use shade_formats::SampleId;
use shade_job::Policy;

use crate::block_size::charged_bytes;
use crate::cache::Properties;
use crate::samples::Samples;
use crate::sizes::entries;

/// Bytes of a shard that are read together. More is faster from a distant store, but delays the
/// batches that wait meanwhile: 64 KiB take 5 ms on a link of 100 Mbit/s.
pub const WINDOW_BYTES: u32 = 64 * 1024;

/// Samples by where their records lie.
#[derive(Debug)]
pub(super) struct Windows {
    window_bytes: u64,
    /// All samples, by shard and offset.
    order: Vec<SampleId>,
    /// By sample: its position in `order`.
    at: Vec<u32>,
    /// By sample: it came along once in this job. It does not come again if that failed: the batch
    /// that wants it tries once more, and tells.
    brought: Vec<bool>,
}

impl Windows {
    /// The windows of all samples of the dataset, nine bytes each.
    pub(super) fn new(index: &dyn Samples, window_bytes: u32) -> Self {
        let mut order: Vec<SampleId> = entries(index).map(|(id, _)| id).collect();
        order.sort_by_cached_key(|&id| index.entry(id).map(|entry| (entry.shard, entry.offset)));
        let mut at = vec![0; order.len()];
        for (position, id) in (0..).zip(&order) {
            if let Some(at) = at.get_mut(id.0 as usize) {
                *at = position;
            }
        }
        let brought = vec![false; order.len()];
        Self { window_bytes: u64::from(window_bytes.max(1)), order, at, brought }
    }

    /// The samples whose records begin in the same window as that of `sample`, with `sample`
    /// itself, by offset.
    pub(super) fn around(&self, sample: SampleId, index: &dyn Samples) -> Vec<SampleId> {
        let window =
            |id: SampleId| index.entry(id).map(|entry| (entry.shard, entry.offset / self.window_bytes));
        let here = window(sample);
        let Some(&at) = self.at.get(sample.0 as usize) else { return Vec::new() };
        let (before, behind) = self.order.split_at(at as usize);
        let before = before.iter().rev().take_while(|&&id| window(id) == here).count();
        let behind = behind.iter().take_while(|&&id| window(id) == here).count();
        let start = at as usize - before;
        self.order[start..start + before + behind].to_vec()
    }

    /// All samples may come along again.
    pub(super) fn forget_brought(&mut self) {
        self.brought.fill(false);
    }

    /// Returns whether `sample` may come along; from then on it may not.
    pub(super) fn bring(&mut self, sample: SampleId) -> bool {
        self.brought.get_mut(sample.0 as usize).is_some_and(|brought| !std::mem::replace(brought, true))
    }
}

/// Bytes of a window for a dataset. It is 0, which means no windows, unless the cache has room for
/// all records, several records begin in a window, and the policy never evicts what fits.
#[must_use]
pub fn window_bytes<S: Samples + ?Sized>(
    index: &S,
    cache_bytes: u64,
    block_bytes: u32,
    policy: Policy,
) -> u32 {
    let (mut stored, mut charged) = (0, 0);
    for (_, entry) in entries(index) {
        stored += u64::from(entry.stored_len);
        charged += charged_bytes(entry.stored_len, block_bytes);
    }
    let are_small = stored <= u64::from(index.len()) * u64::from(WINDOW_BYTES / 4);
    let all_stay = cache_bytes >= charged && Properties::of(policy).keeps_what_fits;
    if all_stay && are_small { WINDOW_BYTES } else { 0 }
}
