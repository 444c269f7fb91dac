//! What a core is told once, when it is made.

use shade_job::Policy;

/// Configuration of a core.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Capacity of the cache, bytes of arena blocks.
    pub cache_bytes: u64,
    /// Policy of the cache.
    pub policy: Policy,
    /// Planned accesses in sight of `Policy::Lookahead`, in epochs: 0 sees none, 1 the rest of the
    /// epoch.
    pub lookahead: f64,
    /// Limit of submitted reads, whatever the depth ([`Event::Depth`](crate::Event::Depth)).
    pub reads_max: u32,
    /// Limit of unwanted bytes between two records that one read brings
    /// ([`GAP_BYTES_MAX`](crate::GAP_BYTES_MAX)); 0 reads every record on its own.
    pub gap_bytes_max: u32,
    /// Bytes of a shard that the first record wanted of them brings along
    /// ([`window_bytes`](crate::window_bytes)); 0 brings none. For a cache that the whole dataset
    /// fits into.
    pub window_bytes: u32,
    /// Bytes of a shard that a miss brings along if the cache would keep them, at most
    /// [`SPAN_BYTES_MAX`](shade_formats::limits::SPAN_BYTES_MAX); 0 brings none. It does nothing
    /// beside `window_bytes`.
    pub package_bytes: u32,
    /// Limit of prefetches in flight ([`PREFETCHES_MAX`](crate::PREFETCHES_MAX)); 0 prefetches
    /// nothing.
    pub prefetches_max: u32,
    /// Where the plan of the next epoch is known before it begins, draw it and fill its first
    /// batches while ranks still have some of this epoch.
    pub opens_ahead: bool,
    /// Bytes of an arena block.
    pub block_bytes: u32,
    /// Limit of the orders that workers have at a time while there are several jobs, or the number
    /// of jobs if that is higher. The others wait for their jobs' turns.
    pub orders_max: usize,
    /// Limit of the decoded rows that the jobs of a group share
    /// ([`DECODED_BYTES`](shade_job::DECODED_BYTES)); 0 decodes each row for each job.
    pub decoded_bytes: u64,
}
