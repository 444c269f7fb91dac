//! How far apart the repeats of a sample are, where the job leaves that open.
//!
//! A repeat is a hit where the cache holds the sample until then. So the gap follows from the
//! cache's size when the job begins, once: the job keeps it, and so do its saved states.

use shade_job::JobSpec;

use crate::number::to_u32;

/// Most batches of one rank from a use of a sample to the next, where the cache holds as many.
pub const GAP_BATCHES: u32 = 60;
/// Fewest such batches, however small the cache: with less a repeat may be in the very next batch.
const GAP_LEAST: u32 = 6;
/// The fewest batches from a use to the next, as 1 of this many of the most.
pub(super) const GAP_SHARE: u32 = 3;
/// Share of the cache that a gap is as long as. The rest has records that are read for later.
const CACHE_SHARE: (u64, u64) = (4, 5);

/// Whether the gap of a job's plans follows from the cache's size. With ranks on several nodes it
/// does not: nodes may have caches of different sizes, and need one plan.
pub(crate) fn gap_follows_from_cache(spec: &JobSpec) -> bool {
    spec.plan.gap.is_none() && spec.plan.spaces_repeats() && spec.local_ranks() == spec.world_size
}

/// The most batches from a use of a sample to the next in the plans of a job on `samples` samples,
/// in a cache that holds `cache_samples` of them: [`GAP_BATCHES`], unless the job says another or
/// the cache holds less.
pub(crate) fn gap_batches(spec: &JobSpec, samples: u32, cache_samples: u64) -> u32 {
    let batches = cache_samples / u64::from(spec.batch_size.max(1));
    let holds_enough = batches >= u64::from(GAP_BATCHES) || cache_samples >= u64::from(samples);
    match spec.plan.gap {
        Some(gap) => gap,
        // Without a cache no gap is short enough.
        None if !gap_follows_from_cache(spec) || holds_enough || cache_samples == 0 => GAP_BATCHES,
        None => to_u32(batches * CACHE_SHARE.0 / CACHE_SHARE.1).max(GAP_LEAST),
    }
}
