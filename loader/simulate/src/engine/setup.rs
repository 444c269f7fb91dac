//! What a node is given: its core's configuration, and its jobs.
//!
//! Where something takes time the ring holds [`RING_BATCHES`](shade_core::RING_BATCHES), as in the
//! daemon. Else one batch ends before the next is opened. So hits are those of the policy where
//! nothing is late.

use std::sync::Arc;

use shade_core::cache::Cache;
use shade_core::{Core, CoreConfig, GAP_BYTES_MAX, PREFETCHES_MAX};
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;
use shade_formats::ring::{BatchLayout, Layout};
use shade_job::{
    DECODED_BYTES, DaemonSpec, Decode, ImageSpec, JobSpec, OnError, PlanSpec, Policy, StoreModel, Tail,
    WeightTable,
};

use crate::cache_policy::CachePolicy;
use crate::error::SimulateError;
use crate::store::{NoMemory, SizesOnly};

/// Least number of blocks in a ring (`sizes` of `shade-core`).
const RING_BLOCKS_MIN: u64 = 3;
/// Rows in the window of those that a group shares, as if they had 224 x 224 pixels.
const DECODED_ROWS: u64 = DECODED_BYTES / (3 * 224 * 224);
/// What a row is: as small as can be.
fn row() -> ImageSpec {
    ImageSpec::cover(1, 1)
}

/// See the [module](self).
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) dataset: &'a Arc<SizesOnly>,
    pub(crate) policy: CachePolicy,
    /// Bytes; samples where sizes are not known.
    pub(crate) capacity: u64,
    /// Sight of `Policy::Lookahead`, in plans.
    pub(crate) lookahead: f64,
    /// The plan of each job.
    pub(crate) plans: &'a [PlanSpec],
    /// The table of the sampler `weighted`.
    pub(crate) weights: Option<&'a WeightTable>,
    /// Samples in a batch of one rank.
    pub(crate) batch_size: u32,
    /// Batches that the ring has room for; at least 3 are used.
    pub(crate) ring: u64,
    /// Batches that are open or in hand at a time. The trainer keeps the others and never releases
    /// them.
    pub(crate) ahead: u64,
    /// The store; without one reads take no time.
    pub(crate) store: Option<StoreModel>,
    /// Reads are answered as in a recording, where there is no store.
    pub(crate) recalls: bool,
    /// Neighbours are read together.
    pub(crate) coalesces: bool,
    /// Bytes of a shard that a miss brings along.
    pub(crate) package_bytes: Option<u32>,
}

impl Setup<'_> {
    /// An empty cache of a node.
    pub(crate) fn cache(&self) -> Cache<()> {
        self.policy.cache(self.capacity, self.dataset.samples)
    }

    /// A core with this cache.
    pub(crate) fn core(&self, cache: Cache<()>) -> Core<NoMemory> {
        let slots = self.store.and_then(|store| store.slots);
        let looks_ahead = self.policy == CachePolicy::Online(Policy::Lookahead);
        let config = CoreConfig {
            cache_bytes: self.capacity,
            policy: self.policy.online(),
            lookahead: self.lookahead,
            // Half of them wait for their turn.
            reads_max: slots.unwrap_or(u32::MAX).saturating_mul(2),
            gap_bytes_max: if self.coalesces { GAP_BYTES_MAX } else { 0 },
            window_bytes: 0,
            package_bytes: DaemonSpec::package_bytes_of(self.package_bytes, self.policy.online()),
            // Without a store there is no time for it.
            prefetches_max: if self.store.is_some() && looks_ahead { PREFETCHES_MAX } else { 0 },
            // A training ends with its last epoch, and a script may not go on with what is drawn.
            opens_ahead: false,
            block_bytes: self.dataset.sizes.block_bytes(),
            orders_max: usize::MAX,
            decoded_bytes: DECODED_ROWS * row().bytes(),
        };
        Core::with_cache(Arc::clone(self.dataset), NoMemory, cache, config)
    }

    /// The job with this plan, of which `ranks_here` of `world_size` ranks are on the node. Its
    /// rows are not filled and have one length.
    ///
    /// # Errors
    /// No daemon can serve it.
    pub(crate) fn job(
        &self,
        plan: &PlanSpec,
        world_size: u32,
        ranks_here: u32,
    ) -> Result<JobSpec, SimulateError> {
        let layout = BatchLayout::of_views(Layout::Nchw, self.batch_size, &[row().shape()]);
        let block = layout.map_err(|error| SimulateError::Usage(error.to_string()))?.total;
        let job = JobSpec {
            plan: *plan,
            batch_size: self.batch_size,
            tail: Tail::Even,
            decode: Decode::cover(1, 1),
            on_error: OnError::Raise,
            bad_max: 0.0,
            ring_bytes: self.blocks() * block.next_multiple_of(PAYLOAD_ALIGN_BYTES),
            world_size,
            ranks_here,
            ..JobSpec::default()
        };
        // As the daemon does when a rank attaches.
        job.validate()?;
        Ok(job)
    }

    /// Batches that the trainer keeps, so that there is room for `ahead` others.
    pub(crate) fn keeps(&self) -> u64 {
        self.blocks() - self.ahead.clamp(1, self.blocks())
    }

    fn blocks(&self) -> u64 {
        self.ring.max(self.ahead).max(RING_BLOCKS_MIN)
    }
}
